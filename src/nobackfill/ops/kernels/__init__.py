"""Triton kernels for what torch does in too many passes. Each has a slow twin that it equals."""

import warnings
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


def usable(x: Tensor) -> bool:
    """Whether kernels run on the device of a tensor: a GPU with all that Triton wants.

    Triton runs them on the current GPU, wherever tensors are; those on another go without.
    """
    return x.is_cuda and x.get_device() == torch.cuda.current_device() and run_on(x.device)


@cache
def run_on(device: torch.device) -> bool:
    """Whether Triton is installed and a small kernel runs there; found out once.

    Triton may lack a compiler for C, as in small containers, or not know the GPU; a warning says.
    """
    if find_spec("triton") is None:
        return False
    from nobackfill.ops.kernels.softmax_terms import exponents

    try:
        own = torch.zeros(1, dtype=torch.int64, device=device)
        one = torch.ones(1, device=device)
        return exponents(one[:, None].clone(), own, one, 1.0).tolist() == [0.0]
    except Exception as error:  # whatever it is, torch can go on
        warnings.warn(
            f"Triton is installed, but its kernels do not run on {device} ({error}); torch does "
            f"the same, slower.",
            stacklevel=2,
        )
        return False
