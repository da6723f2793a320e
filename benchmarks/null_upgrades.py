"""How often `assess` says "upgrade" where there is nothing to gain.

    OMP_NUM_THREADS=1 python benchmarks/null_upgrades.py --jobs 2

Simulated worlds of 60 classes, each with an old and a new model's vectors:

* `redraw`    the new vectors are as good as the old ones: the same means, another noise
* `rotated`   the same, in a space of its own
* `shuffled`  the new model is better, but labels are shuffled: nobody can know
* `noise`     the new vectors are noise
* `same`      the new vectors are the old ones
* `even`      the new vectors have less noise, in a space of their own, by so much that what the map
              into the old space costs and what they bring are about even: `mean_gain` says how even
* `better`    the new vectors have half the noise: here it *should* say so

Appends a JSON line for each kind to null_upgrades.jsonl.
"""

import argparse
import json
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

import nobackfill as nb

KINDS = ("redraw", "rotated", "shuffled", "noise", "same", "even", "better")
CLASSES, ITEMS, DIM, NOISE = 60, 8, 16, 1.5
EVEN = 0.715  # of the noise; found with other seeds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upgrades", type=int, default=400, help="number for each kind")
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--epochs", type=int, default=8, help="of each head")
    parser.add_argument("--even", type=float, default=EVEN, help="share of noise in `even`")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.upgrades)
    with ProcessPoolExecutor(options.jobs) as pool:
        for kind in options.kinds:
            judge = partial(assess_upgrade, kind, options.even, options.epochs)
            verdicts, gains = zip(*pool.map(judge, seeds, chunksize=10), strict=True)
            line = {
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "kind": kind,
                "upgrades": options.upgrades,
                "epochs": options.epochs,
                "verdicts": dict(Counter(verdicts)),
                "mean_gain": sum(gains) / len(gains),
                "even": options.even if kind == "even" else None,
            }
            print(json.dumps(line), flush=True)
            with options.output.open("a") as file:
                file.write(json.dumps(line) + "\n")


def assess_upgrade(kind, even, epochs, seed):
    """The verdict on an upgrade, and the gain of the head that `assess` chose."""
    verdict = nb.assess(*world(kind, seed, even), seed=seed, epochs=epochs)
    gain = next(way.gain.mean for way in verdict.candidates if way.name == verdict.chosen)
    return verdict.verdict, gain


def world(kind, seed, even):
    """The vectors of an old and of a new model."""
    generator = torch.Generator().manual_seed(seed)
    mean = F.normalize(torch.randn(CLASSES, DIM, generator=generator), dim=1)
    labels = torch.arange(CLASSES * ITEMS) % CLASSES

    def draw(noise):
        around = torch.randn(len(labels), DIM, generator=generator) / DIM**0.5
        return mean[labels] + noise * around

    old = draw(NOISE)
    turn = torch.linalg.qr(torch.randn(DIM, DIM, generator=generator)).Q
    new = {
        "redraw": lambda: draw(NOISE),
        "rotated": lambda: draw(NOISE) @ turn,
        "shuffled": lambda: draw(NOISE / 2),
        "noise": lambda: torch.randn(len(labels), DIM, generator=generator),
        "same": old.clone,
        "even": lambda: draw(even * NOISE) @ turn,
        "better": lambda: draw(NOISE / 2) @ turn,
    }[kind]()
    if kind == "shuffled":
        labels = labels[torch.randperm(len(labels), generator=generator)]
    ids = list(range(len(labels)))
    return tuple(nb.Vectors(ids, vectors, labels.numpy()) for vectors in (old, new))


if __name__ == "__main__":
    main()
