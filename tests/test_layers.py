"""Imports between rooms point one way: a room imports only rooms of an earlier level."""

import ast
from pathlib import Path

import nobackfill

# Rooms on one line do not know each other. `serving` will stand before `cli`.
LEVELS = [
    {"errors"},
    {"core"},
    {"vectors"},
    {"ops"},
    {"data"},
    {"models"},
    {"methods"},
    {"evaluation"},
    {"training", "head"},
    {"report", "gallery"},
    {"integrations"},
    {"cli"},
    {"__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
SOURCE = Path(nobackfill.__file__).parent


def modules_imported_by(path):
    """Full names in any import of a file, wherever in the file it stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def rooms_imported_by(path):
    for name in modules_imported_by(path):
        package, _, rest = name.partition(".")
        if package == "nobackfill" and rest.split(".")[0] in LEVEL:
            yield rest.split(".")[0]


def room_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_every_room_has_a_level():
    rooms = {room_of(path) for path in SOURCE.rglob("*.py")} - {"__init__"}
    assert rooms == set(LEVEL)


def test_only_entry_points_and_errors_lie_flat():
    assert {path.name for path in SOURCE.glob("*.py")} == {
        "__init__.py",
        "__main__.py",
        "errors.py",
    }


def test_no_file_is_longer_than_350_lines():
    lengths = {path: len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert {str(path): lines for path, lines in lengths.items() if lines > 350} == {}


def test_imports_point_one_way():
    wrong = [
        f"{path.relative_to(SOURCE)} imports {room}"
        for path in SOURCE.rglob("*.py")
        if room_of(path) != "__init__"
        for room in rooms_imported_by(path)
        if room != room_of(path) and LEVEL[room] >= LEVEL[room_of(path)]
    ]
    assert not wrong


def test_the_package_does_not_need_the_benchmark_harness():
    allowed = {SOURCE / "cli" / "bench.py"}  # says how to get it where it is not installed
    wrong = [
        path
        for path in set(SOURCE.rglob("*.py")) - allowed
        if any(name.split(".")[0] == "nobackfill_bench" for name in modules_imported_by(path))
    ]
    assert not wrong


def test_the_command_line_loads_no_torch_before_a_command_runs():
    heavy = {"torch", "numpy", "matplotlib", "pyarrow", "safetensors"}
    for path in [SOURCE / "__init__.py", *(SOURCE / "cli").rglob("*.py")]:
        for node in ast.parse(path.read_text()).body:
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not heavy & {name.split(".")[0] for name in names}, path
