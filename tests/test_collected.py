"""Every test file is collected.

`--doctest-ignore-import-errors` turns a file that does not compile, such as one with a bad escape,
into a single skipped item.
"""

import warnings
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_compiles_without_a_warning(file):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile(file.read_text(encoding="utf-8"), file, "exec")
