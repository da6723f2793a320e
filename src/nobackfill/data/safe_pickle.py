"""Pickles read as data: no code of theirs, and none that they name, is ever run.

The ground truth of ROxford and RParis is published as pickles, and a pickle may ask for any
function to be called. This reader knows dicts, lists, tuples, text, bytes, numbers, booleans, None,
and arrays of numbers as NumPy writes them. The official files hold no arrays;
copies that others have saved again may.
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

from nobackfill.errors import DataError

NUMBERS = re.compile(r"b1|[iu][1248]|f[248]|c8|c16")
PLAIN = (str, bytes, bool, int, float, type(None), np.number, np.bool_)


def read_pickle(path: Path, what: str) -> Any:
    """Returns the plain data in a pickle; raises where it holds, or asks for, anything else.

    Args:
        path: Of the file.
        what: It is, in words, for the error: "the ground truth".
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"wanted {what} at {path}, but {error.strerror or error}. Unpack the collection as its "
            f"authors lay it out (`nobackfill datasets` shows what is expected)."
        ) from None
    try:
        check_lengths(data)
        return settle(PlainUnpickler(io.BytesIO(data), encoding="latin1").load(), {})
    except Exception as error:  # a broken pickle may fail in any way
        raise DataError(
            f"wanted {what} as plain data, but {path} is broken or asks for more: {error}. It was "
            f"not run. Fetch the file anew from its authors."
        ) from None


def check_lengths(data: bytes) -> None:
    """Refuses a pickle that announces more than its file holds, and would fill the memory."""
    for step, argument, _ in pickletools.genops(data):  # which raises where text or bytes end early
        if "PUT" in step.name and int(argument or 0) > len(data):
            raise UnpicklingError(f"a memo of {argument} entries")


class PlainUnpickler(pickle.Unpickler):
    """Gives a pickle our stand-ins for NumPy's functions, and refuses every other name."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        """Returns what stands for a name."""
        if f"{module}.{name}" not in STAND_INS:
            raise UnpicklingError(f"`{module}.{name}`")
        return STAND_INS[f"{module}.{name}"]


def settle(value: Any, settled: dict[int, Any]) -> Any:
    """Returns read data with the noted arrays made; raises at anything that is not plain.

    Args:
        value: What was read; its lists and dicts are changed in place.
        settled: By the id of a container, what became of it: what is shared is visited once.
    """
    if isinstance(value, PLAIN):
        return value
    if id(value) in settled:
        return settled[id(value)]
    if isinstance(value, list):
        settled[id(value)] = value
        value[:] = [settle(item, settled) for item in value]
    elif isinstance(value, dict):
        settled[id(value)] = value
        for key in value:
            if not isinstance(key, PLAIN):
                raise UnpicklingError(f"a key of type {type(key).__name__}")
            value[key] = settle(value[key], settled)
    elif isinstance(value, tuple):
        settled[id(value)] = tuple(settle(item, settled) for item in value)
    elif isinstance(value, PlainArray):
        settled[id(value)] = value.make()
    else:
        raise UnpicklingError(f"something of type {type(value).__name__}")
    return settled[id(value)]


class PlainDtype:
    """Notes the type of an array: the code that `numpy.dtype` is called with, then a byte order."""

    def __init__(self, code: str) -> None:
        if not NUMBERS.fullmatch(code):
            raise UnpicklingError(f"an array of type {code!r}")
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in ("<", ">", "|", "="):
            raise UnpicklingError(f"the byte order {state[1]!r}")
        self.order = state[1]

    def make(self) -> np.dtype[Any]:
        """Returns the type itself."""
        return np.dtype(self.order + self.code)


class PlainArray:
    """Notes the parts of an array as they come."""

    state: tuple[tuple[int, ...], PlainDtype, bool, bytes]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        shape, dtype, is_fortran, data = state[-4:]  # before: a version, left out in old files
        self.state = shape, dtype, bool(is_fortran), as_bytes(data)

    def make(self) -> NDArray[Any]:
        """Returns the array itself, which cannot be written to."""
        shape, dtype, is_fortran, data = self.state
        flat = np.frombuffer(data, dtype.make())
        if math.prod(shape) != len(flat):
            raise UnpicklingError(f"{len(flat)} values in the shape {shape}")
        return flat.reshape(shape, order="F" if is_fortran else "C")


def array_from_buffer(data: Any, dtype: PlainDtype, shape: Any, order: str) -> PlainArray:
    """Stands for the function that restores an array since protocol 5."""
    if order not in ("C", "F"):
        raise UnpicklingError(f"an array in the order {order!r}")
    array = PlainArray()
    array.__setstate__((shape, dtype, order == "F", data))
    return array


def empty_array(*_: Any) -> PlainArray:
    """Stands for the function that restores an array before protocol 5, but for its contents."""
    return PlainArray()


def scalar(dtype: PlainDtype, data: Any) -> Any:
    """Stands for the function that restores one number of an array."""
    return np.frombuffer(as_bytes(data), dtype.make())[0]


def as_bytes(data: Any = b"", encoding: str = "latin1") -> bytes:
    """Stands for the ways in which old protocols restore bytes."""
    if not isinstance(data, str | bytes | bytearray) or encoding != "latin1":
        raise UnpicklingError(f"bytes out of {type(data).__name__}, encoded as {encoding!r}")
    return data.encode("latin1") if isinstance(data, str) else bytes(data)


STAND_INS: dict[str, Callable[..., Any]] = {
    "numpy.dtype": lambda code, *_: PlainDtype(code),
    "numpy.ndarray": empty_array,
    "numpy.core.multiarray._reconstruct": empty_array,  # NumPy 1 says `core`, NumPy 2 `_core`
    "numpy._core.multiarray._reconstruct": empty_array,
    "numpy.core.multiarray.scalar": scalar,
    "numpy._core.multiarray.scalar": scalar,
    "numpy.core.numeric._frombuffer": array_from_buffer,
    "numpy._core.numeric._frombuffer": array_from_buffer,
    "_codecs.encode": as_bytes,
    "__builtin__.bytes": as_bytes,
    "builtins.bytes": as_bytes,
}
