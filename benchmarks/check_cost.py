"""What part of an evaluation its checks take: dependence, seen queries and identity.

    OMP_NUM_THREADS=1 python benchmarks/check_cost.py

Simulated vectors of 128 dimensions, 20 items per class, in wide classes (items as different as
classes) and compact ones. Appends a JSON line for each size to check_cost.jsonl.
"""

import argparse
import importlib
import json
import time
from pathlib import Path

import numpy as np
import torch

import nobackfill as nb

DIM, ITEMS = 128, 20
SPREADS = {"wide": 1.5, "compact": 0.5}  # of the items of a class
CHECKS = ("dependent_items", "seen_queries", "identity_doubts", "relation_note")
MODULE = importlib.import_module("nobackfill.evaluation.evaluate")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--gallery", type=int, default=100_000, help="0: the queries themselves")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    seconds = dict.fromkeys(CHECKS, 0.0)
    for name in CHECKS:
        setattr(MODULE, name, timed(getattr(MODULE, name), name, seconds))
    for classes, spread in SPREADS.items():
        seconds.update(dict.fromkeys(CHECKS, 0.0))
        old, new = vectors(options.queries, options.gallery, spread)
        start = time.perf_counter()
        nb.evaluate(old, new).summary()
        line = {
            "queries": options.queries,
            "gallery": options.gallery or options.queries,
            "classes": classes,
            "seconds": round(time.perf_counter() - start, 2),
            "checks": round(sum(seconds.values()), 2),
        }
        line["share"] = round(line["checks"] / line["seconds"], 3)
        print(json.dumps(line), flush=True)
        with options.output.open("a") as file:
            file.write(json.dumps(line) + "\n")


def timed(function, name, seconds):
    """The function, which adds its seconds to those of its name."""

    def call(*values, **options):
        start = time.perf_counter()
        result = function(*values, **options)
        seconds[name] += time.perf_counter() - start
        return result

    return call


def vectors(queries, gallery, spread):
    """Old and new vectors; queries are drawn at random if there is a gallery."""
    generator = torch.Generator().manual_seed(0)
    number = queries + gallery
    labels = np.arange(number) % (number // ITEMS)

    def random(rows):
        return torch.randn(rows, DIM, generator=generator)

    means, items = random(number // ITEMS)[labels], random(number)
    columns = {}
    if gallery:
        is_query = np.random.default_rng(0).permutation(number) < queries
        columns = {"is_query": is_query, "is_gallery": ~is_query}
    return tuple(
        nb.Vectors(range(number), means + scale * spread * items + 0.3 * random(number), labels,
                   columns=columns)
        for scale in (1, 0.9)
    )  # fmt: skip


if __name__ == "__main__":
    main()
