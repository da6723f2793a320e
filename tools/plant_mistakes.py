"""Plants mistakes in the package, one at a time, and records which test catches each.

    python tools/plant_mistakes.py -n 200 --seed 0 -o mistakes.jsonl -- python -m pytest -q -x

The mistakes are drawn evenly over the rooms of `src/nobackfill` (its folders and flat modules):

* an operator is swapped (`+ -`, `* /`, `< <=`, `> >=`, `== !=`, `and or`)
* a constant is changed (a number is increased by 1, True becomes False)
* two positional arguments of a call are swapped
* a statement is dropped (replaced by `pass`)

The tests run in a copy of the checkout; the checkout itself is never changed. The pytest command
follows `--` and must stop at the first failure (`-x`). With `--related`, the tests of the same room
run first, and the whole command only if they pass. The tests must pass without mistakes; this is
checked first. A mistake that exceeds the time limit does not count as caught, as the tests may
merely be slow; its `test` is "time limit".

Every mistake is one JSON line: file, line, kind, before, after, caught, test, seconds. Lines that
are in the output file already are not run again, so a stopped run can be resumed.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/nobackfill")
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", "*.egg-info")
SWAPPED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
NO_TESTS = 5  # exit code of pytest if it collects nothing
TIMED_OUT = "time limit"


@dataclass(frozen=True)
class Mistake:
    """A replacement of a piece of a file.

    Attributes:
        file: Path relative to the checkout.
        line: Line number, from 1.
        kind: "operator", "constant", "arguments" or "statement".
        start: Byte offset at which the replaced text begins.
        before: Replaced text.
        after: New text.
    """

    file: str
    line: int
    kind: str
    start: int
    before: str
    after: str

    @property
    def room(self) -> str:
        """Folder or flat module of the package that contains the file."""
        return Path(self.file).relative_to(PACKAGE).parts[0].removesuffix(".py")

    def apply(self, source: bytes) -> bytes:
        """Replaces the text."""
        before = self.before.encode()
        end = self.start + len(before)
        if source[self.start : end] != before:
            raise ValueError(f"{self.file}:{self.line} does not contain {self.before!r}")
        return source[: self.start] + self.after.encode() + source[end:]


class Source:
    """A parsed file, and the byte offsets of its nodes."""

    def __init__(self, path: Path) -> None:
        self.bytes = path.read_bytes()
        self.tree = ast.parse(self.bytes)
        self.line_starts = [0]
        for line in self.bytes.splitlines(keepends=True):
            self.line_starts.append(self.line_starts[-1] + len(line))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Start and end of a node; column offsets of `ast` count bytes."""
        start = self.line_starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self.line_starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return start, end

    def text(self, start: int, end: int) -> str:
        """Text between two offsets."""
        return self.bytes[start:end].decode()


def annotations(tree: ast.AST) -> set[ast.AST]:
    """All nodes within type annotations; a mistake there changes nothing at run time."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            roots.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            roots.append(node.returns)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            roots += node.body
    return {node for root in roots if root is not None for node in ast.walk(root)}


def is_docstring(node: ast.AST) -> bool:
    """Whether a statement is a string on its own."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def operator_mistakes(source: Source, node: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Swaps every operator of a node that has a counterpart."""
    # Each pair is the operator and the operands on its left and right.
    if isinstance(node, ast.BinOp):
        pairs: list[tuple[ast.AST, ast.AST, ast.AST]] = [(node.op, node.left, node.right)]
    elif isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        pairs = list(zip(node.ops, operands, operands[1:], strict=False))
    elif isinstance(node, ast.BoolOp):
        pairs = [
            (node.op, left, right)
            for left, right in zip(node.values, node.values[1:], strict=False)
        ]
        pairs = pairs[:1] if len(pairs) == 1 else []  # `a and b and c` would need parentheses
    else:
        return
    for operator, left, right in pairs:
        if type(operator) not in SWAPPED:
            continue
        before, after = SWAPPED[type(operator)]
        end_of_left, start_of_right = source.span(left)[1], source.span(right)[0]
        between = source.text(end_of_left, start_of_right)
        pattern = rf"\b{before}\b" if before.isalpha() else re.escape(before)
        match = re.search(pattern, between)
        if match is None or "#" in between[: match.start()]:
            continue
        yield end_of_left + len(between[: match.start()].encode()), before, after


def constant_mistakes(source: Source, node: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Increases a number by 1, or negates a truth value."""
    if not isinstance(node, ast.Constant):
        return
    start, end = source.span(node)
    text = source.text(start, end)
    if isinstance(node.value, bool):
        yield start, text, str(not node.value)
    elif isinstance(node.value, int | float):
        yield start, text, repr(node.value + 1)


def argument_mistakes(source: Source, node: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Swaps the first two positional arguments of a call if they differ."""
    if not isinstance(node, ast.Call) or len(node.args) < 2:
        return
    first, second = node.args[:2]
    if isinstance(first, ast.Starred) or isinstance(second, ast.Starred):
        return
    if ast.dump(first) == ast.dump(second):
        return
    (start, end_of_first), (start_of_second, end) = source.span(first), source.span(second)
    first_text, between, second_text = (
        source.text(start, end_of_first),
        source.text(end_of_first, start_of_second),
        source.text(start_of_second, end),
    )
    if between.strip() == ",":  # no parentheses or comments between the two
        yield start, source.text(start, end), f"{second_text}{between}{first_text}"


def statement_mistakes(source: Source, node: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Drops a statement without a body of its own."""
    if not isinstance(
        node, ast.Assign | ast.AugAssign | ast.Expr | ast.Raise | ast.Delete | ast.Continue
    ):
        return
    if is_docstring(node):
        return
    start, end = source.span(node)
    yield start, source.text(start, end), "pass"


KINDS = {
    "operator": operator_mistakes,
    "constant": constant_mistakes,
    "arguments": argument_mistakes,
    "statement": statement_mistakes,
}


def mistakes_in(root: Path, path: Path) -> Iterator[Mistake]:
    """All mistakes that can be planted in a file."""
    source = Source(path)
    skipped = annotations(source.tree)
    for node in ast.walk(source.tree):
        # f-strings are skipped as a whole: Python 3.11 gives no offsets within them.
        if isinstance(node, ast.JoinedStr):
            skipped.update(ast.walk(node))
        if node in skipped:
            continue
        for kind, generate in KINDS.items():
            for start, before, after in generate(source, node):
                line = source.bytes[:start].count(b"\n") + 1
                yield Mistake(str(path.relative_to(root)), line, kind, start, before, after)


def is_valid(root: Path, mistake: Mistake) -> bool:
    """Whether the file is still valid Python with the mistake."""
    try:
        ast.parse(mistake.apply((root / mistake.file).read_bytes()))
    except SyntaxError:
        return False
    return True


def draw(root: Path, number: int, seed: int) -> list[Mistake]:
    """Draws mistakes evenly over the rooms, and within a room evenly over the kinds."""
    pools: dict[str, dict[str, list[Mistake]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted((root / PACKAGE).rglob("*.py")):
        for mistake in mistakes_in(root, path):
            pools[mistake.room][mistake.kind].append(mistake)
    generator = random.Random(seed)
    for kinds in pools.values():
        for pool in kinds.values():
            generator.shuffle(pool)
    # Go round the rooms; in each, take the next kind that has mistakes left.
    chosen: list[Mistake] = []
    turn = 0
    while len(chosen) < number and any(pool for kinds in pools.values() for pool in kinds.values()):
        for kinds in pools.values():
            order = list(KINDS)[turn % len(KINDS) :] + list(KINDS)[: turn % len(KINDS)]
            kind = next((name for name in order if kinds.get(name)), None)
            if kind is not None and len(chosen) < number:
                mistake = kinds[kind].pop()
                chosen += [mistake] if is_valid(root, mistake) else []
        turn += 1
    return chosen


def run_tests(command: Sequence[str], folder: Path, limit: float) -> tuple[int | None, str]:
    """Runs pytest in the copy; the exit code is None if it exceeds the time limit."""
    environment = os.environ | {
        "PYTHONPATH": str(folder / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    process = subprocess.Popen(
        command, cwd=folder, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its own session: test, and what the test started
        output, _ = process.communicate()
        return None, output
    return process.returncode, output


def first_failure(output: str) -> str:
    """Name of the first test that pytest lists as failed."""
    match = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, flags=re.MULTILINE)
    return match.group(1) if match else ""


def related_command(command: Sequence[str], folder: Path, room: str) -> list[str] | None:
    """The command with the paths of the room's tests; None if the room has no tests."""
    tests = [
        name
        for name in (f"tests/{room}", f"tests/test_{room}.py", f"{PACKAGE}/{room}")
        if (folder / name).exists()
    ]
    is_tested = any(name.startswith("tests/") for name in tests)
    options = [part for part in command if not part.startswith(("tests", "src"))]
    return [*options, *tests] if is_tested else None


def usable_related(
    command: Sequence[str], folder: Path, room: str, limit: float
) -> list[list[str]]:
    """The command for the room's tests, or nothing if they do not pass without mistakes."""
    related = related_command(command, folder, room)
    if related is None:
        return []
    code, output = run_tests(related, folder, limit)
    if code == 0:
        return [related]
    why = TIMED_OUT if code is None else first_failure(output)
    print(f"Tests of {room} are not run first; without mistakes they end with: {why}", flush=True)
    return []


def test_mistake(
    mistake: Mistake, folder: Path, commands: Sequence[Sequence[str]], *, limit: float
) -> dict[str, object]:
    """Plants a mistake, runs the commands until one fails, and restores the file."""
    path = folder / mistake.file
    original = path.read_bytes()
    started = time.monotonic()
    code: int | None = 0
    output = ""
    path.write_bytes(mistake.apply(original))
    try:
        for line in commands:
            left = limit - (time.monotonic() - started)
            code, output = run_tests(line, folder, max(left, 1))
            if code not in (0, NO_TESTS):
                break
    finally:
        path.write_bytes(original)
    return {
        **asdict(mistake),
        "caught": code not in (0, NO_TESTS, None),
        "test": TIMED_OUT if code is None else first_failure(output) if code else "",
        "seconds": round(time.monotonic() - started, 1),
    }


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


def arguments() -> argparse.Namespace:
    """Parses the command line; everything after `--` is the pytest command."""
    own, _, command = " \0".join(sys.argv[1:]).partition(" \0-- \0")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--number", type=int, default=100, help="Number of mistakes.")
    parser.add_argument("--seed", type=int, default=0, help="Random seed.")
    parser.add_argument("--root", type=Path, default=ROOT, help="Checkout to copy.")
    parser.add_argument("-o", "--output", type=Path, help="JSON lines file of the results.")
    parser.add_argument(
        "--limit", type=float, default=1800, help="Time limit of each mistake, in seconds."
    )
    parser.add_argument("--related", action="store_true", help="Run the room's tests first.")
    parser.add_argument("--list", action="store_true", help="Print the mistakes; run nothing.")
    parsed = parser.parse_args([part for part in own.split(" \0") if part])
    parsed.command = command.split(" \0") if command else []
    if parsed.command and "/" in parsed.command[0]:
        parsed.command[0] = os.path.abspath(parsed.command[0])  # the command runs in the copy
    if not parsed.list and not (parsed.command and parsed.output):
        parser.error("-o FILE and a pytest command after -- are required.")
    return parsed


def main() -> None:
    """Runs every mistake that has no line yet, and prints a summary."""
    options = arguments()
    mistakes = draw(options.root.resolve(), options.number, options.seed)
    if options.list:
        for mistake in mistakes:
            print(json.dumps(asdict(mistake)))
        return
    done = read_done(options.output)
    keys = {key_of(line) for line in done}
    with tempfile.TemporaryDirectory(prefix="mistakes-") as parent:
        folder = Path(parent, "checkout")
        shutil.copytree(options.root, folder, ignore=NOT_COPIED, symlinks=True)
        # Without mistakes the tests must pass, or every mistake would count as caught.
        if len(keys) < len(mistakes):
            code, output = run_tests(options.command, folder, options.limit)
            if code != 0:
                raise SystemExit(f"The tests fail without any mistake:\n{output[-2000:]}")
        related: dict[str, list[list[str]]] = {}  # commands that run first, by room
        for number, mistake in enumerate(mistakes, start=1):
            if key_of(asdict(mistake)) in keys:
                continue
            room = mistake.room
            if options.related and room not in related:
                related[room] = usable_related(options.command, folder, room, options.limit)
            commands = [*related.get(room, []), options.command]
            line = test_mistake(mistake, folder, commands, limit=options.limit)
            with options.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            done.append(line)
            verdict = f"caught by {line['test']}" if line["caught"] else "NOT CAUGHT"
            where = f"{mistake.file}:{mistake.line} {mistake.kind}"
            print(f"{number}/{len(mistakes)} {where}: {verdict}", flush=True)
    print(summary(done))


if __name__ == "__main__":
    main()
