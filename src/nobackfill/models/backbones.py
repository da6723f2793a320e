"""Backbones: images in, one feature vector each out."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn


class Backbone(nn.Module):
    """Any network that turns images into features, and how many these are."""

    def __init__(self, network: nn.Module, feature_dim: int):
        super().__init__()
        self.network, self.feature_dim = network, feature_dim

    def forward(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch features"]:
        """Returns the features of each image."""
        features: Tensor = self.network(images)
        return features


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


BACKBONES: dict[str, Callable[..., Backbone]] = {"small": small}
