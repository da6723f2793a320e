"""Batches of a collection, decoded ahead of time and finished on the device."""

from collections import deque
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
from torch.utils.data import DataLoader, Dataset, Sampler

from nobackfill.data.collection import Collection, Pixels, Rows
from nobackfill.data.sampling import by_class, in_order, shuffled

AHEAD = 3  # batches that wait while the device works


class Batch(NamedTuple):
    """Some images, their labels, and their places among the rows that were asked for.

    Where several processes share the work, `images` are this one's part, and the others are of all.
    """

    images: Float[Tensor, "images channels height width"]
    labels: Int[Tensor, " batch"]
    items: Int[Tensor, " batch"]


class Task(NamedTuple):
    """What is to be loaded, and the seed of what is random in that."""

    rows: Rows
    seed: int | None


class Loader(Dataset[Pixels]):
    """Loads the tasks of a collection one by one: what worker processes are given."""

    def __init__(self, load: Callable[[Rows, torch.Generator | None], Pixels]):
        self.load = load

    def __getitem__(self, task: tuple[NDArray[Any], int | None]) -> Pixels:
        rows, seed = task
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return self.load(torch.from_numpy(rows), generator)


class Tasks(Sampler[Any]):
    """What a crew shall load next, as it is sent to a process."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[tuple[NDArray[Any], int | None]]:
        return ((rows.numpy(), seed) for rows, seed in self.tasks)


class Crew:
    """Worker processes that load for a collection, over many passes.

    They are started with the first pass and end with the crew.

    Args:
        collection: Where the images are; says how many processes there shall be.
        device: For a GPU, pixels wait in memory that it can read by itself.
    """

    def __init__(self, collection: Collection, device: torch.device):
        self._next = Tasks()
        self._loader = DataLoader(
            Loader(collection.load),
            sampler=self._next,
            batch_size=None,
            num_workers=collection.workers,
            persistent_workers=True,
            pin_memory=device.type == "cuda",
            generator=torch.Generator(),  # of its own: the global one stays as it is
        )

    def load(self, tasks: list[Task]) -> Iterator[Pixels]:
        """The pixels of each task, in order, loaded ahead."""
        self._next.tasks = tasks
        return iter(self._loader)


def crew_for(collection: Collection, device: torch.device) -> Crew | None:
    """A crew, where the collection wants one."""
    return Crew(collection, device) if collection.workers else None


@dataclass(frozen=True, eq=False)
class Batches:
    """Rows of a collection in batches.

    Attributes:
        collection: Where the images are.
        rows: Which of them.
        batch_size: How many at a time, at most.
        generator: With one, the order is random and the images are augmented; without, neither.
        items_per_class: With this, a batch holds so many items of each of its classes.
        device: Where the images are finished.
        part: Which part of each batch this process takes, and of how many.
        crew: Processes that load, where some are at work already; else they are started each time.
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
        batches = self._draw()
        mine, of = self.part
        tasks = [
            Task(self.rows[items.tensor_split(of)[mine]], self._seed_of(of * number + mine))
            for number, items in enumerate(batches)
        ]
        collection, device = self.collection, torch.device(self.device)
        if collection.ready is not None:
            collection.ready(self.rows)
        augmenting = self._augmenting()
        items = torch.cat(
            batches
        )  # all of the pass at once: a device that is asked less waits less
        sizes = [len(batch) for batch in batches]
        labels = collection.labels[self.rows[items]].to(device).split(sizes)
        places = items.to(device).split(sizes)
        with loading(collection, tasks, device, self.crew) as loaded:
            on_device = copied_ahead(loaded, device)
            for pixels, label, place in zip(on_device, labels, places, strict=True):
                images = collection.prepare(pixels)
                if augmenting is not None:
                    images = collection.augment(images, augmenting)
                yield Batch(images, label, place)

    def _augmenting(self) -> torch.Generator | None:
        """Where augmentation comes from: other numbers for each process."""
        mine, of = self.part
        if self.generator is None or of == 1:
            return self.generator
        return torch.Generator().manual_seed(self.generator.initial_seed() * of + mine)

    def _seed_of(self, number: int) -> int | None:
        """Where the random part of loading a batch comes from: the same for any worker."""
        if self.generator is None:
            return None
        return (self.generator.initial_seed() * 1_000_003 + number) % 2**63

    def _draw(self) -> list[Int[Tensor, " batch"]]:
        """The places of the items of each batch."""
        if self.generator is None:
            return in_order(len(self.rows), self.batch_size)
        if self.items_per_class is None:
            return shuffled(len(self.rows), self.batch_size, self.generator)
        labels = self.collection.labels[self.rows]
        return by_class(labels, self.batch_size, self.items_per_class, self.generator)


@contextmanager
def loading(
    collection: Collection,
    tasks: list[Task],
    device: torch.device,
    crew: Crew | None = None,
) -> Iterator[Iterator[Pixels]]:
    """Loads ahead while the device works: in worker processes, in a thread, or not at all.

    What comes out is the same in all three.

    Args:
        collection: Where the images are.
        tasks: What to load.
        device: For a GPU, pixels wait in memory that it can read by itself.
        crew: Processes that are at work already.
    """
    workers = min(collection.workers, len(tasks))
    crew = crew or crew_for(replace(collection, workers=workers), device)
    if crew is not None:
        yield crew.load(tasks)
        return
    loader = Loader(collection.load)
    each = (loader[rows.numpy(), seed] for rows, seed in tasks)
    if device.type != "cuda":
        yield each
        return
    stopped = Event()
    try:
        yield ahead(each, stopped)
    finally:
        stopped.set()


def ahead(each: Iterator[Pixels], stopped: Event) -> Iterator[Pixels]:
    """The same pixels, loaded by a thread that is a few batches ahead until it is stopped."""
    waiting: Queue[Pixels | BaseException | None] = Queue(AHEAD)

    def hand_over(one: Pixels | BaseException | None) -> None:
        while not stopped.is_set():
            with suppress(Full):
                waiting.put(one, timeout=0.2)
                return

    def work() -> None:
        try:
            for pixels in each:
                hand_over(pixels if pixels.is_cuda else pixels.pin_memory())
                if stopped.is_set():
                    return
            hand_over(None)
        except BaseException as error:
            hand_over(error)

    Thread(target=work, daemon=True).start()
    while (one := waiting.get()) is not None:
        if isinstance(one, BaseException):
            raise one
        yield one


def copied_ahead(loaded: Iterator[Pixels], device: torch.device) -> Iterator[Pixels]:
    """The same pixels on the device; a GPU gets the next ones while it works on these."""
    if device.type != "cuda":
        yield from (pixels.to(device) for pixels in loaded)
        return
    aside, main = torch.cuda.Stream(device), torch.cuda.current_stream(device)

    def copies() -> Iterator[tuple[Pixels, torch.cuda.Event]]:
        for pixels in loaded:
            with torch.cuda.stream(aside):
                copy = pixels.to(device, non_blocking=True)
            yield copy, aside.record_event()

    for copy, done in one_ahead(copies()):
        main.wait_event(done)
        copy.record_stream(main)  # its memory is in use there, too
        yield copy


def one_ahead(each: Iterator[Any]) -> Iterator[Any]:
    """The same things, each when the next one has been asked for.

    Example:
        >>> asked = []
        >>> [(one, len(asked)) for one in one_ahead(asked.append(i) or i for i in range(3))]
        [(0, 2), (1, 3), (2, 3)]
    """
    waiting: deque[Any] = deque()
    for one in each:
        waiting.append(one)
        if len(waiting) == 2:
            yield waiting.popleft()
    yield from waiting
