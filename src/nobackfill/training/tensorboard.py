"""Writes losses for TensorBoard."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from time import perf_counter

from nobackfill.core.distributed import is_main
from nobackfill.errors import ConfigError
from nobackfill.training.loop import Epoch


def with_tensorboard(epochs: Iterable[Epoch], folder: Path) -> Iterator[Epoch]:
    """Yields the epochs and writes the loss terms of each to `folder/tensorboard`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError(
            "tensorboard is not installed. Run `pip install 'nobackfill[tensorboard]'`, or leave "
            "--tensorboard out."
        ) from None
    if not is_main():
        yield from epochs
        return
    start = perf_counter()
    writer = None
    for epoch in epochs:
        writer = writer or SummaryWriter(str(folder / "tensorboard"))
        for name, mean in epoch.terms.items():
            writer.add_scalar(f"loss/{name}", mean, epoch.epoch)
        writer.add_scalar("learning_rate", epoch.learning_rate, epoch.epoch)
        writer.add_scalar("seconds", perf_counter() - start, epoch.epoch)
        writer.flush()
        start = perf_counter()
        yield epoch
    if writer is not None:
        writer.close()
