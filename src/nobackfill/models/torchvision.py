"""Backbones of torchvision, under its own names of weights. Wants `nobackfill[vision]`."""

from typing import Literal

from torch import nn

from nobackfill.errors import ConfigError, DataError
from nobackfill.models.base import (
    Backbone,
    find_feature_dim,
    optional_package,
    unknown_architecture,
)
from nobackfill.models.strides import set_strides
from nobackfill.models.weights import load_weights

HEADS = ("fc", "classifier", "head", "heads")


def torchvision_backbone(
    *,
    architecture: str = "resnet18",
    channels: int = 3,
    weights: str | None = None,
    pretrained: bool = False,
    last_stride: Literal[1, 2] = 2,
    stride_on_first: bool = False,
) -> Backbone:
    """A classifier of torchvision without its last layers: features after a mean over the image.

    Args:
        architecture: As torchvision names it; `torchvision.models.list_models()` lists them.
        channels: Of the images.
        weights: A file in torchvision's names, see `load_weights`.
        pretrained: Whether torchvision fetches its own weights, over the network.
        last_stride: 1 for a last feature map of twice the side; only of ResNets.
        stride_on_first: For ResNet weights with the stride on the first convolution of a block.
    """
    if weights and pretrained:
        raise ConfigError(
            "wanted weights from one place, but [model] has both `weights` and `pretrained`. "
            "Remove one."
        )
    if pretrained and channels != 3:
        raise ConfigError(
            f"wanted 3 `channels` in [model], as torchvision's own weights have, but got "
            f"{channels}. Set `pretrained = false`, or load images in colour."
        )
    models = optional_package("torchvision", extra="vision").models
    known = models.list_models(module=models)
    if architecture not in known:
        raise unknown_architecture(
            architecture, known, listed_by="`torchvision.models.list_models()`"
        )
    if architecture in ("googlenet", "inception_v3"):
        raise ConfigError(
            f"wanted a network that gives one output while training, but `{architecture}` of "
            f"torchvision gives several. Choose another, or timm's."
        )
    try:
        network = models.get_model(architecture, weights="DEFAULT" if pretrained else None)
    except Exception as error:
        if not pretrained:
            raise
        raise DataError(
            f"wanted torchvision's weights for `{architecture}`, but they did not come: {error}. "
            f"Get them where there is a network, and pass the file as `weights`."
        ) from error
    _remove_classifier(network)
    if channels != 3:
        _change_channels(network, channels)
    set_strides(
        network,
        last_stride=last_stride,
        stride_on_first=stride_on_first,
        architecture=architecture,
    )
    if weights:
        load_weights(network, weights, without=[f"{head}." for head in HEADS])
    size = getattr(network, "image_size", 224)
    return Backbone(network, find_feature_dim(network, channels=channels, size=size))


def _remove_classifier(network: nn.Module) -> None:
    """Drops a head from its first weights on; what normalises before these stays."""
    name = next(name for name in HEADS if hasattr(network, name))
    head = getattr(network, name)
    kept: list[nn.Module] = []
    for layer in head.children() if isinstance(head, nn.Sequential) else [head]:
        if isinstance(layer, nn.Conv2d):  # SqueezeNet, which has the mean behind these
            kept.append(nn.AdaptiveAvgPool2d(1))
        if isinstance(layer, nn.Linear | nn.Conv2d):
            break
        if not isinstance(layer, nn.Dropout):
            kept.append(layer)
    setattr(network, name, nn.Sequential(*kept))
    if isinstance(getattr(network, "avgpool", None), nn.AdaptiveAvgPool2d):
        network.avgpool = nn.AdaptiveAvgPool2d(1)  # VGG and AlexNet keep some of the image


def _change_channels(network: nn.Module, channels: int) -> None:
    """Puts a new first convolution in place of the one for colour images."""
    name, first = next(
        (name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d)
    )
    parent, _, child = name.rpartition(".")
    layer = nn.Conv2d(
        channels,
        first.out_channels,
        first.kernel_size,  # type: ignore[arg-type]
        first.stride,  # type: ignore[arg-type]
        first.padding,  # type: ignore[arg-type]
        bias=first.bias is not None,
    )
    setattr(network.get_submodule(parent), child, layer)
