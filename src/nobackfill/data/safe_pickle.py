"""Safe reading of pickles: nothing that they contain or name is ever executed.

The ground truth of ROxford and RParis is published as pickles, and a pickle can call any function.
This reader supports dicts, lists, tuples, text, bytes, numbers, booleans, None, and arrays of
numbers as NumPy writes them. The official files contain no arrays, but copies that others have
saved again may.
"""

import io
import math
import pickle
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nobackfill.data.listing import LAYOUT, invalid
from nobackfill.errors import DataError

NUMBERS = re.compile(r"b1|[iu][1248]|f[248]|c8|c16")
PLAIN = (str, bytes, bool, int, float, type(None), np.number, np.bool_)


def read_pickle(path: Path, what: str) -> Any:
    """Reads the plain data in a pickle, or raises; `what` names it in errors."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"Cannot read {what} at {path}: {error.strerror or error}. {LAYOUT}"
        ) from None
    try:
        # Refuse lengths beyond that of the file, which would fill the memory. `genops` itself
        # raises if text or bytes end early.
        for step, argument, _ in pickletools.genops(data):
            if "PUT" in step.name and int(argument or 0) > len(data):
                raise UnpicklingError(f"a memo of {argument} entries")
        return _make_arrays(PlainUnpickler(io.BytesIO(data), encoding="latin1").load(), {})
    except Exception as error:  # a broken pickle may fail in any way
        raise invalid(
            path,
            f"{what} is broken or contains more than plain data ({error}), and was not executed",
            "Fetch the file again from its authors.",
        ) from None


class PlainUnpickler(pickle.Unpickler):
    """Unpickler that has substitutes for NumPy's functions, and refuses every other name."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        """Returns the substitute of a name."""
        if f"{module}.{name}" not in SUBSTITUTES:
            raise UnpicklingError(f"`{module}.{name}`")
        return SUBSTITUTES[f"{module}.{name}"]


def _make_arrays(value: Any, made: dict[int, Any]) -> Any:
    """Returns the data with its arrays, or raises at anything that is not plain.

    Lists and dicts are changed in place. `made` has the results by the id of the container, so that
    shared ones are visited once.
    """
    if isinstance(value, PLAIN):
        return value
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, list):
        made[id(value)] = value
        value[:] = [_make_arrays(item, made) for item in value]
    elif isinstance(value, dict):
        made[id(value)] = value
        for key in value:
            if not isinstance(key, PLAIN):
                raise UnpicklingError(f"a key of type {type(key).__name__}")
            value[key] = _make_arrays(value[key], made)
    elif isinstance(value, tuple):
        made[id(value)] = tuple(_make_arrays(item, made) for item in value)
    elif isinstance(value, PlainArray):
        made[id(value)] = value.make()
    else:
        raise UnpicklingError(f"something of type {type(value).__name__}")
    return made[id(value)]


class PlainDtype:
    """Type of an array: the code that `numpy.dtype` is called with, and the byte order."""

    def __init__(self, code: str) -> None:
        if not NUMBERS.fullmatch(code):
            raise UnpicklingError(f"an array of type {code!r}")
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in ("<", ">", "|", "="):
            raise UnpicklingError(f"the byte order {state[1]!r}")
        self.order = state[1]

    def make(self) -> np.dtype[Any]:
        """Returns NumPy's type."""
        return np.dtype(self.order + self.code)


class PlainArray:
    """Parts of an array, of which `make` makes the array."""

    state: tuple[tuple[int, ...], PlainDtype, bool, bytes]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        shape, dtype, is_fortran, data = state[-4:]  # before: a version, left out in old files
        self.state = shape, dtype, bool(is_fortran), as_bytes(data)

    def make(self) -> NDArray[Any]:
        """Returns the array, which is read-only."""
        shape, dtype, is_fortran, data = self.state
        flat = np.frombuffer(data, dtype.make())
        if math.prod(shape) != len(flat):
            raise UnpicklingError(f"{len(flat)} values in the shape {shape}")
        return flat.reshape(shape, order="F" if is_fortran else "C")


def array_from_buffer(data: Any, dtype: PlainDtype, shape: Any, order: str) -> PlainArray:
    """Substitute of the function that restores an array since protocol 5."""
    if order not in ("C", "F"):
        raise UnpicklingError(f"an array in the order {order!r}")
    array = PlainArray()
    array.__setstate__((shape, dtype, order == "F", data))
    return array


def scalar(dtype: PlainDtype, data: Any) -> Any:
    """Substitute of the function that restores one number of an array."""
    return np.frombuffer(as_bytes(data), dtype.make())[0]


def as_bytes(data: Any = b"", encoding: str = "latin1") -> bytes:
    """Substitute of the functions by which old protocols restore bytes."""
    if not isinstance(data, str | bytes | bytearray) or encoding != "latin1":
        raise UnpicklingError(f"bytes out of {type(data).__name__}, encoded as {encoding!r}")
    return data.encode("latin1") if isinstance(data, str) else bytes(data)


def empty_array(*_: Any) -> PlainArray:
    """Substitute of the functions that restore an array before protocol 5, without contents."""
    return PlainArray()


SUBSTITUTES: dict[str, Callable[..., Any]] = {
    "numpy.dtype": lambda code, *_: PlainDtype(code),
    "numpy.ndarray": empty_array,
    "numpy.core.multiarray._reconstruct": empty_array,  # `core` in NumPy 1, `_core` in NumPy 2
    "numpy._core.multiarray._reconstruct": empty_array,
    "numpy.core.multiarray.scalar": scalar,
    "numpy._core.multiarray.scalar": scalar,
    "numpy.core.numeric._frombuffer": array_from_buffer,
    "numpy._core.numeric._frombuffer": array_from_buffer,
    "_codecs.encode": as_bytes,
    "__builtin__.bytes": as_bytes,
    "builtins.bytes": as_bytes,
}
