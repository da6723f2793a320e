"""Two options of ResNets that change strides, and no weights."""

from torch import nn

from nobackfill.errors import ConfigError


def set_strides(
    network: nn.Module, *, last_stride: int, stride_on_first: bool, architecture: str
) -> None:
    """Changes the strides of a ResNet in place; 2 and False change nothing.

    Args:
        network: Network with `layer1` to `layer4`, as in torchvision and timm.
        last_stride: 1 keeps `layer4` at the size of `layer3`: features of twice the side, as in
            fast-reid. The dilation stays 1.
        stride_on_first: Whether layers 2 to 4 have their stride on the 1 x 1 convolution instead of
            the following 3 x 3 one, as in the first ResNets, whose weights require it.
        architecture: Name of the network, for errors.
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
            f"`{option}` in [model] requires a ResNet, but `{architecture}` has no `{layer}`. "
            f"Remove the option, or choose a ResNet."
        )
    return blocks[0]


def _move_stride(block: nn.Module, architecture: str) -> None:
    """Moves the stride from the second convolution of a bottleneck to its first."""
    first, second = getattr(block, "conv1", None), getattr(block, "conv2", None)
    if (
        not isinstance(first, nn.Conv2d)
        or not isinstance(second, nn.Conv2d)
        or (first.kernel_size, first.stride, second.stride) != ((1, 1), (1, 1), (2, 2))
    ):
        raise ConfigError(
            f"`stride_on_first` in [model] requires a ResNet whose blocks have the stride on a "
            f"second convolution, unlike `{architecture}`. Remove the option, or choose one such "
            f"as resnet50."
        )
    first.stride, second.stride = second.stride, first.stride


def _remove_stride(block: nn.Module, architecture: str) -> None:
    """Removes the stride from convolutions, and the pooling before a shortcut that some have."""
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
                    f"`last_stride = 1` in [model] requires a ResNet that halves its images by "
                    f"convolutions, but `{architecture}` does so by {type(child).__name__}. Remove "
                    f"the option, or choose another network."
                )
