"""Backbones: images in, one feature vector each out."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from nobackfill.models.base import Backbone
from nobackfill.models.custom import module_backbone
from nobackfill.models.timm import timm_backbone
from nobackfill.models.torchvision import torchvision_backbone
from nobackfill.models.transformers import resolve_transformers, transformers_backbone

__all__ = ["BACKBONES", "RESOLVERS", "Backbone", "small"]


def small(*, channels: int = 1, width: int = 16) -> Backbone:
    """A convolutional net for small images: four 3 x 3 layers, each twice as wide, then a mean.

    Three of the four halve the image, so that 32 pixels become 4.

    Args:
        channels: Of the images.
        width: Channels of the first layer; the fourth has eight times as many.

    Example:
        >>> import torch
        >>> small(width=8)(torch.zeros(2, 1, 32, 32)).shape
        torch.Size([2, 64])
    """
    widths = [channels, width, 2 * width, 4 * width, 8 * width]
    layers: list[nn.Module] = []
    for depth, stride in enumerate((2, 2, 1, 2)):
        layers += [
            nn.Conv2d(widths[depth], widths[depth + 1], 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(widths[depth + 1]),
            nn.ReLU(inplace=True),
        ]
    return Backbone(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), widths[-1])


BACKBONES: dict[str, Callable[..., Backbone]] = {
    "small": small,
    "timm": timm_backbone,
    "torchvision": torchvision_backbone,
    "transformers": transformers_backbone,
    "module": module_backbone,
}

# Of backbones whose options say less than is needed to build them again.
RESOLVERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "transformers": resolve_transformers
}
