"""How often a 95 % interval lies above 0 or below 0 where nothing is gained.

    OMP_NUM_THREADS=1 python benchmarks/interval_coverage.py

Simulated groups of queries, whose mean effects are

* `normal`  normally distributed
* `heavy`   of Student's distribution with 3 degrees of freedom
* `loses`   exponential: a few groups lose much, most gain a little
* `gains`   the opposite
* `few`     normally distributed for three of ten groups, else 0

Groups are equal (6 queries) or uneven (60 queries down to few). Writes a JSON line for each kind to
interval_coverage.jsonl, and prints the shares in percent, beside those of the percentiles of the
same samples.
"""

import argparse
import json
from itertools import product
from pathlib import Path

import numpy as np

from nobackfill.evaluation.bootstrap import (
    draw_means,
    effective_groups,
    expanded_tail,
    paired_interval,
)

NUMBERS = (8, 12, 20, 60)
SAMPLES = 1000
EFFECTS = {
    "normal": lambda random, number: random.normal(size=number),
    "heavy": lambda random, number: random.standard_t(3, size=number),
    "loses": lambda random, number: 1 - random.exponential(size=number),
    "gains": lambda random, number: random.exponential(size=number) - 1,
    "few": lambda random, number: np.where(
        random.random(number) < 0.3, random.normal(size=number), 0
    ),
}
SIZES = {
    "equal": lambda number: np.full(number, 6),
    "uneven": lambda number: np.maximum(1, np.round(60 / np.arange(1, number + 1) ** 0.7)),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000, help="intervals of each kind")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    lines = [line_of(*kind, options.runs) for kind in product(EFFECTS, SIZES, NUMBERS)]
    options.output.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for name in ("interval", "percentiles"):
        shares = np.mean([line[name] for line in lines], axis=0)
        print(f"{name}: {shares[0]:.2f} % above, {shares[1]:.2f} % below")


def line_of(effects, sizes, number, runs):
    """Shares of intervals above and below 0, in percent."""
    random = np.random.default_rng(0)
    counts = SIZES[sizes](number).astype(int)
    group = np.repeat(np.arange(number), counts)
    tail = expanded_tail(0.025, effective_groups(counts.astype(float)))
    decided = {"interval": [], "percentiles": []}
    for _ in range(runs):
        values = EFFECTS[effects](random, number)[group] + random.normal(0, 0.5, len(group))
        found = paired_interval(values, group, samples=SAMPLES)
        sums = np.bincount(group, weights=values)
        low, high = np.quantile(
            draw_means(sums, counts.astype(float), SAMPLES, 0)[0], [tail, 1 - tail]
        )
        decided["interval"].append((found.low > 0, found.high < 0))
        decided["percentiles"].append((low > 0, high < 0))
    line = {"effects": effects, "sizes": sizes, "groups": number, "runs": runs}
    line |= {
        name: (100 * np.mean(rows, axis=0)).round(2).tolist() for name, rows in decided.items()
    }
    print(json.dumps(line), flush=True)
    return line


if __name__ == "__main__":
    main()
