"""A residual network for small images that a single CPU core trains in minutes."""

from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.models.base import Backbone


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions around a shortcut.

    Args:
        inputs: Number of channels of the input.
        outputs: Number of channels of the output.
        stride: Factor by which the image becomes smaller.
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.last = nn.ReLU(inplace=True)

    def forward(
        self, images: Float[Tensor, "batch inputs height width"]
    ) -> Float[Tensor, "batch outputs low narrow"]:
        """Returns the features of each place."""
        features: Tensor = self.last(self.path(images) + self.shortcut(images))
        return features


def residual(
    *,
    channels: int = 1,
    side: int = 40,
    width: int = 48,
    stem: int = 8,
    stride: int = 4,
    stages: int = 2,
    depth: int = 2,
) -> Backbone:
    """Makes a residual network for small images, whose features are all places of its last layer.

    The first layer has large, far apart windows: convolutions at a quarter of the side cost little,
    and BatchNorm and ReLU even less. Each further stage halves the image and doubles the channels.

    Args:
        channels: Number of channels of the images.
        side: Height and width of the images.
        width: Number of channels of the first layer.
        stem: Side of the windows of the first layer.
        stride: Distance of these windows.
        stages: Number of stages.
        depth: Number of blocks of a stage.

    Example:
        >>> import torch
        >>> residual(width=8)(torch.zeros(2, 1, 40, 40)).shape
        torch.Size([2, 400])
    """
    padding = (stem - stride + 1) // 2
    layers: list[nn.Module] = [
        nn.Conv2d(channels, width, stem, stride, padding=padding, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
    ]
    inputs, places = width, (side + 2 * padding - stem) // stride + 1
    for stage in range(stages):
        outputs = width * 2**stage
        for block in range(depth):
            halves = stage > 0 and block == 0
            layers.append(ResidualBlock(inputs, outputs, 2 if halves else 1))
            inputs, places = outputs, -(-places // 2) if halves else places
    return Backbone(nn.Sequential(*layers, nn.Flatten()), inputs * places**2)
