"""Models of images and texts: an encoder for each, and a projection of each into one space."""

from collections.abc import Sequence

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from nobackfill.core.config import Choice, resolve_options
from nobackfill.core.seeding import seeded
from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError
from nobackfill.models.embedder import BARE, Embedder, make_model, take_head
from nobackfill.models.text.bag_of_words import TEXT_ENCODERS, TEXT_RESOLVERS
from nobackfill.models.text.base import TextEncoder

Both = tuple[Float[Tensor, "images dim"] | None, Float[Tensor, "texts dim"] | None]


class DualEncoder(nn.Module):
    """A model of images and a model of texts with the same space."""

    def __init__(self, image: Embedder, text: Embedder):
        super().__init__()
        self.image, self.text = image, text
        self.embedding_dim = image.embedding_dim

    def forward(
        self,
        images: Float[Tensor, "images channels height width"] | None,
        texts: Shaped[Tensor, "texts ..."] | None,
    ) -> Both:
        """Returns the embeddings of images and of texts, or None if there are none."""
        return (
            None if images is None else self.image(images),
            None if texts is None else self.text(texts),
        )

    def prepare(self, texts: Sequence[str], ids: Sequence[str]) -> Shaped[Tensor, "texts ..."]:
        """Prepares texts for the text encoder, see `TextEncoder.prepare`."""
        encoder = self.text.backbone
        assert isinstance(encoder, TextEncoder)
        return encoder.prepare(texts, ids)

    @property
    def says(self) -> str:
        """Description of the preparation of texts."""
        return str(self.text.backbone.says)


class OneSide(nn.Module):
    """The part of a `DualEncoder`, possibly wrapped, for one modality: "image" or "text"."""

    def __init__(self, model: nn.Module, modality: str):
        super().__init__()
        self.model, self.modality = model, modality
        self.training = model.training

    def forward(self, inputs: Shaped[Tensor, "batch ..."]) -> Float[Tensor, "batch dim"]:
        """Returns the embedding of each image or text."""
        embeddings: Tensor
        if self.modality == "image":
            embeddings, _ = self.model(inputs, None)
        else:
            _, embeddings = self.model(None, inputs)
        return embeddings


def resolve_text(choice: Choice) -> Choice:
    """Returns the choice of a text encoder with all default options."""
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
        model: Table [model] of a recipe.
        text: Table [text] of the recipe.
        seed: Random seed of weights that are not loaded.
        bare: Whether to load no weights, see `make_model`.
    """
    image = make_model(model, seed=seed, bare=bare)
    options = dict(resolve_text(text).options)
    head = options.pop("head", "linear")
    if bare and text.name != "vectors":  # its path names vectors, not weights
        options |= {key: value for key, value in BARE.items() if key in options}
    with seeded(seed):
        return DualEncoder(
            image, Embedder(TEXT_ENCODERS[text.name](**options), image.embedding_dim, head)
        )
