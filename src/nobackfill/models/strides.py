"""Where a ResNet halves its image: two options that change no weight, only strides."""

from torch import nn

from nobackfill.errors import ConfigError


def set_strides(
    network: nn.Module, *, last_stride: int, stride_on_first: bool, architecture: str
) -> None:
    """Changes the strides of a ResNet in place; with 2 and False there is nothing to change.

    Args:
        network: With `layer1` to `layer4`, as torchvision and timm name them.
        last_stride: 1 keeps `layer4` at the size of `layer3`: features of twice the side, as in
            fast-reid. The dilation stays 1.
        stride_on_first: Moves the stride of layers 2 to 4 from the 3 x 3 convolution to the
            1 x 1 before it, where the first ResNets had it. Weights trained so need it.
        architecture: Its name, for the error.
    """
    if stride_on_first:
        for name in ("layer2", "layer3", "layer4"):
            _move_stride(_first_block(network, name, "stride_on_first", architecture), architecture)
    if last_stride == 1:
        _remove_stride(_first_block(network, "layer4", "last_stride", architecture), architecture)


def _first_block(network: nn.Module, layer: str, option: str, architecture: str) -> nn.Module:
    blocks = getattr(network, layer, None)
    if not isinstance(blocks, nn.Sequential):
        raise ConfigError(
            f"wanted a ResNet for `{option}` in [model], but `{architecture}` has no `{layer}`. "
            f"Remove the option, or choose a ResNet."
        )
    return blocks[0]


def _move_stride(block: nn.Module, architecture: str) -> None:
    """From the second convolution of a bottleneck to its first."""
    first, second = getattr(block, "conv1", None), getattr(block, "conv2", None)
    if (
        not isinstance(first, nn.Conv2d)
        or not isinstance(second, nn.Conv2d)
        or (first.kernel_size, first.stride, second.stride) != ((1, 1), (1, 1), (2, 2))
    ):
        raise ConfigError(
            f"wanted a ResNet whose blocks have the stride on a second convolution, for "
            f"`stride_on_first` in [model], but those of `{architecture}` have not. Remove the "
            f"option, or choose one such as resnet50."
        )
    first.stride, second.stride = second.stride, first.stride


def _remove_stride(block: nn.Module, architecture: str) -> None:
    """From the convolutions of a block, and the mean before a shortcut that some have."""
    for parent in list(block.modules()):
        for name, child in parent.named_children():
            if getattr(child, "stride", 1) in (1, (1, 1)):
                continue
            if isinstance(child, nn.Conv2d):
                child.stride = (1, 1)
            elif isinstance(child, nn.AvgPool2d) and child.kernel_size == child.stride == 2:
                setattr(parent, name, nn.Identity())
            else:
                raise ConfigError(
                    f"wanted a ResNet that halves its image by convolutions, for `last_stride = 1` "
                    f"in [model], but `{architecture}` does so by {type(child).__name__}. Remove "
                    f"the option, or choose another."
                )
