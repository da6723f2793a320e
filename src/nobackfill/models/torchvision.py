"""Backbones of torchvision. Requires `nobackfill[vision]`."""

from typing import Literal

from torch import nn

from nobackfill.errors import ConfigError
from nobackfill.models.base import (
    Backbone,
    check_one_source,
    find_feature_dim,
    not_fetched,
    optional_package,
    unknown_architecture,
)
from nobackfill.models.resnet import DEPTHS, ResNet
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
    """Makes a classifier of torchvision without its last layers: features pooled over the image.

    Where torchvision cannot be imported, `ResNet` takes the place of `resnet18` to `resnet101`.

    Args:
        architecture: Name in torchvision; `torchvision.models.list_models()` lists them.
        channels: Number of channels of the images.
        weights: File of weights with torchvision's names, see `load_weights`.
        pretrained: Whether torchvision downloads its own weights.
        last_stride: 1 for a last feature map of twice the side; for ResNets only.
        stride_on_first: Whether ResNet weights have the stride on the first convolution of a block.
    """
    check_one_source(weights, pretrained)
    if pretrained and channels != 3:
        raise ConfigError(
            f"`channels` in [model] is {channels}, but torchvision's weights require 3. Set "
            f"`pretrained = false`, or load images in colour."
        )
    network = make_network(architecture, fetch=pretrained)
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


def make_network(architecture: str, *, fetch: bool) -> nn.Module:
    """Makes a network of torchvision without its classifier, or our own ResNet without torchvision.

    Args:
        architecture: Name in torchvision.
        fetch: Whether torchvision downloads its weights.
    """
    try:
        models = optional_package("torchvision", extra="vision").models
    except ConfigError as error:
        if architecture not in DEPTHS:
            raise
        if fetch:
            raise not_fetched("torchvision", architecture, error) from error
        return ResNet(architecture)
    known = models.list_models(module=models)
    if architecture not in known:
        raise unknown_architecture(
            architecture, known, listed_by="`torchvision.models.list_models()`"
        )
    if architecture in ("googlenet", "inception_v3"):
        raise ConfigError(
            f"`{architecture}` of torchvision returns several outputs while training. Choose "
            f"another network, or timm's."
        )
    try:
        network: nn.Module = models.get_model(architecture, weights="DEFAULT" if fetch else None)
    except Exception as error:
        if not fetch:
            raise
        raise not_fetched("torchvision", architecture, error) from error
    _remove_classifier(network)
    return network


def _remove_classifier(network: nn.Module) -> None:
    """Removes the head from its first weights on; normalisation before these stays."""
    name = next(name for name in HEADS if hasattr(network, name))
    head = getattr(network, name)
    kept: list[nn.Module] = []
    for layer in head.children() if isinstance(head, nn.Sequential) else [head]:
        if isinstance(layer, nn.Conv2d):  # SqueezeNet, which pools after these
            kept.append(nn.AdaptiveAvgPool2d(1))
        if isinstance(layer, nn.Linear | nn.Conv2d):
            break
        if not isinstance(layer, nn.Dropout):
            kept.append(layer)
    setattr(network, name, nn.Sequential(*kept))
    if isinstance(getattr(network, "avgpool", None), nn.AdaptiveAvgPool2d):
        network.avgpool = nn.AdaptiveAvgPool2d(1)  # VGG and AlexNet pool to a small map


def _change_channels(network: nn.Module, channels: int) -> None:
    """Replaces the first convolution, which is for colour images."""
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
