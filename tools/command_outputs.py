"""Records what about 90 commands print, and compares two such records.

    python tools/command_outputs.py record SRC FOLDER   # runs the package under SRC, writes FOLDER
    python tools/command_outputs.py compare BEFORE AFTER

Every command runs on the built-in glyphs, in one thread and 80 columns. A record keeps exit code,
stdout and stderr of each command. `compare` first checks what programs rely on (exit codes, keys
and values of --json), then shows the differences in wording.
"""

import difflib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Lines run in order, in one folder; `name: command`. The same files serve later lines.
COMMANDS = """
help: --help
version: --version
unknown-command: evalute
help-train: train --help
help-evaluate: evaluate --help
help-gallery: gallery --help
help-backfill: gallery backfill --help
help-bench: bench --help
methods: methods
methods-json: methods --json
methods-given: methods --given prototypes
methods-given-unknown: methods --given prototype
datasets: datasets
datasets-json: datasets --json
datasets-check-missing: datasets check cub200 nowhere
datasets-check-unknown: datasets check nothing nowhere
dry-run: train {recipes}/glyphs/ndpp.toml -o runs/plan --dry-run
dry-run-json: train {recipes}/glyphs/ndpp.toml -o runs/plan --dry-run --json
dry-run-sequence: train {recipes}/glyphs/sequence.toml -o runs/plan --dry-run
train-unknown-key: train {recipes}/glyphs/ndpp.toml -o runs/x --set train.epoch=1
train-unknown-method: train {recipes}/glyphs/ndpp.toml -o runs/x --set method.name=ndp
train-no-recipe: train nothing.toml -o runs/x
demo: demo -o demo
demo-json: demo -o demo --json
train-again: train demo/ndpp/config.toml -o demo/ndpp
train-old: train {recipes}/glyphs/old.toml -o runs/old --set train.epochs=2
train-janus: train {recipes}/glyphs/janus.toml -o runs/janus --set train.epochs=2 --json
train-resume-done: train {recipes}/glyphs/janus.toml -o runs/janus --set train.epochs=2 --resume
embed-old: embed demo/old demo/ndpp -o old.parquet
embed-new: embed demo/independent demo/ndpp -o new.parquet --json
embed-ndpp: embed demo/ndpp demo/ndpp --split validation -o ndpp.parquet
embed-old-validation: embed demo/old demo/ndpp --split validation -o oldv.parquet
embed-free-validation: embed demo/independent demo/ndpp --split validation -o free.safetensors
embed-query-side: embed runs/janus demo/ndpp --split validation --side query -o asked.parquet
embed-no-model: embed nothing demo/ndpp -o x.parquet
evaluate: evaluate --old oldv.parquet --new ndpp.parquet
evaluate-json: evaluate --old oldv.parquet --new ndpp.parquet --json
evaluate-independent: evaluate --old oldv.parquet --new ndpp.parquet --independent free.safetensors
evaluate-gate: evaluate --old oldv.parquet --new ndpp.parquet --require-compatible
evaluate-gate-no: evaluate --old oldv.parquet --new free.safetensors --require-compatible --json
evaluate-same: evaluate --old oldv.parquet --new oldv.parquet --require-compatible
evaluate-slice: evaluate --old oldv.parquet --new ndpp.parquet --slice label --flips 1 --false-accept 0.01
evaluate-report: evaluate --old oldv.parquet --new ndpp.parquet --report report.html --save-queries q.parquet
evaluate-report-markdown: show report.md
evaluate-report-json: show report.json
evaluate-protocol-unknown: evaluate --old oldv.parquet --new ndpp.parquet --protocol market
evaluate-leave-one-out: evaluate --old oldv.parquet --new ndpp.parquet --protocol leave-one-out --json
evaluate-label-missing: evaluate --old oldv.parquet --new ndpp.parquet --label colour
evaluate-uncovered: evaluate --old old.parquet --new ndpp.parquet
evaluate-intersect: evaluate --old old.parquet --new ndpp.parquet --intersect
evaluate-no-file: evaluate --old nothing.parquet --new ndpp.parquet
evaluate-declare: evaluate --old oldv.parquet --new ndpp.parquet --declare demo/ndpp
evaluate-query-for-old: evaluate --old oldv.parquet --new ndpp.parquet --query-for-old ndpp.parquet --json
assess: assess --old old.parquet --new new.parquet --report assessment.html
assess-json: assess --old old.parquet --new new.parquet --json --epochs 3
assess-markdown: show assessment.md
assess-method-unknown: assess --old old.parquet --new new.parquet --method cross_supco
fit: fit --old old.parquet --new new.parquet -o head
fit-json: fit --old old.parquet --new new.parquet -o head2 --epochs 3 --json
fit-again: fit --old old.parquet --new new.parquet -o head
fit-closed-form: fit --old old.parquet --new new.parquet -o head3 --method procrustes
embed-head: embed head new.parquet -o compatible.parquet
evaluate-head: evaluate --old old.parquet --new compatible.parquet --require-compatible
evaluate-head-json: evaluate --old old.parquet --new compatible.parquet --json
report: report demo/ndpp -o run.html
report-several: report demo/ndpp demo/independent -o runs.html --json
report-several-markdown: show runs.md
matrix: matrix oldv.parquet ndpp.parquet free.safetensors
matrix-json: matrix oldv.parquet ndpp.parquet --independent ndpp=free.safetensors --json
matrix-one: matrix oldv.parquet
gallery-status: gallery status flat://oldv.parquet
gallery-status-json: gallery status flat://oldv.parquet --json
gallery-bad-uri: gallery status flt://oldv.parquet
gallery-check: gallery check flat://oldv.parquet --model demo/ndpp
gallery-check-refused: gallery check flat://oldv.parquet --model demo/independent
gallery-shadow: gallery shadow flat://oldv.parquet --old-queries oldv.parquet --queries ndpp.parquet
gallery-plan: gallery plan flat://oldv.parquet --old oldv.parquet --new ndpp.parquet -o plan.parquet --report plan.html
gallery-plan-json: gallery plan flat://oldv.parquet --old oldv.parquet --new ndpp.parquet -o plan2.parquet --json
gallery-backfill: gallery backfill flat://oldv.parquet --plan plan.parquet --new ndpp.parquet --share 0.5
gallery-backfill-again: gallery backfill flat://oldv.parquet --plan plan.parquet --new ndpp.parquet --json
gallery-status-full: gallery status flat://oldv.parquet
gallery-search: gallery search flat://oldv.parquet --queries ndpp.parquet -k 3 --json
gallery-switch: gallery switch flat://oldv.parquet --model demo/ndpp
gallery-log: gallery log flat://oldv.parquet --json
gallery-rollback: gallery rollback flat://oldv.parquet
gallery-retire-unconfirmed: gallery retire flat://oldv.parquet
gallery-clean: gallery clean flat://oldv.parquet
gallery-pull: gallery pull flat://oldv.parquet -o pulled.parquet
bench-quality-unknown: bench quality --suite nothing
bench-speed-unknown: bench speed --suite nothing
"""

# What differs between two runs of one command: times, sizes of files, hashes of code, dates.
VOLATILE = [
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00|Z| UTC)?", "DATE"),
    (r"\b\d+(\.\d+)? (ms|s|seconds|minutes|min)\b", "TIME"),
    (r'"(seconds|total_seconds|elapsed)": [\d.e-]+', r'"\1": TIME'),
    (r"\b[0-9a-f]{12,64}\b", "HASH"),
    (r"\b\d+(\.\d+)? (KB|MB|GB|KiB|MiB|GiB)\b", "SIZE"),
    (r"\b\d+:\d\d:\d\d\b", "TIME"),
]


def commands() -> list[tuple[str, str]]:
    """Name and arguments of every command."""
    lines = [line.split(": ", 1) for line in COMMANDS.strip().splitlines()]
    return [(name, line.format(recipes=ROOT / "recipes")) for name, line in lines]


def record(source: Path, folder: Path) -> None:
    """Runs every command with the package under `source` and keeps what it printed."""
    folder.mkdir(parents=True)
    work = folder / "work"
    work.mkdir()
    environment = os.environ | {
        "PYTHONPATH": str(source.resolve()), "COLUMNS": "80", "NO_COLOR": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    for name, line in commands():
        verb, *arguments = line.split()
        if verb == "show":
            text = (work / arguments[0]).read_text()
            outcome = {"exit": 0, "stdout": text, "stderr": ""}
        else:
            started = time.perf_counter()
            process = subprocess.run(
                [sys.executable, "-m", "nobackfill", *line.split()],
                cwd=work, env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            outcome = {
                "exit": process.returncode,
                "stdout": process.stdout,
                "stderr": process.stderr,
            }
            print(
                f"{name:28} {process.returncode}  {time.perf_counter() - started:5.1f} s",
                flush=True,
            )
        (folder / f"{name}.json").write_text(json.dumps({"command": line, **outcome}, indent=1))


def steady(text: str) -> str:
    """The text without what differs between two runs."""
    text = text.replace("\r", "\n")
    for pattern, name in VOLATILE:
        text = re.sub(pattern, name, text)
    return text


def structure(value: object) -> object:
    """The JSON value with every sentence replaced by its type: numbers, keys and flags stay."""
    if isinstance(value, dict):
        return {key: structure(item) for key, item in value.items()}
    if isinstance(value, list):
        return [structure(item) for item in value]
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, str):
        return "text" if " " in value else steady(value)
    return value


def compare(before: Path, after: Path) -> int:
    """Prints what changed; returns how many commands changed what programs rely on."""
    broken = worded = 0
    for name, _ in commands():
        old, new = (json.loads((folder / f"{name}.json").read_text()) for folder in (before, after))
        if old["exit"] != new["exit"]:
            broken += 1
            print(
                f"\nBROKEN {name}: exit {old['exit']} became {new['exit']}\n{new['stderr'][-800:]}"
            )
            continue
        if "--json" in old["command"] and old["exit"] != 2:
            one, two = (structure(json.loads(side["stdout"])) for side in (old, new))
            if one != two:
                broken += 1
                lines = [
                    json.dumps(side, indent=1, sort_keys=True).splitlines() for side in (one, two)
                ]
                print(f"\nBROKEN {name}: JSON differs")
                print("\n".join(difflib.unified_diff(*lines, lineterm="", n=1)))
            continue
        texts = [steady(side["stdout"] + side["stderr"]).splitlines() for side in (old, new)]
        if texts[0] != texts[1]:
            worded += 1
            print(f"\nworded {name}: {old['command']}")
            print("\n".join(difflib.unified_diff(*texts, lineterm="", n=0)))
    print(f"\n{len(commands())} commands: {broken} broken, {worded} worded differently")
    return broken


if __name__ == "__main__":
    action, first, second = sys.argv[1:]
    if action == "record":
        record(Path(first), Path(second))
    else:
        sys.exit(compare(Path(first), Path(second)) > 0)
