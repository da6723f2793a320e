"""Data flows down the list of rooms; imports never point up."""

import ast
from pathlib import Path

import nobackfill

ROOMS = """
    errors config randomness distributed files space ids vectors records
    data models embed
    kernels thirds products search merge quantize ranking relevance metrics prototypes oldspace
    adapters
    perturb allclasses losses given itemclasses methods train
    bootstrap protocols matching pairvectors head strategies diagnosis threeparts assessment common
    scores fitted caveats evaluation declaration matrix comparison modalities verdicts similarities
    analysis confusion findings
    report upgrade sentences reporting gallery jobs sequence plan demo demo_report bench doctor cli
    __main__
""".split()
SOURCE = Path(nobackfill.__file__).parent


def rooms_imported_by(path):
    """The rooms named in any import of a file, wherever in the file it stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nobackfill"):
            parts = node.module.split(".")
            yield from parts[1:2] or [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("nobackfill."):
                    yield alias.name.split(".")[1]


def room_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_every_room_is_in_the_list():
    rooms = {room_of(path) for path in SOURCE.rglob("*.py")} - {"__init__"}
    assert rooms == set(ROOMS)


def test_imports_never_point_up():
    wrong = [
        f"{path.relative_to(SOURCE)} imports {room}"
        for path in SOURCE.rglob("*.py")
        if room_of(path) != "__init__"
        for room in rooms_imported_by(path)
        if room in ROOMS and ROOMS.index(room) > ROOMS.index(room_of(path))
    ]
    assert not wrong


def test_the_command_line_loads_no_torch_before_a_command_runs():
    heavy = {"torch", "numpy", "matplotlib", "pyarrow", "safetensors"}
    for path in [SOURCE / "__init__.py", *(SOURCE / "cli").glob("*.py")]:
        for node in ast.parse(path.read_text()).body:
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not heavy & {name.split(".")[0] for name in names}, path
