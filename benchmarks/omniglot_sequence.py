"""Omniglot as a sequence, 10 % → 30 % → 100 % of the characters: one JSON line per method and seed.

    python benchmarks/omniglot_sequence.py --seeds 3 --processes 15 --device cuda --work WORK

The recipes are recipes/omniglot/sequence; `prepare.py` lays the data out. All methods of a seed
begin with the same first model. `independent` is a sequence without constraint: what each model
could reach. Wants timm.
"""

import argparse
import json
import multiprocessing
import shutil
from datetime import UTC, datetime
from pathlib import Path

METHODS = ("prototype_alignment", "ndpp", "odpp", "bct")
RECIPES = Path(__file__).parent.parent / "recipes" / "omniglot" / "sequence"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--set", nargs="*", default=[], help="changes such as train.epochs=3")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, required=True, help="keep the runs here, and resume")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.processes) as pool, options.output.open("a") as file:
        seeds = range(options.seeds)
        first = [("first", seed, options.set, options.device, options.work) for seed in seeds]
        for _ in pool.imap_unordered(train_sequence, first):
            pass
        tasks = [
            (name, seed, options.set, options.device, options.work)
            for seed in seeds
            for name in options.methods
        ]
        done = {
            (line["method"], line["seed"], line["device"], *line["changes"])
            for line in map(json.loads, options.output.read_text().splitlines())
        }
        for line in pool.imap_unordered(train_sequence, tasks):
            if (line["method"], line["seed"], line["device"], *line["changes"]) in done:
                continue
            file.write(json.dumps({"suite": "omniglot_sequence", **line}) + "\n")
            file.flush()
            print(line["method"], line["seed"], line["ac"], round(line["am"], 4), flush=True)


def train_sequence(task):
    """Trains one sequence; of the first model of a seed, only that."""
    import torch

    from nobackfill.jobs import plan_jobs
    from nobackfill.sequence import summarize_sequence
    from nobackfill.train.run import Run
    from nobackfill.upgrade import Decoding, choose_device, train_run

    name, seed, changes, device, work = task
    torch.set_num_threads(1)
    folder, where = work / str(seed) / name, choose_device(device)
    recipe = RECIPES / f"{'prototype_alignment' if name in ('first', 'independent') else name}.toml"
    own = ["method.name=independent"] if name == "independent" else []
    told = [f"data.seed={seed}", f"train.seed={seed}", *own, *changes]
    jobs = plan_jobs(recipe, folder, told)
    decoding, start = Decoding(keep=True), datetime.now(UTC)
    if name != "first" and not (folder / "1").exists():
        shutil.copytree(work / str(seed) / "first" / "1", folder / "unfinished", dirs_exist_ok=True)
        (folder / "unfinished").rename(folder / "1")
    for job in jobs[:1] if name == "first" else jobs:
        for _ in train_run(job.recipe, job.folder, device=where, resume=True, decoding=decoding):
            pass
    if name == "first":
        return None
    summary = summarize_sequence(
        folder, [Run.open(job.folder) for job in jobs], device=where, decoding=decoding
    )
    return {
        "date": start.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - start).total_seconds(), 1),
        "device": torch.cuda.get_device_name() if where.type == "cuda" else "cpu",
        "seed": seed,
        "method": name,
        "changes": changes,
        **{key: summary[key] for key in ("matrix", "ac", "am")},
    }


if __name__ == "__main__":
    main()
