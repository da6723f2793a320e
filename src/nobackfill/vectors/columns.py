"""One value per row: ids, labels and other columns, as NumPy arrays of four kinds.

Text is kept as a unicode array, whole numbers as int64; floats and booleans as they are.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError

Values = NDArray[Any] | Tensor | Iterable[Any]

FLAGS = ("is_query", "is_gallery")

OF_ONE_KIND: tuple[
    tuple[tuple[type, ...], type], ...
] = (  # the first that fits all values is taken
    ((str,), np.str_),
    ((bool, np.bool_), np.bool_),
    ((int, np.integer), np.int64),
    ((float, np.floating, int, np.integer), np.float64),
)


def as_column(values: Values, name: str) -> NDArray[Any]:
    """Returns `values` as a one-dimensional array of text, int64, floats or booleans.

    Example:
        >>> as_column(["a", "ß"], "camera")
        array(['a', 'ß'], dtype='<U1')
    """
    array = one_dimensional(values, name)
    if array.dtype.kind not in "Ubiuf":
        array = of_one_kind(array, name)
    if array.dtype.kind in "iu":
        return as_int64(array, name)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def as_key(values: Values, name: str) -> NDArray[Any]:
    """Returns ids or labels as text or int64: floats do not tell large numbers apart."""
    array = as_column(values, name)
    if array.dtype.kind not in "Ui":
        raise DataError(
            f"`{name}` wants text or whole numbers, but is {array.dtype}. Convert it, e.g. by "
            f"`.astype('int64')`."
        )
    return array


def as_flag(values: Values, name: str) -> NDArray[np.bool_]:
    """Returns a yes-or-no column as booleans; the numbers 0 and 1 will do."""
    array = as_column(values, name)
    if array.dtype.kind == "i" and np.isin(array, (0, 1)).all():
        array = array.astype(np.bool_)
    if array.dtype.kind != "b":
        raise DataError(
            f"column `{name}` wants true or false (or 1 and 0) in each row, but is {array.dtype}, "
            f"beginning with {array[:3].tolist()}. Convert it."
        )
    return array


def one_dimensional(values: Values, name: str) -> NDArray[Any]:
    """Returns `values` as an array, of objects if they were no array before."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    array = values if isinstance(values, np.ndarray) else np.array(list(values), dtype=object)
    if array.ndim != 1:
        raise DataError(
            f"`{name}` wants one value per row, but has the shape {array.shape}. Give a list or a "
            f"one-dimensional array."
        )
    return array


def of_one_kind(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Turns an array of Python objects, or of a type we do not keep, into one of the four kinds."""
    values = array.tolist()
    kinds = set(map(type, values))
    for accepted, dtype in OF_ONE_KIND:
        if all(issubclass(kind, accepted) for kind in kinds):
            try:
                return np.array(values, dtype=dtype)
            except OverflowError as error:
                raise too_large(name) from error
    row = next((r for r, value in enumerate(values) if type(value) is not type(values[0])), 0)
    raise DataError(
        f"`{name}` wants text, whole numbers, floats or booleans, the same in all rows, but row "
        f"{row} holds {values[row]!r}. Convert the column, or drop it."
    )


def as_int64(array: NDArray[Any], name: str) -> NDArray[np.int64]:
    """Returns whole numbers of any width as int64, unless one does not fit."""
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise too_large(name)
    return array.astype(np.int64, copy=False)


def too_large(name: str) -> DataError:
    """Returns the error for numbers that int64 cannot hold."""
    return DataError(
        f"`{name}` holds numbers of more than 63 bits, which int64 cannot hold. Write them as text."
    )
