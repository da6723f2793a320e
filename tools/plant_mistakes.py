r"""Plants mistakes in the package, one at a time, and records which test catches each.

    python tools/covering_tests.py /tmp/map.json.gz -- python -m pytest -q -m "not slow"
    python tools/plant_mistakes.py -n 200 --seed 0 --map /tmp/map.json.gz -o mistakes.jsonl \
        -- -q -x

The mistakes are drawn evenly over the rooms of `src/nobackfill` (its folders and flat modules):

* an operator is swapped (`+ -`, `* /`, `< <=`, `> >=`, `== !=`, `and or`)
* a constant is changed (a number is increased by 1, True becomes False)
* two positional arguments of a call are swapped
* a statement is dropped (replaced by `pass`)

The tests run in a copy of the checkout; the checkout itself is never changed. Options of pytest
follow `--`; one of them must be `-x`, which stops at the first failure. Run the script with the Python
that runs the tests: torch is imported once, and each run of pytest is a fork of the process.

With `--map`, only the tests that execute the changed line are run. For a line within a function this
is equivalent to running all tests: a test that does not execute the line runs the same code with and
without the mistake. There are three exceptions. Lines that an import executes (constants, defaults,
decorators) are executed by no test in particular; `Map.covering` says which tests are run instead.
What is cached for a whole process is executed by the first test only. A child process that is killed
reports no lines. In all three cases fewer tests are run, so a mistake may count as a survivor
wrongly, but never as caught. A mistake in a line that no test executes is a survivor at once.

With `--near` instead, the tests of files near the changed one are run (tools/near_tests.py), in the
order of their distance, until the time limit. This needs no map; what it catches is a lower bound.

Without both, all tests are run for each mistake, and once without any mistake; it must
pass then. A mistake that exceeds the time limit does not count as caught, as the tests may merely be
slow; its `test` is "time limit".

Every mistake is one JSON line: file, line, kind, before, after, selected (number of tests that execute
the line), caught, test, seconds. Lines that are in the output file already are not run again, so a
stopped run can be resumed. `--survivors FILE` takes the mistakes that a run into FILE did not catch,
for instance to run the slow tests on them.
"""

import argparse
import atexit
import importlib
import json
import os
import re
import runpy
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import NoReturn

import pytest
from covering_tests import NOT_COPIED, ROOT, Map
from forked_tests import Forks, NotReplaceable, replaced
from mistakes import Mistake, draw
from near_tests import NearTests

NO_TESTS = 5  # exit code of pytest if it collects nothing
UNKNOWN_TEST = 4  # exit code of pytest if a test that it is given does not exist
TIMED_OUT = "time limit"
FIRST_FILES = 6  # of --near, for a mistake that needs a pytest run of its own
FIRST_TESTS = 12  # run on their own: they catch most mistakes, and few test files are imported


def preload(root: Path) -> dict[str, object]:
    """Imports torch, as tests/conftest.py does, and others; keep what is returned while they run."""
    for name in ("torch._dynamo", "pyarrow", "typer"):
        importlib.import_module(name)
    return runpy.run_path(str(root / "tests" / "conftest.py"))


def run_tests(options: Sequence[str], folder: Path, limit: float) -> tuple[int | None, str]:
    """Runs pytest in the copy; the exit code is None if it exceeds the time limit."""
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            run_forked(options, folder, output.fileno(), [])
        ends = time.monotonic() + limit
        ended, status = os.waitpid(child, os.WNOHANG)
        while not ended and time.monotonic() < ends:
            time.sleep(0.05)
            ended, status = os.waitpid(child, os.WNOHANG)
        if not ended:
            os.killpg(child, signal.SIGKILL)  # its own session: test, and what the test started
            os.waitpid(child, 0)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return os.waitstatus_to_exitcode(status) if ended else None, text


def run_forked(
    options: Sequence[str], folder: Path, output: int, plugins: list[object]
) -> NoReturn:
    """Runs pytest in the forked process, and ends it."""
    code = 1
    try:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(folder / "src")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
        sys.path[0] = str(folder / "src")
        atexit._clear()  # those of the process that plants the mistakes
        code = int(pytest.main([*options, f"--basetemp={folder.parent}/tmp"], plugins))
        atexit._run_exitfuncs()  # databases that the tests started
    except BaseException:  # nothing may return into the process that plants the mistakes
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def first_failure(output: str) -> str:
    """Name of the first test that pytest lists as failed."""
    pattern = r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$|^ImportError while loading conftest '(.+)'"
    match = re.search(pattern, output, flags=re.MULTILINE)
    return match.group(1) or match.group(2) if match else ""


def run_all(
    mistake: Mistake, folder: Path, runs: Sequence[Sequence[str]], limit: float
) -> tuple[bool, str]:
    """Plants a mistake and runs tests until one fails; whether it is caught, and by which test."""
    path = folder / mistake.file
    started = time.monotonic()
    code: int | None = 0
    output = ""
    with replaced(path, mistake.apply(path.read_bytes())):
        for line in runs:
            left = limit - (time.monotonic() - started)
            code, output = run_tests(line, folder, max(left, 1))
            if code == UNKNOWN_TEST:  # a test file cannot be imported: run whole files
                names = [part.partition("::")[0] for part in line]
                code, output = run_tests(list(dict.fromkeys(names)), folder, max(left, 1))
            if code not in (0, NO_TESTS):
                break
    test = first_failure(output)
    if code is None or not test:
        return False, TIMED_OUT if code is None else f"exit code {code}" if code else ""
    return True, test


class Results:
    """The output file: mistakes that have been run, and by which tests they were caught."""

    def __init__(self, path: Path, mistakes: Sequence[Mistake]) -> None:
        self.path = path
        self.mistakes = mistakes

    def left(self) -> list[Mistake]:
        """Mistakes that have no line yet."""
        keys = {key_of(line) for line in read_done(self.path)}
        return [mistake for mistake in self.mistakes if key_of(asdict(mistake)) not in keys]

    def add(self, mistake: Mistake, selected: int | None, caught: bool, test: str) -> None:
        """Writes the line of a mistake, and prints it."""
        line = {**asdict(mistake), "selected": selected, "caught": caught, "test": test}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        place = f"{self.mistakes.index(mistake) + 1}/{len(self.mistakes)} {mistake.file}"
        verdict = f"caught by {test}" if caught else f"NOT CAUGHT {test}"
        print(f"\n{place}:{mistake.line} {mistake.kind}: {verdict}", flush=True)


def plant(mistakes: Sequence[Mistake], options: argparse.Namespace) -> None:
    """Runs every mistake that has no line yet."""
    results = Results(options.output, mistakes)
    tests: Map | NearTests | None = Map(options.map, options.root) if options.map else None
    if options.near:
        tests = NearTests(options.root)
    preloaded = preload(options.root)
    with tempfile.TemporaryDirectory(prefix="mistakes-") as parent:
        folder = Path(parent, "checkout").resolve()
        shutil.copytree(options.root, folder, ignore=NOT_COPIED, symlinks=True)
        # Without mistakes the tests must pass, or every mistake would count as caught.
        if tests is None and results.left():
            code, output = run_tests(options.pytest, folder, options.limit)
            if code != 0:
                raise SystemExit(f"The tests fail without any mistake:\n{output[-2000:]}")
        if tests is not None and results.left():
            plant_in_forks(results, tests, folder, options)
        # Every run of pytest is a fork of this process, which has imported torch only.
        for mistake in results.left():
            runs, selected = [options.pytest], None
            if tests is not None:
                names = (
                    tests.files(mistake.file)[:FIRST_FILES]
                    if isinstance(tests, NearTests)
                    else tests.covering(mistake.file, mistake.line)
                )
                batches = [part for part in (names[:FIRST_TESTS], names[FIRST_TESTS:]) if part]
                runs, selected = [[*options.pytest, *batch] for batch in batches], len(names)
            results.add(mistake, selected, *run_all(mistake, folder, runs, options.limit))
    preloaded.clear()


def plant_in_forks(
    results: Results, tests: Map | NearTests, folder: Path, options: argparse.Namespace
) -> None:
    """Runs the mistakes within functions in forks of a process that has collected all tests."""

    def work(forks: Forks) -> None:
        for mistake in results.left():
            if isinstance(tests, NearTests):
                files = tests.files(mistake.file)
                names = functions_first([name for file in files for name in forks.by_file[file]])
            else:
                names = tests.covering(mistake.file, mistake.line)
            path = folder / mistake.file
            before = path.read_bytes()
            with suppress(NotReplaceable):
                test = forks.first_failure(
                    path, before, mistake.apply(before), names, options.limit
                )
                results.add(mistake, len(names), bool(test), TIMED_OUT if test is None else test)

    child = os.fork()
    if child == 0:
        run_forked(options.pytest, folder, 1, [Forks(work)])
    os.waitpid(child, 0)


def functions_first(names: Sequence[str]) -> list[str]:
    """Puts one case of each test function first, then the second case of each, and so on."""
    seen: dict[str, int] = defaultdict(int)
    cases = []
    for name in names:
        function = name.partition("[")[0]
        cases.append((seen[function], name))
        seen[function] += 1
    return [name for _, name in sorted(cases, key=lambda case: case[0])]


def key_of(line: dict[str, object]) -> tuple[object, ...]:
    """Identity of a mistake."""
    return tuple(line[key] for key in ("file", "start", "kind", "before", "after"))


def read_done(path: Path) -> list[dict[str, object]]:
    """Lines of an earlier run; a last line that a kill cut short is removed."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]


def summary(lines: Sequence[dict[str, object]]) -> str:
    """Number of caught mistakes by room and by kind."""
    rows = []
    for name in ("room", "kind"):
        groups: dict[str, list[bool]] = defaultdict(list)
        for line in lines:
            group = str(line["kind"] if name == "kind" else Path(str(line["file"])).parts[2])
            groups[group.removesuffix(".py")].append(bool(line["caught"]))
        rows += [f"{group:14} {sum(caught)}/{len(caught)}" for group, caught in groups.items()]
    total = sum(bool(line["caught"]) for line in lines)
    timed_out = sum(line["test"] == TIMED_OUT for line in lines)
    return "\n".join([*rows, f"{'all':14} {total}/{len(lines)}, {timed_out} exceeded the limit"])


def survivors(path: Path) -> list[Mistake]:
    """Mistakes that an earlier run did not catch."""
    names = [field.name for field in fields(Mistake)]
    lines = [line for line in read_done(path) if not line["caught"]]
    return [Mistake(**{name: line[name] for name in names}) for line in lines]  # type: ignore[arg-type]


def arguments() -> argparse.Namespace:
    """Parses the command line; everything after `--` is for pytest."""
    own, _, rest = " \0".join(sys.argv[1:]).partition(" \0-- \0")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--number", type=int, default=100, help="Number of mistakes.")
    parser.add_argument("--seed", type=int, default=0, help="Random seed.")
    parser.add_argument("--root", type=Path, default=ROOT, help="Checkout to copy.")
    parser.add_argument("--map", type=Path, help="Map of tools/covering_tests.py.")
    parser.add_argument("--near", action="store_true", help="Choose tests by imports and names.")
    parser.add_argument("--survivors", type=Path, help="Output of an earlier run.")
    parser.add_argument("-o", "--output", type=Path, help="JSON lines file of the results.")
    parser.add_argument(
        "--limit", type=float, default=1800, help="Time limit of each mistake, in seconds."
    )
    parser.add_argument("--list", action="store_true", help="Print the mistakes; run nothing.")
    parsed = parser.parse_args([part for part in own.split(" \0") if part])
    parsed.root = parsed.root.resolve()
    parsed.pytest = rest.split(" \0") if rest else []
    if not parsed.list and not ("-x" in parsed.pytest and parsed.output):
        parser.error("-o FILE and options of pytest after --, with -x, are required.")
    return parsed


def main() -> None:
    """Draws mistakes, tests them, and prints a summary."""
    options = arguments()
    if options.survivors:
        mistakes = survivors(options.survivors)
    else:
        mistakes = draw(options.root, options.number, options.seed)
    if options.list:
        for mistake in mistakes:
            print(json.dumps(asdict(mistake)))
    else:
        plant(mistakes, options)
        print(summary(read_done(options.output)))


if __name__ == "__main__":
    main()
