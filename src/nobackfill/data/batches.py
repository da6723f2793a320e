"""Batches of a collection, decoded ahead of time and finished on the device."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Full, Queue
from threading import Event, Thread
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

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
    """

    collection: Collection
    rows: Rows
    batch_size: int
    generator: torch.Generator | None = None
    items_per_class: int | None = None
    device: torch.device | str = "cpu"
    part: tuple[int, int] = (0, 1)

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
        with loading(collection, tasks, device) as loaded:
            for items, pixels in zip(batches, loaded, strict=True):
                images = collection.prepare(pixels.to(device, non_blocking=True))
                if augmenting is not None:
                    images = collection.augment(images, augmenting)
                labels = collection.labels[self.rows[items]]
                yield Batch(images, labels.to(device), items.to(device))

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


class Task(NamedTuple):
    """What is to be loaded, and the seed of what is random in that."""

    rows: Rows
    seed: int | None


class Loader(Dataset[Pixels]):
    """Loads the tasks of a collection by number: what worker processes are given."""

    def __init__(self, collection: Collection, tasks: list[Task]):
        self.collection, self.tasks = collection, tasks

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, number: int) -> Pixels:
        rows, seed = self.tasks[number]
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return self.collection.load(rows, generator)


@contextmanager
def loading(
    collection: Collection, tasks: list[Task], device: torch.device
) -> Iterator[Iterator[Pixels]]:
    """Loads ahead while the device works: in worker processes, in a thread, or not at all.

    What comes out is the same in all three.

    Args:
        collection: Where the images are; says how many worker processes there shall be.
        tasks: What to load.
        device: For a GPU, pixels wait in memory that it can read by itself.
    """
    loader, for_gpu = Loader(collection, tasks), device.type == "cuda"
    if workers := min(collection.workers, len(tasks)):
        yield iter(
            DataLoader(
                loader,
                batch_size=None,
                num_workers=workers,
                pin_memory=for_gpu,
                generator=torch.Generator(),  # of its own: the global one stays as it is
            )
        )
        return
    each = (loader[number] for number in range(len(loader)))
    if not for_gpu:
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
