"""Columns: one value per row, as a NumPy array of text, int64, floats or booleans.

Text is an array of `str_`, which pads all texts to the longest. If that wastes memory, it is an
array of `StringDType`, which stores each text in its own length. Ids and labels are always `str_`.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError

Values = NDArray[Any] | Tensor | Iterable[Any]

WIDEST = 2**26  # bytes that texts of more than LONG characters are padded to
LONG = 256
WIDEST_KEY = 2**28  # the same of ids and labels, beyond which they are refused
LONG_KEY = 1000

FLAGS = ("is_query", "is_gallery")

KINDS: tuple[tuple[tuple[type, ...], type], ...] = (  # the first that fits all values is used
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
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    array = values if isinstance(values, np.ndarray) else np.array(list(values), dtype=object)
    if array.ndim != 1:
        raise DataError(
            f"`{name}` has the shape {array.shape}, not one value per row. Pass a list or a "
            f"one-dimensional array."
        )
    if array.dtype.kind not in "Ubiuf":
        array = _convert_objects(array, name)
    if array.dtype.kind == "T":
        return array
    if array.dtype.kind not in "iu":
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise _too_large(name)
    return array.astype(np.int64, copy=False)


def as_key(values: Values, name: str) -> NDArray[Any]:
    """Returns ids or labels as text or int64; floats cannot distinguish large numbers."""
    array = as_column(values, name)
    if array.dtype.kind == "T":
        longest = int(np.strings.str_len(array).max())
        check_key(longest, len(array), name)
        array = array.astype(f"U{longest}")
    if array.dtype.kind not in "Ui":
        raise DataError(
            f"`{name}` must be text or whole numbers, not {array.dtype}. Convert it, e.g. by "
            f"`.astype('int64')`."
        )
    return array


def as_flag(values: Values, name: str) -> NDArray[np.bool_]:
    """Returns a column of booleans, or of the numbers 0 and 1, as booleans."""
    array = as_column(values, name)
    if array.dtype.kind == "i" and np.isin(array, (0, 1)).all():
        array = array.astype(np.bool_)
    if array.dtype.kind != "b":
        raise DataError(
            f"Column `{name}` must be true or false (or 1 and 0) in each row, but is "
            f"{array.dtype} and starts with {array[:3].tolist()}. Convert it."
        )
    return array


def _convert_objects(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Converts Python objects, or values of an unsupported type, to one of the four kinds."""
    values = array.tolist()
    types = set(map(type, values))
    for accepted, dtype in KINDS:
        if all(issubclass(kind, accepted) for kind in types):
            if dtype is np.str_ and values:
                _check_ends(values, name)
                dtype = text_type(max(map(len, values)), len(values))
            try:
                return np.array(values, dtype=dtype)
            except UnicodeError as error:
                raise DataError(
                    f"`{name}` has invalid Unicode text ({error}). Repair it, e.g. by "
                    f"`text.encode(errors='replace').decode()`."
                ) from error
            except OverflowError as error:
                raise _too_large(name) from error
    row = next((r for r, value in enumerate(values) if type(value) is not type(values[0])), 0)
    raise DataError(
        f"`{name}` must be text, whole numbers, floats or booleans, the same in all rows, but row "
        f"{row} contains {values[row]!r}. Convert the column, or drop it."
    )


def as_text(column: NDArray[Any]) -> NDArray[Any]:
    """Returns a column as text: numbers as they are written, text as it is.

    Example:
        >>> as_text(np.array([1, 0]))[0]
        np.str_('1')
    """
    return column if column.dtype.kind in "UT" else column.astype(np.str_)


def text_type(longest: int, rows: int) -> Any:
    """Returns the type of a column of text, given the number of characters of its longest.

    Example:
        >>> text_type(20, 10**6), text_type(10**6, 20)
        (<class 'numpy.str_'>, StringDType())
    """
    is_wide = longest > LONG and 4 * longest * rows > WIDEST
    return np.dtypes.StringDType() if is_wide else np.str_


def check_key(longest: int, rows: int, name: str) -> None:
    """Raises if one long text makes ids or labels too large: NumPy pads all to the longest."""
    if longest > LONG_KEY and 4 * longest * rows > WIDEST_KEY:
        raise DataError(
            f"`{name}` has a text of {longest:,} characters. With {rows:,} rows, texts may have "
            f"{max(LONG_KEY, WIDEST_KEY // (4 * rows)):,}: shorten it, or leave out the column."
        )


def _check_ends(values: list[str], name: str) -> None:
    """Raises if a text ends with a NUL, which NumPy drops."""
    if row := next((row + 1 for row, text in enumerate(values) if text[-1:] == "\0"), 0):
        raise nul_at_end(name, row - 1)


def nul_at_end(name: str, row: int) -> DataError:
    """Returns the error for a text that ends with a NUL."""
    return DataError(
        f"The text of `{name}` in row {row} ends with the character NUL, which would be lost. "
        f"Remove it."
    )


def _too_large(name: str) -> DataError:
    """Returns the error for numbers that int64 cannot hold."""
    return DataError(f"`{name}` has numbers of more than 63 bits. Convert them to text.")
