"""From features to embeddings."""

from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from nobackfill.core.config import Choice, resolve_options, suggest
from nobackfill.core.seeding import seeded
from nobackfill.errors import ConfigError
from nobackfill.models.backbones import BACKBONES, RESOLVERS
from nobackfill.models.base import Backbone
from nobackfill.models.text.base import TextEncoder

BARE = {"weights": None, "pretrained": False, "path": None}  # options that load weights


HEADS = ("linear", "none")


class Embedder(nn.Module):
    """A backbone, then Linear and BatchNorm. The embedding is raw: length goes where cosines are.

    Args:
        backbone: Sees the images, or reads the texts.
        embedding_dim: Of the vectors that come out.
        head: "linear", or "none" where the backbone's features are the embedding, as with a model
            that has a trained projection of its own.
    """

    def __init__(self, backbone: Backbone | TextEncoder, embedding_dim: int, head: str = "linear"):
        super().__init__()
        self.backbone, self.embedding_dim = backbone, embedding_dim
        self.projection: nn.Module = nn.Identity()
        self.norm: nn.Module = nn.Identity()
        if head == "none":
            check_width(backbone.feature_dim, embedding_dim)
        else:
            self.projection = nn.Linear(backbone.feature_dim, embedding_dim, bias=False)
            self.norm = nn.BatchNorm1d(embedding_dim)

    def forward(self, inputs: Shaped[Tensor, "batch ..."]) -> Float[Tensor, "batch dim"]:
        """Returns the embedding of each image, or of each text as its encoder prepared it."""
        embedding: Tensor = self.norm(self.projection(self.backbone(inputs)))
        return embedding


def check_width(features: int, embedding_dim: int) -> None:
    """Refuses features that cannot be the embedding themselves."""
    if features != embedding_dim:
        raise ConfigError(
            f'wanted as many features as the embedding has dimensions, as `head = "none"` says, '
            f"but the encoder makes {features} and `embedding_dim` is {embedding_dim}. Set it to "
            f'{features}, or take `head = "linear"`.'
        )


def resolve_model(choice: Choice) -> Choice:
    """The same choice of model with every default written out."""
    if choice.name not in BACKBONES:
        raise ConfigError(f"unknown model `{choice.name}`. {suggest(choice.name, BACKBONES)}")
    options = dict(choice.options)
    head = take_head(options, where="model")
    dim = {"embedding_dim": options.pop("embedding_dim", 64)}
    if not isinstance(dim["embedding_dim"], int) or dim["embedding_dim"] < 1:
        raise ConfigError(
            f"wanted `embedding_dim` in [model] to be a positive int, but got "
            f"{dim['embedding_dim']!r}."
        )
    options = resolve_options(BACKBONES[choice.name], options, where="model")
    if choice.name in RESOLVERS:
        options = RESOLVERS[choice.name](options)
    return Choice(choice.name, dim | head | options)


def take_head(options: dict[str, Any], *, where: str) -> dict[str, str]:
    """Takes the option `head` out of others; what to write of it, which is nothing by default."""
    head = options.pop("head", "linear")
    if head not in HEADS:
        raise ConfigError(f"wanted `head` in [{where}] as {' or '.join(HEADS)}, but got {head!r}.")
    return {} if head == "linear" else {"head": head}


def make_model(choice: Choice, *, seed: int, bare: bool = False) -> Embedder:
    """Builds a model by name; the same seed gives the same weights.

    Args:
        choice: The [model] table of a recipe.
        seed: Of the weights that are not loaded.
        bare: Whether to leave out the weights that the options name: for a model that gets all of
            its weights from a run, when the file or the network they came from may be gone.
    """
    options = dict(resolve_model(choice).options)
    embedding_dim, head = options.pop("embedding_dim"), options.pop("head", "linear")
    if bare:
        options |= {key: value for key, value in BARE.items() if key in options}
    with seeded(seed):
        model = Embedder(BACKBONES[choice.name](**options), embedding_dim, head)
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
