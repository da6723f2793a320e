"""How often `evaluate` says "compatible" where nothing is gained, and which gains it finds.

    OMP_NUM_THREADS=1 python benchmarks/false_go.py

Null upgrades, in simulated worlds of 4 to 200 classes, some of which are easier than others:

* `shuffled`  the new model is better, but labels are shuffled: nobody can know
* `fresh`     new vectors of the old model: the same items, with fresh noise
* `rotated`   old vectors, rotated and mapped back by a head that was fitted on other classes
* `equal`     another model of equal quality; each class suits one model or the other by chance

Each is judged three times: by labels, by a ground truth that lists the whole class, and by pairs
(two items of the class for each query). Honest upgrades are in the old space and have a share less
noise. Copies are four classes, of which the new model suits three by chance, copied 20 times under
other labels, with noise by both models. Writes a JSON line for each row of the three tables to
false_go.jsonl, and prints the tables.
"""

import argparse
import json
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from math import comb
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import nobackfill as nb
from nobackfill.data.listing import GroundTruth

KINDS = ("null", "honest", "copies")
DESIGNS = ("shuffled", "fresh", "rotated", "equal")
JUDGES = ("labels", "ground truth", "pairs")
CLASSES = (4, 8, 20, 60, 200)
ITEMS, DIM, TRAINING = 6, 16, 24  # items of a class, dimensions, classes that heads are fitted on
LESS_NOISE = {  # shares of the noise that honest upgrades lack, by number of classes
    20: (0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
    100: (0.02, 0.04, 0.06, 0.1, 0.12, 0.15),
    1000: (0.01, 0.02, 0.03, 0.04, 0.06, 0.08),
}
LIKENESS = (0.995, 0.985, 0.97, 0.95, 0.9)  # mean cosine of an item and its copy
COPIES = 20  # of each class
FOUND = 0.8  # share of the upgrades that a gain must be found in


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upgrades", type=int, default=400, help="null upgrades of each design")
    parser.add_argument("--honest", type=int, default=20, help="of each gain; copies likewise")
    parser.add_argument("--designs", nargs="*", default=DESIGNS, help="others are kept")
    parser.add_argument("--kinds", nargs="*", default=KINDS, help="others are kept")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    kept = options.output.read_text().splitlines() if options.output.exists() else []
    lines = [
        line
        for line in map(json.loads, kept)
        if line["kind"] not in options.kinds
        or line.get("design") not in (*options.designs, None)  # honest upgrades have none
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        if "null" in options.kinds:
            number = options.upgrades // len(CLASSES)
            cells = [
                pool.submit(null_lines, *cell, number) for cell in product(options.designs, CLASSES)
            ]
            lines = [line for cell in cells for line in cell.result()] + lines
        if "honest" in options.kinds:
            sizes = [(classes, less) for classes, row in LESS_NOISE.items() for less in row]
            cells = [pool.submit(honest_line, *size, options.honest) for size in sizes]
            lines += [cell.result() for cell in cells]
        if "copies" in options.kinds:
            lines += pool.map(copies_line, LIKENESS, [options.honest] * len(LIKENESS))
    options.output.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    print_tables(lines)


def null_lines(design, classes, upgrades):
    """Verdicts on null upgrades of a design with so many classes, for each judge."""
    verdicts = {judge: Counter() for judge in JUDGES}
    for seed in range(upgrades):
        world = World(classes, ITEMS, seed)
        sides = null_upgrade(design, world)
        for judge in JUDGES:
            verdicts[judge][verdict_by(judge, world, *sides)] += 1
    return [
        {
            "kind": "null",
            "design": design,
            "judge": judge,
            "classes": classes,
            "upgrades": upgrades,
            "verdicts": dict(counts),
        }
        for judge, counts in verdicts.items()
    ]


def honest_line(classes, less, upgrades):
    """Verdicts on honest upgrades with so many classes and a share less noise."""
    verdicts, gains = Counter(), []
    for seed in range(upgrades):
        world = World(classes, 4, 10_000 + seed)
        old, new = (world.files(world.view(scale=scale)) for scale in (1, 1 - less))
        result = nb.evaluate(old, new)
        verdicts[result.verdict] += 1
        gains.append(result.differences["new_old - old_old"].mean)
    return {
        "kind": "honest",
        "classes": classes,
        "less_noise": less,
        "gain": sum(gains) / len(gains),
        "upgrades": upgrades,
        "verdicts": dict(verdicts),
    }


def copies_line(likeness, upgrades):
    """Verdicts on four classes that were copied with noise."""
    verdicts = Counter()
    for seed in range(upgrades):
        world = World(4, 2 * 4, 20_000 + seed)
        suits = torch.from_numpy(world.labels < 3)[:, None]
        sides = world.view(), world.view() + 0.6 * suits * world.means[world.labels]
        labels = np.concatenate([world.labels + 4 * copy for copy in range(COPIES)])
        noise = (1 / likeness**2 - 1) ** 0.5 / DIM**0.5
        copied = [F.normalize(side, dim=1).repeat(COPIES, 1) for side in sides]
        copied = [rows + noise * world.random(len(rows)) for rows in copied]
        verdicts[nb.evaluate(*(world.files(rows, labels) for rows in copied)).verdict] += 1
    return {
        "kind": "copies",
        "likeness": likeness,
        "upgrades": upgrades,
        "verdicts": dict(verdicts),
    }


class World:
    """Items of some classes, in which models see the class, the item, and noise of their own."""

    def __init__(self, classes, items, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.labels = np.repeat(np.arange(classes), items)
        self.means = self.random(classes)
        self.items = self.random(len(self.labels))
        # some classes are easier than others
        self.ease = self.easiness()

    def random(self, rows):
        return torch.randn(rows, DIM, generator=self.generator)

    def easiness(self):
        spread = torch.rand(int(self.labels.max()) + 1, generator=self.generator)
        return (0.5 + spread)[self.labels, None]

    def view(self, scale=1.0, ease=None):
        """Vectors of a model that sees the item and noise of its own at equal strength."""
        around = self.items + self.random(len(self.labels))
        return self.means[self.labels] + scale * (self.ease if ease is None else ease) * around

    def files(self, rows, labels=None):
        labels = self.labels if labels is None else labels
        return nb.Vectors([f"item {row}" for row in range(len(rows))], rows, labels)


def null_upgrade(design, world):
    """Old and new vectors of equal quality, and the labels."""
    labels, old = world.labels, world.view()
    if design == "shuffled":
        labels = labels[torch.randperm(len(labels), generator=world.generator).numpy()]
        return old, world.view(scale=0.5), labels
    if design == "fresh":
        return old, world.view(), labels
    if design == "equal":
        return old, world.view(ease=world.easiness()), labels
    # a head maps rotated vectors back; it was fitted on training classes
    turn = torch.linalg.qr(world.random(DIM)).Q
    training = World(TRAINING, ITEMS, int(torch.randint(2**31, (1,), generator=world.generator)))
    before = training.view()
    head = nb.CompatibleHead(epochs=2, hidden=32).fit(before @ turn, before, training.labels)
    return old, head.transform(old @ turn), labels


def verdict_by(judge, world, old, new, labels):
    """The verdict on an upgrade, with its relevant items given in one of three ways."""
    if judge == "labels":
        return nb.evaluate(world.files(old, labels), world.files(new, labels)).verdict
    random = np.random.default_rng(0)
    files = [world.files(side, labels) for side in (old, new)]
    truth = {}
    for row, item in enumerate(files[0].ids.tolist()):
        others = np.flatnonzero((labels == labels[row]) & (np.arange(len(labels)) != row))
        chosen = others if judge == "ground truth" else random.choice(others, 2, replace=False)
        truth[item] = files[0].ids[chosen].tolist()
    return nb.evaluate(*files, ground_truth=GroundTruth(truth)).verdict


def upper_bound(number, total, confidence=0.95):
    """The exact upper bound of a rate (Clopper and Pearson, 1934), by bisection.

    Example:
        >>> round(upper_bound(0, 400), 4), round(upper_bound(5, 400), 4)
        (0.0075, 0.0261)
    """
    low, high = number / total, 1.0
    for _ in range(50):
        rate = (low + high) / 2
        at_most = sum(
            comb(total, k) * rate**k * (1 - rate) ** (total - k) for k in range(number + 1)
        )
        low, high = (rate, high) if at_most > 1 - confidence else (low, rate)
    return high


def print_tables(lines):
    """Prints the tables in Markdown."""
    numbers = " | ".join(map(str, CLASSES))
    print(f"| null upgrade | judged by | {numbers} classes | in all | bound |")
    print("|---|---|" + "---|" * (len(CLASSES) + 2))
    for design in DESIGNS:
        for judge in JUDGES:
            rows = [
                line
                for line in lines
                if line["kind"] == "null" and (line["design"], line["judge"]) == (design, judge)
            ]
            went = [line["verdicts"].get("compatible", 0) for line in rows]
            total = sum(line["upgrades"] for line in rows)
            cells = " | ".join(map(str, went))
            bound = f"{100 * upper_bound(sum(went), total):.1f} %"
            print(f"| {design} | {judge} | {cells} | {sum(went)} of {total} | {bound} |")
    print("\n| classes | mean gain: share found | smallest gain found |\n|---|---|---|")
    for classes in LESS_NOISE:
        rows = [line for line in lines if line["kind"] == "honest" and line["classes"] == classes]
        shares = [line["verdicts"].get("compatible", 0) / line["upgrades"] for line in rows]
        gains = [100 * line["gain"] for line in rows]
        cells = ", ".join(f"{g:+.1f}: {100 * s:.0f} %" for g, s in zip(gains, shares, strict=True))
        found = next((g for g, s in zip(gains, shares, strict=True) if s >= FOUND), float("nan"))
        print(f"| {classes:,} | {cells} | {found:+.1f} |")
    print("\n| cosine of copies | compatible |\n|---|---|")
    for line in lines:
        if line["kind"] == "copies":
            went = line["verdicts"].get("compatible", 0)
            print(f"| {line['likeness']} | {went} of {line['upgrades']} |")


if __name__ == "__main__":
    main()
