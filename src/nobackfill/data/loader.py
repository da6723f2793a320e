"""Batches of a collection: decoded ahead of time, finished on the device."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from nobackfill.data.collection import Collection, Pixels, Rows
from nobackfill.data.sampling import by_class, in_order, shuffled

AHEAD = 3  # number of batches that a thread loads ahead


class Batch(NamedTuple):
    """A batch of images, their labels, and their positions among the rows of `Batches`.

    If several processes share the work, `images` are the part of this process; labels and items are
    those of the whole batch.
    """

    images: Float[Tensor, "images channels height width"]
    labels: Int[Tensor, " batch"]
    items: Int[Tensor, " batch"]


class Task(NamedTuple):
    """Rows to load together, and the seed of what is random in loading."""

    rows: Rows
    seed: int | None


class Loader(Dataset[Pixels]):
    """Loads one task after the other; worker processes hold a copy."""

    def __init__(self, load: Callable[[Rows, torch.Generator | None], Pixels]):
        self.load = load

    def __getitem__(self, task: tuple[NDArray[Any], int | None]) -> Pixels:
        rows, seed = task
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return self.load(torch.from_numpy(rows), generator)


class Crew:
    """Worker processes that load a collection, from the first pass on until the crew is deleted.

    Args:
        collection: Collection to load; it has the number of processes.
        device: Device of the model; for a GPU, pixels wait in pinned memory.
    """

    def __init__(self, collection: Collection, device: torch.device):
        self._tasks: list[tuple[NDArray[Any], int | None]] = []  # as they are sent to a process
        self._loader = DataLoader(
            Loader(collection.load),
            sampler=self._tasks,
            batch_size=None,
            num_workers=collection.workers,
            persistent_workers=True,
            pin_memory=device.type == "cuda",
            generator=torch.Generator(),  # leaves the global one unchanged
        )

    def load(self, tasks: list[Task]) -> Iterator[Pixels]:
        """Returns the pixels of each task, in order, loaded ahead."""
        self._tasks[:] = [(rows.numpy(), seed) for rows, seed in tasks]
        return iter(self._loader)


def crew_for(collection: Collection, device: torch.device) -> Crew | None:
    """Returns worker processes if the collection is loaded by any."""
    return Crew(collection, device) if collection.workers else None


@dataclass(frozen=True, eq=False)
class Batches:
    """Rows of a collection in batches.

    Attributes:
        collection: Collection to load.
        rows: Rows of the collection.
        batch_size: Maximal number of items per batch.
        generator: Generator for a random order and augmentation; None for neither.
        items_per_class: Number of items of each class in a batch; None for any number.
        device: Device on which images are finished.
        part: Rank of this process, which loads that part of each batch, and number of processes.
        crew: Running worker processes; None to start them for each pass.
    """

    collection: Collection
    rows: Rows
    batch_size: int
    generator: torch.Generator | None = None
    items_per_class: int | None = None
    device: torch.device | str = "cpu"
    part: tuple[int, int] = (0, 1)
    crew: Crew | None = None

    def __len__(self) -> int:
        if self.generator is not None and self.items_per_class is not None:
            return max(len(self.rows) // self.batch_size, 1)
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        batches, seed = self._draw(), None
        rank, world = self.part
        if self.generator is not None:
            seed = self.generator.initial_seed()
        # The seed of a task depends on its number alone, so any worker may load it.
        tasks = [
            Task(
                self.rows[items.tensor_split(world)[rank]],
                None if seed is None else (seed * 1_000_003 + world * number + rank) % 2**63,
            )
            for number, items in enumerate(batches)
        ]
        collection, device = self.collection, torch.device(self.device)
        if collection.ready is not None:
            collection.ready(self.rows)
        # Each process augments by other random numbers.
        augmenting = self.generator
        if seed is not None and world > 1:
            augmenting = torch.Generator().manual_seed(seed * world + rank)
        # Copy labels and positions of the whole pass at once: the device waits less.
        items = torch.cat(batches)
        sizes = [len(batch) for batch in batches]
        labels = collection.labels[self.rows[items]].to(device).split(sizes)
        places = items.to(device).split(sizes)
        with loading(collection, tasks, device, self.crew) as loaded:
            on_device = _copied_ahead(loaded, device)
            for pixels, label, place in zip(on_device, labels, places, strict=True):
                images = collection.prepare(pixels)
                if augmenting is not None:
                    images = collection.augment(images, augmenting)
                yield Batch(images, label, place)

    def _draw(self) -> list[Int[Tensor, " batch"]]:
        """Returns the positions of the items of each batch."""
        if self.generator is None:
            return in_order(len(self.rows), self.batch_size)
        if self.items_per_class is None:
            return shuffled(len(self.rows), self.batch_size, self.generator)
        labels = self.collection.labels[self.rows]
        return by_class(labels, self.batch_size, self.items_per_class, self.generator)


@contextmanager
def loading(
    collection: Collection, tasks: list[Task], device: torch.device, crew: Crew | None = None
) -> Iterator[Iterator[Pixels]]:
    """Loads tasks ahead in worker processes, else in a thread for a GPU, else on demand.

    The pixels are the same in all three cases.
    """
    workers = min(collection.workers, len(tasks))
    crew = crew or crew_for(replace(collection, workers=workers), device)
    if crew is not None:
        yield crew.load(tasks)
        return
    loader = Loader(collection.load)
    pixels = (loader[rows.numpy(), seed] for rows, seed in tasks)
    if device.type != "cuda":
        yield pixels
        return
    stopped = Event()
    try:
        yield ahead(pixels, stopped)
    finally:
        stopped.set()


def ahead(loaded: Iterator[Pixels], stopped: Event) -> Iterator[Pixels]:
    """Yields the same pixels, loaded by a thread that is a few batches ahead until stopped."""
    queue: Queue[Pixels | BaseException | None] = Queue(AHEAD)

    def put(item: Pixels | BaseException | None) -> None:
        while not stopped.is_set():
            with suppress(Full):
                queue.put(item, timeout=0.2)
                return

    def work() -> None:
        try:
            for pixels in loaded:
                put(pixels if pixels.is_cuda else pixels.pin_memory())
                if stopped.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    Thread(target=work, daemon=True).start()
    while (item := queue.get()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item


def _copied_ahead(loaded: Iterator[Pixels], device: torch.device) -> Iterator[Pixels]:
    """Yields the same pixels on the device; a GPU gets the next ones while it works on these."""
    if device.type != "cuda":
        yield from (pixels.to(device) for pixels in loaded)
        return
    aside, main = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    waiting: list[tuple[Pixels, torch.cuda.Event]] = []

    def finish() -> Pixels:
        copy, done = waiting.pop(0)
        main.wait_event(done)
        copy.record_stream(main)  # the main stream uses its memory, too
        return copy

    for pixels in loaded:
        with torch.cuda.stream(aside):
            waiting.append((pixels.to(device, non_blocking=True), aside.record_event()))
        if len(waiting) == 2:
            yield finish()
    if waiting:
        yield finish()
