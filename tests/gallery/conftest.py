"""The same items in every kind of database that is installed: real engines, no mocks."""

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from nobackfill.gallery.stores import STORES, open_store
from nobackfill.vectors import Vectors

DIM = 8


def fill(name, folder, ids, vectors, columns, **options):
    """Makes a gallery of a kind, as its owner would; returns its line."""
    if name == "flat":
        path = folder / "items.safetensors"
        Vectors(ids, vectors, columns=columns).save(path)
        return f"flat://{path}"
    return engine_of(name).fill(folder, ids, vectors, columns, **options)


@cache
def engine_of(name):
    """The module that makes galleries of a kind."""
    pytest.importorskip(STORES[name].client)
    path = Path(__file__).parent / "stores" / f"engine_{name}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def items():
    """Ids that are whole numbers as text (some engines know no others), vectors, what else."""
    generator = np.random.default_rng(0)
    ids = [str(number) for number in generator.permutation(500)[:200] + 1]
    vectors = generator.normal(size=(200, DIM)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return ids, vectors, {"colour": [f"colour {number % 7}" for number in range(200)]}


@pytest.fixture(params=sorted(STORES))
def line(request, tmp_path, items):
    """Where a gallery of some kind is, filled with the items."""
    return fill(request.param, tmp_path, *items)


def agree(store, names, wanted):
    """Whether a search found what it should: all of it in order, or nearly all where it guesses."""
    if store.exact:
        return names == wanted
    return len(set(names) & set(wanted)) >= 0.9 * len(wanted)


@pytest.fixture
def agrees():
    return agree


@pytest.fixture
def store(line):
    with open_store(line) as opened:
        yield opened


@pytest.fixture
def fill_as():
    """Makes a gallery of a kind from a folder, ids, vectors and columns."""
    return fill


@pytest.fixture
def fill_with(tmp_path, items):
    """Makes a gallery of a kind, filled with the items."""
    return lambda kind: fill(kind, tmp_path, *items)
