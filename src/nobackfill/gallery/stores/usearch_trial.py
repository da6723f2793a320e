"""Whether a USearch index can be trusted.

Every opening of an index runs this in a new process, so it imports USearch and no more.
"""

from typing import Any

import numpy as np
from usearch.index import Index

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.trial import DAMAGED


def open_index(path: str) -> Any:
    """Opens a memory-mapped index."""
    reason = "it is not an index"
    try:
        if (index := Index.restore(path, view=True)) is not None:
            return index
    except (RuntimeError, ValueError) as error:
        reason = str(error)
    raise GalleryError(
        f"Cannot read {path} as an index written by USearch's `save`: {reason}. {DAMAGED}"
    )


def try_index(path: str) -> None:
    """Opens and searches an index; see `try_first`."""
    index = open_index(path)
    if len(index) and not index.multi:
        keys = index.keys[0 : len(index)]
        vectors = index.get(np.asarray(keys))
        rows = np.linspace(0, len(vectors) - 1, min(100, len(vectors))).astype(np.int64)
        index.search(np.asarray(vectors[0] if index.ndim == 1 else vectors)[rows], 10)
