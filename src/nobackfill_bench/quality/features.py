"""Inputs of the suites: stored vectors of two models, and Omniglot in memory.

All are read from the data folder:

* `features.npz` and `manifest.csv`: frozen features of MobileNetV2 (old) and ResNet-50 (new)
* `omniglot_SEED.npz`: vectors of networks trained on 10 % (old) and all (new) of 964 characters
* `flickr8k.npz`: vectors of captions; the old vectors are the first dimensions of the new ones
* `omniglot/`: the images, loaded at a third of their size for suites that train on them often
"""

import csv
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from nobackfill.core.atomic_files import replacing
from nobackfill.data.collection import Collection
from nobackfill.data.glyphs import augment
from nobackfill.data.readers.omniglot import read_omniglot
from nobackfill.data.registry import COLLECTIONS
from nobackfill.data.splits import order_classes
from nobackfill.errors import DataError
from nobackfill.vectors import Vectors

Load = Callable[[Path, int], tuple[Vectors, Vectors]]  # (folder, seed) -> (old, new)
CAPTION_OLD_DIM = 128  # old caption vectors: the first 128 of 384 dimensions
OMNIGLOT = "omniglot_in_memory"  # name of the collection in recipes


def backbone_features(name: str) -> Load:
    """Frozen features of two backbones."""

    def load(data: Path, seed: int) -> tuple[Vectors, Vectors]:
        with require(data / name / "manifest.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        columns = {
            key: np.array([row[key] == "True" for row in rows])
            for key in ("is_query", "is_gallery")
        }
        columns["split"] = np.array([row["split"] for row in rows])
        ids, labels = ([row[key] for row in rows] for key in ("path", "label"))
        with np.load(require(data / name / "features.npz"), allow_pickle=False) as arrays:
            old, new = (as_float(arrays[key]) for key in ("mobilenet_v2", "resnet50"))
        return tuple(Vectors(ids, side, labels, columns=columns) for side in (old, new))  # type: ignore[return-value]

    return load


def omniglot_vectors(data: Path, seed: int) -> tuple[Vectors, Vectors]:
    """Vectors written by `benchmarks/omniglot_vectors.py`; each seed has its own networks."""
    path = require(data / "omniglot_heads" / f"omniglot_{seed}.npz")
    with np.load(path, allow_pickle=False) as arrays:
        labels = arrays["labels"].astype(np.int64)
        columns = {"split": np.where(arrays["is_train"], "train", "validation")}
        old, new = (as_float(arrays[key]) for key in ("old", "new"))
    ids = list(range(len(labels)))
    return (
        Vectors(ids, old, labels, columns=columns),
        Vectors(ids, new, labels, columns=columns),
    )


def caption_vectors(data: Path, seed: int) -> tuple[Vectors, Vectors]:
    """Vectors written by `benchmarks/caption_vectors.py`; the same for every seed."""
    path = require(data / "flickr8k_heads" / "flickr8k.npz")
    with np.load(path, allow_pickle=False) as arrays:
        used = arrays["split"] != "unused"
        images, places, splits = (arrays[key][used] for key in ("image", "caption", "split"))
        new = F.normalize(as_float(arrays["vectors"][used]), dim=1)
    ids = [f"{image}#{place}" for image, place in zip(images, places, strict=True)]
    columns = {"split": splits}
    return (
        Vectors(ids, F.normalize(new[:, :CAPTION_OLD_DIM], dim=1), images, columns=columns),
        Vectors(ids, new, images, columns=columns),
    )


def as_float(array: NDArray[np.floating]) -> Float[Tensor, "rows dim"]:
    """Converts an array to a float32 tensor."""
    return torch.from_numpy(array.astype(np.float32))


def parts(vectors: Vectors) -> tuple[Vectors, Vectors]:
    """Splits into the items to fit on and the items to search."""
    training = vectors.columns["split"] == "train"
    return vectors.select(training), vectors.select(~training)


def with_vectors(items: Vectors, vectors: Float[Tensor, "items dim"]) -> Vectors:
    """Replaces the vectors and keeps ids, labels and columns."""
    return Vectors(items.ids, vectors, items.labels, columns=items.columns)


def omniglot_in_memory(
    *,
    path: str = "omniglot",
    kept: str = "omniglot_35.npy",
    shares: tuple[float, ...] = (0.1, 1.0),
    seed: int = 0,
) -> Collection:
    """Loads Omniglot at 35 x 35 pixels: the mean of each block of 3 x 3 original pixels.

    Args:
        path: Folder with `images_background/` and `images_evaluation/`.
        kept: Cache file for the small images.
        shares: Share of the training classes that each model of a sequence is trained on.
        seed: Random seed of the class order.
    """
    listing = read_omniglot(Path(path))
    # Training classes get the labels 0, 1, ... in random order; the others follow.
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
    """Number of ink pixels in each block of 3 x 3 (0 to 9), on the GPU if there is one."""
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with replacing(kept) as unfinished, unfinished.open("wb") as file:
            np.save(file, np.stack([in_blocks(root / name) for name in files]))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.from_numpy(np.load(kept, allow_pickle=False)).to(device)


def in_blocks(path: Path) -> NDArray[np.uint8]:
    """Reads an image (black ink on white) and counts the ink pixels of each block of 3 x 3."""
    with Image.open(path) as image:
        ink = ~np.asarray(image.convert("1"))
    counts: NDArray[np.uint8] = ink.reshape(1, 35, 3, 35, 3).sum(axis=(2, 4), dtype=np.uint8)
    return counts


def require(path: Path) -> Path:
    """Returns the path, or raises `DataError` if there is no such file."""
    if not path.exists():
        raise DataError(
            f"No {path.name} in {path.parent}. Set NOBACKFILL_DATA or --data to the data folder; "
            f"benchmarks/README.md describes how to prepare each file."
        )
    return path


COLLECTIONS[OMNIGLOT] = (omniglot_in_memory,)
