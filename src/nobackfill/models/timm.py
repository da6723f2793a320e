"""Backbones of timm, the collection of image models. Requires `nobackfill[vision]`."""

from typing import Literal

from torch import nn

from nobackfill.errors import ConfigError
from nobackfill.models.base import (
    Backbone,
    check_one_source,
    not_fetched,
    optional_package,
    unknown_architecture,
)
from nobackfill.models.resnet import DEPTHS, ResNet
from nobackfill.models.strides import set_strides
from nobackfill.models.weights import given_weights, load_weights


def timm_backbone(
    *,
    architecture: str = "resnet18",
    channels: int = 3,
    weights: str | None = None,
    pretrained: bool = False,
    last_stride: Literal[1, 2] = 2,
    stride_on_first: bool = False,
) -> Backbone:
    """Makes a model of timm without its classifier: features after its own pooling.

    The ResNets of torchvision (`resnet18`, `resnet50.tv_in1k`, …) need no timm: where it cannot be
    imported, `ResNet` takes its place, with the same weights.

    Args:
        architecture: Name in timm; `timm.list_models()` lists them.
        channels: Number of channels of the images.
        weights: File of weights with timm's names, see `load_weights`.
        pretrained: Whether to start from ImageNet: from `weights/ARCHITECTURE.safetensors` below
            the folder in NOBACKFILL_DATA; without such a file, timm downloads its own.
        last_stride: 1 for a last feature map of twice the side; for ResNets only.
        stride_on_first: Whether ResNet weights have the stride on the first convolution of a block.
    """
    check_one_source(weights, pretrained)
    if pretrained:
        weights = given_weights(architecture)
    network, feature_dim = make_network(
        architecture, channels=channels, fetch=pretrained and weights is None
    )
    set_strides(
        network,
        last_stride=last_stride,
        stride_on_first=stride_on_first,
        architecture=architecture,
    )
    if weights:
        load_weights(network, weights)
    return Backbone(network, feature_dim)


def make_network(architecture: str, *, channels: int, fetch: bool) -> tuple[nn.Module, int]:
    """Makes a network of timm, or our own ResNet without timm; returns it and its feature number.

    Args:
        architecture: Name in timm.
        channels: Number of channels of the images.
        fetch: Whether timm downloads its weights.
    """
    own = architecture.removesuffix(".tv_in1k")
    try:
        timm = optional_package("timm", extra="vision")
    except ConfigError as error:
        if own not in DEPTHS:
            raise
        if fetch:
            raise not_fetched("timm", architecture, error) from error
        resnet = ResNet(own, channels=channels, zero_last=True)
        return resnet, resnet.feature_dim
    if not timm.is_model(architecture):
        raise unknown_architecture(
            architecture, timm.list_models(), listed_by="`timm.list_models()`"
        )
    try:
        network = timm.create_model(
            architecture, pretrained=fetch, in_chans=channels, num_classes=0
        )
    except Exception as error:
        if not fetch:
            raise
        raise not_fetched("timm", architecture, error) from error
    return network, network.head_hidden_size  # num_features, unless a layer follows
