"""Every test file is collected.

`--doctest-ignore-import-errors` turns a file that cannot be imported, such as one with a bad escape
or with a name that its module no longer has, into a single skipped item.
"""

import ast
import warnings
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))
OURS = ("nobackfill", "nobackfill_bench")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_compiles_without_a_warning(file):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile(file.read_text(encoding="utf-8"), file, "exec")


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
    missing = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in OURS
        for alias in node.names
        if alias.name not in names_in(node.module)
    ]
    assert not missing
