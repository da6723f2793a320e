"""Triton kernels that need fewer passes over memory than torch. Each has an equivalent in torch."""

import warnings
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


def usable(x: Tensor) -> bool:
    """Whether kernels run on the device of a tensor.

    Triton launches kernels on the current GPU, so tensors on another GPU use torch.
    """
    return x.is_cuda and x.get_device() == torch.cuda.current_device() and run_on(x.device)


@cache
def run_on(device: torch.device) -> bool:
    """Whether Triton is installed and runs a small kernel on this device; tried once.

    Triton needs a C compiler, which small containers lack, and may not support the GPU.
    """
    if find_spec("triton") is None:
        return False
    from nobackfill.ops.kernels.softmax_terms import exponents

    try:
        own = torch.zeros(1, dtype=torch.int64, device=device)
        length = torch.ones(1, device=device)
        return exponents(length[:, None].clone(), own, length, 1.0).tolist() == [0.0]
    except Exception as error:  # torch computes the same
        warnings.warn(
            f"Triton is installed, but its kernels do not run on {device} ({error}). torch "
            f"computes the same results, more slowly.",
            stacklevel=2,
        )
        return False
