"""What databases of many collections share: what is the owner's, and scores as cosines."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from nobackfill.core.config import suggest
from nobackfill.errors import ConfigError, GalleryError, NobackfillError
from nobackfill.gallery.stores.base import MARK, Matrix
from nobackfill.gallery.stores.uri import HIDDEN, Uri, is_secret

NUMBERS = 1_000_000  # in one message; as text about 20 MB, where servers stop at 32 MB
UNIT = 1e-3  # how far from 1 a length may be
NOTES = "notes"  # behind MARK: the collection of our notes
FULL = ("no space left", "disk is full", "os error 28")  # words of engines

T = TypeVar("T")


def the_only(what: str, option: str, asked: str, known: Sequence[str], shown: str) -> str:
    """The one that was asked for; without a question the only one.

    Args:
        what: Such as `collection`, for people.
        option: By which one asks.
        asked: Its name, or nothing.
        known: The names of all.
        shown: Where they are.

    Example:
        >>> the_only("collection", "collection", "", ["photos"], "here")
        'photos'
    """
    has = f"It has: {', '.join(known)}." if known else "It has none."
    if asked and asked not in known:
        close = suggest(asked, known) if known else has
        raise GalleryError(f"wanted the {what} `{asked}` in {shown}; there is none. {close}")
    if not asked and len(known) != 1:
        raise GalleryError(
            f"wanted to know which {what} in {shown}, but `{option}=` is not given. {has}"
        )
    return asked or known[0]


def owners(collections: Sequence[str]) -> list[str]:
    """Those that are not ours, sorted."""
    return sorted(name for name in collections if MARK not in name)


def squared_distance_as_cosine(squared: float) -> float:
    r"""The cosine of two unit vectors by their distance: :math:`d^2 = 2 - 2 \cos`."""
    return 1 - squared / 2


def check_unit_length(sample: Matrix, metric: str, shown: str) -> None:
    """Refuses a metric that tells no cosines of vectors of such lengths.

    Args:
        sample: Some stored vectors; those that are not there are NaN.
        metric: Its name, for people.
        shown: Where they are.
    """
    length = np.linalg.norm(sample[~np.isnan(sample).any(axis=1)], axis=1)
    if (np.abs(length - 1) > UNIT).any():
        raise GalleryError(
            f"wanted cosines, but {shown} is searched by {metric} over vectors of lengths "
            f"{length.min():.3g} to {length.max():.3g}. Store them with unit length, or in a "
            f"collection of the cosine metric."
        )


def check_dim(vectors: Matrix, dim: int, collection: str) -> None:
    """Refuses to write vectors of other dimensions than a collection has."""
    if vectors.ndim != 2 or vectors.shape[1] != dim:
        raise GalleryError(
            f"wanted vectors of {dim} dimensions, as `{collection}` has, but got an array of the "
            f"shape {tuple(vectors.shape)}."
        )


def check_not_notes(collection: str) -> None:
    """Refuses vectors where our notes are."""
    if collection.endswith(f"{MARK}{NOTES}"):
        raise GalleryError(f"wanted another name for vectors than `{NOTES}`: notes are kept there.")


def no_index(main: str, shown: str) -> GalleryError:
    """What is raised where the owner's vectors have no index that could be built on ours, too.

    Args:
        main: The owner's collection.
        shown: Where it is.
    """
    return GalleryError(
        f"wanted the index that the vectors of `{main}` have, to build the same on the new ones, "
        f"but {shown} has none there. Search is exact then, on old and new vectors: there is "
        f"nothing to do."
    )


def check_free(lock: Path, shown: str) -> None:
    """Refuses a gallery that another process has open.

    Args:
        lock: The file that its engine locks.
        shown: Where the gallery is.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows: there the engine's own error must do
        return
    if not lock.exists():
        return
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GalleryError(
                f"wanted to open {shown}, but another process (or another client in this one) has "
                f"it open, and the embedded engine lets only one in. End that one first, or run a "
                f"server."
            ) from None


def batches(given: Sequence[T], dim: int) -> Iterator[Sequence[T]]:
    """Parts of some items, small enough that their vectors go into one message.

    Example:
        >>> [len(some) for some in batches(range(2500), 4)]
        [1000, 1000, 500]
    """
    size = max(1, min(1000, NUMBERS // max(dim, 1)))
    for first in range(0, len(given), size):
        yield given[first : first + size]


def as_columns(payloads: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """What is stored of items, by name; None where an item lacks it.

    Example:
        >>> as_columns([{"colour": "red"}, {"size": 3}])
        {'colour': ['red', None], 'size': [None, 3]}
    """
    names = dict.fromkeys(name for payload in payloads for name in payload)
    return {name: [payload.get(name) for payload in payloads] for name in names}


def flag(uri: Uri, key: str) -> bool | None:
    """An option that is true or false; None where it is not given."""
    text = uri.options.get(key)
    if text is not None and text not in ("true", "false"):
        raise ConfigError(f"wanted `{key}=true` or `{key}=false` behind {uri.scheme}:, not {text}.")
    return None if text is None else text == "true"


def seconds(uri: Uri) -> int | None:
    """How long to wait for an answer; None where it is not given."""
    text = uri.options.get("timeout")
    if text is not None and not (text.isascii() and text.isdecimal()):
        raise ConfigError(f"wanted `timeout=` in whole seconds behind {uri.scheme}:, not {text}.")
    return None if text is None else int(text)


class Asking:
    """Calls a client and makes its errors ours, without credentials.

    Args:
        uri: Where the gallery is.
        client: The client's name and version, for people.
    """

    def __init__(self, uri: Uri, client: str):
        self.shown, self.client = uri.shown, client
        secret = [value for key, value in uri.options.items() if is_secret(key)]
        self._secrets = [text for text in (*secret, uri.password) if text]

    def __call__(self, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """The client's answer."""
        try:
            return call(*given, **named)
        except NobackfillError:
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            for secret in self._secrets:
                told = told.replace(secret, HIDDEN)
            verb = getattr(call, "__name__", "ask").replace("_", " ")
            full = any(word in told.lower() for word in FULL)
            remedy = "the disk is full: make room" if full else "see that the database runs"
            raise GalleryError(
                f"wanted to {verb} at {self.shown} by {self.client}, but {told[:500]}. What was "
                f"written before is kept; {remedy} and go on."
            ) from None
