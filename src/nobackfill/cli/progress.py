"""Progress of long jobs on stderr, so that stdout stays clean for results.

A terminal shows a live line for each job, with the time left. Anything else, such as a file or a
pipe, gets a plain line from time to time. With --quiet there is neither.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from nobackfill.cli.progress_lines import Line, Lines, showing
from nobackfill.core.steps import Step

if TYPE_CHECKING:
    from nobackfill.data.loader import Batch, Batches
    from nobackfill.head.schedule import Progress as Fitting
    from nobackfill.training.loop import Epoch


class TrainingProgress:
    """Progress line of one model: a bar over its batches and the latest loss.

    Args:
        lines: All lines.
        name: Name of the model.
        epochs: Number of epochs.
    """

    def __init__(self, lines: Lines, name: str, epochs: int):
        self.epochs = epochs
        self.line = lines.add(Line(name, note="preparing"))
        self.rate, self.loss, self.is_wide = "", "epoch 1", lines.console.width >= 100

    def watch(self, batches: "Batches") -> Iterator["Batch"]:
        """Advances the bar with every training batch."""
        if batches.generator is None:  # a pass without training
            yield from watch_embedding(self.line, batches)
            return
        total = self.epochs * len(batches)
        if self.line.total != total:
            self.line.show(self.line.name, self.line.done, total, note=self.line.note)
        start, images = perf_counter(), 0
        for batch in batches:
            yield batch
            images += len(batch.items)
            self.rate = f"{images / (perf_counter() - start):,.0f} images/s"
            self.line.advance(note=f"{self.loss}  {self.rate}")

    def follow(self, epochs: Iterable["Epoch"]) -> None:
        """Runs the training to its end and shows the loss of each epoch."""
        last = "already trained"
        for epoch in epochs:
            terms = "  ".join(f"{name} {mean:.3f}" for name, mean in epoch.terms.items())
            loss = f"loss {sum(epoch.terms.values()):.3f}"
            detail = f"{loss} ({terms})" if self.is_wide and len(epoch.terms) > 1 else loss
            self.loss = f"epoch {epoch.epoch + 1}/{self.epochs}  {detail}"
            last = f"{self.loss}  {self.rate}"
            if (total := self.line.total) is not None:
                done = (epoch.epoch + 1) / self.epochs * total
                self.line.first += max(0, done - self.line.done)  # epochs of an earlier start
                self.line.show(self.line.name, done, total, note=last)
        self.line.end(note=last)


def watch_embedding(line: Line, batches: "Batches") -> Iterator["Batch"]:
    """Shows the progress of an embedding pass."""
    before, items = (line.done, line.total, line.note), 0
    for batch in batches:
        yield batch
        items += len(batch.items)
        line.note = f"embedding {items:,}/{len(batches.rows):,}"
    line.done, line.total, line.note = before


@contextmanager
def training_progress(*, is_main: bool = True) -> Iterator[Lines]:
    """Shows a line for each model, which stays when its training has ended."""
    with showing(delay=0.0, stays=True, is_shown=is_main) as lines:
        yield lines


@contextmanager
def doing(activity: str = "preparing") -> Iterator[Callable[[str], None]]:
    """Shows the step of a job; yields a function that receives each step."""
    with showing() as lines:
        line = lines.add(Line(activity))

        def show_step(step: str) -> None:
            if isinstance(step, Step):
                line.show(str(step), step.done, step.total, step.unit)
            else:
                line.show(step)

        yield show_step


@contextmanager
def searching_progress() -> Iterator[Callable[[int, int], None]]:
    """Shows a long search; yields a function of the numbers of done and all queries."""
    with doing("searching") as show_step:
        yield lambda done, total: show_step(Step("searching", done, total, "queries"))


@contextmanager
def counting_progress(
    activity: str, total: int, *, unit: str = "items"
) -> Iterator[Callable[[int], None]]:
    """Shows the progress over items; yields a function of the number of done items."""
    with doing(activity) as show_step:
        show_step(Step(activity, 0, total, unit))
        yield lambda done: show_step(Step(activity, done, total, unit))


@contextmanager
def fitting_progress() -> Iterator[Callable[["Fitting"], None]]:
    """Shows a fit and the mAP of the held-out classes; yields a function of its progress."""
    with showing() as lines:
        line = lines.add(Line("fitting", note="closed forms"))

        def update(fitting: "Fitting") -> None:
            note = "several methods, on held-out classes"
            if fitting.history:
                note = f"new/old {100 * fitting.history[-1]:.2f} on held-out classes"
            line.show("fitting", fitting.done, 1.0, note=note)

        yield update


@contextmanager
def embedding_progress() -> Iterator[Callable[["Batches"], Iterator["Batch"]]]:
    """Shows an embedding pass; yields a function that wraps its batches."""
    with doing("embedding") as show_step:

        def watch(batches: "Batches") -> Iterator["Batch"]:
            items = 0
            for batch in batches:
                yield batch
                items += len(batch.items)
                show_step(Step("embedding", items, len(batches.rows), "items"))

        yield watch
