"""What heads are fitted to, and searched on: the settings of `heads.py`, by name."""

import csv
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

import nobackfill as nb

OLD_DIM = 128  # of captions: the first of 384


@dataclass(frozen=True)
class Setting:
    """One upgrade, a new one for each seed where its vectors have seeds.

    Attributes:
        load: The folder of the data and a seed in; old and new vectors out, with the column
            `split`: "train" to fit on, all others to search.
        says: What it is, in the words of RESULTS.md.
        supervision: How `CompatibleHead.fit` is told what belongs together.
        trained: Whether the old model is a head that `heads_scratch.py` trains on the old vectors,
            and new ones are trained so, too.
    """

    load: Callable
    says: str
    supervision: str = "labels"
    trained: bool = False


def features(name):
    """Frozen features of two backbones: MobileNetV2 and ResNet-50."""

    def load(data, seed):
        with (data / name / "manifest.csv").open() as file:
            rows = list(csv.DictReader(file))
        columns = {
            key: np.array([row[key] == "True" for row in rows])
            for key in ("is_query", "is_gallery")
        }
        columns["split"] = np.array([row["split"] for row in rows])
        ids, labels = ([row[key] for row in rows] for key in ("path", "label"))
        with np.load(data / name / "features.npz", allow_pickle=False) as found:
            sides = [as_float(found[key]) for key in ("mobilenet_v2", "resnet50")]
        return tuple(nb.Vectors(ids, side, labels, columns=columns) for side in sides)

    return load


def omniglot(data, seed):
    """What `omniglot_vectors.py` wrote."""
    with np.load(data / "omniglot_heads" / f"omniglot_{seed}.npz", allow_pickle=False) as found:
        labels = found["labels"].astype(np.int64)
        columns = {"split": np.where(found["is_train"], "train", "validation")}
        sides = [as_float(found[key]) for key in ("old", "new")]
    ids = list(range(len(labels)))
    return tuple(nb.Vectors(ids, side, labels, columns=columns) for side in sides)


def captions(data, seed):
    """What `caption_vectors.py` wrote; the old vectors are the new ones, cut."""
    with np.load(data / "flickr8k_heads" / "flickr8k.npz", allow_pickle=False) as found:
        used = found["split"] != "unused"
        images, places, splits = (found[key][used] for key in ("image", "caption", "split"))
        new = F.normalize(as_float(found["vectors"][used]), dim=1)
    ids = [f"{image}#{place}" for image, place in zip(images, places, strict=True)]
    sides = F.normalize(new[:, :OLD_DIM], dim=1), new
    return tuple(nb.Vectors(ids, side, images, columns={"split": splits}) for side in sides)


def as_float(array):
    return torch.from_numpy(array.astype(np.float32))


def parts(vectors):
    """The items to fit on, and those that are searched."""
    training = vectors.columns["split"] == "train"
    return vectors.select(training), vectors.select(~training)


SETTINGS = {
    "cub200": Setting(
        features("cub200"),
        "CUB-200, frozen MobileNetV2 → ResNet-50 features, 100 + 100 classes",
    ),
    "landmarks50": Setting(
        features("landmarks50"),
        "landmarks50, frozen MobileNetV2 → ResNet-50 features, 25 + 25 classes",
    ),
    "omniglot": Setting(
        omniglot,
        "Omniglot, networks trained on 10 % and, independently, on all of 964 characters",
    ),
    "captions": Setting(
        captions,
        "Captions of Flickr8k, MiniLM cut to 128 dimensions → all 384, fitted from groups of 5",
        supervision="groups",
    ),
    "cub200_trained": Setting(
        features("cub200"),
        "CUB-200, a head trained on 30 % of the classes → ResNet-50 features of all",
        trained=True,
    ),
    "landmarks50_trained": Setting(
        features("landmarks50"),
        "landmarks50, a head trained on 30 % of the classes → ResNet-50 features of all",
        trained=True,
    ),
}
