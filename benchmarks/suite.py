"""Every method against one old model per seed: what the benchmarks of quality share.

A suite is a function that makes the recipe of one model. Runs are trained stage by stage: old
models, then all others side by side, then BT2, which starts from the independent one. Each run that
is done appends one JSON line; with `--work` a benchmark that was stopped goes on where it was, and
no line is written twice.
"""

import argparse
import json
import multiprocessing
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path


def main(suite, *, module, seeds, methods=None):
    """Runs a suite from the command line.

    Args:
        suite: Its name: results go to `<suite>.jsonl` beside this file.
        module: Where `make_recipe(name, old_run, *, seed, changes)` and `SIZES` are found again by
            the processes that train.
        seeds: How many by default.
        methods: Which by default; all where none is given.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--methods", nargs="*", default=None, help="those of the suite by default")
    parser.add_argument("--set", nargs="*", default=[], help="changes such as train.epochs=3")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, default=None, help="keep the runs here, and resume")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(__file__).parent / f"{suite}.jsonl"
    )
    options = parser.parse_args()

    from nobackfill import METHODS

    wanted = list(options.methods or methods or METHODS)
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or Path(scratch)
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        done = lines_there(options.output, options.set) if options.work else set()
        context = multiprocessing.get_context("spawn")
        with context.Pool(options.processes) as pool, options.output.open("a") as file:
            for stage in stages(wanted):
                tasks = [
                    (module, name, seed, options.set, options.device, work / str(seed))
                    for seed in seeds
                    for name in stage
                ]
                for line in pool.imap_unordered(one_run, tasks):
                    if line is None or line["method"] not in wanted:
                        continue
                    if key_of(line) not in done:
                        file.write(json.dumps({"suite": suite, **line}) + "\n")
                        file.flush()
                        show(line)


def lines_there(path, changes):
    """The methods, seeds and devices that a file has lines for, in this setting."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {key_of(line) for line in lines if line["changes"] == changes}


def key_of(line):
    return line["method"], line["seed"], line["device"]


def stages(wanted):
    """What can be trained side by side, stage after stage.

    Example:
        >>> stages(["bt2", "ndpp"])
        [['old'], ['independent', 'ndpp'], ['bt2']]
    """
    first = ["old", *(["cores_old"] if "cores" in wanted else [])]
    second = [name for name in wanted if name != "bt2"]
    if "bt2" in wanted and "independent" not in wanted:
        second = ["independent", *second]
    return [first, second, [name for name in wanted if name == "bt2"]]


def one_run(task):
    """Trains one model; returns its line, or None for an old model."""
    import importlib

    import torch

    from nobackfill.upgrade import Decoding, choose_device, train_run

    module, name, seed, changes, device, folder = task
    torch.set_num_threads(1)
    suite = importlib.import_module(module)
    recipe = suite.make_recipe(
        "old" if name == "cores_old" else name,
        folder / "old",
        seed=seed,
        changes=[*own_changes(name, folder, **suite.SIZES), *changes],
    )
    start, where = datetime.now(UTC), choose_device(device)
    decoding = Decoding(workers=getattr(suite, "WORKERS", 0), keep=True)
    for _ in train_run(recipe, folder / name, device=where, resume=True, decoding=decoding):
        pass
    if name in ("old", "cores_old"):
        return None
    result = json.loads((folder / name / "evaluation.json").read_text())
    return {
        "date": start.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - start).total_seconds(), 1),
        "device": torch.cuda.get_device_name() if where.type == "cuda" else "cpu",
        "seed": seed,
        "method": name,
        "changes": changes,
        **{key: result[key] for key in ("old_old", "new_old", "new_new")},
        "recall_at_1": {
            key: result["recall_at_1"][key] for key in ("old_old", "new_old", "new_new")
        },
        **tests_of(result),
    }


def tests_of(result):
    """What came out on the recipe's other tests, if it has any."""
    tests = {
        name: {key: one[key] for key in ("old_old", "new_old", "new_new")}
        for name, one in result.get("tests", {}).items()
    }
    return {"tests": tests} if tests else {}


def recipe_of(folder, name, old_run, *, seed, changes=()):
    """A recipe of recipes/<folder>, with the seed of the run and the old model that is there."""
    from nobackfill.config import read_recipe

    told = [f"data.seed={seed}", f"train.seed={seed + (1000 if name == 'old' else 0)}"]
    path = Path(__file__).parent.parent / "recipes" / folder / f"{name}.toml"
    recipe = read_recipe(path, [*told, *changes])
    old = {"recipe": None, "independent_recipe": None}
    if name != "old":
        old["run"] = str(old_run)
    return replace(recipe, old=replace(recipe.old, **old))


def own_changes(name, folder, *, embedding_dim, train_classes):
    """What two methods need beside the recipe that all share."""
    if name == "bt2":
        return [
            f"model.embedding_dim={2 * embedding_dim}",
            f"old.independent={folder / 'independent'}",
        ]
    if name == "cores":
        return [f"model.embedding_dim={train_classes - 1}", f"old.run={folder / 'cores_old'}"]
    if name == "cores_old":
        return [f"model.embedding_dim={train_classes - 1}", "method.name=cores"]
    return []


def show(line):
    numbers = "  ".join(
        f"{key.replace('_', '/')} {100 * line[key]:5.2f}"
        for key in ("old_old", "new_old", "new_new")
    )
    print(
        f"seed {line['seed']}  {line['method']:24s}{numbers}  {line['seconds']:.0f} s", flush=True
    )
