"""Names of weights in published checkpoints of APTM, and in `Aptm`."""

import re

PARTS = {
    "image.backbone.network.swin.": "vision_encoder.",
    "image.projection.": "vision_proj.",
    "text.backbone.model.": "text_encoder.",
    "text.projection.": "text_proj.",
}
DOWNSAMPLE = re.compile(r"layers\.(\d+)\.downsample\.")


def published_name(name: str) -> str:
    """Returns the published name of a weight of `Aptm`.

    timm counts the layer that halves the map to the stage after it, the authors to the one before.

    Example:
        >>> published_name("image.backbone.network.swin.layers.1.downsample.norm.weight")
        'vision_encoder.layers.0.downsample.norm.weight'
        >>> published_name("text.projection.bias"), published_name("temp")
        ('text_proj.bias', 'temp')
    """
    for own, published in PARTS.items():
        if name.startswith(own):
            name = published + name.removeprefix(own)
    return earlier_stage(name)


def earlier_stage(name: str) -> str:
    """Counts a layer that halves the map to the stage before it.

    Example:
        >>> earlier_stage("layers.3.downsample.reduction.weight")
        'layers.2.downsample.reduction.weight'
    """
    return DOWNSAMPLE.sub(lambda match: f"layers.{int(match[1]) - 1}.downsample.", name)
