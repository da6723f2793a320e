"""Vision models of transformers, from a local folder or from scratch."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.models.base import Backbone, find_feature_dim
from nobackfill.models.transformers_loading import (
    Pool,
    freeze_pooler,
    make_config,
    make_network,
    pooled_output,
    resolve_architecture,
)


class Pooled(nn.Module):
    """A vision model of transformers that returns one vector for each image.

    Args:
        model: Model that takes `pixel_values`.
        pool: "model" for the model's own `pooler_output`, or the mean over tokens if it has none;
            "mean" for the mean over tokens; "first" for the first token, mostly the class token;
            "projected" for the `image_embeds` of CLIP, which are compared with texts.
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
        pooled = pooled_output(output, self.pool, "image_embeds")
        if pooled is not None:
            return pooled.flatten(start_dim=1)
        tokens: Tensor = output.last_hidden_state
        if tokens.ndim == 4:  # of a convolutional network: channels before positions
            tokens = tokens.flatten(start_dim=2).transpose(1, 2)
        return tokens[:, 0] if self.pool == "first" else tokens.mean(dim=1)


def transformers_backbone(
    *,
    path: str | None = None,
    architecture: str | None = None,
    settings: tuple[str, ...] = (),
    pool: Pool = "model",
) -> Backbone:
    """Makes a vision model of transformers: its features after pooling, before any classifier.

    Args:
        path: Local folder with config.json and safetensors, as `save_pretrained` writes it. Of a
            model of images and texts, the image part is used.
        architecture: Configuration to start from scratch with, such as "ViTConfig"; with `path`,
            it is read there.
        settings: Settings of the configuration, such as ["hidden_size=192", "num_channels=1"].
        pool: Pooling of the features, see `Pooled`.
    """
    options = resolve_transformers(
        {"path": path, "architecture": architecture, "settings": settings}
    )
    config = make_config(options["architecture"], options["settings"], "vision")
    network = Pooled(make_network(config, path, pool, "vision"), pool)
    size = getattr(config, "image_size", None) or 64
    size = size if isinstance(size, int) else size[0]
    channels = getattr(config, "num_channels", 3)
    return Backbone(network, find_feature_dim(network, channels=channels, size=size))


def resolve_transformers(options: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the architecture of the model in the folder at `path` to the options."""
    return resolve_architecture(options, "vision")
