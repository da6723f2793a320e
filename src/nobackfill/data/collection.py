"""A collection: labelled images by row, whoever stores them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import ConfigError, DataError

Images = Float[Tensor, "batch channels height width"]
Rows = Int[Tensor, " rows"]


class Batch(NamedTuple):
    """Some images, their labels, and their places among the rows that were asked for."""

    images: Float[Tensor, "batch channels height width"]
    labels: Int[Tensor, " batch"]
    items: Int[Tensor, " batch"]


@dataclass(frozen=True, eq=False)
class Collection:
    """Labelled images that can be loaded by row.

    Attributes:
        ids: One name per item.
        labels: Class numbers: training classes first, and among them those of earlier models.
        columns: What else is known of each item: `split`, `is_query`, `is_gallery`, …
        class_counts: How many training classes each step of the upgrade knows.
        load: Rows in, images out, as the model wants them.
        augment: Images in, images of the same kind out: a training view.
        preprocessing: What `load` does, in words: part of a vector's fingerprint.
    """

    ids: list[str]
    labels: Int[Tensor, " items"]
    columns: Mapping[str, NDArray[Any]]
    class_counts: tuple[int, ...]
    load: Callable[[Rows], Images]
    augment: Callable[[Images, torch.Generator], Images]
    preprocessing: str

    def training_rows(self, step: int) -> Rows:
        """The rows that the model of a step is trained on; negative steps count from the end."""
        if not -len(self.class_counts) <= step < len(self.class_counts):
            raise ConfigError(
                f"wanted `step` in [train] below {len(self.class_counts)}, the number of shares "
                f"of the data, but got {step}."
            )
        is_training = torch.from_numpy(self.columns["split"] == "train")
        rows = (is_training & (self.labels < self.class_counts[step])).nonzero().flatten()
        if len(rows) < 2:
            raise DataError(
                f"wanted images to train on, but the collection has {len(rows)} with the split "
                f"`train` in step {step}. Check the column `split`."
            )
        return rows

    def validation_rows(self) -> Rows:
        """The rows that are searched."""
        return torch.from_numpy(self.columns["split"] == "validation").nonzero().flatten()


@dataclass(frozen=True, eq=False)
class Batches:
    """Rows of a collection in batches whose sizes differ by at most one.

    No batch is left with one item, unless that is all or two are too many.

    Attributes:
        collection: Where the images are.
        rows: Which of them.
        batch_size: How many at a time, at most.
        generator: With one, the order is random and the images are augmented; without, neither.
    """

    collection: Collection
    rows: Rows
    batch_size: int
    generator: torch.Generator | None = None

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        order = (
            torch.arange(len(self.rows))
            if self.generator is None
            else torch.randperm(len(self.rows), generator=self.generator)
        )
        for items in order.tensor_split(len(self)):
            rows = self.rows[items]
            images = self.collection.load(rows)
            if self.generator is not None:
                images = self.collection.augment(images, self.generator)
            yield Batch(images, self.collection.labels[rows], items)
