"""Renders CHECKS.md and SPEED.md from the JSON lines that the benchmarks append.

    python benchmarks/render.py

SPEED.md is the page of `nobackfill bench speed --render`, with the sections of the scripts here;
RESULTS.md is made by `nobackfill bench quality --render`. No number enters their tables by hand;
where the text beside them has one, it names the command.
"""

import json
from pathlib import Path

from nobackfill_bench.markdown import table
from nobackfill_bench.speed.page import render_page

HERE = Path(__file__).parent


def main():
    (HERE / "CHECKS.md").write_text(render_checks(), encoding="utf-8")
    render_page(HERE)


def read(name):
    path = HERE / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def render_checks():
    """What holds besides quality: honest verdicts, and trainings that survive a kill."""
    parts = [
        "# Checks",
        "",
        "Rendered by `python benchmarks/render.py` from the lines beside it.",
        "",
    ]
    parts += render_nulls(read("null_upgrades"))
    if lines := read("kills"):
        parts += ["## Killed and resumed", "", *kills(lines), ""]
    return "\n".join(parts)


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
        "not one of mistakes. `better` is an upgrade that should be made. In `redraw` and",
        "`rotated`, both models together are better than either alone (docs/verdict.md).",
        "`noise`, `same`, `even` and `better` were run before `both models ask` was a candidate.",
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


if __name__ == "__main__":
    main()
