"""Backbones of timm, the collection of image models. Requires `nobackfill[vision]`."""

from typing import Literal

from nobackfill.models.base import (
    Backbone,
    check_one_source,
    not_fetched,
    optional_package,
    unknown_architecture,
)
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
    timm = optional_package("timm", extra="vision")
    if not timm.is_model(architecture):
        raise unknown_architecture(
            architecture, timm.list_models(), listed_by="`timm.list_models()`"
        )
    if pretrained:
        weights = given_weights(architecture)
    fetch = pretrained and weights is None
    try:
        network = timm.create_model(
            architecture, pretrained=fetch, in_chans=channels, num_classes=0
        )
    except Exception as error:
        if not fetch:
            raise
        raise not_fetched("timm", architecture, error) from error
    set_strides(
        network,
        last_stride=last_stride,
        stride_on_first=stride_on_first,
        architecture=architecture,
    )
    if weights:
        load_weights(network, weights)
    return Backbone(network, network.head_hidden_size)  # num_features, unless a layer follows
