"""Stored vectors of two models that suites begin with, read from the folder of the data.

* `features.npz` and `manifest.csv`: frozen features of MobileNetV2 (old) and ResNet-50 (new)
* `omniglot_SEED.npz`: networks trained on 10 % (old) and on all (new) of 964 characters
* `flickr8k.npz`: captions, whose old vectors are the new ones, cut
"""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.vectors import Vectors

Load = Callable[[Path, int], tuple[Vectors, Vectors]]  # folder and seed in, old and new out
CUT = 128  # of captions: the first of 384 dimensions


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
        with np.load(require(data / name / "features.npz"), allow_pickle=False) as found:
            old, new = (as_float(found[key]) for key in ("mobilenet_v2", "resnet50"))
        return tuple(Vectors(ids, side, labels, columns=columns) for side in (old, new))  # type: ignore[return-value]

    return load


def omniglot_vectors(data: Path, seed: int) -> tuple[Vectors, Vectors]:
    """What `benchmarks/omniglot_vectors.py` wrote: other networks for each seed."""
    path = require(data / "omniglot_heads" / f"omniglot_{seed}.npz")
    with np.load(path, allow_pickle=False) as found:
        labels = found["labels"].astype(np.int64)
        columns = {"split": np.where(found["is_train"], "train", "validation")}
        old, new = (as_float(found[key]) for key in ("old", "new"))
    ids = list(range(len(labels)))
    return (
        Vectors(ids, old, labels, columns=columns),
        Vectors(ids, new, labels, columns=columns),
    )


def caption_vectors(data: Path, seed: int) -> tuple[Vectors, Vectors]:
    """What `benchmarks/caption_vectors.py` wrote."""
    path = require(data / "flickr8k_heads" / "flickr8k.npz")
    with np.load(path, allow_pickle=False) as found:
        used = found["split"] != "unused"
        images, places, splits = (found[key][used] for key in ("image", "caption", "split"))
        new = F.normalize(as_float(found["vectors"][used]), dim=1)
    ids = [f"{image}#{place}" for image, place in zip(images, places, strict=True)]
    columns = {"split": splits}
    return (
        Vectors(ids, F.normalize(new[:, :CUT], dim=1), images, columns=columns),
        Vectors(ids, new, images, columns=columns),
    )


def as_float(array: NDArray[np.floating]) -> Float[Tensor, "rows dim"]:
    """In single precision."""
    return torch.from_numpy(array.astype(np.float32))


def parts(vectors: Vectors) -> tuple[Vectors, Vectors]:
    """The items to fit on, and those that are searched."""
    training = vectors.columns["split"] == "train"
    return vectors.select(training), vectors.select(~training)


def with_vectors(of: Vectors, vectors: Float[Tensor, "items dim"]) -> Vectors:
    """Other vectors of the same items."""
    return Vectors(of.ids, vectors, of.labels, columns=of.columns)


def require(path: Path) -> Path:
    """The path of a file that must be there."""
    if not path.exists():
        raise DataError(
            f"wanted {path.name} of this suite in {path.parent}, but it is not there. Point "
            f"NOBACKFILL_DATA or --data to the folder of the collections; benchmarks/README.md "
            f"says how each is made."
        )
    return path
