"""ResNet-18 to ResNet-101 with torchvision's names of weights, for where neither package imports.

He et al., Deep Residual Learning for Image Recognition, CVPR 2016. https://arxiv.org/abs/1512.03385
"""

from jaxtyping import Float
from torch import Tensor, nn

DEPTHS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3),
          "resnet101": (3, 4, 23, 3)}  # fmt: skip
BASIC = ("resnet18", "resnet34")  # two 3 x 3 convolutions in a block; the others have three
WIDTHS = (64, 128, 256, 512)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions around a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, downsample: nn.Module | None):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = downsample

    def forward(
        self, images: Float[Tensor, "batch inputs height width"]
    ) -> Float[Tensor, "batch outputs low narrow"]:
        """Returns the features of each place."""
        features = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(images)))))
        shortcut = images if self.downsample is None else self.downsample(images)
        summed: Tensor = self.relu(features + shortcut)
        return summed

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        """BatchNorm before the sum."""
        return self.bn2


class Bottleneck(nn.Module):
    """A 3 x 3 convolution, which has the stride, between two 1 x 1 ones, around a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, downsample: nn.Module | None):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(
        self, images: Float[Tensor, "batch inputs height width"]
    ) -> Float[Tensor, "batch outputs low narrow"]:
        """Returns the features of each place."""
        features = self.relu(self.bn1(self.conv1(images)))
        features = self.relu(self.bn2(self.conv2(features)))
        features = self.bn3(self.conv3(features))
        shortcut = images if self.downsample is None else self.downsample(images)
        summed: Tensor = self.relu(features + shortcut)
        return summed

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        """BatchNorm before the sum."""
        return self.bn3


class ResNet(nn.Module):
    """A ResNet without its classifier: features averaged over the image.

    Args:
        architecture: A name in `DEPTHS`.
        channels: Number of channels of the images.
        zero_last: Whether the last BatchNorm of each block starts at zero, as in timm. Each block
            then starts as its shortcut. torchvision starts it at one.
    """

    def __init__(self, architecture: str, *, channels: int = 3, zero_last: bool = False):
        super().__init__()
        block = BasicBlock if architecture in BASIC else Bottleneck
        self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        inputs = 64
        for stage, (width, depth) in enumerate(zip(WIDTHS, DEPTHS[architecture], strict=True)):
            layer = make_stage(block, inputs, width, depth, stride=1 if stage == 0 else 2)
            self.add_module(f"layer{stage + 1}", layer)
            inputs = width * block.expansion
        self.feature_dim = inputs
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
        for part in self.modules():
            if zero_last and isinstance(part, BasicBlock | Bottleneck):
                nn.init.zeros_(part.last_norm.weight)

    def forward_features(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch features low narrow"]:
        """Returns the last feature map."""
        features: Tensor = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for stage in range(1, 5):
            features = self.get_submodule(f"layer{stage}")(features)
        return features

    def forward(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch features"]:
        """Returns the features of each image."""
        pooled: Tensor = self.pool(self.forward_features(images))
        return pooled


def make_stage(
    block: type[BasicBlock] | type[Bottleneck], inputs: int, width: int, depth: int, *, stride: int
) -> nn.Sequential:
    """Makes the blocks of a stage; the first one halves the image if `stride` is 2."""
    outputs = width * block.expansion
    downsample = None
    if stride > 1 or inputs != outputs:
        downsample = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )
    rest = (block(outputs, width, 1, None) for _ in range(depth - 1))
    return nn.Sequential(block(inputs, width, stride, downsample), *rest)
