"""The format `.npy`: vectors only, as a bare array.

`NAME.fitted.json` stores on which of them a head was fitted: a 1 or a 0 for each row.
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.atomic_files import write_text
from nobackfill.errors import DataError
from nobackfill.vectors.column_names import ANY, Columns
from nobackfill.vectors.contents import FITTED, SPACE, Contents


def read(path: Path, columns: Columns = ANY) -> Contents:
    """Memory-maps the array, copy on write: the file is never changed. Ids are row numbers."""
    vector = np.lib.format.open_memmap(path, mode="c")
    ids = np.arange(len(vector) if vector.ndim else 0)
    return Contents(vector, {"id": ids, **_read_fitted(path)}, {}, has_ids=False)


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


def fitted_path(path: Path) -> Path:
    """Returns the path of the file that stores on which vectors a head was fitted."""
    return path.with_suffix(".fitted.json")


def write_fitted(path: Path, contents: Contents) -> None:
    """Writes `fitted_path` if the contents have the column."""
    fitted = _fitted(contents)
    if fitted is not None:
        rows = "".join("1" if value else "0" for value in fitted.tolist())
        write_text(fitted_path(path), json.dumps({FITTED: rows}) + "\n")


def _fitted(contents: Contents) -> NDArray[np.bool_] | None:
    """Returns the column `fitted` if there is one, of booleans."""
    column = contents.columns.get(FITTED)
    return column if column is not None and column.dtype.kind == "b" else None


def _read_fitted(path: Path) -> dict[str, NDArray[np.bool_]]:
    """Reads the column that `write_fitted` wrote, if there is such a file."""
    record = fitted_path(path)
    if not record.exists():
        return {}
    try:
        rows = json.loads(record.read_text(encoding="utf-8"))[FITTED]
        valid = set(rows) <= {"0", "1"}
    except (OSError, ValueError, KeyError, TypeError):
        valid = False
    if not valid:
        raise DataError(
            f"`{FITTED}` in {record.name} must have a 1 or a 0 for each row. Write the file again, "
            f"or remove it."
        )
    return {FITTED: np.array([value == "1" for value in rows], dtype=np.bool_)}
