"""Live progress on stderr, so that stdout stays clean for results."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from nobackfill.data.collection import Batch, Batches
    from nobackfill.train.loop import Epoch

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

    def watch(self, batches: "Batches") -> Iterator["Batch"]:
        """Moves the bar on with every training batch."""
        if batches.generator is None:  # a pass without training: embedding
            yield from batches
            return
        self.progress.update(self.task, total=self.epochs * len(batches))
        for batch in batches:
            yield batch
            self.progress.advance(self.task)

    def follow(self, epochs: Iterable["Epoch"]) -> None:
        """Trains to the end, showing each epoch's loss."""
        note = "was trained before"
        for epoch in epochs:
            loss = sum(epoch.terms.values())
            note = f"epoch {epoch.epoch + 1}/{self.epochs}  loss {loss:.3f}"
            self.progress.update(self.task, note=note)
        self.progress.update(self.task, note=note)
        total = self.progress.tasks[self.task].total or 1
        self.progress.update(self.task, total=total, completed=total)


@contextmanager
def training_progress() -> Iterator[Progress]:
    """Draws live lines on a terminal; elsewhere prints each line once at its end."""
    with Progress(
        TextColumn("{task.description:<19}"),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[note]}"),
        console=console,
    ) as progress:
        yield progress
