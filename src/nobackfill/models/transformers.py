"""Vision models of transformers, from a local folder or from scratch."""

from collections.abc import Mapping
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.models.base import Backbone, find_feature_dim
from nobackfill.models.transformers_loading import (
    freeze_pooler,
    make_config,
    make_network,
    resolve_architecture,
)

Pool = Literal["model", "mean", "first", "projected"]


class Pooled(nn.Module):
    """A vision model of transformers that returns one vector for each image.

    Args:
        model: Takes `pixel_values`.
        pool: "model" for its own `pooler_output`, and where it has none, the mean over tokens;
            "mean" for that in any case; "first" for the first token, the class token of most;
            "projected" for the `image_embeds` of CLIP, which it compares with texts.
    """

    def __init__(self, model: nn.Module, pool: Pool):
        super().__init__()
        self.model, self.pool = model, pool
        if pool in ("mean", "first"):
            freeze_pooler(model)

    def forward(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch features"]:
        """Returns the features of each image."""
        output = self.model(pixel_values=images)
        if self.pool == "projected":
            projected: Tensor = output.image_embeds
            return projected
        pooled: Tensor | None = getattr(output, "pooler_output", None)
        if self.pool == "model" and pooled is not None:
            return pooled.flatten(start_dim=1)
        tokens: Tensor = output.last_hidden_state
        if tokens.ndim == 4:  # of a convolutional network: channels before places
            tokens = tokens.flatten(start_dim=2).transpose(1, 2)
        return tokens[:, 0] if self.pool == "first" else tokens.mean(dim=1)


def transformers_backbone(
    *,
    path: str | None = None,
    architecture: str | None = None,
    settings: tuple[str, ...] = (),
    pool: Pool = "model",
) -> Backbone:
    """A vision model of transformers: its features after pooling, before any classifier.

    Args:
        path: A folder with config.json and safetensors, as `save_pretrained` writes it. Nothing is
            fetched. Of a model of images and texts, the part for images is taken.
        architecture: The configuration to start from scratch with, such as "ViTConfig"; with
            `path`, it is read there.
        settings: Of the configuration, such as ["hidden_size=192", "num_channels=1"].
        pool: See `Pooled`.
    """
    found = resolve_transformers({"path": path, "architecture": architecture, "settings": settings})
    config = make_config(found["architecture"], found["settings"], "vision")
    network = Pooled(make_network(config, path, pool, "vision"), pool)
    size = getattr(config, "image_size", None) or 64
    return Backbone(
        network,
        find_feature_dim(
            network,
            channels=getattr(config, "num_channels", 3),
            size=size if isinstance(size, int) else size[0],
        ),
    )


def resolve_transformers(options: Mapping[str, Any]) -> dict[str, Any]:
    """Writes out what the folder at `path` says of its architecture."""
    return resolve_architecture(options, "vision")
