"""Re-runs a table of the paper: trains every recipe of a folder, then reports on all of them.

    python benchmarks/paper_table.py gldv2/9to30 -o runs
    python benchmarks/paper_table.py gldv2/9to30 -o runs --dry-run

Finished models are not trained again, and a stopped run continues. The report (RUNS/FOLDER.html)
has the published numbers beside ours, the spread of class means, similar pairs of classes, and a
map of some classes. A folder of sequences gets a page for each. `--sweep` trains one method with
several values of a setting, as in a figure on hyper-parameters. docs/paper.md lists a command for
each table.
"""

import argparse
from pathlib import Path

from nobackfill.cli.progress import TrainingProgress, training_progress
from nobackfill.cli.train import print_plan
from nobackfill.core.config import read_sequence
from nobackfill.core.device import choose_device
from nobackfill.report.from_runs import report_runs
from nobackfill.training.decoding import choose_decoding
from nobackfill.training.dry_run import plan_job
from nobackfill.training.jobs import plan_jobs
from nobackfill.training.pipeline import train_run
from nobackfill.training.run import Run
from nobackfill.training.sequence import summarize_sequence

RECIPES = Path(__file__).parents[1] / "recipes"
PARTS = ("frame", "setting")  # extended by recipes
ON_DEMAND = ("old", "independent", "independent_30", "independent_100")  # trained for the others


def make_parser():
    """The options of a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="folder below recipes/, such as gldv2/9to30")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs"))
    parser.add_argument("--methods", nargs="*", help="recipes of the folder; all by default")
    parser.add_argument("--sweep", help="setting and values: method.neighbors=10,50,100")
    parser.add_argument("--set", action="append", default=[], help="change of every recipe")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--dry-run", action="store_true", help="print the plans of all models")
    return parser


def main():
    options = make_parser().parse_args()
    decoding = choose_decoding(options.workers, keep=False)
    tables = list_rows(options.folder, options.output, options.methods, options.sweep, options.set)
    if options.dry_run:
        jobs = {job.folder: job for row in tables for job in row}
        print_plan(
            [(job, plan_job(job, decoding=decoding)) for job in jobs.values()], as_json=False
        )
        return

    # Train every model; those that several rows need are trained once.
    device = choose_device(options.device)
    with training_progress() as progress:
        for job in (job for row in tables for job in row):
            bar = TrainingProgress(progress, job.name, job.recipe.train.epochs)
            bar.follow(
                train_run(
                    job.recipe, job.folder, device=device, resume=True, decoding=decoding,
                    watch=bar.watch,
                )
            )  # fmt: skip

    # Report on all rows together, or on each sequence.
    page = options.output / f"{options.folder.replace('/', '-')}.html"
    requested = [[job.folder for job in row if job.is_requested] for row in tables]
    if all(len(folders) == 1 for folders in requested):
        runs = [folders[0] for folders in requested]
        runs = [run for run in runs if Run.open(run).recipe.old.run is not None]
        report_runs(runs, device=device, decoding=decoding).save(page)
        print(page)
        return
    for folders in requested:
        summarize_sequence(
            folders[0].parent, [Run.open(f) for f in folders], device=device, decoding=decoding
        )
        own = page.with_stem(f"{page.stem}-{folders[0].parent.name}")
        report_runs([folders[0].parent], device=device).save(own)
        print(own)


def list_rows(folder, output, methods=None, sweep=None, changes=()):
    """The jobs of each row of a table: of a recipe, or of a recipe with one value of the sweep."""
    paths = [path for path in sorted((RECIPES / folder).glob("*.toml")) if path.stem not in PARTS]
    if not paths:
        raise SystemExit(f"no recipes in {RECIPES / folder}")
    names = methods or [path.stem for path in paths if path.stem not in ON_DEMAND]
    setting, _, values = (sweep or "").partition("=")
    rows = []
    for name in names:
        path = RECIPES / folder / f"{name}.toml"
        read_sequence(path)  # raises if there is no such recipe
        for value in values.split(",") if sweep else [None]:
            own = [*changes] if value is None else [*changes, f"{setting}={value}"]
            place = name if value is None else f"{name}-{setting.split('.')[-1]}={value}"
            rows.append(plan_jobs(path, output / folder / place, own))
    return rows


if __name__ == "__main__":
    main()
