"""Output of `nobackfill bench quality`: suites, progress of the runs, path of the page."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nobackfill.cli.output import print_object
from nobackfill.cli.quiet import is_quiet
from nobackfill.core.device import choose_device, usable_cores
from nobackfill.core.numbers import duration
from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError, RunsFailed
from nobackfill_bench import SUITES, Place, Task
from nobackfill_bench.quality.page import LINES, render_page
from nobackfill_bench.quality.runner import Done, lines_path, plan_suite, run_stages, side_by_side
from nobackfill_bench.quality.studies import STUDIES
from nobackfill_bench.results_log import read_lines


@dataclass(frozen=True)
class RunOptions:
    """Options of the command."""

    suites: tuple[str, ...]
    studies: tuple[str, ...]
    ways: Sequence[str] | None
    seeds: int | None
    first_seed: int
    changes: tuple[str, ...]
    output: Path
    work: Path
    data: Path | None
    jobs: int | None
    device: str


def print_suites(*, as_json: bool) -> None:
    """Prints all suites and studies with their requirements."""
    if as_json:
        known = {
            name: {"title": suite.title, "ways": list(suite.ways), "seeds": suite.seeds}
            for name, suite in SUITES.items()
        }
        print_object({"suites": known, "studies": list(STUDIES)}, as_json=True, text="")
        return
    table = Table(box=None, header_style="bold")
    for head in ("suite", "upgrade", "methods", "seeds", "requires"):
        table.add_column(head)
    for name, suite in SUITES.items():
        required = ", ".join(suite.requires) or "nothing"
        table.add_row(name, suite.title, str(len(suite.ways)), str(suite.seeds), required)
    console = Console()
    console.print(table)
    console.print(f"\nStudies: {', '.join(STUDIES)}.")


def run_and_print(options: RunOptions, *, only_render: bool, as_json: bool) -> None:
    """Makes the missing runs, prints the result of each and renders the page."""
    console = Console(stderr=True, quiet=is_quiet())
    made, failed = 0, list[Done]()
    if not only_render:
        while (stages := plan(options)) and any(stages) and not failed:
            for done in make_runs(stages, options, console):
                made += done.line is not None
                failed += [done] if done.error else []
            if not any(STUDIES[name].decides for name in options.studies):
                break  # only a search adds runs that depend on earlier results
    page = render_page(options.output)
    for failure in failed:
        print(
            f"{failure.task.suite} seed {failure.task.seed} {failure.task.way}\n{failure.error}",
            file=sys.stderr,
        )
    if failed:
        raise RunsFailed(
            f"{len(failed)} of {made + len(failed)} runs failed; the others are in "
            f"{options.output / LINES}. Fix the errors above and run the same command again."
        )
    print_object(
        {"runs": made, "results": str(page)},
        as_json=as_json,
        text=f"{made} runs made; results are in {page}",
    )


def make_runs(
    stages: Sequence[Sequence[Task]], options: RunOptions, console: Console
) -> Iterator[Done]:
    """Makes runs and prints a line when each ends."""
    total, began = sum(map(len, stages)), monotonic()
    runs = run_stages(
        stages, folder=options.output / LINES, processes=options.jobs or jobs_for(options.device)
    )
    for number, done in enumerate(runs, start=1):
        left = (monotonic() - began) / number * (total - number)
        console.print(
            f"{number}/{total}  {in_words(done)}  [dim]{duration(round(left))} left[/]",
            highlight=False,
            soft_wrap=True,
        )
        yield done


def jobs_for(device: str) -> int:
    """Number of runs at the same time: one per core, or one on a GPU."""
    return 1 if choose_device(device).type == "cuda" else usable_cores()


def plan(options: RunOptions) -> list[list[Task]]:
    """Lists the missing runs of all suites and studies."""
    if not options.suites and not options.studies:
        raise ConfigError(
            f"No suite or study to run. Pass --suite, one of {', '.join(SUITES)}; or --study, one "
            f"of {', '.join(STUDIES)}."
        )
    place = Place(options.work.resolve(), options.data and options.data.resolve(), options.device)
    plan_runs = partial(plan_suite, place=place, folder=options.output / LINES)
    plans = [
        plan_runs(
            name,
            ways=options.ways,
            seeds=options.seeds,
            first_seed=options.first_seed,
            changes=options.changes,
        )
        for name in options.suites
    ]
    for name in options.studies:
        if name not in STUDIES:
            raise ConfigError(f"unknown study `{name}`. {suggest(name, STUDIES)}")
        study = STUDIES[name]
        lines = read_lines(lines_path(options.output / LINES, study.suite))
        plans += [
            plan_runs(
                study.suite,
                ways=options.ways or request.ways,
                seeds=len(request.seeds) if options.seeds is None else options.seeds,
                first_seed=request.seeds.start + options.first_seed,
                changes=(*request.changes, *options.changes),
            )
            for request in study.requests(lines)
        ]
    return side_by_side(plans)


def in_words(done: Done) -> str:
    """Describes a finished run in one line."""
    task = done.task
    text = f"{task.suite}  seed {task.seed}  {task.way}"
    text = escape(text + (f"  ({' '.join(task.changes)})" if task.changes else ""))
    if done.error:
        return f"{text}  [red]failed[/]: {escape(done.error.strip().splitlines()[-1])}"
    if done.line is None:
        return f"{text}  ready"
    if "matrix" in done.line:
        return f"{text}  AC {done.line['ac']:.2f}  AM {100 * done.line['am']:.2f}"
    numbers = "  ".join(
        f"{key.replace('_', '/')} {100 * done.line[key]:.2f}"
        for key in ("old_old", "new_old", "new_new")
    )
    return f"{text}  {numbers}"
