"""Live progress on stderr, so that stdout stays clean for results."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from nobackfill.data.loader import Batch, Batches
    from nobackfill.head.schedule import Progress as Fitting
    from nobackfill.training.loop import Epoch

DELAY = 2.0  # seconds before the bar of a search appears
console = Console(stderr=True, highlight=False)


class TrainingProgress:
    """Progress line of one model: a bar over its batches and the latest loss.

    Args:
        progress: Display of all lines.
        name: Name of the model.
        epochs: Number of epochs.
    """

    def __init__(self, progress: Progress, name: str, epochs: int):
        self.progress, self.epochs = progress, epochs
        self.task = progress.add_task(name, total=None, note="preparing")
        self.images, self.rate, self.note = 0, "", "epoch 1"

    def watch(self, batches: "Batches") -> Iterator["Batch"]:
        """Advances the bar with every training batch."""
        if batches.generator is None:  # a pass without training
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
        """Shows the progress of an embedding pass in place of the losses."""
        start, images = perf_counter(), 0
        for batch in batches:
            yield batch
            images += len(batch.items)
            rate = images / (perf_counter() - start)
            left = (len(batches.rows) - images) / rate
            note = f"embedding {images:,}/{len(batches.rows):,}  {rate:,.0f} images/s  {left:.0f} s"
            self.progress.update(self.task, note=note)

    def follow(self, epochs: Iterable["Epoch"]) -> None:
        """Runs the training to its end and shows the loss of each epoch."""
        last = "already trained"
        for epoch in epochs:
            terms = "  ".join(f"{name} {mean:.3f}" for name, mean in epoch.terms.items())
            loss = f"loss {sum(epoch.terms.values()):.3f}"
            is_wide = self.progress.console.width >= 140 and len(epoch.terms) > 1
            detail = f"{loss} ({terms})" if is_wide else loss
            self.note = f"epoch {epoch.epoch + 1}/{self.epochs}  {detail}"
            last = f"{self.note}  {self.rate}"
            done = (epoch.epoch + 1) / self.epochs
            total = self.progress.tasks[self.task].total
            self.progress.update(
                self.task, note=last, completed=None if total is None else done * total
            )
        total = self.progress.tasks[self.task].total or 1
        self.progress.update(self.task, note=last, total=total, completed=total)


def _terminal_bar(*columns: ProgressColumn) -> Progress:
    """Creates a bar that appears only on a terminal and disappears at its end."""
    return Progress(
        *columns,
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


@contextmanager
def searching_progress() -> Iterator[Callable[[int, int], None]]:
    """Shows a bar of a long search; yields a function of the numbers of done and all queries."""
    count = TextColumn("{task.completed:,}/{task.total:,} queries")
    with _terminal_bar(TextColumn("searching"), BarColumn(), count) as progress:
        task, start = progress.add_task("", total=1, visible=False), perf_counter()

        def update(done: int, total: int) -> None:
            is_visible = perf_counter() - start > DELAY
            progress.update(task, completed=done, total=total, visible=is_visible)

        yield update


@contextmanager
def counting_progress(
    activity: str, total: int, *, unit: str = "items"
) -> Iterator[Callable[[int], None]]:
    """Shows a bar over items; yields a function of the number of done items."""
    count = TextColumn(f"{{task.completed:,}}/{{task.total:,}} {unit}")
    with _terminal_bar(TextColumn(activity), BarColumn(), count) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def doing() -> Iterator[Callable[[str], None]]:
    """Shows the current activity on a terminal; yields a function that changes it."""
    with console.status("preparing") as status:
        yield lambda activity: status.update(activity)


@contextmanager
def fitting_progress() -> Iterator[Callable[["Fitting"], None]]:
    """Shows a bar over a fit with the mAP of the held-out classes; yields its update function."""
    note = TextColumn("[dim]{task.fields[note]}")
    with _terminal_bar(TextColumn("fitting"), BarColumn(), note) as progress:
        task = progress.add_task("", total=1.0, note="closed forms")

        def update(fitting: "Fitting") -> None:
            note = f"new/old {100 * fitting.history[-1]:.2f} on held-out classes"
            progress.update(task, completed=fitting.done, note=note)

        yield update


@contextmanager
def training_progress(*, quiet: bool = False) -> Iterator[Progress]:
    """Draws live lines on a terminal; elsewhere prints each line once at its end."""
    is_wide = console.width >= 110
    with Progress(
        TextColumn("{task.description:<19}"),
        BarColumn(bar_width=20 if is_wide else 6),
        *([TimeElapsedColumn()] if is_wide else []),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("[dim]{task.fields[note]}"),
        console=console,
        disable=quiet,
    ) as progress:
        yield progress
