"""Runs a suite: stage by stage, in several processes, each result written as it comes."""

import multiprocessing
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from nobackfill.core.config import suggest
from nobackfill.errors import ConfigError
from nobackfill_bench.quality.suite import Place, Task
from nobackfill_bench.quality.suites import SUITES
from nobackfill_bench.results_log import Line, append, key_of, mend, read_lines


@dataclass(frozen=True)
class Done:
    """One run that has ended.

    Attributes:
        task: What it was.
        line: What it came to; None where it only prepared others, or failed.
        error: How it failed; empty where it did not.
    """

    task: Task
    line: Line | None = None
    error: str = ""


def plan_suite(
    name: str,
    *,
    ways: Sequence[str] | None,
    seeds: int | None,
    first_seed: int = 0,
    changes: Sequence[str] = (),
    place: Place,
    folder: Path,
) -> list[list[Task]]:
    """The runs of a suite that have no line yet, and what they start from, stage by stage.

    Args:
        name: Of `SUITES`.
        ways: Methods, with options maybe; those of the suite where none are given.
        seeds: How many; as many as the suite has by default.
        first_seed: The first of them.
        changes: To every recipe, such as `train.epochs=3`.
        place: Where to make the runs.
        folder: Of the lines.
    """
    if name not in SUITES:
        raise ConfigError(f"unknown suite `{name}`. {suggest(name, SUITES)}")
    suite = SUITES[name]
    ways = list(ways or suite.ways)
    suite.check(ways)
    there = {key_of(line) for line in read_lines(lines_path(folder, name))}
    stages: list[list[Task]] = []
    numbers = range(first_seed, first_seed + (suite.seeds if seeds is None else seeds))
    missing = {
        seed: [way for way in ways if (name, way, seed, tuple(changes)) not in there]
        for seed in numbers
    }
    longest = max((len(suite.stages(one)) for one in missing.values()), default=0)
    for number in range(longest):
        stages.append(
            [
                Task(name, way, seed, tuple(changes), place)
                for seed, its in missing.items()
                if its and number < len(suite.stages(its))
                for way in suite.stages(its)[number]
            ]
        )
    return stages


def lines_path(folder: Path, suite: str) -> Path:
    """The file of a suite's lines."""
    return folder / f"{suite}.jsonl"


def side_by_side(plans: Sequence[Sequence[Sequence[Task]]]) -> list[list[Task]]:
    """The stages of several suites at once, each run that two of them ask for once."""
    return [
        list(dict.fromkeys(task for stage in stages for task in stage))
        for stages in zip_longest(*plans, fillvalue=())
    ]


def run_stages(
    stages: Sequence[Sequence[Task]], *, folder: Path, processes: int = 1
) -> Iterator[Done]:
    """Makes the runs and appends their lines; a run that fails does not stop the others."""
    folder.mkdir(parents=True, exist_ok=True)
    there = set()
    for suite in {task.suite for stage in stages for task in stage}:
        mend(lines_path(folder, suite))
        there |= {key_of(line) for line in read_lines(lines_path(folder, suite))}
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool:
        for stage in stages:
            for done in pool.imap_unordered(one_run, stage):
                if done.line is not None and key_of(done.line) not in there:
                    append(lines_path(folder, done.task.suite), done.line)
                yield done


def one_run(task: Task) -> Done:
    """Makes one run; see `Suite.run`."""
    try:
        found = SUITES[task.suite].run(task)
    except Exception:  # whatever it was, the others go on; it is told
        return Done(task, error=traceback.format_exc())
    if found is None:
        return Done(task)
    known = {
        "suite": task.suite,
        "way": task.way,
        "seed": task.seed,
        "changes": list(task.changes),
    }
    return Done(task, line={**known, **found})
