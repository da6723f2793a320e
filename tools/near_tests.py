"""Chooses the tests of a module without running any: by imports and by names of files.

Fewer tests than all are chosen, so a mistake that they miss may be caught by others. A mistake that
they catch is caught.
"""

import ast
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = "nobackfill"


class NearTests:
    """Test files in the order of their distance from a module.

    The distance is the number of imports between them; a test file that mirrors the module's path
    comes first, then doctests of the module, then the others of the same room before those of other rooms.
    """

    def __init__(self, root: Path, farthest: int = 2) -> None:
        self.root = root
        self.farthest = farthest
        self.modules = {module_of(path, root): path for path in (root / "src").rglob("*.py")}
        importers: dict[str, set[Path]] = defaultdict(set)
        for path in [*self.modules.values(), *(root / "tests").rglob("test_*.py")]:
            for name in self.imported_by(path):
                importers[name].add(path)
        self.importers = importers

    def files(self, changed: str) -> list[str]:
        """Test files that may notice a change of a file, nearest first, relative to the root."""
        path = self.root / changed
        mirrored, beside = set(self.mirrors(path)), set(self.beside(path))
        near = dict.fromkeys(mirrored | beside, self.farthest + 2)
        near |= {
            name: distance
            for name, distance in self.distances(path).items()
            if name.name.startswith("test_")
        }
        near[path] = 0  # its doctests
        room = path.relative_to(self.root / "src").parts[1].removesuffix(".py")

        def order(name: Path) -> tuple[bool, bool, int, bool, str]:
            return (
                name not in mirrored,
                name != path,
                near[name],
                f"tests/{room}/" not in str(name),
                str(name),
            )

        return [str(name.relative_to(self.root)) for name in sorted(near, key=order)]

    def distances(self, changed: Path) -> dict[Path, int]:
        """Number of imports from each file to the changed one, up to `farthest` beyond the first."""
        distances, left = {changed: 0}, deque([changed])
        while left:
            path = left.popleft()
            if distances[path] > self.farthest or path.name.startswith("test_"):
                continue
            for importer in self.importers[module_of(path, self.root)]:
                if importer not in distances:
                    distances[importer] = distances[path] + 1
                    left.append(importer)
        return distances

    def mirrors(self, changed: Path) -> Iterator[Path]:
        """Test files named like the changed file or its folder."""
        inside = changed.relative_to(self.root / "src" / PACKAGE)
        folder = self.root / "tests" / inside.parent
        yield from folder.glob(f"test_{inside.stem}*.py")
        if len(inside.parts) > 2:
            yield from folder.parent.glob(f"test_{inside.parent.name}*.py")

    def beside(self, changed: Path) -> Iterator[Path]:
        """Other test files of the same folder; for a command, all of the command line."""
        inside = changed.relative_to(self.root / "src" / PACKAGE)
        folder = self.root / "tests" / inside.parent
        while not folder.is_dir():
            folder = folder.parent
        if folder != self.root / "tests" or len(inside.parts) == 1:
            yield from folder.glob("test_*.py")
        if inside.parts[0] == "cli":
            yield from (self.root / "tests" / "cli").rglob("test_*.py")

    def imported_by(self, path: Path) -> Iterable[str]:
        """Modules of the package that a file imports, wherever in the file."""
        names = set()
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module:
                parts = [f"{node.module}.{alias.name}" for alias in node.names]
                names |= {part if part in self.modules else node.module for part in parts}
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
        return {name for name in names if name in self.modules}


def module_of(path: Path, root: Path) -> str:
    """Name of the module in a file."""
    parts = path.relative_to(root / "src").with_suffix("").parts if "src" in path.parts else ()
    return ".".join(parts[:-1] if parts and parts[-1] == "__init__" else parts)
