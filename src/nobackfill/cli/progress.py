"""Live progress on stderr, so that stdout stays clean for results."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from nobackfill.data.loader import Batch, Batches
    from nobackfill.head.schedule_progress import Progress as Fitting
    from nobackfill.training.loop import Epoch

WHILE = 2.0  # seconds before a bar is worth a look
console = Console(stderr=True, highlight=False)


class TrainingProgress:
    """A line per model: a bar over its batches, and the latest loss.

    Args:
        progress: Where the lines are drawn.
        name: Of the model.
        epochs: How many there will be.
    """

    def __init__(self, progress: Progress, name: str, epochs: int):
        self.progress, self.epochs = progress, epochs
        self.task = progress.add_task(name, total=None, note="getting ready")
        self.images, self.rate, self.note = 0, "", "epoch 1"

    def watch(self, batches: "Batches") -> Iterator["Batch"]:
        """Moves the bar on with every training batch."""
        if batches.generator is None:  # a pass without training: embedding
            yield from self._embedding(batches)
            return
        self.progress.update(self.task, total=self.epochs * len(batches))
        start, images = perf_counter(), 0
        for batch in batches:
            yield batch
            images += len(batch.items)
            self.rate = f"{images / (perf_counter() - start):,.0f} images/s"
            self.progress.update(self.task, advance=1, note=f"{self.note}  {self.rate}")

    def _embedding(self, batches: "Batches") -> Iterator["Batch"]:
        """Tells how far a pass without training is, in place of the losses."""
        start, images = perf_counter(), 0
        for batch in batches:
            yield batch
            images += len(batch.items)
            rate = images / (perf_counter() - start)
            left = (len(batches.rows) - images) / rate
            note = f"embedding {images:,}/{len(batches.rows):,}  {rate:,.0f} images/s  {left:.0f} s"
            self.progress.update(self.task, note=note)

    def follow(self, epochs: Iterable["Epoch"]) -> None:
        """Trains to the end, showing each epoch's loss."""
        last = "was trained before"
        for epoch in epochs:
            terms = "  ".join(f"{name} {mean:.3f}" for name, mean in epoch.terms.items())
            loss = f"loss {sum(epoch.terms.values()):.3f}"
            roomy = self.progress.console.width >= 140 and len(epoch.terms) > 1
            detail = f"{loss} ({terms})" if roomy else loss
            self.note = f"epoch {epoch.epoch + 1}/{self.epochs}  {detail}"
            last = f"{self.note}  {self.rate}"
            done = (epoch.epoch + 1) / self.epochs
            total = self.progress.tasks[self.task].total
            self.progress.update(
                self.task, note=last, completed=None if total is None else done * total
            )
        total = self.progress.tasks[self.task].total or 1
        self.progress.update(self.task, note=last, total=total, completed=total)


@contextmanager
def searching_progress() -> Iterator[Callable[[int, int], None]]:
    """A bar over the queries, on a terminal only, and only for searches that take a while.

    Yields what is to be told how many searches are done, and of how many.
    """
    with Progress(
        TextColumn("searching"),
        BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,} queries"),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task, start = progress.add_task("", total=1, visible=False), perf_counter()

        def tell(done: int, total: int) -> None:
            shown = perf_counter() - start > WHILE
            progress.update(task, completed=done, total=total, visible=shown)

        yield tell


@contextmanager
def counting_progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar over items, on a terminal only. Yields what is to be told how many are done."""
    with Progress(
        TextColumn(what),
        BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,} items"),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def doing() -> Iterator[Callable[[str], None]]:
    """A line that tells what is being done, on a terminal only."""
    with console.status("getting ready") as status:
        yield lambda what: status.update(what)


@contextmanager
def fitting_progress() -> Iterator[Callable[["Fitting"], None]]:
    """A bar over a fit, on a terminal only, with what the held-out classes say."""
    with Progress(
        TextColumn("fitting"),
        BarColumn(),
        TextColumn("[dim]{task.fields[note]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=1.0, note="closed forms")

        def tell(fitting: "Fitting") -> None:
            note = f"new/old {100 * fitting.history[-1]:.2f} on held-out classes"
            progress.update(task, completed=fitting.done, note=note)

        yield tell


@contextmanager
def training_progress(*, quiet: bool = False) -> Iterator[Progress]:
    """Draws live lines on a terminal; elsewhere prints each line once at its end."""
    roomy = console.width >= 110
    with Progress(
        TextColumn("{task.description:<19}"),
        BarColumn(bar_width=20 if roomy else 6),
        *([TimeElapsedColumn()] if roomy else []),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("[dim]{task.fields[note]}"),
        console=console,
        disable=quiet,
    ) as progress:
        yield progress
