"""The part of RESULTS.md about heads and verdicts, from the JSON lines of their benchmarks."""

from collections import defaultdict
from statistics import mean

from speed_page import table

SAYS = {
    "cub200": "CUB-200, frozen MobileNetV2 → ResNet-50 features, 100 + 100 classes",
    "landmarks50": "landmarks50, frozen MobileNetV2 → ResNet-50 features",
    "omniglot": "Omniglot, networks trained on 10 % and, independently, on all of 964 characters",
}


def render_heads(lines):
    """A table for each setting: heads beside closed forms and raw vectors."""
    if not lines:
        return []
    parts = [
        "## Heads from stored vectors alone",
        "",
        "No backbone is trained: `CompatibleHead` with its defaults maps new vectors into the old",
        "space; `procrustes` and `ridge` (strength 0.01) are closed forms. *Raw* are vectors as",
        "they are: old/old is in service, and raw new/new is what a full backfill gives without a",
        "head. On the frozen features only the seed of the head changes.",
        "",
        "    python benchmarks/heads.py",
        "",
    ]
    settings = defaultdict(lambda: defaultdict(list))
    for line in lines:
        settings[line["setting"]][line["way"]].append(line)
    for setting, ways in settings.items():
        rows = [
            [
                f"`{way}`",
                str(len(found)),
                *(f"{100 * mean(line[key] for line in found):.2f}" for key in KEYS),
                f"{sum(line['verdict'] == 'compatible' for line in found)} of {len(found)}",
                f"{mean(line['seconds'] for line in found):.0f} s",
            ]
            for way, found in ways.items()
        ]
        head = ["", "seeds", "old/old", "new/old", "new/new", "raw new/new", "compatible", "fit"]
        parts += [f"### {SAYS[setting]}", "", *_below_raw(ways), "", *table(head, rows), ""]
    return parts


KEYS = ("old_old", "new_old", "new_new", "raw_new")


def _below_raw(ways):
    """The first sentence, where a head makes new vectors worse than they were."""
    below = [
        f"`{way}`"
        for way, found in ways.items()
        if mean(line["new_new"] for line in found) < mean(line["raw_new"] for line in found)
    ]
    if not below:
        return ["After a full backfill, every way searches better than the raw new vectors."]
    return [f"After a full backfill, raw new vectors would be better than {', '.join(below)}."]


def render_nulls(lines):
    """What `assess` says where there is nothing to gain."""
    if not lines:
        return []
    known = sorted({verdict for line in lines for verdict in line["verdicts"]})
    return [
        "## Verdicts where there is nothing to gain",
        "",
        "Simulated upgrades of 60 classes, 8 epochs a head; `better` is one that should be made.",
        "",
        "    python benchmarks/null_upgrades.py",
        "",
        *table(
            ["", "upgrades", *known, "mean gain of the chosen"],
            [
                [
                    f"`{line['kind']}`",
                    str(line["upgrades"]),
                    *(str(line["verdicts"].get(verdict, 0)) for verdict in known),
                    f"{100 * line['mean_gain']:+.2f}",
                ]
                for line in lines
            ],
        ),
        "",
    ]
