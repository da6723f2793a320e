"""All methods on Omniglot, in the frame of the paper: appends one JSON line per method and seed.

    NOBACKFILL_DATA=... python benchmarks/omniglot.py --seeds 3 --processes 8 --device cuda

964 training characters (`images_background`), of which the old model knew 10 %; 659 others are
searched, every image asking for all others. ResNet-18 from scratch on 35 x 35 pixels, a projection
to 256 dimensions with BatchNorm, SGD 0.1 with momentum 0.9 and weight decay 5e-4, 30 epochs, a
tenth from epochs 5, 10 and 20 on. Wants timm, and `omniglot/omniglot_105_packed.npz` under the
folder that NOBACKFILL_DATA names. `render.py` makes RESULTS.md of the lines.
"""

import os
from functools import cache
from pathlib import Path

import numpy as np
import suite
import torch

from nobackfill.config import build_recipe, change_tables
from nobackfill.data.collection import Collection
from nobackfill.data.collections import COLLECTIONS
from nobackfill.data.glyphs import augment
from nobackfill.data.splits import order_classes
from nobackfill.models.backbones import BACKBONES, Backbone

SIZES = {"embedding_dim": 256, "train_classes": 964}


def make_recipe(name, old_run, *, seed, changes=()):
    """The recipe of the old model ("old") or of a method; every seed splits the classes anew."""
    is_old = name == "old"
    tables = {
        "data": {"name": "omniglot_packed", "shares": [0.1, 1.0], "seed": seed},
        "model": {"name": "resnet18", "embedding_dim": 256},
        "method": {"name": "independent" if is_old else name},
        "old": {} if is_old else {"run": str(old_run)},
        "train": {
            "step": 0 if is_old else 1,
            "epochs": 30,
            "batch_size": 256,
            "learning_rate": 0.1,
            "schedule": "steps",
            "milestones": [5, 10, 20],
            "seed": seed + (1000 if is_old else 0),
        },
    }
    return build_recipe(change_tables(tables, changes))


def omniglot(*, shares: tuple[float, ...] = (0.1, 1.0), seed: int = 0):
    """Characters of 35 x 35 pixels: each the mean of 3 x 3 of the original's."""
    images, original, is_training = packed()
    order = order_classes(
        int(is_training.sum()), shares, generator=torch.Generator().manual_seed(seed)
    )
    training = torch.from_numpy(np.flatnonzero(is_training))
    label_of = torch.arange(len(is_training))  # characters that are searched keep their number
    label_of[training] = order.label_of
    labels = label_of[torch.from_numpy(original)]
    return Collection(
        ids=[f"{character}-{drawing}" for drawing, character in enumerate(original)],
        labels=labels,
        columns={"split": np.where(is_training[original], "train", "validation")},
        class_counts=order.counts,
        load=lambda rows, generator: images[rows.to(images.device)],
        prepare=lambda pixels: pixels.float() / 4.5 - 1,
        augment=lambda batch, generator: augment(batch, generator, paper=-1.0),
        preprocessing="Omniglot, 35 px, -1 to 1",
    )


@cache
def packed():
    """Images (0 to 9: how many of 3 x 3 pixels have ink), their characters, which are to train on.

    On a GPU where there is one, so that a batch costs no transfer.
    """
    path = Path(os.environ["NOBACKFILL_DATA"]) / "omniglot" / "omniglot_105_packed.npz"
    with np.load(path) as file:
        bits = np.unpackbits(file["images_packed"], axis=1)[:, : 105 * 105]
        characters, names = file["labels"].astype(np.int64), file["classes"]
    blocks = bits.reshape(-1, 1, 35, 3, 35, 3).sum(axis=(3, 5), dtype=np.uint8)
    is_training = np.char.startswith(names, "images_background")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.from_numpy(blocks).to(device), characters, is_training


def resnet18():
    """ResNet-18 for one channel."""
    import timm

    return Backbone(timm.create_model("resnet18", num_classes=0, in_chans=1), 512)


COLLECTIONS["omniglot_packed"] = (omniglot, omniglot)
BACKBONES["resnet18"] = resnet18

if __name__ == "__main__":
    suite.main("omniglot", module="omniglot", seeds=3)
