"""Where NDPP and ODPP gain or lose: by the crowding of the old space, and how far targets move.

    nobackfill bench quality --suite han-4k --seeds 1
    python benchmarks/crowding_gains.py bench-work/han-4k/as_it_is/0

Reads the runs `old`, `prototype_alignment` and those of the methods in the folder of a seed. One
line per method is appended to crowding_gains.jsonl: the angle between old and moved prototypes, and
for five groups of searched classes, from the least to the most crowded (cosine of the class mean to
the nearest other one in the old space), the change of mAP against the Baseline in points, with half
the width of a 95 % interval over classes. `slope` is the change of that gain per 0.1 of the cosine,
by least squares over the classes. Intervals do not contain the chance of a training.
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
    parser.add_argument("--file", default="validation.parquet", help="vectors in each run")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    old, baseline = (vectors_of(options.folder / name, options) for name in ("old", BASELINE))
    nearest = cosine_to_nearest(old)
    scores = {"old_old": by_class(old, old)}
    base = {"new_old": by_class(baseline, old), "new_new": by_class(baseline, baseline)}
    for method in options.methods:
        new = vectors_of(options.folder / method, options)
        found = {"new_old": by_class(new, old), "new_new": by_class(new, new)}
        gains = {key: found[key] - base[key] for key in found}
        line = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "runs": "/".join(options.folder.parts[-3:]),
            "file": options.file,
            "method": method,
            **angles(options.folder / method),
            "slope": {key: slope(nearest, gain) for key, gain in gains.items()},
            "groups": [
                {
                    "cosine": float(nearest[rows].mean()),
                    "old_old": float(np.nanmean(scores["old_old"][rows])),
                    **{key: mean_and_half(gain[rows]) for key, gain in gains.items()},
                }
                for rows in np.array_split(np.argsort(nearest), GROUPS)
            ],
        }
        print(json.dumps(line))
        with options.output.open("a") as file:
            file.write(json.dumps(line) + "\n")


def vectors_of(run, options):
    """The searched vectors of a run."""
    return nb.load_vectors(run / options.file)


def cosine_to_nearest(old):
    """Cosine of each class mean to the nearest other one, by ascending label."""
    labels, number = np.unique(old.labels, return_inverse=True)
    means = nb.class_means(old.vectors.float(), torch.from_numpy(number), len(labels))
    return (means @ means.T).fill_diagonal_(-1).amax(dim=1).numpy()


def by_class(query, gallery):
    """Mean average precision in percent of the queries of each class, by ascending label."""
    asks = np.flatnonzero(query.columns["is_query"])
    stored = np.flatnonzero(gallery.columns["is_gallery"])
    result = nb.retrieval(
        query.vectors[torch.from_numpy(asks)].float(),
        gallery.vectors[torch.from_numpy(stored)].float(),
        query.labels[asks],
        gallery.labels[stored],
    )
    labels, number = np.unique(query.labels, return_inverse=True)
    sums = np.bincount(number[asks], result.average_precision.numpy(), len(labels))
    counts = np.bincount(number[asks], minlength=len(labels))
    return 100 * sums / np.where(counts, counts, np.nan)


def mean_and_half(gains):
    """Mean, and half the width of its 95 % interval over classes."""
    known = gains[~np.isnan(gains)]
    return [float(known.mean()), float(1.96 * known.std(ddof=1) / len(known) ** 0.5)]


def slope(nearest, gains):
    """Points per 0.1 of the cosine, and half the width of the 95 % interval."""
    known = ~np.isnan(gains)
    x, y = nearest[known] - nearest[known].mean(), gains[known] - gains[known].mean()
    steepness = (x @ y) / (x @ x)
    rest = y - steepness * x
    error = np.sqrt((rest @ rest) / (len(x) - 2) / (x @ x))
    return [float(0.1 * steepness), float(0.1 * 1.96 * error)]


def angles(run):
    """Mean and largest angle between old and moved prototypes, in degrees; None without weights."""
    path = run / "model.safetensors"
    if not path.exists():
        return {"mean_angle": None, "largest_angle": None}
    tensors = load_file(path)
    old, moved = tensors["method.perturb.old"], tensors.get("method.perturb.moved")
    if moved is None:
        moved = old + tensors["method.perturb.perturbation"]
    degrees = torch.rad2deg(F.cosine_similarity(old, moved).clamp(-1, 1).arccos())
    return {"mean_angle": float(degrees.mean()), "largest_angle": float(degrees.max())}


if __name__ == "__main__":
    main()
