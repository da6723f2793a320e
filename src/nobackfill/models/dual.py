"""Images and texts in one space: an encoder for each, and a projection behind each."""

from collections.abc import Sequence

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from nobackfill.core.config import Choice, resolve_options, suggest
from nobackfill.core.seeding import seeded
from nobackfill.errors import ConfigError
from nobackfill.models.embedder import BARE, Embedder, make_model, take_head
from nobackfill.models.text.bag_of_words import TEXT_ENCODERS, TEXT_RESOLVERS
from nobackfill.models.text.base import TextEncoder

Both = tuple[Float[Tensor, "images dim"] | None, Float[Tensor, "texts dim"] | None]


class DualEncoder(nn.Module):
    """One space for images and texts.

    Args:
        image: Embeds images.
        text: Embeds texts, as its encoder prepared them.
    """

    def __init__(self, image: Embedder, text: Embedder):
        super().__init__()
        self.image, self.text = image, text
        self.embedding_dim = image.embedding_dim

    def forward(
        self,
        images: Float[Tensor, "images channels height width"] | None,
        texts: Shaped[Tensor, "texts ..."] | None,
    ) -> Both:
        """Returns the embeddings of images and of texts; None of what is not given."""
        return (
            None if images is None else self.image(images),
            None if texts is None else self.text(texts),
        )

    def prepare(self, texts: Sequence[str], ids: Sequence[str]) -> Shaped[Tensor, "texts ..."]:
        """Texts as the text encoder wants them; see `TextEncoder.prepare`."""
        encoder = self.text.backbone
        assert isinstance(encoder, TextEncoder)
        return encoder.prepare(texts, ids)

    @property
    def says(self) -> str:
        """What becomes of a text before it is embedded, in words."""
        return str(self.text.backbone.says)


class OneSide(nn.Module):
    """What a model of both makes of images alone, or of texts alone.

    Args:
        model: A `DualEncoder`, or one that works in another precision.
        modality: "image" or "text".
    """

    def __init__(self, model: nn.Module, modality: str):
        super().__init__()
        self.model, self.modality = model, modality
        self.training = model.training

    def forward(self, inputs: Shaped[Tensor, "batch ..."]) -> Float[Tensor, "batch dim"]:
        """Returns the embedding of each."""
        image, text = (
            self.model(inputs, None) if self.modality == "image" else self.model(None, inputs)
        )
        found: Tensor = image if self.modality == "image" else text
        return found


def resolve_text(choice: Choice) -> Choice:
    """The same choice of text encoder with every default written out."""
    if choice.name not in TEXT_ENCODERS:
        raise ConfigError(
            f"unknown text encoder `{choice.name}` in [text]. {suggest(choice.name, TEXT_ENCODERS)}"
        )
    options = dict(choice.options)
    head = take_head(options, where="text")
    options = resolve_options(TEXT_ENCODERS[choice.name], options, where="text")
    if choice.name in TEXT_RESOLVERS:
        options = TEXT_RESOLVERS[choice.name](options)
    return Choice(choice.name, head | options)


def make_dual(model: Choice, text: Choice, *, seed: int, bare: bool = False) -> DualEncoder:
    """Builds both encoders; the same seed gives the same weights.

    Args:
        model: The [model] table of a recipe.
        text: Its [text] table.
        seed: Of the weights that are not loaded.
        bare: Whether to leave out the weights that the options name; see `make_model`.
    """
    image = make_model(model, seed=seed, bare=bare)
    options = dict(resolve_text(text).options)
    head = options.pop("head", "linear")
    if bare and text.name != "vectors":  # whose path leads to texts, not to weights
        options |= {key: value for key, value in BARE.items() if key in options}
    with seeded(seed):
        return DualEncoder(
            image, Embedder(TEXT_ENCODERS[text.name](**options), image.embedding_dim, head)
        )
