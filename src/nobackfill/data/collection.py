"""Collections: labelled images that can be loaded by row, wherever they are stored."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.config import ImagesConfig
from nobackfill.core.short import Short
from nobackfill.core.suggest import suggest
from nobackfill.data.captions import Captions, check_captions
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import ConfigError, DataError

Images = Float[Tensor, "batch channels height width"]
Pixels = Shaped[Tensor, "batch channels height width"]  # as stored: mostly bytes
Rows = Int[Tensor, " rows"]


@dataclass(frozen=True, eq=False, repr=False)
class Collection(Short):
    """Labelled images that can be loaded by row.

    Attributes:
        ids: Unique id of each item.
        labels: Class numbers: training classes first, and among them those of earlier models.
        columns: More values per item: `split`, `is_query`, `is_gallery`, …
        class_counts: Number of training classes that each step of the upgrade knows.
        load: Function from rows to pixels, on the CPU. A generator makes crops random.
        prepare: Function from pixels to the input of a model, on any device.
        augment: Function from images to augmented images, on any device.
        preprocessing: Description of `load` and `prepare`, for the fingerprint of vectors.
        captions: Texts of all images; None if there are none.
        ground_truth: Relevant items of the queries, by level, if they are listed.
        protocol: Search protocol, a name of `nobackfill.evaluation.protocols.PROTOCOLS`.
        workers: Number of processes that load images.
        ready: Function that is called with all rows before any of them is loaded.
        images: Preprocessing of image files; None if there are no files.
        reopen: Function from another preprocessing to the same collection; None if there is none.
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
        """Returns the same collection with another preprocessing of image files."""
        if self.reopen is None or images == self.images:
            return self
        return self.reopen(images)

    def view(self, rows: Rows) -> Images:
        """Returns images without augmentation."""
        return self.prepare(self.load(rows, None))

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of the images that a model gets."""
        if self.images is not None:
            return (self.images.channels, *self.images.shape)
        return tuple(self.view(torch.zeros(1, dtype=torch.int64)).shape[1:])

    @property
    def level(self) -> str:
        """Main level of the ground truth; "" if there is none."""
        return "medium" if "medium" in self.ground_truth else next(iter(self.ground_truth), "")

    def truth(self, level: str = "") -> GroundTruth | None:
        """Returns the ground truth of a level, by default the main one; None if there is none."""
        if not self.ground_truth:
            return None
        if level and level not in self.ground_truth:
            raise ConfigError(f"unknown level `{level}`. {suggest(level, self.ground_truth)}")
        return self.ground_truth[level or self.level]

    @property
    def is_searched(self) -> bool:
        """Whether images are queries; in some collections only texts are."""
        searched = self.columns["split"] == "validation"
        roles = [self.columns.get(name, searched) for name in ("is_query", "is_gallery")]
        return all(bool((searched & role).any()) for role in roles)

    def captions_of(self, rows: Rows) -> Captions:
        """Returns the texts of images, each of which must have one."""
        if self.captions is None:
            raise DataError(
                "[text] requires texts of the images, but the collection has none. Choose one with "
                "captions (`nobackfill datasets` lists them), or add a column `text` to the "
                "manifest."
            )
        captions = self.captions.select(rows)
        check_captions(captions, self.ids_of(rows))
        return captions

    def ids_of(self, rows: Rows, modality: str = "image") -> list[str]:
        """Returns the ids of images, or of all their texts."""
        if modality == "text":
            return self.captions_of(rows).ids
        return [self.ids[row] for row in rows.tolist()]

    def rows_of(self, rows: Rows, modality: str = "image") -> Int[Tensor, " items"]:
        """Returns the rows of images, or the row of the image of each of their texts."""
        return rows[self.captions_of(rows).images] if modality == "text" else rows

    def training_rows(self, step: int) -> Rows:
        """Returns the rows that the model of a step is trained on; -1 is the last step."""
        if not -len(self.class_counts) <= step < len(self.class_counts):
            raise ConfigError(
                f"`step` in [train] must be below {len(self.class_counts)}, the number of shares "
                f"of the data, but it is {step}."
            )
        is_training = torch.from_numpy(self.columns["split"] == "train")
        rows = (is_training & (self.labels < self.class_counts[step])).nonzero().flatten()
        if len(rows) < 2:
            raise DataError(
                f"Training requires at least two images, but {len(rows)} have the split `train` in "
                f"step {step}. Check the column `split`."
            )
        return rows

    def validation_rows(self) -> Rows:
        """Returns the rows that are searched."""
        return torch.from_numpy(self.columns["split"] == "validation").nonzero().flatten()
