"""Triton kernels for what torch does in too many passes. Each has a slow twin that it equals."""

from importlib.util import find_spec

from torch import Tensor


def usable(x: Tensor) -> bool:
    """Whether kernels can run on the device of a tensor: a CUDA GPU, and Triton is installed."""
    return x.is_cuda and find_spec("triton") is not None
