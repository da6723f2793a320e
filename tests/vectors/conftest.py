"""An upgrade, and its vectors in every form that people have in Python."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import nobackfill as nb

COUNT, DIM = 120, 6


@pytest.fixture(scope="session")
def upgrade():
    """Old and new vectors of 24 classes, as float32 arrays, with ids and labels."""
    random = np.random.default_rng(0)
    labels = np.arange(COUNT) % 24
    means = random.normal(size=(24, DIM))[labels]
    old, new = (means + noise * random.normal(size=(COUNT, DIM)) for noise in (1.0, 0.3))
    ids = np.array([f"item {row}" for row in range(COUNT)])
    return SimpleNamespace(
        old=old.astype(np.float32), new=new.astype(np.float32), labels=labels, ids=ids
    )


def wide(matrix):
    return {f"dim_{i}": matrix[:, i] for i in range(matrix.shape[1])}


BARE = {
    "numpy": lambda matrix: matrix,
    "numpy, read only": lambda matrix: np.broadcast_to(matrix, matrix.shape),
    "numpy of objects": lambda matrix: pd.Series(list(matrix)).to_numpy(),
    "torch": torch.from_numpy,
    "torch with gradients": lambda matrix: torch.from_numpy(matrix).requires_grad_(),
    "lists": lambda matrix: matrix.tolist(),
    "tuple of arrays": tuple,
    "list of tensors": lambda matrix: list(torch.from_numpy(matrix)),
    "pandas, wide": lambda matrix: pd.DataFrame(matrix),
    "pandas series": lambda matrix: pd.Series(list(matrix)),
    "polars series": lambda matrix: pl.Series("vector", matrix),
    "polars, wide": lambda matrix: pl.DataFrame(wide(matrix)),
    "pyarrow array": lambda matrix: pa.array(matrix.tolist(), pa.list_(pa.float32())),
}
TABLES = {
    "pandas": lambda ids, matrix: pd.DataFrame({"doc_id": ids, "embedding": list(matrix)}),
    "pandas of lists": lambda ids, matrix: pd.DataFrame({"id": ids, "emb": matrix.tolist()}),
    "pandas, index": lambda ids, matrix: pd.DataFrame({"emb": list(matrix)}, index=ids),
    "pandas, wide": lambda ids, matrix: pd.DataFrame({"item_id": ids, **wide(matrix)}),
    "polars": lambda ids, matrix: pl.DataFrame({"id": ids, "vec": list(matrix)}),
    "polars of arrays": lambda ids, matrix: pl.DataFrame({"id": ids, "vec": matrix}),
    "polars, wide": lambda ids, matrix: pl.DataFrame({"id": ids, **wide(matrix)}),
    "polars, lazy": lambda ids, matrix: pl.LazyFrame({"id": ids, "vec": matrix}),
    "pyarrow": lambda ids, matrix: arrow(ids, matrix),
    "pyarrow, wide": lambda ids, matrix: pa.table({"id": ids, **wide(matrix)}),
    "pyarrow batch": lambda ids, matrix: arrow(ids, matrix).to_batches()[0],
    "columns": lambda ids, matrix: {"ids": ids.tolist(), "embeddings": matrix, "uris": None},
    "records": lambda ids, matrix: [
        {"id": name, "embedding": row} for name, row in zip(ids, matrix.tolist(), strict=True)
    ],
    "Vectors": nb.Vectors,
}


def arrow(ids, matrix):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), matrix.shape[1])
    return pa.table({"id": ids, "vector": lists})


@pytest.fixture(params=BARE)
def bare(request):
    """Makes rows without ids of a matrix, in each form."""
    return BARE[request.param]


@pytest.fixture(params=TABLES)
def table(request):
    """Makes rows with ids, in each form."""
    return TABLES[request.param]
