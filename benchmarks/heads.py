"""Heads fitted from stored vectors alone: appends one JSON line per setting, way and seed.

    NOBACKFILL_DATA=... python benchmarks/heads.py --settings cub200 landmarks50 omniglot --seeds 5

* `cub200`, `landmarks50`: frozen features of `features.npz`, MobileNetV2 (old) to ResNet-50 (new)
* `omniglot`: vectors of networks trained on 10 % (old) and on all (new, independent) of 964
  characters, searched on 659 others; `omniglot_heads/omniglot_SEED.npz`, made by
  `omniglot_vectors.py` on a GPU

Heads see training classes only. Beside each stand the raw vectors: old/old, what is in service, and
new/new, what a full backfill would give without any head.
"""

import argparse
import csv
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

import nobackfill as nb
from nobackfill.adapters import procrustes, ridge

WAYS = (
    "procrustes", "ridge", "mimic", "prototype_alignment", "ndpp", "odpp", "bct", "rbcl",
    "prototype_mimic", "cross_supcon",
)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--settings", nargs="*", default=["cub200", "landmarks50", "omniglot"], choices=SETTINGS
    )
    parser.add_argument("--ways", nargs="*", default=[way for way in WAYS if way != "bct"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    for setting in options.settings:
        for seed in range(options.seeds):
            old, new = SETTINGS[setting](Path(os.environ["NOBACKFILL_DATA"]), seed)
            for way in options.ways:
                line = measure(way, old, new, seed)
                line = {"setting": setting, "way": way, "seed": seed, **line}
                print(json.dumps(line), flush=True)
                with options.output.open("a") as file:
                    file.write(json.dumps(line) + "\n")


def measure(way, old, new, seed):
    """Fits on the training items, and evaluates on the others."""
    fitted, searched = ([side.select(rows) for side in (old, new)] for rows in split(old))
    start = time.perf_counter()
    head = fit(way, *fitted, seed)
    seconds = time.perf_counter() - start
    mapped = head(searched[1].vectors.float())
    compatible = nb.Vectors(
        searched[1].ids, mapped, searched[1].labels, columns=searched[1].columns
    )
    result = nb.evaluate(searched[0], compatible).summary()
    raw = nb.evaluate(searched[1], searched[1])
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "old_old": result["old_old"],
        "new_old": result["new_old"],
        "new_new": result["new_new"],
        "raw_new": raw.old_old.mean_average_precision,
        "gain": result["differences"]["new_old - old_old"],
        "verdict": result["verdict"],
        "lost": result["flips"][0]["negative"],
        "seconds": seconds,
    }


def fit(way, old, new, seed):
    """What maps new vectors into the old space."""
    if way in ("procrustes", "ridge"):
        kind = {"procrustes": procrustes, "ridge": ridge}[way]
        return kind(new.vectors.float(), old.vectors.float())
    return nb.CompatibleHead(way, seed=seed).fit(new, old).transform


def split(vectors):
    training = vectors.columns["split"] == "train"
    return training, ~training


def features(name):
    def load(data, seed):
        with (data / name / "manifest.csv").open() as file:
            rows = list(csv.DictReader(file))
        found = np.load(data / name / "features.npz", allow_pickle=False)
        columns = {
            key: np.array([row[key] == "True" for row in rows])
            for key in ("is_query", "is_gallery")
        }
        columns["split"] = np.array([row["split"] for row in rows])
        ids, labels = ([row[key] for row in rows] for key in ("path", "label"))
        return tuple(
            nb.Vectors(
                ids, torch.from_numpy(found[key].astype(np.float32)), labels, columns=columns
            )
            for key in ("mobilenet_v2", "resnet50")
        )

    return load


def omniglot(data, seed):
    found = np.load(data / "omniglot_heads" / f"omniglot_{seed}.npz", allow_pickle=False)
    columns = {"split": np.where(found["is_train"], "train", "validation")}
    ids, labels = list(range(len(found["labels"]))), found["labels"].astype(np.int64)
    return tuple(
        nb.Vectors(ids, torch.from_numpy(found[key].astype(np.float32)), labels, columns=columns)
        for key in ("old", "new")
    )


SETTINGS = {
    "cub200": features("cub200"),
    "landmarks50": features("landmarks50"),
    "omniglot": omniglot,
}


if __name__ == "__main__":
    main()
