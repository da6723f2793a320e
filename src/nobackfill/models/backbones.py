"""Backbones: networks from images to feature vectors."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from nobackfill.models.aptm.swin import aptm_image
from nobackfill.models.base import Backbone
from nobackfill.models.custom import module_backbone
from nobackfill.models.residual import residual
from nobackfill.models.timm import timm_backbone
from nobackfill.models.torchvision import torchvision_backbone
from nobackfill.models.transformers import resolve_transformers, transformers_backbone

__all__ = ["BACKBONES", "RESOLVERS", "Backbone", "small"]


def small(*, channels: int = 1, width: int = 16) -> Backbone:
    """Makes a convolutional network for small images: four 3 x 3 layers, then a mean.

    Each layer is twice as wide as the one before. Three of them halve the image, so 32 pixels
    become 4.

    Args:
        channels: Number of channels of the images.
        width: Number of channels of the first layer.

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
    "residual": residual,
    "timm": timm_backbone,
    "torchvision": torchvision_backbone,
    "transformers": transformers_backbone,
    "module": module_backbone,
    "aptm": aptm_image,
}

# Functions that complete the options of a backbone, so that it can be built again from them.
RESOLVERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "transformers": resolve_transformers
}
