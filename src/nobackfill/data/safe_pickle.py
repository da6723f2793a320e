"""Pickles read as data: no code of theirs, and none that they name, is ever run.

The ground truth of ROxford and RParis is published as pickles, and a pickle may ask for any
function to be called. This reader knows dicts, lists, tuples, text, bytes, numbers, booleans, None,
and arrays of numbers as NumPy writes them (`pickled_arrays`). The official files hold no arrays;
copies that others have saved again may.
"""

import io
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nobackfill.data.safe_pickle_pickled_arrays import STAND_INS, PlainArray
from nobackfill.errors import DataError

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
            raise pickle.UnpicklingError(f"a memo of {argument} entries")


class PlainUnpickler(pickle.Unpickler):
    """Gives a pickle our stand-ins for NumPy's functions, and refuses every other name."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        """Returns what stands for a name."""
        if f"{module}.{name}" not in STAND_INS:
            raise pickle.UnpicklingError(f"`{module}.{name}`")
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
                raise pickle.UnpicklingError(f"a key of type {type(key).__name__}")
            value[key] = settle(value[key], settled)
    elif isinstance(value, tuple):
        settled[id(value)] = tuple(settle(item, settled) for item in value)
    elif isinstance(value, PlainArray):
        settled[id(value)] = value.make()
    else:
        raise pickle.UnpicklingError(f"something of type {type(value).__name__}")
    return settled[id(value)]
