"""A collection: labelled images by row, whoever stores them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.config import ImagesConfig, suggest
from nobackfill.data.captions import Captions, check_captions
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import ConfigError, DataError

Images = Float[Tensor, "batch channels height width"]
Pixels = Shaped[Tensor, "batch channels height width"]  # as stored: mostly bytes
Rows = Int[Tensor, " rows"]


@dataclass(frozen=True, eq=False)
class Collection:
    """Labelled images that can be loaded by row.

    Attributes:
        ids: One name per item.
        labels: Class numbers: training classes first, and among them those of earlier models.
        columns: What else is known of each item: `split`, `is_query`, `is_gallery`, …
        class_counts: How many training classes each step of the upgrade knows.
        load: Rows in, pixels out, by the processor. With a generator, a random part of each image,
            where the collection cuts parts out.
        prepare: Pixels in, images as the model wants them out, on any device.
        augment: Images in, images of the same kind out: a training view, on any device.
        preprocessing: What `load` and `prepare` do, in words: part of a vector's fingerprint.
        captions: The texts of all images; None where there are none.
        ground_truth: What queries shall find, where that is listed, by the ways to count it.
        protocol: How it is searched; a name of `nobackfill.evaluation.protocols.PROTOCOLS`.
        workers: How many processes load images.
        ready: Told which rows will be loaded, before any process starts to.
        images: What a model sees of image files; None where there are no files.
        reopen: The same collection, seen in another way; None where there is only one.
    """

    ids: list[str]
    labels: Int[Tensor, " items"]
    columns: Mapping[str, NDArray[Any]]
    class_counts: tuple[int, ...]
    load: Callable[[Rows, torch.Generator | None], Pixels]
    prepare: Callable[[Pixels], Images]
    augment: Callable[[Images, torch.Generator], Images]
    preprocessing: str
    captions: Captions | None = None
    ground_truth: Mapping[str, GroundTruth] = field(default_factory=dict)
    protocol: str = "plain"
    workers: int = 0
    ready: Callable[[Rows], None] | None = None
    images: ImagesConfig | None = None
    reopen: Callable[[ImagesConfig], "Collection"] | None = None

    def seen_as(self, images: ImagesConfig) -> "Collection":
        """The same collection as a model sees it that was trained on such images."""
        if self.reopen is None or images == self.images:
            return self
        return self.reopen(images)

    def view(self, rows: Rows) -> Images:
        """Images as for a test."""
        return self.prepare(self.load(rows, None))

    @property
    def level(self) -> str:
        """The main way to count, where the collection has several."""
        return "medium" if "medium" in self.ground_truth else next(iter(self.ground_truth), "")

    def truth(self, level: str = "") -> GroundTruth | None:
        """What queries shall find, where that is listed: counted in the way of a level."""
        if not self.ground_truth:
            return None
        if level and level not in self.ground_truth:
            raise ConfigError(f"unknown level `{level}`. {suggest(level, self.ground_truth)}")
        return self.ground_truth[level or self.level]

    @property
    def is_searched(self) -> bool:
        """Whether images ask for images in it; in some collections only texts ask."""
        searched = self.columns["split"] == "validation"
        roles = [self.columns.get(name, searched) for name in ("is_query", "is_gallery")]
        return all(bool((searched & role).any()) for role in roles)

    def captions_of(self, rows: Rows) -> Captions:
        """The texts of some images, each of which must have one."""
        if self.captions is None:
            raise DataError(
                "wanted texts of the images, as [text] needs them, but the collection has none. "
                "Choose one with captions (`nobackfill datasets` tells), or add a column `text` to "
                "the manifest."
            )
        found = self.captions.select(rows)
        check_captions(found, [self.ids[row] for row in rows.tolist()])
        return found

    def ids_of(self, rows: Rows, modality: str = "image") -> list[str]:
        """The ids of some images, or of all their texts."""
        if modality == "text":
            return self.captions_of(rows).ids
        return [self.ids[row] for row in rows.tolist()]

    def rows_of(self, rows: Rows, modality: str = "image") -> Int[Tensor, " items"]:
        """Some images, or the image of each of their texts."""
        return rows[self.captions_of(rows).images] if modality == "text" else rows

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
