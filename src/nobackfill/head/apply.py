"""Applies a head with numpy alone, without torch."""

from collections.abc import Callable
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.head.storage import Arrays, read_folder

ROWS = 1024  # rows per block
P = 0.3275911  # constants of `gelu`
A = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)

Floats = NDArray[np.float32]


def load(folder: Path | str) -> Callable[[NDArray[Any]], Floats]:
    """Loads a head as a function from new vectors to vectors of the old space.

    The result equals that of `CompatibleHead.transform` up to rounding.

    Args:
        folder: Folder that `nobackfill fit` or `save_pretrained` wrote.
    """
    stored = read_folder(Path(folder))
    arrays, weight = stored.arrays, stored.config["progress"].get("old_weight")

    def transform(new: NDArray[Any], old: NDArray[Any] | None = None) -> Floats:
        """Maps vectors of any length, one per row; `old` are old vectors of the same items."""
        rows = check(np.asarray(new), arrays["affine.weight"].shape[1])
        if (old is None) != (weight is None):
            needs = "new and old vectors" if old is None else "new vectors alone"
            raise ConfigError(f"This head maps {needs}. Pass what it was fitted with.")
        dim = len(arrays["affine.bias"]) + len(arrays.get("extra.linear.bias", ()))
        out = np.empty((len(rows), dim), np.float32)
        for first in range(0, len(rows), ROWS):
            out[first : first + ROWS] = mapped(arrays, rows[first : first + ROWS])
        if old is None:
            return out
        old_rows = check(np.asarray(old), len(arrays["affine.bias"]), model="old")
        if len(old_rows) != len(rows):
            raise DataError(
                f"There are {len(rows)} new and {len(old_rows)} old vectors. Pass one of each per "
                f"item."
            )
        return normalized(np.float32(weight) * normalized(old_rows) + np.float32(1 - weight) * out)

    return transform


def mapped(arrays: Arrays, new: Floats) -> Floats:
    """Computes the formula of `HeadNetwork.embed`."""
    unit = normalized(new)
    out: Floats = unit @ arrays["affine.weight"].T + arrays["affine.bias"]
    if "inner.weight" in arrays:
        inner = np.float32(sqrt(unit.shape[1])) * unit @ arrays["inner.weight"].T
        out += gelu(inner + arrays["inner.bias"]) @ arrays["outer.weight"].T + arrays["outer.bias"]
    if "extra.scale" not in arrays:
        return normalized(out)
    extra = unit @ arrays["extra.linear.weight"].T + arrays["extra.linear.bias"]
    return np.concatenate([normalized(out), arrays["extra.scale"] * normalized(extra)], axis=1)


def normalized(vectors: Floats) -> Floats:
    """Normalizes rows to unit length."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(length, 1e-12), np.float32)


def gelu(x: Floats) -> Floats:
    r"""Exact GELU, :math:`x \, \Phi(x)`, to within 4e-7.

    .. math::
        x \, \Phi(x) = \max(x, 0) - |x| \, \Phi(-|x|), \qquad
        \Phi(-|x|) \approx \tfrac12 (a_1 t + \dots + a_5 t^5) \, e^{-x^2 / 2}, \qquad
        t = \frac{1}{1 + p \, |x| / \sqrt 2}

    (Abramowitz and Stegun, 7.1.26). Only the tail is approximated, so float32 is enough.

    Example:
        >>> gelu(np.array([0.0, 1.0], np.float32)).round(4)
        array([0.    , 0.8413], dtype=float32)
    """
    size = np.minimum(np.abs(x), 20)  # beyond, the tail is 0 in float32
    t = 1 / (1 + P / sqrt(2) * size)
    tail = np.zeros_like(size)
    for a in reversed(A):
        tail = (tail + a) * t
    tail *= np.exp(-0.5 * size * size) / 2
    return np.asarray(np.maximum(x, 0) - size * tail, np.float32)


def check(new: NDArray[Any], dim: int, *, model: str = "new") -> Floats:
    """Returns vectors in single precision; raises for those that a head cannot map."""
    if new.ndim != 2 or new.shape[1] != dim:
        raise SpaceMismatch(
            f"The head was fitted on {model} vectors of {dim} dimensions, but these have the shape "
            f"{new.shape}. Pass vectors of the same {model} model, one per row."
        )
    with np.errstate(over="ignore"):
        rows = new.astype(np.float32)
        length = np.linalg.norm(rows, axis=1)
    bad = np.flatnonzero(~(np.isfinite(length) & (length > 1e-12)))
    if len(bad):
        raise DataError(
            f"{len(bad)} vectors have no direction (all zeros, NaN or infinite), the first being "
            f"row {bad[0]}. Embed these items again, or drop them."
        )
    return rows
