"""Records which test executes which line of the package, and chooses the tests of a line.

    python tools/covering_tests.py MAP -- python -m pytest -q -m "not slow"

The pytest command runs once under coverage.py, in a copy of the checkout, and the map is written to
MAP (gzipped JSON; keep it outside the repository). If MAP exists and the code is the same, the tests
that run are added to it. Every test is a context of its own. Lines that a test executes in a child process count for the test, as children are measured, too.
Lines that a shared fixture executes count for all tests that use the fixture.

`tools/plant_mistakes.py --map MAP` then runs, for each mistake, only the tests that `Map.covering`
returns. This module is also the pytest plugin that switches the contexts.
"""

import ast
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/nobackfill")
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", "*.egg-info")
RECORDED = "COVERING_TESTS"  # environment variable: where the plugin writes tests, times, fixtures
CURRENT = "COVERING_TEST"  # environment variable: the test that starts a child process
IMPORTED = 15.0  # seconds of tests at most for a line that an import executes
SETTINGS = """[run]
source = {source}
data_file = {data}
parallel = true
concurrency = thread, multiprocessing
context = ${{COVERING_TEST-}}
disable_warnings = no-data-collected, module-not-measured, couldnt-parse, already-imported
"""


# The pytest plugin


class Recorder:
    """Switches the context at every test and every shared fixture."""

    def __init__(self, path: Path) -> None:
        import coverage

        self.path = path
        self.coverage = coverage.Coverage.current()
        self.test = ""
        self.tests: dict[str, dict[str, object]] = {}

    def switch(self, name: str) -> None:
        """Counts the lines that follow, here and in child processes, for a test or fixture."""
        os.environ[CURRENT] = name.replace("$", "")
        self.coverage.switch_context(name)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):  # type: ignore[no-untyped-def]
        """Notes the shared fixtures of a test, and switches to it."""
        fixtures = [
            fixture_name(fixture)
            for fixtures in item._fixtureinfo.name2fixturedefs.values()
            for fixture in fixtures
            if fixture.scope != "function"
        ] if hasattr(item, "_fixtureinfo") else []  # fmt: skip
        self.tests[item.nodeid] = {"seconds": 0.0, "passed": True, "fixtures": fixtures}
        self.test = item.nodeid
        self.switch(self.test)
        result = yield
        self.test = ""
        self.switch("")
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):  # type: ignore[no-untyped-def]
        """Switches to a shared fixture, and back to its first test."""
        if fixturedef.scope == "function":
            return (yield)
        self.switch(fixture_name(fixturedef))
        try:
            return (yield)
        finally:
            self.switch(self.test)

    def pytest_runtest_logreport(self, report):  # type: ignore[no-untyped-def]
        """Adds up the time of a test."""
        test = self.tests[report.nodeid]
        test["seconds"] += report.duration
        test["passed"] = test["passed"] and report.outcome == "passed"

    def pytest_sessionfinish(self):  # type: ignore[no-untyped-def]
        """Writes tests, times and fixtures."""
        self.path.write_text(json.dumps(self.tests), encoding="utf-8")


def fixture_name(fixture) -> str:  # type: ignore[no-untyped-def]
    """Context of a shared fixture."""
    return f"fixture {fixture.baseid}::{fixture.argname}"


def pytest_configure(config):  # type: ignore[no-untyped-def]
    """Starts to record if `record` asks for it; child processes of tests do not."""
    path = os.environ.pop(RECORDED, None)
    if path is not None:
        config.pluginmanager.register(Recorder(Path(path)), "covering_tests_recorder")


# Recording


def record(root: Path, command: Sequence[str], output: Path) -> None:
    """Runs the tests in a copy of the checkout, and writes the map."""
    with tempfile.TemporaryDirectory(prefix="coverage-") as parent:
        folder, data = Path(parent, "checkout"), Path(parent, "data")
        shutil.copytree(root, folder, ignore=NOT_COPIED, symlinks=True)
        data.mkdir()
        settings, tests = Path(parent, "settings.ini"), Path(parent, "tests.json")
        source = (folder / PACKAGE).resolve()
        settings.write_text(SETTINGS.format(source=source, data=data / "lines"), encoding="utf-8")
        environment = os.environ | {
            "COVERAGE_PROCESS_START": str(settings),  # coverage.py starts itself in every process
            "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(Path(__file__).parent)]),
            RECORDED: str(tests),
        }
        subprocess.run([*command, "-p", "covering_tests"], cwd=folder, env=environment, check=False)
        write_map(source, folder.resolve(), data, json.loads(tests.read_text()), output)


def write_map(
    source: Path, root: Path, data: Path, tests: dict[str, dict[str, object]], output: Path
) -> None:
    """Joins the lines of all processes: for each line, the tests that executed it."""
    import coverage

    joined = coverage.CoverageData(str(data / "joined"))
    for path in sorted(data.glob("lines.*")):
        part = coverage.CoverageData(str(path))
        part.read()
        joined.update(part)
    # A fixture's lines count for all tests that use it.
    names = list(tests)
    users: dict[str, list[int]] = defaultdict(list)
    for number, name in enumerate(names):
        for context in [name, *tests[name]["fixtures"]]:  # type: ignore[misc]
            users[context.replace("$", "")].append(number)
    files = {}
    for path in sorted(source.rglob("*.py")):
        lines = {}
        for number, contexts in joined.contexts_by_lineno(str(path)).items():
            # "a|b": what a child process did in context b while test a was running
            parts = {part for context in contexts for part in [context, *context.split("|")]}
            numbers = {user for part in parts for user in users[part.replace("$", "")]}
            if numbers:
                lines[str(number)] = sorted(numbers)
        files[str(path.relative_to(root))] = {"digest": digest(path), "lines": lines}
    results = [[name, round(tests[name]["seconds"], 3), tests[name]["passed"]] for name in names]  # type: ignore[call-overload]
    record = {"tests": results, "files": files}
    if output.exists():
        add_earlier(record, read_record(output))
    with gzip.open(output, "wt", encoding="utf-8") as file:
        json.dump(record, file)


def add_earlier(record: Any, earlier: Any) -> None:
    """Adds the tests of an earlier record of the same code that were not run this time."""
    if any(
        earlier["files"][name]["digest"] != record["files"][name]["digest"]
        for name in record["files"]
    ):
        raise SystemExit("The code is not that of the map; record all tests, into a new file.")
    again = {name for name, *_ in record["tests"]}
    place = {}
    for number, test in enumerate(earlier["tests"]):
        if test[0] not in again:
            place[number] = len(record["tests"])
            record["tests"].append(test)
    for name, file in record["files"].items():
        for line, numbers in earlier["files"][name]["lines"].items():
            kept = [place[number] for number in numbers if number in place]
            file["lines"][line] = [*file["lines"].get(line, []), *kept]


def read_record(path: Path) -> Any:
    """Reads a map."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


# Choosing


class Map:
    """Which test executes which line, as `record` saw it."""

    def __init__(self, path: Path, root: Path) -> None:
        saved = read_record(path)
        self.tests: list[tuple[str, float, bool]] = saved["tests"]
        self.files = saved["files"]
        self.root = root
        changed = [name for name in self.files if digest(root / name) != self.files[name]["digest"]]
        if changed:
            raise SystemExit(f"{path} is older than {', '.join(changed)}: record it again.")
        self.trees = {name: ast.parse((root / name).read_bytes()) for name in self.files}
        self.index_names()

    def covering(self, file: str, line: int) -> list[str]:
        """Tests that can notice a mistake in a line, fastest first.

        These are the tests that execute the statement of the line. A default or a decorator is
        executed by an import; the tests that execute the function's body stand in. For constants
        of modules and classes, these are the tests that execute a line with the constant's name,
        those of the same room first, up to `IMPORTED` seconds.
        """
        lines, names, is_imported = place(self.trees[file], line)
        numbers = self.executing(file, lines)
        if names:
            # A constant that is made of this one is tested where that one is used.
            made = [node for name in names for node in self.constants[name]]
            names |= {name for node in made for name in names_assigned(node)}
            mentions = {
                (used_in, at)
                for name in names
                for used_in, at in self.mentions[name]
                if used_in == file or not name.startswith("_")
            }
            numbers = set().union(*(self.executing(used_in, [at]) for used_in, at in mentions))
        if is_imported and not numbers:
            bodies = [lines_of(function.body) for function in functions_in(self.trees[file])]
            numbers = set().union(*(self.executing(file, body) for body in bodies))
        if is_imported:
            tests = f"tests/{Path(file).relative_to(PACKAGE).parts[0]}/"
            ordered = sorted(self.ordered(numbers), key=lambda name: not name.startswith(tests))
            return self.within(ordered, IMPORTED)
        return self.ordered(numbers)

    def executing(self, file: str, lines: Iterable[int]) -> set[int]:
        """Numbers of the tests that execute any of the lines."""
        known = self.files[file]["lines"]
        return {number for line in lines for number in known.get(str(line), [])}

    def index_names(self) -> None:
        """Notes in which lines of functions, and in which constants, a name occurs."""
        self.mentions: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self.constants: dict[str, list[ast.stmt]] = defaultdict(list)
        for file, tree in self.trees.items():
            for function in functions_in(tree):
                for statement in function.body:
                    for name, line in names_in(statement):
                        self.mentions[name].add((file, line))
                for name, _ in names_in(function.args):  # defaults, and options of a command
                    self.mentions[name].add((file, function.body[-1].lineno))
            for statement in tree.body:
                if isinstance(statement, ast.Assign | ast.AnnAssign):
                    for name, _ in names_in(statement):
                        self.constants[name].append(statement)

    def ordered(self, numbers: set[int]) -> list[str]:
        """Names of the tests that pass, one of every function first, the fastest before others."""
        passed = sorted((self.tests[n][1], self.tests[n][0]) for n in numbers if self.tests[n][2])
        seen: dict[str, int] = defaultdict(int)
        keys = []
        for seconds, name in passed:
            function = name.partition("[")[0]
            keys.append((seen[function], seconds, name))
            seen[function] += 1
        return [name for _, _, name in sorted(keys)]

    def within(self, names: Sequence[str], seconds: float) -> list[str]:
        """The first tests that take about `seconds` together, at least one."""
        time = {name: duration for name, duration, _ in self.tests}
        totals = list(accumulate(time[name] for name in names))
        return [name for name, total in zip(names, totals, strict=True) if total <= seconds] or [
            *names[:1]
        ]


def place(tree: ast.Module, line: int) -> tuple[range, set[str], bool]:
    """Lines that a test executes if a line concerns it, and whether an import executes the line.

    In the latter case also the names that the line defines.
    """
    holders = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and first_line(node) <= line <= (node.end_lineno or 0)
    ]
    innermost = max(holders, key=lambda node: (first_line(node), -(node.end_lineno or 0)))
    if isinstance(innermost, ast.FunctionDef):  # a default or a decorator
        return lines_of(innermost.body), set(), True
    if any(isinstance(node, ast.FunctionDef) for node in holders):
        return header(innermost), set(), False
    classes = {node.name for node in holders if isinstance(node, ast.ClassDef)}
    return header(innermost), names_assigned(innermost) | classes, True


def first_line(node: ast.stmt) -> int:
    """First line of a statement, with its decorators."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def header(node: ast.stmt) -> range:
    """Lines of a statement without the statements that it contains."""
    inner = [first_line(part) for part in ast.walk(node) if isinstance(part, ast.stmt)]
    later = [line for line in inner if line > node.lineno]
    end = min(later) if later else (node.end_lineno or node.lineno) + 1
    return range(first_line(node), end)


def lines_of(body: Sequence[ast.stmt]) -> range:
    """Lines from the first to the last statement."""
    return range(first_line(body[0]), (body[-1].end_lineno or 0) + 1)


def functions_in(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """All functions and methods."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def names_in(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Names, attributes and keywords that a node contains, and their lines."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id, part.lineno
        elif isinstance(part, ast.Attribute):
            yield part.attr, part.end_lineno or part.lineno
        elif isinstance(part, ast.keyword) and part.arg:
            yield part.arg, part.value.lineno


def names_assigned(node: ast.stmt) -> set[str]:
    """Names that an assignment at the level of a module or class defines."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    parts = [part for target in targets if target is not None for part in ast.walk(target)]
    return {part.id for part in parts if isinstance(part, ast.Name)}


def main() -> None:
    """Records a map; everything after `--` is the pytest command."""
    if len(sys.argv) < 4 or sys.argv[2] != "--":
        raise SystemExit(__doc__)
    command = sys.argv[3:]
    if "/" in command[0]:
        command[0] = os.path.abspath(command[0])  # the command runs in the copy
    record(ROOT, command, Path(sys.argv[1]).resolve())


if __name__ == "__main__":
    main()
