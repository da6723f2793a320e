"""Does it matter which gallery items are embedded again first?

    python benchmarks/backfill_order.py --data /path/to/data

Old: frozen MobileNetV2 features, new: ResNet-50's (`features.npz`). A head is fitted on the
training half; queries and gallery are of the other half, whose classes nothing has seen. What is
embedded again is stored in one of these ways:

* `as they are`            the new vectors; scores on both halves in deviations from strangers
* `mapped`                 by the head, so that all is of one space; cosines as they are
* `mapped, in deviations`  likewise, but scores on both halves in deviations from strangers

Each order is compared with the mean of five random ones, query by query. `landmarks50` (and
`omniglot`, of which every seed has other networks) is where the formula was chosen; `cub200` is
the test, which nothing was chosen on. Features are frozen: there seeds differ by the fit of the
head and by the random orders alone. Appends a JSON line for each to backfill_order.jsonl.
"""

import argparse
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import nobackfill as nb
from nobackfill.gallery.planning.plan import plan_backfill
from nobackfill_bench.quality.features import backbone_features, omniglot_vectors, parts

SETS = {
    "cub200": backbone_features("cub200"),
    "landmarks50": backbone_features("landmarks50"),
    "omniglot": omniglot_vectors,
}
WAYS = ("as they are", "mapped", "mapped, in deviations")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("NOBACKFILL_DATA"))
    parser.add_argument("--sets", nargs="*", choices=SETS, default=["cub200", "landmarks50"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS)
    parser.add_argument("--random-orders", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    for name in options.sets:
        for seed in range(options.seeds):
            for line in measured(name, seed, options):
                print(said(line), flush=True)
                with options.output.open("a") as file:
                    file.write(json.dumps(line) + "\n")


def measured(name, seed, options):
    """A line for each way to store what is embedded again."""
    (old_fit, old), (new_fit, new) = map(parts, SETS[name](options.data, seed))
    mapped = nb.CompatibleHead(seed=seed).fit(new_fit, old_fit).transform(new)
    given = {
        "as they are": {"new": new, "query_for_old": mapped},
        "mapped": {"new": mapped, "compatible": True},
        "mapped, in deviations": {"new": mapped, "compatible": False},
    }
    for way in options.ways:
        start = time.perf_counter()
        plan = plan_backfill(old, **given[way], seeds=options.random_orders, seed=100 * seed)
        told = plan.summary()
        yield {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "set": name,
            "stored": way,
            "seed": seed,
            "random_orders": options.random_orders,
            "seconds": time.perf_counter() - start,
            **{key: told[key] for key in ("direction", "stop", "advice", "counts", "notes")},
            "curves": {
                order: {key: curve[key] for key in ("shares", "values", "reached")}
                | {"full_gain": curve["gains"][-1], "fewer": curve["fewer"]}
                | {"ahead": curve["ahead"]}
                for order, curve in told["curves"].items()
            },
        }


def said(line):
    """A line for people."""
    text = [f"{line['set']} {line['stored']}, seed {line['seed']}, {line['seconds']:.0f} s:"]
    for order, curve in line["curves"].items():
        at, fewer, ahead = curve["reached"], curve["fewer"], curve["ahead"]
        text.append(f"  {order:<12} 90 % of the gain at " + ("–" if at is None else f"{at:.3f}"))
        if fewer is not None:
            text[-1] += f", earlier by {interval(fewer, 1)}"
        if ahead is not None:
            text[-1] += f"; ahead by {interval(ahead, 100)} points of mAP"
    return "\n".join([*text, f"  {line['direction']} first; {line['advice']}"])


def interval(one, factor):
    if one["low"] is None:
        return f"{factor * one['mean']:+.3f}"
    mean, low, high = (factor * one[key] for key in ("mean", "low", "high"))
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


if __name__ == "__main__":
    main()
