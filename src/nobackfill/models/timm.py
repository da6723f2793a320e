"""Backbones of timm, the collection of image models. Wants `nobackfill[vision]`."""

from typing import Literal

from nobackfill.errors import ConfigError, DataError
from nobackfill.models.base import Backbone, optional_package, unknown_architecture
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
    """A model of timm without its classifier: features after its own pooling.

    Args:
        architecture: As timm names it; `timm.list_models()` lists them.
        channels: Of the images.
        weights: A file in timm's names, see `load_weights`.
        pretrained: Whether to start from ImageNet: from `weights/ARCHITECTURE.safetensors` below
            the folder that NOBACKFILL_DATA names, and where there is none, timm fetches its own.
        last_stride: 1 for a last feature map of twice the side; only of ResNets.
        stride_on_first: For ResNet weights with the stride on the first convolution of a block.
    """
    if weights and pretrained:
        raise ConfigError(
            "wanted weights from one place, but [model] has both `weights` and `pretrained`. "
            "Remove one."
        )
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
        raise DataError(
            f"wanted timm's weights for `{architecture}`, but they did not come: {error}. Get them "
            f"where there is a network, and pass the file as `weights`."
        ) from error
    set_strides(
        network,
        last_stride=last_stride,
        stride_on_first=stride_on_first,
        architecture=architecture,
    )
    if weights:
        load_weights(network, weights)
    return Backbone(network, network.head_hidden_size)  # is num_features, but where a layer follows
