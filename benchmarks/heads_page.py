"""The part of RESULTS.md about heads and verdicts, from the JSON lines of their benchmarks."""

from collections import defaultdict
from math import isclose
from statistics import mean, stdev

from heads_settings import SETTINGS
from speed_page import table


def render_heads(lines):
    """A table for each setting: all ways into the old space, the best new/old first.

    Lines of an older form (without `kind`) and tries (`epochs`) are left out; of two lines of one
    way and seed the later one counts.
    """
    settings = defaultdict(lambda: defaultdict(dict))
    for line in lines:
        if "kind" in line and line["epochs"] is None:
            settings[line["setting"]][line["kind"], line["way"]][line["seed"]] = line
    if not settings:
        return []
    parts = [
        "## Heads from stored vectors alone",
        "",
        "No backbone is trained. A *head* is `CompatibleHead` with its defaults, by each method",
        "that it allows; `procrustes` and `ridge` (strength 0.01) are closed forms. *Raw* are",
        "vectors as they are: raw new/new is what a full backfill gives without a head. Δ are",
        "differences to old/old on the same seed, ± standard error over the seeds. *Compatible*",
        "counts the seeds on which the 95 % interval of new/old − old/old, drawn over classes,",
        "lies above 0. On frozen features and captions only the seed of the head changes, and",
        "closed forms have none.",
        "",
        "    python benchmarks/heads.py --seeds 5 --processes 2 --device cpu --resume",
        "",
        "**Chosen with numbers in view.** The learning rate (0.0003, before 0.001) by held-out",
        "training classes of CUB, the landmarks and the captions, two or three seeds. That the",
        "third of the classes that is tightest in the old space is not held out: by new/old on the",
        "*test* classes of seeds 1, 11 and 12 of both settings with trained old heads, where the",
        "head had stayed at the closed form before (7.1 and 12.0 on seed 1). Short trials of other",
        "temperatures, and of batches with four items of a class, were built and dropped: on the",
        "test classes of Omniglot's seed 0 they cost 1.4 points. The code of these trials is gone;",
        "`fit --together 4` is left, for collections of many classes.",
        "",
        "Where it says so, the old model is itself a head on the old features: 1,024 hidden, 256",
        "dimensions, BatchNorm, dropout 0.3, AdamW 0.002 along half a cosine for 60 epochs in",
        "batches of 256, by classification; another one for each seed. The *independent* one is",
        "the same on the new features and all training classes. Those *from scratch* are, too,",
        "with the terms of a method: no closed form to begin with, and no early stop.",
        "",
    ]
    for name in [name for name in SETTINGS if name in settings]:
        parts += [f"### {SETTINGS[name].says}", "", *one_setting(settings[name]), ""]
    return parts


def one_setting(ways):
    """What raw vectors do, and a row for each kind and way.

    Args:
        ways: The lines by kind and way, and then by seed.
    """
    runs = {key: list(found.values()) for key, found in ways.items()}
    order = sorted(runs, key=lambda key: -average(runs[key], "new_old"))
    rows = [
        [
            f"`{way}`",
            kind,
            str(len(runs[kind, way])),
            percent(runs[kind, way], "new_old"),
            differences([line["new_old"] - line["old_old"] for line in runs[kind, way]]),
            percent(runs[kind, way], "new_new"),
            compatible(runs[kind, way]),
        ]
        for kind, way in order
    ]
    head = ["way", "kind", "seeds", "new/old", "Δ to old/old", "new/new", "compatible"]
    every = [line for found in runs.values() for line in found]
    devices = ", ".join(sorted({line["device"] for line in every}))
    return [
        below_raw(runs),
        "",
        f"{references(every)} Fitted on {devices}.{unlearned(runs)}",
        "",
        *table(head, rows),
    ]


def below_raw(runs):
    """The first sentence: where a trained model is below its raw input."""
    every = [line for found in runs.values() for line in found]
    said = []
    for name, key, raw in (
        ("The old head", "old_old", "raw_old"),
        ("The independent head", "independent", "raw_new"),
    ):
        known = [line for line in once_a_seed(every) if line[key] is not None]
        if known and average(known, key) < average(known, raw):
            said.append(
                f"{name} ({percent(known, key)}) is below its raw input ({percent(known, raw)})."
            )
    below = [
        key for key, found in runs.items() if average(found, "new_new") < average(found, "raw_new")
    ]
    if not below and not said:
        return "No trained model is below its raw input."
    if below:
        raw = percent(once_a_seed(every), "raw_new")
        which = "every way" if len(below) == len(runs) else f"{len(below)} of {len(runs)} ways"
        named = "" if len(below) == len(runs) else f": {listed(below)}"
        said.append(f"After a full backfill, raw new vectors ({raw}) are above {which}{named}.")
    return " ".join(said)


def references(lines):
    """What the rows are to be compared with, as means over the seeds."""
    seeds = once_a_seed(lines)
    is_raw = all(isclose(line["old_old"], line["raw_old"], abs_tol=1e-6) for line in seeds)
    said = [f"Old/old {percent(seeds, 'old_old')}{' (raw)' if is_raw else ''}"]
    if not is_raw:
        said.append(f"raw old/old {percent(seeds, 'raw_old')}")
    said.append(f"raw new/new {percent(seeds, 'raw_new')}")
    if all(line["independent"] is not None for line in seeds):
        said.append(f"independent {percent(seeds, 'independent')}")
    return ", ".join(said) + "."


def unlearned(runs):
    """Which heads stayed what they began as, on all seeds."""
    stayed = [
        key for key, found in runs.items() if all(line.get("best_epoch") == 0 for line in found)
    ]
    if not stayed:
        return ""
    return (
        f" No epoch was better on the held-out classes than the closed form that they begin with "
        f"for {listed(stayed)}."
    )


def listed(keys):
    """Ways in words, each kind with its name.

    Example:
        >>> listed([("head", "ndpp"), ("head", "odpp"), ("from scratch", "ndpp")])
        '`ndpp`, `odpp` (head), `ndpp` (from scratch)'
    """
    by_kind = defaultdict(list)
    for kind, way in keys:
        by_kind[kind].append(f"`{way}`")
    return ", ".join(f"{', '.join(ways)} ({kind})" for kind, ways in by_kind.items())


def once_a_seed(lines):
    """One line of each seed: what all ways share is counted once."""
    return list({line["seed"]: line for line in lines}.values())


def average(lines, key):
    return mean(line[key] for line in lines)


def percent(lines, key):
    return f"{100 * average(lines, key):.2f}"


def differences(values):
    """A mean difference in points of percent, with its standard error from two seeds on.

    Example:
        >>> differences([0.01, 0.03])
        '+2.00 ± 1.00'
    """
    said = f"{100 * mean(values):+.2f}"
    if len(values) == 1:
        return said
    return f"{said} ± {100 * stdev(values) / len(values) ** 0.5:.2f}"


def compatible(lines):
    return f"{sum(line['verdict'] == 'compatible' for line in lines)}/{len(lines)}"


def render_nulls(lines):
    """What `assess` says where there is nothing to gain."""
    if not lines:
        return []
    known = sorted({verdict for line in lines for verdict in line["verdicts"]})
    return [
        "## Verdicts where there is nothing to gain",
        "",
        "Simulated upgrades of 60 classes, 8 epochs a head. With `shuffled` labels nothing can be",
        "gained. In `even` the new model is better, and a second stage says so; what a map gains",
        "differs from world to world about a small mean (last column), so this rate of upgrades is",
        "not one of mistakes. `better` is an upgrade that should be made.",
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
