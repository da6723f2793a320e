"""Runs suites stage by stage in several processes and writes each result when it is ready."""

import multiprocessing
import os
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError, RunsFailed
from nobackfill_bench.quality.suite import Place, Task
from nobackfill_bench.quality.suites import SUITES
from nobackfill_bench.results_log import Line, append, key_of, mend, read_lines


@dataclass(frozen=True)
class Done:
    """One run that has ended.

    Attributes:
        task: The run.
        line: Result; None if it only prepared others or failed.
        error: Traceback of a failed run; otherwise empty.
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
    """Lists the runs of a suite that have no result yet, after the runs that they need, by stage.

    Args:
        name: Name in `SUITES`.
        ways: Methods with optional settings. None means those of the suite.
        seeds: Number of seeds. None means that of the suite.
        first_seed: First seed.
        changes: Changed settings of every recipe, such as `train.epochs=3`.
        place: Folders and device of the runs.
        folder: Folder of the results.
    """
    if name not in SUITES:
        raise ConfigError(f"unknown suite `{name}`. {suggest(name, SUITES)}")
    suite = SUITES[name]
    ways = list(ways or suite.ways)
    suite.check(ways)
    finished = {key_of(line) for line in read_lines(lines_path(folder, name))}
    stages: list[list[Task]] = []
    numbers = range(first_seed, first_seed + (suite.seeds if seeds is None else seeds))
    missing = {
        seed: [way for way in ways if (name, way, seed, tuple(changes)) not in finished]
        for seed in numbers
    }
    longest = max((len(suite.stages(chosen)) for chosen in missing.values()), default=0)
    for number in range(longest):
        stages.append(
            [
                Task(name, way, seed, tuple(changes), place)
                for seed, chosen in missing.items()
                if chosen and number < len(suite.stages(chosen))
                for way in suite.stages(chosen)[number]
            ]
        )
    return stages


def lines_path(folder: Path, suite: str) -> Path:
    """Returns the file of a suite's results."""
    return folder / f"{suite}.jsonl"


def side_by_side(plans: Sequence[Sequence[Sequence[Task]]]) -> list[list[Task]]:
    """Merges the stages of several suites; a run that two of them need is made once."""
    return [
        list(dict.fromkeys(task for stage in stages for task in stage))
        for stages in zip_longest(*plans, fillvalue=())
    ]


def run_stages(
    stages: Sequence[Sequence[Task]], *, folder: Path, processes: int = 1
) -> Iterator[Done]:
    """Makes the runs and appends their results; a run that fails does not stop the others.

    Raises:
        RunsFailed: If a process was killed, for instance for lack of memory.
    """
    folder.mkdir(parents=True, exist_ok=True)
    finished = set()
    for suite in {task.suite for stage in stages for task in stage}:
        mend(lines_path(folder, suite))
        finished |= {key_of(line) for line in read_lines(lines_path(folder, suite))}
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads of several runs slow each other down
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        for stage in stages:
            for future in as_completed([pool.submit(one_run, task) for task in stage]):
                done = result_of(future)
                if done.line is not None and key_of(done.line) not in finished:
                    append(lines_path(folder, done.task.suite), done.line)
                yield done


def result_of(future: Future[Done]) -> Done:
    """Returns a finished run, or raises if a process was killed."""
    try:
        return future.result()
    except BrokenProcessPool:
        raise RunsFailed(
            "A process of the benchmark was killed, perhaps for lack of memory. Run the same "
            "command again, with fewer --jobs if memory is short: finished runs are skipped."
        ) from None


def one_run(task: Task) -> Done:
    """Makes one run; see `Suite.run`."""
    try:
        lines = SUITES[task.suite].run(task)
    except Exception:  # reported at the end; the other runs continue
        return Done(task, error=traceback.format_exc())
    if lines is None:
        return Done(task)
    known = {
        "suite": task.suite,
        "way": task.way,
        "seed": task.seed,
        "changes": list(task.changes),
    }
    return Done(task, line={**known, **lines})
