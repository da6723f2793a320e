"""Choice of the device to compute on, and the number of usable cores."""

import os

import torch

from nobackfill.errors import ConfigError


def choose_device(name: str = "auto") -> torch.device:
    """Returns the named device; "auto" is a GPU if there is one, else the CPU.

    A GPU named by its number becomes the current device, which kernels run on.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"torch cannot use the device `{name}`: {reason}. Pass --device cpu."
        ) from None
    return device


def device_name(device: torch.device) -> str:
    """Returns the model of a GPU, or the type of another device, such as "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def usable_cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
