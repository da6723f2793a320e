"""Collections of image files."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from nobackfill.core.config import ImagesConfig
from nobackfill.core.numbers import magnitude
from nobackfill.data.captions import collect_captions
from nobackfill.data.collection import Collection, Pixels, Rows
from nobackfill.data.decode import open_image
from nobackfill.data.listing import Listing
from nobackfill.data.splits import ClassOrder, number_classes
from nobackfill.data.transforms import augment, cut, describe, normalize, resize
from nobackfill.errors import ConfigError, DataError

Order = Literal["random", "first", "numpy"]


def collect_files(
    listing: Listing,
    images: ImagesConfig,
    *,
    protocol: str = "plain",
    shares: Sequence[float] = (1.0,),
    counts: Sequence[int] = (),
    order: Order = "random",
    seed: int = 0,
    workers: int = 0,
    keep: bool = False,
) -> Collection:
    """Returns the collection of the items in a listing.

    Args:
        listing: Items of the collection.
        images: Preprocessing of the images.
        protocol: Search protocol.
        shares: Share of the training classes that each model knows, ascending.
        counts: Number of classes that each model knows; replaces `shares`.
        order: Classes of earlier models: "random" (drawn by torch), "first" (the first by name, or
            by number if all names are numbers) or "numpy" (drawn by its `RandomState` from that
            order, as in published code of the field).
        seed: Random seed of the order.
        workers: Number of processes that decode and crop.
        keep: Whether decoded images stay in memory.
    """
    # Number the classes: first those of the training set, in the order of the models.
    is_train = listing.columns["split"] == "train"
    names = _ascending(set(listing.classes[is_train].tolist()))
    label_of = {}
    class_counts: tuple[int, ...] = ()
    if names:
        ordered = order_names(len(names), shares, counts=counts, order=order, seed=seed)
        label_of = {names[c]: label for label, c in enumerate(ordered.classes.tolist())}
        class_counts = ordered.counts
    for name in _ascending(set(listing.classes[~is_train].tolist())):
        label_of.setdefault(name, len(label_of))

    pixels = PixelFiles(listing, images, workers=workers)
    ids, texts = listing.ids or listing.files, listing.captions
    return Collection(
        ids=ids,
        labels=torch.tensor([label_of[name] for name in listing.classes.tolist()]),
        columns=listing.columns,
        class_counts=class_counts,
        load=pixels,
        prepare=partial(normalize, config=images),
        augment=partial(augment, config=images),
        preprocessing=describe(images),
        captions=None if texts is None else collect_captions(texts, ids),
        ground_truth=listing.ground_truth,
        protocol=protocol,
        workers=workers,
        ready=pixels.decode_ahead if keep else None,
        images=images,
        reopen=partial(
            collect_files,
            listing,
            protocol=protocol,
            shares=shares,
            counts=counts,
            order=order,
            seed=seed,
            workers=workers,
            keep=keep,
        ),  # fmt: skip
    )


def order_names(
    num_classes: int,
    shares: Sequence[float],
    *,
    counts: Sequence[int],
    order: Order,
    seed: int,
) -> ClassOrder:
    """Numbers the classes, which are sorted by name, by the first model that knows them."""
    if counts:
        if counts[-1] > num_classes:
            raise ConfigError(
                f"`counts` in [data] has {counts[-1]}, but there are only {num_classes} training "
                f"classes."
            )
        shares = [count / num_classes for count in counts]
    permutation: Int64[Tensor, " classes"]
    if order == "first":
        permutation = torch.arange(num_classes)
    elif order == "numpy":
        permutation = torch.from_numpy(np.random.RandomState(seed).permutation(num_classes))
    else:
        permutation = torch.randperm(num_classes, generator=torch.Generator().manual_seed(seed))
    return number_classes(permutation, shares)


@dataclass(eq=False)
class PixelFiles:
    """Decoder of the files of a listing; `kept` holds images that are already resized."""

    listing: Listing
    images: ImagesConfig
    workers: int = 0
    kept: dict[int, UInt8[Tensor, "channels height width"]] = field(default_factory=dict)

    def __call__(self, rows: Rows, generator: torch.Generator | None) -> Pixels:
        """Returns the pixels of rows, decoded, resized and cropped."""
        if len(rows) == 0:
            return torch.empty(0, self.images.channels, *self.images.shape, dtype=torch.uint8)
        return torch.stack(
            [cut(self._resized(row), self.images, generator) for row in rows.tolist()]
        )

    def _resized(self, row: int) -> UInt8[Tensor, "channels height width"]:
        if row in self.kept:
            return self.kept[row]
        path = Path(self.listing.root) / self.listing.files[row]
        box = self.listing.boxes.get(row)
        image = open_image(path, at_least=None if box else max(self.images.size))
        if box is not None:
            image = image.crop(box)
        if min(image.size) == 0:
            raise DataError(f"The crop {box} of the image {path} is empty.")
        return resize(image, self.images)

    def decode_ahead(self, rows: Rows) -> None:
        """Decodes rows into memory, in threads; processes that start later share the memory."""
        missing = [row for row in rows.tolist() if row not in self.kept]
        with ThreadPoolExecutor(max(self.workers, 1)) as pool:
            self.kept |= dict(zip(missing, pool.map(self._resized, missing), strict=True))


def _ascending(names: set[str]) -> list[str]:
    """Sorts names: by number if all are numbers, else as text."""
    if all(name.isdecimal() for name in names):
        return sorted(names, key=lambda name: (magnitude(name), name))
    return sorted(names)
