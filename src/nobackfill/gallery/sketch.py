"""Recognises a gallery by short digests of some of its vectors.

Ids such as row numbers are the same in every gallery. A plan therefore contains a sketch of the old
vectors it was measured on; new vectors are written and served only where the gallery has those.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import shake_256

import numpy as np
from jaxtyping import Bool, Float

from nobackfill.core.json_files import as_kind, parse_object
from nobackfill.errors import DataError, GalleryError
from nobackfill.gallery.provenance import declared
from nobackfill.gallery.stores.base import REPAIR, Matrix, Rows, Store
from nobackfill.vectors.space import MOST_DIM

NOTE = "sketch/"  # keys of notes begin with it
ITEMS = 16  # in a sketch
BITS = 512  # of a digest
DIGEST = re.compile(rf"[0-9a-f]{{{BITS // 4}}}")
FLIPPED = 2  # bits that rounding to half precision may change
FARTHEST = 128  # differing bits of vectors that may be the same: an angle of 45 degrees


@dataclass(frozen=True)
class Sketch:
    """Digests of some vectors of a gallery.

    A digest has the signs of a vector's products with fixed directions. It does not depend on the
    length of the vector, and hardly on the precision in which a database stores it.
    """

    dim: int  # number of dimensions of the vectors
    digests: Mapping[str, str]  # hexadecimal digits by id
    space: str | None = None  # fingerprint of the vectors' model, if it is declared

    @classmethod
    def of(cls, ids: Sequence[str], vectors: Matrix, space: str | None = None) -> "Sketch":
        """Makes the sketch of vectors of these items."""
        digests = (np.packbits(signs).tobytes().hex() for signs in signs_of(vectors))
        return cls(vectors.shape[1], dict(zip(ids, digests, strict=True)), space)

    def agreement(self, rows: Rows) -> tuple[int, int]:
        """Returns how many of these items have the vector of the sketch, and of how many.

        A vector agrees if no digest of another item is closer than its own. Items without a vector
        (a row of NaN) do not count.
        """
        stored = ~np.isnan(rows.vectors).any(axis=1)
        ids = list(self.digests)
        places = [ids.index(rows.ids[row]) for row in np.flatnonzero(stored)]
        if rows.vectors.shape[1] != self.dim or not places:
            return 0, len(places)
        packed = np.frombuffer(bytes.fromhex("".join(self.digests.values())), np.uint8)
        known = np.unpackbits(packed).reshape(len(ids), BITS).astype(bool)
        distance = (signs_of(rows.vectors[stored])[:, None] != known).sum(axis=2)
        own = distance[np.arange(len(places)), places]
        agrees = (own <= distance.min(axis=1) + FLIPPED) & (own <= FARTHEST)
        return int(agrees.sum()), len(places)


def spread(number: int) -> list[int]:
    """Returns the positions of the items of a sketch, evenly spread over `number` items.

    Example:
        >>> spread(3), spread(31)
        ([0, 1, 2], [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30])
    """
    places = np.linspace(0, number - 1, min(ITEMS, number)).astype(np.int64)
    return [int(place) for place in places]


def signs_of(vectors: Matrix) -> Bool[np.ndarray, "rows bits"]:
    """Returns whether each vector's products with the directions are positive."""
    products = vectors.astype(np.float64) @ directions(vectors.shape[1])
    return np.asarray(products > 0)


@lru_cache(maxsize=4)
def directions(dim: int) -> Float[np.ndarray, "dim bits"]:
    """Returns directions of coordinates 1 and -1, the same on every machine, always."""
    stream = np.frombuffer(shake_256(b"nobackfill").digest(dim * BITS // 8), np.uint8)
    return 1.0 - 2.0 * np.unpackbits(stream).reshape(dim, BITS)


def compare(store: Store, sketch: Sketch) -> tuple[int, int]:
    """Returns how many of the owner's vectors are those of a sketch, and how many were compared.

    None are compared where the vectors are removed or compressed.
    """
    if not store.has_exact_vectors():
        return 0, 0
    return sketch.agreement(store.get(store.main, list(sketch.digests)))


def is_other(agreeing: int, compared: int) -> bool:
    """Whether fewer than half of the compared vectors agree: owners replace some meanwhile."""
    return 2 * agreeing < compared


def sketch_key(collection: str) -> str:
    """Returns the key of the note with the sketch."""
    return f"{NOTE}{collection}"


def keep(store: Store, collection: str, sketch: Sketch) -> None:
    """Records next to new vectors the old ones that they were written for."""
    text = json.dumps(asdict(sketch))
    if store.read_note(sketch_key(collection)) != text:
        store.note(sketch_key(collection), text)


def read_sketch(text: str, where: str) -> Sketch:
    """Reads the note of a sketch."""
    sketch = as_kind(Sketch, parse_object(text, where, REPAIR), where, REPAIR)
    for id, digest in sketch.digests.items():
        if not DIGEST.fullmatch(digest):
            raise DataError(f"{where}: the digest of {id!r} is damaged. {REPAIR}")
    if not 1 <= sketch.dim <= MOST_DIM:
        raise DataError(f"{where}: `dim` is {sketch.dim}. {REPAIR}")
    return sketch


def check_written_for(store: Store, collection: str) -> None:
    """Refuses new vectors that were written for another gallery, before they are served."""
    if (reason := why_not_for(store, collection)) is not None:
        raise GalleryError(reason)


def why_not_for(store: Store, collection: str) -> str | None:
    """Returns why new vectors do not belong to the present old ones; None if they do, or may.

    Where no vector can be compared, the declared models are.
    """
    text = store.read_note(sketch_key(collection))
    if text is None or not store.exists(store.main):
        return None
    sketch = read_sketch(text, f"the note `{sketch_key(collection)}`")
    agreeing, compared = compare(store, sketch)
    remedy = (
        "Remove the new ones (`nobackfill gallery clean`), make a plan from vectors of this "
        "gallery (`nobackfill gallery pull`), and backfill again."
    )
    if is_other(agreeing, compared):
        return (
            f"The vectors of `{collection}` were written for other items: of {compared} old "
            f"vectors of then, `{store.main}` has {agreeing} under the same ids. {remedy}"
        )
    now = declared(store, store.main)
    if not compared and now is not None and sketch.space not in (None, now.fingerprint):
        return (
            f"The vectors of `{collection}` were written next to old ones of the space "
            f"{sketch.space}, but `{store.main}` is of {now.fingerprint} now. {remedy}"
        )
    return None
