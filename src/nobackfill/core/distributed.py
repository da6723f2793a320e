"""Functions for training with several processes. With one process, each is the identity.

Start several with `torchrun --nproc-per-node 4 -m nobackfill train …`; accelerate then sets up the
process group.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as group
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from nobackfill.errors import ConfigError

TIMEOUT = timedelta(days=1)  # the others wait while the first process evaluates a large gallery
_single: ContextVar[bool] = ContextVar("single", default=False)


def part() -> tuple[int, int]:
    """Returns the rank of this process and the number of processes: (0, 1) if there is only one."""
    if _single.get() or not (group.is_available() and group.is_initialized()):
        return 0, 1
    return group.get_rank(), group.get_world_size()


@contextmanager
def single_process() -> Iterator[None]:
    """Within the block, this process computes alone, as if there were no others."""
    token = _single.set(True)
    try:
        yield
    finally:
        _single.reset(token)


def is_main() -> bool:
    """Whether this process writes files and prints."""
    return part()[0] == 0


def wait() -> None:
    """Waits until all processes have reached this call."""
    if part()[1] > 1:
        group.barrier()


def start(device: str = "auto") -> str:
    """Joins the process group that torchrun started, and returns the device of this process."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return device
    try:
        from accelerate import PartialState
    except ImportError:
        raise ConfigError(
            "Training with several processes requires accelerate, which is not installed. Run "
            "`pip install 'nobackfill[multi]'`, or start without torchrun."
        ) from None
    return str(PartialState(cpu=device == "cpu", timeout=TIMEOUT).device)


def average_gradients(model: nn.Module) -> nn.Module:
    """Wraps a model so that its gradients are averaged over the processes."""
    if part()[1] == 1:
        return model
    from accelerate import Accelerator

    on_cpu = next(model.parameters()).device.type == "cpu"
    wrapped: nn.Module = Accelerator(cpu=on_cpu).prepare_model(model)
    return wrapped


def gather(mine: Float[Tensor, "mine dim"], rows: int) -> Float[Tensor, "rows dim"]:
    """Returns the rows of all processes, by rank; each process gets the gradient of its own rows.

    Every process computes the same loss from the gathered rows. The gradient of a process's own
    rows is multiplied by the number of processes, because the model's gradients are averaged
    afterwards. The result is the gradient that one process would compute from all rows.

    Args:
        mine: This process's part of `rows`, as cut by `Tensor.tensor_split`.
        rows: Number of rows of all processes together.
    """
    if part()[1] == 1:
        return mine
    gathered: Tensor = _Gather.apply(mine, rows)  # type: ignore[no-untyped-call]
    return gathered


def sum_over_processes(mine: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """Returns the sum of a tensor over all processes."""
    if part()[1] == 1:
        return mine
    summed = mine.clone()
    group.all_reduce(summed)
    return summed


def broadcast(module: nn.Module) -> None:
    """Copies the parameters and buffers of the first process to all others."""
    if part()[1] > 1:
        for tensor in [*module.parameters(), *module.buffers()]:
            group.broadcast(tensor.data, 0)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, mine: Tensor, rows: int) -> Tensor:
        rank, world = part()
        sizes = [len(indices) for indices in torch.arange(rows).tensor_split(world)]
        context.start, context.size, context.world = sum(sizes[:rank]), sizes[rank], world
        # `all_gather` requires the same size of all processes.
        padded = mine.new_zeros(max(sizes), *mine.shape[1:])
        padded[: len(mine)] = mine
        parts = [torch.empty_like(padded) for _ in sizes]
        group.all_gather(parts, padded)
        return torch.cat([gathered[:size] for gathered, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        own = gradient[context.start : context.start + context.size]
        return context.world * own, None
