"""What NumPy's pickles ask for, noted instead of called.

NumPy restores an array by functions that trust what they are given. Those below stand in for them:
they note what they are given, and an array of plain numbers is made from the notes at the end.
"""

import math
import re
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBERS = re.compile(r"b1|[iu][1248]|f[248]|c8|c16")


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
