"""A head where there is no torch: numpy alone."""

from collections.abc import Callable
from math import erf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nobackfill.errors import DataError, SpaceMismatch
from nobackfill.head.folder import Arrays, read_folder

ROWS = 1024  # that are mapped in one go

Floats = NDArray[np.float32]


def load(folder: Path | str) -> Callable[[NDArray[Any]], Floats]:
    """Reads the folder of a head as a function: new vectors in, unit vectors of the old space out.

    What comes out is what `CompatibleHead.transform` makes, but for rounding.

    Args:
        folder: What `nobackfill fit` or `save_pretrained` wrote.
    """
    arrays = read_folder(Path(folder)).arrays

    def transform(new: NDArray[Any]) -> Floats:
        """Maps vectors of any length, one per row."""
        rows = check(np.asarray(new), arrays["affine.weight"].shape[1])
        out = np.empty((len(rows), len(arrays["affine.bias"])), np.float32)
        for first in range(0, len(rows), ROWS):
            out[first : first + ROWS] = mapped(arrays, rows[first : first + ROWS])
        return out

    return transform


def mapped(arrays: Arrays, new: Floats) -> Floats:
    """The formula of `HeadNetwork` without dropout, made unit."""
    unit = normalized(new)
    out: Floats = unit @ arrays["affine.weight"].T + arrays["affine.bias"]
    if "inner.weight" in arrays:
        inner = np.float32(sqrt(unit.shape[1])) * unit @ arrays["inner.weight"].T
        out += gelu(inner + arrays["inner.bias"]) @ arrays["outer.weight"].T + arrays["outer.bias"]
    return normalized(out)


def normalized(vectors: Floats) -> Floats:
    """Rows of unit length."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(length, 1e-12), np.float32)


def gelu(x: Floats) -> Floats:
    r"""The exact one, :math:`x \, \Phi(x)`.

    Example:
        >>> gelu(np.array([0.0, 1.0], np.float32)).round(4)
        array([0.    , 0.8413], dtype=float32)
    """
    scaled = (x.ravel() / sqrt(2)).tolist()
    share = np.fromiter(map(erf, scaled), np.float64, count=x.size).reshape(x.shape)
    return (0.5 * x * (1 + share)).astype(np.float32)


def check(new: NDArray[Any], dim: int) -> Floats:
    """Refuses what a head cannot map."""
    if new.ndim != 2 or new.shape[1] != dim:
        raise SpaceMismatch(
            f"wanted new vectors of {dim} dimensions, as the head was fitted on, but got "
            f"{new.shape}. Pass vectors of the same new model, one per row."
        )
    with np.errstate(over="ignore"):
        rows = new.astype(np.float32)
        length = np.linalg.norm(rows, axis=1)
    bad = np.flatnonzero(~(np.isfinite(length) & (length > 1e-12)))
    if len(bad):
        raise DataError(
            f"wanted vectors with a direction, but {len(bad)} have none (all zeros, NaN or "
            f"infinite), the first being row {bad[0]}. Embed these items again, or drop them."
        )
    return rows
