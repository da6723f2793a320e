"""Mistakes that can be planted in the package: swapped operators, changed constants and so on."""

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path("src/nobackfill")
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
