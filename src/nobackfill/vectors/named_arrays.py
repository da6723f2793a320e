"""Contents of files with arrays by name: .npz, .safetensors and .pt."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.vectors.column_names import Columns, choose_by
from nobackfill.vectors.columns import as_column
from nobackfill.vectors.contents import MEANINGFUL, Contents


def choose_arrays(
    arrays: Mapping[str, NDArray[Any] | Tensor], columns: Columns, notes: Mapping[str, str]
) -> Contents:
    """Returns the vectors, ids, labels and columns among arrays.

    Args:
        arrays: Arrays by name; the vectors have two dimensions.
        columns: Names of arrays, where they are known. The label may be missing.
        notes: Text about the whole file.
    """
    matrices = frozenset(name for name, array in arrays.items() if array.ndim == 2)
    choice = choose_by(list(arrays), columns, lists=matrices)
    if choice.is_wide:
        raise DataError(
            f"No array is known to be the vectors. Pass its name: --vector NAME (in Python "
            f"vector=NAME). The arrays are {', '.join(arrays)}."
        )
    vector = arrays[choice.vector[0]]
    rows = len(vector) if vector.ndim else 0
    read: dict[str, NDArray[Any]] = {}
    used = {*choice.vector, *choice.unused}
    for name, array in arrays.items():
        if name in used:
            continue
        role = "id" if name == choice.id else "label" if name == choice.label else name
        is_column = array.ndim == 1 and len(array) == rows
        if role == name and name not in MEANINGFUL and not is_column:
            continue  # such as the mean of all vectors
        read[role] = array if isinstance(array, np.ndarray) else as_column(array.clone(), name)
        if role == "label" and name != role:
            read[name] = read[role]
    read.setdefault("id", np.arange(rows))
    return Contents(vector, read, dict(notes), choice.notes, has_ids=choice.id is not None)
