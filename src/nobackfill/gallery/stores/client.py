"""Helpers shared by the database adapters: names, checks, batches, and calls to clients."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from nobackfill.core.locks import lock_output
from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError, GalleryError, NobackfillError
from nobackfill.gallery.stores.base import MARK, Matrix, Store
from nobackfill.gallery.stores.uri import Uri, secrets_of, without_secrets

NUMBERS = 1_000_000  # in one message; as text about 20 MB, where servers stop at 32 MB
UNIT = 1e-3  # largest deviation of a length from 1
PATIENCE = 60.0  # seconds to wait for another process that changes the same gallery
FULL = ("no space left", "disk is full", "os error 28")  # in errors of engines

T = TypeVar("T")


def choose_name(what: str, option: str, name: str, names: Sequence[str], shown: str) -> str:
    """Returns `name` if it exists, or the only name if `name` is empty.

    `what` is the kind of thing, for errors, and `option` the URI option that selects it.
    """
    has = f"It has: {', '.join(names)}." if names else "It has none."
    if name and name not in names:
        close = suggest(name, names) if names else has
        raise GalleryError(f"No {what} `{name}` in {shown}. {close}")
    if not name and len(names) != 1:
        raise GalleryError(f"Choose which {what} in {shown} to open with `{option}=`. {has}")
    return name or names[0]


def owner_collections(collections: Sequence[str]) -> list[str]:
    """Returns the collections that nobackfill did not write, sorted."""
    return sorted(name for name in collections if MARK not in name)


def cosines_from(scores: Sequence[float], *, squared_distances: bool) -> list[float]:
    r"""Returns cosines of unit vectors; squared distances become :math:`\cos = 1 - d^2 / 2`."""
    return [1 - score / 2 for score in scores] if squared_distances else list(scores)


def check_unit_length(sample: Matrix, metric: str, shown: str) -> None:
    """Raises if the lengths of stored vectors do not allow the metric to give cosines."""
    length = np.linalg.norm(sample[~np.isnan(sample).any(axis=1)], axis=1)  # NaN: no vector
    if (np.abs(length - 1) > UNIT).any():
        raise GalleryError(
            f"Cannot compute cosines: {shown} is searched by {metric} over vectors of lengths "
            f"{length.min():.3g} to {length.max():.3g}. Store them with unit length, or in a "
            f"collection with the cosine metric."
        )


def check_dim(vectors: Matrix, dim: int, collection: str) -> None:
    """Raises if the vectors do not have the dimensions of the collection."""
    if vectors.ndim != 2 or vectors.shape[1] != dim:
        raise GalleryError(
            f"`{collection}` requires vectors of {dim} dimensions, but the array has the shape "
            f"{tuple(vectors.shape)}. Use the model that made the collection's vectors."
        )


def no_index(main: str, shown: str) -> GalleryError:
    """Returns the error for an owner's collection that has no index to copy."""
    return GalleryError(
        f"The vectors of `{main}` in {shown} have no index that could be copied to the new ones. "
        f"Search is exact then, on old and new vectors: there is nothing to do."
    )


def check_free(lock: Path, shown: str) -> None:
    """Raises if another process has locked the file `lock` of the engine."""
    try:
        import fcntl
    except ImportError:  # on Windows the engine raises its own error
        return
    if not lock.exists():
        return
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise is_open(shown) from None


def is_open(shown: str) -> GalleryError:
    """Returns the error for an embedded engine that another process has open."""
    return GalleryError(
        f"Cannot open {shown}: another process (or another client in this one) has it open, and "
        f"the embedded engine allows only one. Stop that one first, or run a server."
    )


@contextmanager
def alone(path: Path, shown: str) -> Iterator[None]:
    """Keeps other processes from changing the gallery at `path`, by a lock file beside it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_output(path, wait=PATIENCE))
        except ConfigError:
            raise is_busy(shown) from None
        yield


def is_busy(shown: str) -> GalleryError:
    """Returns the error for a gallery that another process changes for long."""
    return GalleryError(
        f"Another process has been changing the gallery in {shown} for {PATIENCE:.0f} seconds. "
        f"Earlier writes are kept: wait for it, and run the command again."
    )


def check_exists(store: Store, collection: str, action: str) -> None:
    """Raises if a collection does not exist; `action` is what should be done with it."""
    if not store.exists(collection):
        raise GalleryError(
            f"Cannot {action} `{collection}`: {store.shown} has no such collection. Backfill it "
            f"first."
        )


def split(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Splits items into batches of at most `size`."""
    for first in range(0, len(items), size):
        yield items[first : first + size]


def batches(items: Sequence[T], dim: int) -> Iterator[Sequence[T]]:
    """Splits items into batches whose vectors of `dim` numbers fit into one message.

    Example:
        >>> [len(batch) for batch in batches(range(2500), 4)]
        [1000, 1000, 500]
    """
    return split(items, max(1, min(1000, NUMBERS // max(dim, 1))))


def as_columns(payloads: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Returns payloads as columns by name; None where an item has no value.

    Example:
        >>> as_columns([{"colour": "red"}, {"size": 3}])
        {'colour': ['red', None], 'size': [None, 3]}
    """
    names = dict.fromkeys(name for payload in payloads for name in payload)
    return {name: [payload.get(name) for payload in payloads] for name in names}


def flag(uri: Uri, key: str) -> bool | None:
    """Returns an option that is true or false; None if it is absent."""
    text = uri.options.get(key)
    if text is not None and text not in ("true", "false"):
        raise ConfigError(f"`{key}={text}` behind {uri.scheme}: must be `true` or `false`.")
    return None if text is None else text == "true"


def seconds(uri: Uri) -> int | None:
    """Returns the option `timeout`; None if it is absent."""
    text = uri.options.get("timeout")
    if text is not None and not (text.isascii() and text.isdecimal()):
        raise ConfigError(f"`timeout={text}` behind {uri.scheme}: must be whole seconds.")
    return None if text is None else int(text)


class ClientCalls:
    """Calls a client and converts its errors to `GalleryError`, without credentials."""

    def __init__(self, uri: Uri, package: str):
        self.shown, self.client = uri.shown, f"{package} {version(package)}"
        self._secrets = secrets_of(uri)

    def __call__(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        """Returns what the client returns."""
        try:
            return call(*args, **options)
        except NobackfillError:
            raise
        except Exception as error:
            reason = without_secrets(f"{type(error).__name__}: {error}", self._secrets)
            action = getattr(call, "__name__", "call").strip("_").replace("_", " ")
            full = any(word in reason.lower() for word in FULL)
            remedy = "The disk is full: make room" if full else "Check that the database runs"
            raise GalleryError(
                f"Could not {action} at {self.shown} with {self.client}: {reason[:500]}. Earlier "
                f"writes are kept. {remedy} and run the command again."
            ) from None
