"""Renders RESULTS.md and SPEED.md from the JSON lines that the benchmarks append.

    python benchmarks/render.py

No number enters their tables by hand; where the text beside them has one, it names the command.
"""

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

from heads_page import render_heads, render_nulls
from speed_page import render_speed_page, table
from suites import OMNIGLOT_SEQUENCE, SUITES

from nobackfill import METHODS, p_scores

HERE = Path(__file__).parent


def main():
    (HERE / "RESULTS.md").write_text(render_results(), encoding="utf-8")
    (HERE / "SPEED.md").write_text(render_speed_page(read), encoding="utf-8")


def read(name):
    path = HERE / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def render_results():
    """One section per suite and setting, in the order of the files."""
    parts = [
        "# Results",
        "",
        "Rendered by `python benchmarks/render.py` from the JSON lines beside it. mAP in percent,",
        "means over seeds. Every seed has its own data split and its own old model, which starts",
        "from other weights than the new ones. Δ are differences to `prototype_alignment` (the",
        "paper's Baseline) on the same seed, ± standard error. P-scores (percent) compare with the",
        "independent model of the same seed. *Compatible* counts the seeds on which new/old was",
        "above old/old.",
        "",
        "`cores` has an old model of its own kind, `rm` a map on its queries, `bt2` 32 dimensions",
        "more; `mimic` and `sspl` see no labels. What each is:",
        "[docs/methods](../docs/methods/README.md).",
        "",
    ]
    for suite, says in SUITES.items():
        settings = defaultdict(list)
        for line in read(suite):
            if set(line["changes"]) & set(RUNNING):
                continue  # a table of their own
            settings[tuple(line["changes"]), line["device"]].append(line)
        for number, ((changes, device), lines) in enumerate(settings.items()):
            again = number > 0 and not changes
            head = [f"### The same seeds on {device}"] if again else says(changes)
            parts += [*head, "", *comparison(lines), ""]
            for test in lines[0].get("tests", {}):
                if test.endswith("_medium"):
                    continue  # the main way to count, which stands under the test's own name
                name = test.replace("_", ", ") + ("" if "_" in test else ", medium")
                parts += [f"### Searched in {name}", "", *comparison(on_test(lines, test)), ""]
    if lines := [line for line in read("glyphs") if set(line["changes"]) & set(RUNNING)]:
        parts += [*running_means(lines), ""]
    if lines := read("omniglot_sequence"):
        parts += [*OMNIGLOT_SEQUENCE, "", *sequences(lines), ""]
    parts += render_heads(read("heads"))
    parts += render_nulls(read("null_upgrades"))
    if lines := read("kills"):
        parts += ["## Killed and resumed", "", *kills(lines), ""]
    return "\n".join(parts)


RUNNING = ("train.new_prototypes=running", "train.new_prototypes=pass")


def running_means(lines):
    """New prototypes from the training batches, beside those of a pass over the training set."""
    rows = []
    for method in dict.fromkeys(line["method"] for line in lines):
        running, passed = (
            {
                line["seed"]: line
                for line in lines
                if line["changes"] == [change] and line["method"] == method
            }
            for change in RUNNING
        )
        seeds = sorted(running.keys() & passed.keys())
        cells = [f"`{method}`", str(len(seeds))]
        for key in ("new_old", "new_new"):
            cells += [f"{100 * mean(one[s][key] for s in seeds):.1f}" for one in (passed, running)]
            cells.append(paired([100 * (running[s][key] - passed[s][key]) for s in seeds]))
        rows.append(cells)
    head = ["method", "seeds", "new/old, pass", "running", "Δ", "new/new, pass", "running", "Δ"]
    return [
        "## Running means in place of a pass",
        "",
        '`new_prototypes = "running"` takes the new class means from the training batches of the '
        "last epoch, and saves the pass over the training set. The demo's glyphs, Δ ± standard "
        "error.",
        "",
        "    python benchmarks/glyphs.py --seeds 5 --methods ndpp odpp "
        "--set train.new_prototypes=running",
        "",
        *table(head, rows),
    ]


def kills(lines):
    """What came of killing a training at random moments."""
    last = lines[-1]
    epochs = sorted({kill["after_epochs"] for kill in last["kills"]})
    return [
        f"`nobackfill train recipes/glyphs/ndpp.toml` was killed (SIGKILL) at "
        f"{len(last['kills'])} random moments, {last['killed_while_training']} of them before it "
        f"had ended (after {epochs[0]} to {epochs[-1]} of 12 epochs), and resumed: "
        f"{last['identical']} of {len(last['kills'])} came to the weights of the unbroken run, "
        f"bit for bit.",
        "",
        "    python benchmarks/kills.py --times 20",
    ]


def comparison(lines):
    """The table of one setting: every method on the seeds it has, compared on the same seeds."""
    by_method = defaultdict(dict)
    for line in lines:
        by_method[line["method"]][line["seed"]] = line
    base, ceiling = by_method.get("prototype_alignment", {}), by_method.get("independent", {})
    rows = []
    for method in [name for name in METHODS if name in by_method]:
        runs = by_method[method]
        cells = [f"`{method}`", str(len(runs))]
        cells += [
            f"{100 * mean(run[key] for run in runs.values()):.1f}"
            for key in ("old_old", "new_old", "new_new")
        ]
        for key in ("new_old", "new_new"):
            both = sorted(runs.keys() & base.keys())
            cells.append(paired([100 * (runs[s][key] - base[s][key]) for s in both]))
        scores = [
            p_scores(run["new_new"], run["new_old"], run["old_old"], ceiling[seed]["new_new"])
            for seed, run in runs.items()
            if seed in ceiling and ceiling[seed]["new_new"] > run["old_old"]
        ]
        cells += [
            f"{mean(getattr(p, key) for p in scores):.1f}" if scores else "–"
            for key in ("up", "comp", "one")
        ]
        compatible = sum(run["new_old"] > run["old_old"] for run in runs.values())
        cells.append(f"{compatible}/{len(runs)}")
        rows.append(cells)
    head = ["method", "seeds", "old/old", "new/old", "new/new", "Δ new/old", "Δ new/new"]
    missing = [f"`{name}`" for name in METHODS if name not in by_method]
    return [
        f"Trained on {lines[0]['device']}." + _not_run(missing),
        "",
        *table([*head, "P_up", "P_comp", "P_1", "compatible"], rows),
    ]


def _not_run(missing):
    """Which methods a table lacks, where it lacks few."""
    if not missing:
        return ""
    many = len(missing) > len(METHODS) / 2
    return " The other methods were not run." if many else f" Not run: {', '.join(missing)}."


def paired(differences):
    """A mean difference with its standard error, from two seeds on; nothing for the Baseline."""
    if not any(differences):
        return "–"
    if len(differences) == 1:
        return f"{differences[0]:+.2f}"
    return f"{mean(differences):+.2f} ± {stdev(differences) / len(differences) ** 0.5:.2f}"


def on_test(lines, test):
    """The same lines, with what came out on another test in place of the first."""
    return [{**line, **line["tests"][test]} for line in lines]


def sequences(lines):
    """The mean compatibility matrix of each method, AC and AM."""
    by_method = defaultdict(list)
    for line in lines:
        by_method[line["method"]].append(line)
    rows = []
    for method, runs in by_method.items():
        matrix = [
            [100 * mean(run["matrix"][i][j] for run in runs) for j in range(i + 1)]
            for i in range(len(runs[0]["matrix"]))
        ]
        entries = [f"{value:.1f}" for row in matrix for value in row]
        scores = [f"{mean(run[key] for run in runs):.{digits}f}" for key, digits in SCORES]
        rows.append([f"`{method}`", str(len(runs)), *entries, *scores])
    size = len(lines[0]["matrix"])
    heads = [f"{i + 1}/{j + 1}" for i in range(size) for j in range(i + 1)]
    return table(["method", "seeds", *heads, "AC", "AM"], rows)


SCORES = (("ac", 2), ("am", 3))


if __name__ == "__main__":
    main()
