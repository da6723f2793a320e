"""The format `.npy`: vectors only, as a bare array.

Records beside the file store which model made them, and on which of them a head was fitted: a 1 or
a 0 for each row.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.vectors.beside import read_beside
from nobackfill.vectors.column_names import ANY, Columns
from nobackfill.vectors.contents import FITTED, SPACE, Contents


def read(path: Path, columns: Columns = ANY) -> Contents:
    """Memory-maps the array, copy on write: the file is never changed. Ids are row numbers."""
    vector = np.lib.format.open_memmap(path, mode="c")
    ids = np.arange(len(vector) if vector.ndim else 0)
    fitted, remarks = _read_fitted(path)
    return Contents(vector, {"id": ids, **fitted}, {}, remarks, has_ids=False)


def write(path: Path, contents: Contents) -> None:
    """Writes the vectors, or raises if there is anything else to write."""
    # The space and the fitted items are stored in other files.
    columns = contents.columns.keys() - {"id"}
    if _fitted(contents) is not None:
        columns -= {FITTED}
    rest = [name for name in contents.columns if name in columns]
    rest += sorted(contents.notes.keys() - {SPACE})
    ids = contents.columns["id"]
    if ids.dtype.kind != "i" or not np.array_equal(ids, np.arange(len(ids))):
        rest.insert(0, "ids other than the row numbers")
    if rest:
        raise DataError(
            f".npy stores vectors only, but they also have {', '.join(rest)}. Save as .parquet, "
            f".safetensors or .npz."
        )
    assert isinstance(contents.vector, Tensor)
    with path.open("wb") as file:
        np.lib.format.write_array(file, contents.vector.numpy(), allow_pickle=False)


def records(contents: Contents) -> dict[str, dict[str, Any]]:
    """Returns the records to write beside the file: the space and the fitted items, if known."""
    facts: dict[str, dict[str, Any]] = {}
    if SPACE in contents.notes:
        facts["space"] = json.loads(contents.notes[SPACE])
    if (fitted := _fitted(contents)) is not None:
        facts[FITTED] = {FITTED: "".join("1" if value else "0" for value in fitted.tolist())}
    return facts


def _fitted(contents: Contents) -> NDArray[np.bool_] | None:
    """Returns the column `fitted` if there is one, of booleans."""
    column = contents.columns.get(FITTED)
    return column if column is not None and column.dtype.kind == "b" else None


def _read_fitted(path: Path) -> tuple[dict[str, NDArray[np.bool_]], tuple[str, ...]]:
    """Reads the column from the record beside the file, and remarks on those of other contents."""
    records, others = read_beside(path, FITTED)
    remarks = tuple(
        f"{record.name} is not read: it is of other contents than those of {path.name}"
        for record in others
    )
    if not records:
        return {}, remarks
    rows, name = records[-1].facts.get(FITTED), records[-1].path.name
    if not isinstance(rows, str) or not set(rows) <= {"0", "1"}:
        raise DataError(
            f"`{FITTED}` in {name} must have a 1 or a 0 for each row. Write the file again, or "
            f"remove it."
        )
    return {FITTED: np.array([value == "1" for value in rows], dtype=np.bool_)}, remarks
