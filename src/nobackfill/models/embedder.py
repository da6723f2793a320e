"""Models: a backbone and the projection of its features to embeddings."""

from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from nobackfill.core.config import Choice, resolve_options
from nobackfill.core.seeding import seeded
from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError
from nobackfill.models.backbones import BACKBONES, RESOLVERS
from nobackfill.models.base import Backbone
from nobackfill.models.text.base import TextEncoder

BARE = {  # options that load weights
    "weights": None, "swin_weights": None, "pretrained": False, "path": None,
}  # fmt: skip
HEADS = ("linear", "affine", "no_norm", "none")
FIXED_HEADS = {"aptm": "affine"}  # of models that come with a projection of their own


class Embedder(nn.Module):
    """A backbone, then Linear and BatchNorm. Embeddings are not normalised to unit length.

    Args:
        backbone: Encoder of images or texts.
        embedding_dim: Number of dimensions of an embedding.
        head: "linear"; "no_norm" leaves out BatchNorm; "affine" is a linear layer with a bias
            instead, as in APTM; "none" if the features are the embedding, as
            for a model that has a trained projection of its own.
    """

    def __init__(self, backbone: Backbone | TextEncoder, embedding_dim: int, head: str = "linear"):
        super().__init__()
        self.backbone, self.embedding_dim = backbone, embedding_dim
        self.projection: nn.Module = nn.Identity()
        self.norm: nn.Module = nn.Identity()
        if head == "none":
            if backbone.feature_dim != embedding_dim:
                raise ConfigError(
                    f'`head = "none"` requires as many features as the embedding has dimensions, '
                    f"but the encoder makes {backbone.feature_dim} and `embedding_dim` is "
                    f"{embedding_dim}. Set it to {backbone.feature_dim}, or take "
                    f'`head = "linear"`.'
                )
        else:
            bias = head == "affine"
            self.projection = nn.Linear(backbone.feature_dim, embedding_dim, bias=bias)
            if head == "linear":
                self.norm = nn.BatchNorm1d(embedding_dim)

    def forward(self, inputs: Shaped[Tensor, "batch ..."]) -> Float[Tensor, "batch dim"]:
        """Returns the embedding of each image, or of each text as its encoder prepared it."""
        embedding: Tensor = self.norm(self.projection(self.backbone(inputs)))
        return embedding


def resolve_model(choice: Choice) -> Choice:
    """Returns the choice of a model with all default options."""
    if choice.name not in BACKBONES:
        raise ConfigError(f"unknown model `{choice.name}`. {suggest(choice.name, BACKBONES)}")
    options = dict(choice.options)
    head = take_head(options, where="model", name=choice.name)
    dim = options.pop("embedding_dim", 64)
    if not isinstance(dim, int) or dim < 1:
        raise ConfigError(f"`embedding_dim` in [model] must be a positive int, not {dim!r}.")
    options = resolve_options(BACKBONES[choice.name], options, where="model")
    if choice.name in RESOLVERS:
        options = RESOLVERS[choice.name](options)
    return Choice(choice.name, {"embedding_dim": dim} | head | options)


def take_head(options: dict[str, Any], *, where: str, name: str) -> dict[str, str]:
    """Removes `head` from the options of a model, and returns it unless it is the default."""
    fixed = FIXED_HEADS.get(name)
    head = options.pop("head", fixed or "linear")
    if fixed not in (None, head):
        raise ConfigError(
            f"`{name}` has a projection of its own, so `head` in [{where}] must be {fixed!r}, not "
            f"{head!r}. Remove it."
        )
    if head not in HEADS:
        raise ConfigError(f"`head` in [{where}] must be one of {', '.join(HEADS)}, not {head!r}.")
    return {} if head == "linear" else {"head": head}


def make_model(choice: Choice, *, seed: int, bare: bool = False) -> Embedder:
    """Builds a model by name; the same seed gives the same weights.

    Args:
        choice: Table [model] of a recipe.
        seed: Random seed of weights that are not loaded.
        bare: Whether to load no weights, because a run has them all and their files may be gone.
    """
    options = dict(resolve_model(choice).options)
    embedding_dim, head = options.pop("embedding_dim"), options.pop("head", "linear")
    if bare:
        options |= {key: value for key, value in BARE.items() if key in options}
    with seeded(seed):
        model = Embedder(BACKBONES[choice.name](**options), embedding_dim, head)
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
