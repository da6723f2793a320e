"""How often `evaluate` says "compatible" where trained models have a true gain.

    OMP_NUM_THREADS=1 python benchmarks/honest_upgrades.py glyphs --seeds 12
    OMP_NUM_THREADS=1 python benchmarks/honest_upgrades.py omniglot --seeds 3 --data DATA

`DATA/omniglot` is the folder that `benchmarks/prepare.py` writes.

Trains an old model and new ones with `janus` and `rbcl` on some classes, for each seed. Other
classes are divided at random: a verdict comes from a few of them, and the truth from all the rest.
An upgrade is honest if, on the rest, mAP rises and neither Recall@1 nor nDCG@10 falls.

Appends a JSON line for each verdict to honest_upgrades.jsonl, and prints the shares. Runs that were
trained before are continued.
"""

import argparse
import json
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch

import nobackfill as nb
from nobackfill.core.config import build_recipe, change_tables
from nobackfill.training.pipeline import train_run
from nobackfill_bench.quality.features import OMNIGLOT
from nobackfill_bench.quality.recipes import glyphs

METHODS = ("janus", "rbcl")


def omniglot(name, old_run, *, seed, data, changes):
    """Omniglot from 10 % of the characters to all, with a small network."""
    is_old = name == "old"
    tables = {
        "data": {
            "name": OMNIGLOT,
            "path": str(data / "omniglot"),
            "kept": str(data / "omniglot_35.npy"),
            "shares": [0.1, 1.0],
            "seed": seed,
        },
        "model": {"name": "small", "embedding_dim": 128},
        "method": {"name": "independent" if is_old else name},
        "old": {} if is_old else {"run": str(old_run)},
        "train": {
            "step": 0 if is_old else 1,
            "epochs": 40 if is_old else 10,
            "batch_size": 64 if is_old else 256,
            "seed": seed,
        },
    }
    return build_recipe(change_tables(tables, changes))


SUITES = {  # recipe, changes of every run, classes of a verdict, verdicts of a pair of models
    "glyphs": (glyphs, ("data.test_classes=1100",), 100, 1),
    "omniglot": (omniglot, (), 164, 4),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--device", default="cpu", help="for training")
    parser.add_argument("--data", type=Path, help="folder of the collections")
    parser.add_argument("--work", type=Path, default=Path("bench-work/honest"), help="for the runs")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        for lines in pool.map(partial(upgrades, options), range(options.seeds)):
            with options.output.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
    print_shares([json.loads(line) for line in options.output.read_text().splitlines()])


def upgrades(options, seed):
    """Trains the models of a seed and returns a line for each verdict."""
    recipe, changes, few, samples = SUITES[options.suite]
    folder = options.work / options.suite / str(seed)

    def vectors_of(name):
        found = recipe(name, folder / "old", seed=seed, data=options.data, changes=changes)
        place = folder / name
        for _ in train_run(found, place, device=torch.device(options.device), resume=True):
            pass
        stored, query = place / "validation.parquet", place / "validation_query.parquet"
        return nb.load_vectors(query if query.exists() else stored)

    old = vectors_of("old")
    classes = np.random.default_rng(seed).permutation(np.unique(old.labels))
    lines = []
    for method in METHODS:
        new = vectors_of(method)
        for sample in range(samples):
            chosen = classes[sample * few : (sample + 1) * few]
            is_chosen = np.isin(old.labels, chosen)
            result, truth = (
                nb.evaluate(old.select(marks), new.select(marks))
                for marks in (is_chosen, ~is_chosen)
            )
            line = {
                "suite": options.suite,
                "method": method,
                "seed": seed,
                "sample": sample,
                "classes": len(chosen),
                "verdict": result.verdict,
                "doubts": list(result.doubts),
                "gain": gains(result),
                "true_gain": gains(truth),
                "true_classes": len(classes) - len(chosen),
            }
            print(json.dumps(line), flush=True)
            lines.append(line)
    return lines


def gains(result):
    """Change of each metric from old/old to new/old, in points."""
    return {name: round(100 * change.mean, 2) for name, change in result.changes.items()}


def print_shares(lines):
    """Verdicts of honest and of other upgrades."""
    for suite in SUITES:
        for is_honest in (True, False):
            verdicts = Counter(
                line["verdict"]
                for line in lines
                if line["suite"] == suite
                and (min(line["true_gain"].values()) >= 0 < line["true_gain"]["map"]) == is_honest
            )
            print(suite, "honest" if is_honest else "not honest", dict(verdicts))


if __name__ == "__main__":
    main()
