"""Prints size, import and start-up figures of a checkout as Markdown.

    python tools/house_figures.py ROOT [PYTHON]

ROOT is a checkout with `src/nobackfill`. PYTHON is the interpreter that runs the commands; it needs
the dependencies of the package and defaults to the interpreter that runs this script. The commands
import the package from `ROOT/src`, so two checkouts can share one environment.

Code lines are lines with at least one token that is not a comment or part of a docstring.
"""

import ast
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

LONGEST = 10
NOT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip

# Rooms and libraries that a command should load only if it needs them, and their module names.
WATCHED = {
    "torch.optim": ("torch.optim",),
    "matplotlib": ("matplotlib",),
    "jinja2": ("jinja2",),
    "training": ("nobackfill.training", "nobackfill.train"),
    "models": ("nobackfill.models",),
    "bench": ("nobackfill_bench", "nobackfill.bench"),
}

JOURNEYS = {
    "evaluate two .npz files": "evaluate --old old.npz --new new.npz",
    "train --dry-run": "train {root}/recipes/glyphs/ndpp.toml -o run --dry-run",
    "gallery status of a .parquet file": "gallery status flat://old.parquet",
}

# Writes the input files of the journeys: 24 items of 6 classes.
WRITE_INPUTS = """
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
random = np.random.default_rng(0)
labels = np.arange(24) % 6
ids = np.array([f"item-{row}" for row in range(24)])
for name in ("old", "new"):
    vector = random.normal(size=(24, 8)).astype(np.float32) + 3 * np.eye(8, dtype=np.float32)[labels]
    vector /= np.linalg.norm(vector, axis=1, keepdims=True)
    np.savez(f"{name}.npz", id=ids, label=labels, vector=vector)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vector.ravel()), 8)
    pq.write_table(pa.table({"id": ids, "label": labels, "vector": column}), f"{name}.parquet")
"""

# Commands that are timed in turns, each beside what it is compared with.
TURNS = 7
TIMED = {
    "nothing": ["-c", "pass"],
    "nobackfill --help": ["-m", "nobackfill", "--help"],
    "import torch, pyarrow, typer": ["-c", "import torch, pyarrow, typer"],
    "evaluate two files of 1,000 x 64": [
        *("-m", "nobackfill", "evaluate"), *("--old", "old.npz", "--new", "new.npz"),
    ],
}  # fmt: skip
WRITE_TIMED_INPUTS = """
import numpy as np
random = np.random.default_rng(0)
labels = np.arange(1_000) % 50
for name in ("old", "new"):
    vector = random.normal(size=(1_000, 64)).astype(np.float32) + np.eye(64)[labels]
    np.savez(f"{name}.npz", id=np.arange(1_000), label=labels, vector=vector.astype(np.float32))
"""

# Runs a command and writes the names of the loaded modules, however the command ends.
RUN_COMMAND = """
import json, runpy, sys
report, *sys.argv = sys.argv[1:]
try:
    runpy.run_module("nobackfill", run_name="__main__", alter_sys=False)
finally:
    with open(report, "w") as file:
        json.dump(sorted(sys.modules), file)
"""


@dataclass(frozen=True)
class SourceFile:
    """A Python file of the package.

    Attributes:
        path: Path relative to `src`.
        room: Top-level folder or flat module of `nobackfill`, or `nobackfill_bench`.
        lines: Number of lines.
        code: Number of code lines.
        functions: Name and number of lines of each function.
    """

    path: Path
    room: str
    lines: int
    code: int
    functions: list[tuple[str, int]]


def docstring_lines(tree: ast.Module) -> set[int]:
    """Numbers of the lines that docstrings cover."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node, clean=False) is not None
        ):
            statement = node.body[0]
            lines.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return lines


def code_lines(text: str, tree: ast.Module) -> int:
    """Number of lines with code: no blank lines, comments or docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(tree))


def functions_in(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Qualified name and number of lines of every function, nested ones included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, (node.end_lineno or node.lineno) - node.lineno + 1
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from functions_in(node, f"{prefix}{node.name}.")
        else:
            yield from functions_in(node, prefix)


def room_of(path: Path) -> str:
    """Name of the room of a file, given its path relative to `src`."""
    package, *rest = path.parts
    if package == "nobackfill_bench" or rest[0] == "bench":
        return "bench package"
    return rest[0].removesuffix(".py") if len(rest) == 1 else f"{rest[0]}/"


def read_sources(root: Path) -> list[SourceFile]:
    """Measures every Python file of `nobackfill` and `nobackfill_bench`."""
    source = root / "src"
    files = []
    for path in sorted(source.glob("nobackfill*/**/*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        relative = path.relative_to(source)
        files.append(
            SourceFile(
                path=relative,
                room=room_of(relative),
                lines=len(text.splitlines()),
                code=code_lines(text, tree),
                functions=list(functions_in(tree)),
            )
        )
    return files


def loaded_modules(root: Path, python: str) -> dict[str, tuple[int, list[str]]]:
    """Runs the journeys; returns the exit code and the loaded modules of each."""
    environment = os.environ | {
        "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1", "NO_COLOR": "1",
    }  # fmt: skip
    loaded = {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-c", WRITE_INPUTS], cwd=folder, check=True)
        for name, line in JOURNEYS.items():
            report = Path(folder, "modules.json")
            arguments = [part.format(root=root) for part in line.split()]
            process = subprocess.run(
                [python, "-c", RUN_COMMAND, str(report), "nobackfill", *arguments],
                cwd=folder, env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if process.returncode == 2 or not report.exists():
                raise SystemExit(f"`nobackfill {line}` failed:\n{process.stderr[-2000:]}")
            loaded[name] = (process.returncode, json.loads(report.read_text()))
            report.unlink()
    return loaded


def is_loaded(names: Iterable[str], modules: Iterable[str]) -> bool:
    """Whether a module or anything below it is loaded."""
    return any(
        module == name or module.startswith(f"{name}.") for module in modules for name in names
    )


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table: the first column is text, the others are numbers."""
    header = list(header)
    lines = [header, ["---", *("---:" for _ in header[1:])]]
    lines += [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def size_table(files: list[SourceFile]) -> str:
    """Files, lines and code lines of every room, and their sums."""
    rooms: dict[str, list[SourceFile]] = defaultdict(list)
    for file in files:
        rooms[file.room].append(file)
    package = [file for file in files if file.room != "bench package"]
    groups = [(room, rooms[room]) for room in sorted(rooms) if room != "bench package"]
    groups += [("**nobackfill**", package)]
    groups += [("bench package", rooms["bench package"]), ("**all**", files)]
    rows = (
        (name, len(group), sum(file.lines for file in group), sum(file.code for file in group))
        for name, group in groups
    )
    return table(("room", "files", "lines", "code lines"), rows)


def longest_tables(files: list[SourceFile]) -> str:
    """The longest files and the longest functions."""
    by_lines = sorted(files, key=lambda file: file.lines, reverse=True)[:LONGEST]
    functions = sorted(
        ((f"`{file.path}` {name}", lines) for file in files for name, lines in file.functions),
        key=lambda row: row[1],
        reverse=True,
    )[:LONGEST]
    return "\n\n".join(
        [
            table(
                ("file", "lines", "code lines"),
                ((f"`{file.path}`", file.lines, file.code) for file in by_lines),
            ),
            table(("function", "lines"), functions),
        ]
    )


def repeated_names(files: list[SourceFile]) -> str:
    """File names that occur twice or more, without `__init__.py`."""
    counts = Counter(file.path.name for file in files if file.path.name != "__init__.py")
    rows = [(f"`{name}`", count) for name, count in counts.most_common() if count > 1]
    return table(("file name", "files"), rows) if rows else "None."


def journey_table(loaded: dict[str, tuple[int, list[str]]]) -> str:
    """Number of modules of the package that each command loads, and the watched ones."""
    rows = []
    for name, (code, modules) in loaded.items():
        own = [name for name in modules if name.split(".")[0].startswith("nobackfill")]
        watched = ("yes" if is_loaded(names, modules) else "no" for names in WATCHED.values())
        rows.append((name, code, len(own), *watched))
    return table(("command", "exit code", "nobackfill modules", *WATCHED), rows)


def seconds_of_commands(root: Path, python: str) -> dict[str, float]:
    """Median wall-clock seconds of each command in `TIMED`; the commands take turns."""
    environment = os.environ | {"PYTHONPATH": str(root / "src")}
    seconds: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-c", WRITE_TIMED_INPUTS], cwd=folder, check=True)
        for _ in range(TURNS):
            for name, arguments in TIMED.items():
                start = time.perf_counter()
                subprocess.run(
                    [python, *arguments], cwd=folder, env=environment, capture_output=True
                )
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def time_table(seconds: dict[str, float]) -> str:
    """Start-up times, and how they compare."""
    nothing, usage, imports, evaluate = (seconds[name] for name in TIMED)
    rows = [(name, f"{value:.2f}") for name, value in seconds.items()]
    rows += [
        ("`--help` beyond nothing", f"{usage - nothing:.2f}"),
        ("evaluate / imports", f"{evaluate / imports:.2f} x"),
    ]
    return table((f"median of {TURNS}", "seconds"), rows)


def main() -> None:
    """Prints the figures of the checkout named on the command line."""
    if not 2 <= len(sys.argv) <= 3:
        raise SystemExit(__doc__)
    root = Path(sys.argv[1]).resolve()
    python = os.path.abspath(sys.argv[2]) if len(sys.argv) == 3 else sys.executable
    files = read_sources(root)
    sections = {
        "Size": size_table(files),
        f"The {LONGEST} longest files and functions": longest_tables(files),
        "File names that occur twice or more": repeated_names(files),
        "Modules that a command loads": journey_table(loaded_modules(root, python)),
        "Start-up": time_table(seconds_of_commands(root, python)),
    }
    print("\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items()))


if __name__ == "__main__":
    main()
