"""Where NDPP and ODPP gain or lose: by the crowding of the old space, and how far targets move.

    nobackfill bench quality --suite han-4k --seeds 1
    python benchmarks/crowding_gains.py bench-work/han-4k/as_it_is/0

Reads the runs `old`, `prototype_alignment` and those of the methods in the folder of a seed. One
line per method is appended to crowding_gains.jsonl: the angle between old and moved prototypes, and
for five groups of searched classes, from the least to the most crowded (cosine of the class mean to
the nearest other one in the old space), the change of mAP against the Baseline in points.
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import nobackfill as nb

RESULTS = Path(__file__).with_suffix(".jsonl")
BASELINE, GROUPS = "prototype_alignment", 5


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="runs of one seed")
    parser.add_argument("--methods", nargs="*", default=["ndpp", "odpp"])
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    old, baseline = (vectors_of(options.folder / name) for name in ("old", BASELINE))
    groups = groups_by_crowding(old)
    for method in options.methods:
        new = vectors_of(options.folder / method)
        line = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "runs": "/".join(options.folder.parts[-3:]),
            "method": method,
            **angles(options.folder / method),
            "groups": [
                {
                    "cosine": float(cosine),
                    "old_old": mean_ap(old, old, classes),
                    "new_old": mean_ap(new, old, classes) - mean_ap(baseline, old, classes),
                    "new_new": mean_ap(new, new, classes) - mean_ap(baseline, baseline, classes),
                }
                for cosine, classes in groups
            ],
        }
        print(json.dumps(line))
        with options.output.open("a") as file:
            file.write(json.dumps(line) + "\n")


def vectors_of(run):
    """The searched vectors of a run."""
    return nb.load_vectors(run / "validation.parquet")


def groups_by_crowding(old):
    """Mean cosine to the nearest other class, and classes, of groups of equal size."""
    labels, number = np.unique(old.labels, return_inverse=True)
    means = nb.class_means(old.vectors.float(), torch.from_numpy(number), len(labels))
    cosines = means @ means.T
    nearest = cosines.fill_diagonal_(-1).amax(dim=1).numpy()
    parts = np.array_split(np.argsort(nearest), GROUPS)
    return [(nearest[part].mean(), labels[part]) for part in parts]


def mean_ap(query, gallery, classes):
    """Mean average precision in percent of the queries of some classes, on the whole gallery."""
    asks = np.flatnonzero(query.columns["is_query"] & np.isin(query.labels, classes))
    stored = np.flatnonzero(gallery.columns["is_gallery"])
    result = nb.retrieval(
        query.vectors[torch.from_numpy(asks)].float(),
        gallery.vectors[torch.from_numpy(stored)].float(),
        query.labels[asks],
        gallery.labels[stored],
    )
    return 100 * result.mean_average_precision


def angles(run):
    """Mean and largest angle between old and moved prototypes, in degrees; None without weights."""
    path = run / "model.safetensors"
    if not path.exists():
        return {"mean_angle": None, "largest_angle": None}
    tensors = load_file(path)
    if "method.perturb.moved" in tensors:
        old, moved = tensors["method.perturb.p"], tensors["method.perturb.moved"]
    else:
        old = tensors["method.perturb.old"]
        moved = old + tensors["method.perturb.perturbation"]
    degrees = torch.rad2deg(F.cosine_similarity(old, moved).clamp(-1, 1).arccos())
    return {"mean_angle": float(degrees.mean()), "largest_angle": float(degrees.max())}


if __name__ == "__main__":
    main()
