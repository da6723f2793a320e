"""Renders RESULTS.md and SPEED.md from the JSON lines that the benchmarks append.

    python benchmarks/render.py

No number enters these pages by hand.
"""

import json
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from statistics import mean, stdev

from suites import OMNIGLOT_SEQUENCE, SUITES

from nobackfill import METHODS, p_scores

HERE = Path(__file__).parent


def main():
    (HERE / "RESULTS.md").write_text(render_results(), encoding="utf-8")
    speed = (
        render_speed(read("retrieval_speed"))
        + render_perturbation(read("perturbation"))
        + render_steps(read("step_time"))
        + render_throughput(read("throughput"))
    )
    (HERE / "SPEED.md").write_text(speed, encoding="utf-8")


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
    if lines := read("omniglot_sequence"):
        parts += [*OMNIGLOT_SEQUENCE, "", *sequences(lines), ""]
    if lines := read("kills"):
        parts += ["## Killed and resumed", "", *kills(lines), ""]
    return "\n".join(parts)


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


def render_speed(lines):
    """One table per run: the best repeat of each peer, as a ratio to ours in that run.

    Consecutive lines of one size are one run; repeats of different runs are never mixed.
    """
    parts = [
        "# Speed",
        "",
        "Rendered by `python benchmarks/render.py` from the JSON lines beside it.",
        "",
        "## Mean average precision from vectors",
        "",
        "From vectors in memory to the value, each peer in its own process, one after the other on",
        "the same machine, best repeat. Absolute seconds wander on shared machines, and so do the",
        "ratios a little: every run on the present code that was recorded is shown.",
        "",
        "    python benchmarks/retrieval_speed.py --size market gldv2",
        "",
    ]
    for size, run in groupby(lines, key=lambda line: tuple(line["sizes"].values())):
        best = {}
        for line in run:
            if (
                line["seconds"]
                < best.get(line["peer"], line | {"seconds": float("inf")})["seconds"]
            ):
                best[line["peer"]] = line
        ours = best["nobackfill"]
        rows = [
            [
                f"`{peer}`",
                f"{line['seconds']:.2f}",
                f"{line['seconds'] / ours['seconds']:.1f}×",
                f"{line['peak_mb']:.0f}",
                f"{line['map']:.8f}",
            ]
            for peer, line in sorted(best.items(), key=lambda item: item[1]["seconds"])
        ]
        parts += [
            f"### {size[0]:,} × {size[1]:,}, {size[2]} dimensions, {ours['threads']} threads",
            "",
            *table(["", "seconds", "of ours", "peak MB", "mAP"], rows),
            "",
        ]
    return "\n".join(parts)


def render_perturbation(lines):
    """The latest measurement of each setting."""
    latest = {
        (line["method"], line["classes"], line["dtype"], line["device"]): line for line in lines
    }
    rows = [
        [
            f"`{method}`" + (f", {line['steps']} steps" if line["steps"] else ""),
            f"{classes:,}",
            dtype,
            device,
            f"{line['constructor_s']:.2f}",
            f"{line['update_s']:.2f}",
            f"{line['peak_mb']:.0f}",
            f"{line['process_peak_mb']:.0f}",
        ]
        for (method, classes, dtype, device), line in latest.items()
    ]
    head = ["", "classes", "", "device", "constructor s", "update s", "added MB", "process MB"]
    return "\n".join(
        [
            "## Perturbations, 256 dimensions",
            "",
            "    python benchmarks/perturbation.py --classes 24393 --steps 2",
            "",
            *table(head, rows),
            "",
        ]
    )


def render_steps(lines):
    """The latest measurement of each method, precision and machine."""
    latest = {(line["device"], line["precision"], line["method"]): line for line in lines}
    parts = [
        "## A training step, relative to plain classification",
        "",
        "ResNet-18 at 224 px, batch 256, 24,393 classes, 256 dimensions (`cores`: one per class; "
        "`bt2`: 512 before its own projection), stored old vectors. Medians; each method takes "
        "turns with `independent`; in brackets the lowest and highest ratio of a turn. The pass "
        "for new prototypes and the perturbations happen once an epoch and are not in it.",
        "",
        "    python benchmarks/step_time.py",
        "",
    ]
    for (device, precision), names in groupby(latest, key=lambda key: key[:2]):
        rows = [
            [
                f"`{name}`",
                f"{line['ratio']:.3f}",
                f"({line['lowest']:.3f} to {line['highest']:.3f})",
                f"{line['step_ms']:.1f}",
            ]
            for *_, name in names
            for line in [latest[device, precision, name]]
        ]
        parts += [f"### {device}, {precision}", "", *table(["", "ratio", "", "ms"], rows), ""]
    return "\n".join(parts)


def render_throughput(lines):
    """Our loop beside a bare one, and what an epoch of the paper's length begins with."""
    if not lines:
        return ""
    rows = []
    for line in lines:
        bare = max(line["images_per_second"]["bare"])
        ours = [max(line["images_per_second"][name]) for name in ("memory", "files")]
        epoch = line["epoch_seconds"]
        rows.append(
            [
                line["device"],
                f"{line['classes']:,}",
                f"{bare:,.0f}",
                *(f"{rate:,.0f} ({rate / bare:.2f})" for rate in ours),
                *(
                    f"{line[f'{name}_seconds']:.2f} s ({100 * line[f'{name}_seconds'] / epoch:.2f} %)"
                    for name in ("ndpp", "odpp", "pass")
                ),
            ]
        )
    head = ["device", "classes", "bare images/s", "from memory", "from JPEGs"]
    return "\n".join(
        [
            "## Training loop, and the start of an epoch",
            "",
            "ResNet-18 at 224 px, batch 256. Best of the turns, ratio to the bare loop in brackets; "
            "then seconds at the start of an epoch of the paper's length, and their share of it.",
            "",
            "    python benchmarks/throughput.py --device cuda",
            "",
            *table([*head, "NDPP", "ODPP", "pass for new prototypes"], rows),
            "",
        ]
    )


def table(head, rows):
    return [
        f"| {' | '.join(head)} |",
        f"|{'|'.join('---' for _ in head)}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


if __name__ == "__main__":
    main()
