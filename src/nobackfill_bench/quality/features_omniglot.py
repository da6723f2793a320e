"""Omniglot at a third of its size, all in memory: for suites that train it many times over."""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from nobackfill.core.atomic_files import replacing
from nobackfill.data.collection import Collection
from nobackfill.data.glyphs import augment
from nobackfill.data.readers.omniglot import read_omniglot
from nobackfill.data.registry import COLLECTIONS
from nobackfill.data.splits import order_classes

NAME = "omniglot_in_memory"


def omniglot_in_memory(
    *,
    path: str = "omniglot",
    kept: str = "omniglot_35.npy",
    shares: tuple[float, ...] = (0.1, 1.0),
    seed: int = 0,
) -> Collection:
    """Characters of 35 x 35 pixels: each the mean of 3 x 3 of the original's.

    Args:
        path: The folder that holds `images_background/` and `images_evaluation/`.
        kept: Where the small images are kept once they are made.
        shares: Of the training classes, for each model of a sequence.
        seed: Of their order.
    """
    listing = read_omniglot(Path(path))
    names, classes = np.unique(listing.classes, return_inverse=True)
    is_training = listing.columns["split"] == "train"
    trained = np.unique(classes[is_training])
    order = order_classes(len(trained), shares, generator=torch.Generator().manual_seed(seed))
    label_of = torch.empty(len(names), dtype=torch.long)
    label_of[torch.from_numpy(trained)] = order.label_of
    others = np.setdiff1d(np.arange(len(names)), trained)
    label_of[torch.from_numpy(others)] = torch.arange(len(trained), len(names))
    images = small_images(Path(path), tuple(listing.files), Path(kept))
    return Collection(
        ids=list(listing.files),
        labels=label_of[torch.from_numpy(classes)],
        columns={"split": listing.columns["split"]},
        class_counts=order.counts,
        load=lambda rows, generator: images[rows.to(images.device)],
        prepare=lambda pixels: pixels.float() / 4.5 - 1,
        augment=lambda batch, generator: augment(batch, generator, paper=-1.0),
        preprocessing="Omniglot, 35 px, -1 to 1",
    )


@cache
def small_images(root: Path, files: tuple[str, ...], kept: Path) -> UInt8[Tensor, "images 1 35 35"]:
    """How many of 3 x 3 pixels have ink, 0 to 9, on a GPU where there is one."""
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with replacing(kept) as unfinished, unfinished.open("wb") as file:
            np.save(file, np.stack([in_blocks(root / name) for name in files]))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.from_numpy(np.load(kept, allow_pickle=False)).to(device)


def in_blocks(path: Path) -> NDArray[np.uint8]:
    """One image: black ink on white in, the ink of each block of 3 x 3 out."""
    with Image.open(path) as image:
        ink = ~np.asarray(image.convert("1"))
    counts: NDArray[np.uint8] = ink.reshape(1, 35, 3, 35, 3).sum(axis=(2, 4), dtype=np.uint8)
    return counts


COLLECTIONS[NAME] = ((omniglot_in_memory,), omniglot_in_memory)
