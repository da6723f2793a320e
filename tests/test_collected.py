"""A test file that cannot be imported is an error, and its tests are not lost in silence."""

import ast
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))
OURS = ("nobackfill", "nobackfill_bench")


def test_a_file_that_cannot_be_imported_is_an_error(tmp_path):
    tests, optional = tmp_path / "tests", tmp_path / "src" / "optional.py"
    broken = {
        "name": "from json import a_name_that_is_gone",
        "module": "import a_module_that_is_gone",
        "escape": r"text = '\d'",
        "syntax": "def",
    }
    tests.mkdir()
    for name in ("conftest.py", "slow_tests.py"):
        shutil.copy(FOLDER / name, tests)
    for name, line in broken.items():
        (tests / f"test_{name}.py").write_text(f"{line}\n\n\ndef test_it():\n    pass\n")
    (tests / "test_sound.py").write_text("def test_it():\n    pass\n")
    optional.parent.mkdir()
    optional.write_text("import a_package_that_is_not_installed\n")
    config = FOLDER.parent / "pyproject.toml"
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-c", config]
    done = subprocess.run(
        [*command, "--rootdir", tmp_path, tests, optional],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout
    assert {line for line in done.stdout.splitlines() if line.startswith("ERROR ")} == {
        f"ERROR tests/test_{name}.py" for name in broken
    }
    assert "tests/test_sound.py::test_it" in done.stdout
    assert "1 test collected, 4 errors" in done.stdout


@cache
def names_in(module):
    """Names that a module of ours binds, its submodules, and texts: names of lazy imports."""
    path = Path(find_spec(module).origin)
    names = {other.stem for other in path.parent.iterdir()} if path.stem == "__init__" else set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Constant):
            names.add(node.value)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_the_names_that_it_imports_exist(file):
    """Also where a missing package, such as timm, skips the file before it imports them."""
    missing = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in OURS
        for alias in node.names
        if alias.name not in names_in(node.module)
    ]
    assert not missing
