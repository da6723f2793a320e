"""Many processes as functions: on one process each is the identity, and no formula asks its rank.

Start several with `torchrun --nproc-per-node 4 -m nobackfill train …`; accelerate then sets up the
group that the others talk in.
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

PATIENCE = timedelta(days=1)  # while the first process searches a large gallery by itself
_alone: ContextVar[bool] = ContextVar("alone", default=False)


def part() -> tuple[int, int]:
    """Which process this is, and of how many: (0, 1) where there is only one."""
    if _alone.get() or not (group.is_available() and group.is_initialized()):
        return 0, 1
    return group.get_rank(), group.get_world_size()


@contextmanager
def alone() -> Iterator[None]:
    """For a while, this process works by itself, as if there were no others."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


def is_main() -> bool:
    """Whether this process writes files and talks to people."""
    return part()[0] == 0


def wait() -> None:
    """Waits until all processes are here."""
    if part()[1] > 1:
        group.barrier()


def start(device: str = "auto") -> str:
    """Joins the processes that torchrun started; the device that this one shall work on."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return device
    try:
        from accelerate import PartialState
    except ImportError:
        raise ConfigError(
            "wanted accelerate to train with several processes, but it is not installed. "
            "`pip install 'nobackfill[multi]'`, or start without torchrun."
        ) from None
    return str(PartialState(cpu=device == "cpu", timeout=PATIENCE).device)


def shared(model: nn.Module) -> nn.Module:
    """A model whose gradients are averaged over the processes."""
    if part()[1] == 1:
        return model
    from accelerate import Accelerator

    wrapped: nn.Module = Accelerator(
        cpu=next(model.parameters()).device.type == "cpu"
    ).prepare_model(model)
    return wrapped


def gather(mine: Float[Tensor, "mine dim"], rows: int) -> Float[Tensor, "rows dim"]:
    """The rows of all processes, in their order; each gets the gradient of its own.

    A loss of what is gathered is computed by every process alike. Its gradient reaches a process's
    own rows, times the number of processes, because the model's gradients are then averaged: the
    sum over all rows comes out, as one process would have it.

    Args:
        mine: This process's part of `rows`, as `Tensor.tensor_split` cuts them.
        rows: How many there are in all.
    """
    if part()[1] == 1:
        return mine
    gathered: Tensor = _Gather.apply(mine, rows)  # type: ignore[no-untyped-call]
    return gathered


def total(mine: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
    """The sum over all processes."""
    if part()[1] == 1:
        return mine
    summed = mine.clone()
    group.all_reduce(summed)
    return summed


def agree(module: nn.Module) -> None:
    """Gives all processes the parameters and buffers of the first."""
    if part()[1] == 1:
        return
    for tensor in [*module.parameters(), *module.buffers()]:
        group.broadcast(tensor.data, 0)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, mine: Tensor, rows: int) -> Tensor:
        rank, world = part()
        sizes = [len(some) for some in torch.arange(rows).tensor_split(world)]
        context.start, context.size, context.world = sum(sizes[:rank]), sizes[rank], world
        padded = mine.new_zeros(max(sizes), *mine.shape[1:])
        padded[: len(mine)] = mine
        parts = [torch.empty_like(padded) for _ in sizes]
        group.all_gather(parts, padded)
        return torch.cat([some[:size] for some, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        own = gradient[context.start : context.start + context.size]
        return context.world * own, None
