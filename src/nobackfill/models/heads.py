"""From features to embeddings."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.config import Choice, resolve_options, suggest
from nobackfill.errors import ConfigError
from nobackfill.models.backbones import BACKBONES, RESOLVERS
from nobackfill.models.base import Backbone
from nobackfill.randomness import seeded

BARE = {"weights": None, "pretrained": False, "path": None}  # options that load weights


class Embedder(nn.Module):
    """A backbone, then Linear and BatchNorm. The embedding is raw: length goes where cosines are.

    Args:
        backbone: Sees the images.
        embedding_dim: Of the vectors that come out.
    """

    def __init__(self, backbone: Backbone, embedding_dim: int):
        super().__init__()
        self.backbone = backbone
        self.projection = nn.Linear(backbone.feature_dim, embedding_dim, bias=False)
        self.norm = nn.BatchNorm1d(embedding_dim)
        self.embedding_dim = embedding_dim

    def forward(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch dim"]:
        """Returns the embedding of each image."""
        embedding: Tensor = self.norm(self.projection(self.backbone(images)))
        return embedding


def resolve_model(choice: Choice) -> Choice:
    """The same choice of model with every default written out."""
    if choice.name not in BACKBONES:
        raise ConfigError(f"unknown model `{choice.name}`. {suggest(choice.name, BACKBONES)}")
    options = dict(choice.options)
    dim = {"embedding_dim": options.pop("embedding_dim", 64)}
    if not isinstance(dim["embedding_dim"], int) or dim["embedding_dim"] < 1:
        raise ConfigError(
            f"wanted `embedding_dim` in [model] to be a positive int, but got "
            f"{dim['embedding_dim']!r}."
        )
    options = resolve_options(BACKBONES[choice.name], options, where="model")
    if choice.name in RESOLVERS:
        options = RESOLVERS[choice.name](options)
    return Choice(choice.name, dim | options)


def make_model(choice: Choice, *, seed: int, bare: bool = False) -> Embedder:
    """Builds a model by name; the same seed gives the same weights.

    Args:
        choice: The [model] table of a recipe.
        seed: Of the weights that are not loaded.
        bare: Whether to leave out the weights that the options name: for a model that gets all of
            its weights from a run, when the file or the network they came from may be gone.
    """
    options = dict(resolve_model(choice).options)
    embedding_dim = options.pop("embedding_dim")
    if bare:
        options |= {key: value for key, value in BARE.items() if key in options}
    with seeded(seed):
        model = Embedder(BACKBONES[choice.name](**options), embedding_dim)
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
