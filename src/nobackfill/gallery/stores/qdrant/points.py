"""Clients, point ids and vectors of Qdrant."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from qdrant_client import QdrantClient

from nobackfill.errors import ConfigError, DataError
from nobackfill.gallery.stores.base import Matrix, as_matrix, unit
from nobackfill.gallery.stores.client import check_free, flag, is_open, seconds
from nobackfill.gallery.stores.uri import Uri

LENGTH = "length"  # payload key of the length of a new vector: Qdrant stores directions only
LARGEST = 2**64 - 1
TRIES = 5  # of opening a folder that others write


def open_client(uri: Uri) -> Any:
    """Opens a client for a server, or the embedded engine on a folder."""
    if not hasattr(QdrantClient, "query_batch_points"):
        raise ConfigError(
            f"qdrant-client {version('qdrant-client')} is too old: 1.10 or later is required. Run "
            f"`pip install -U qdrant-client`."
        )
    if not uri.host:
        return _open_folder(Path(uri.path), uri.shown)
    host, _, port = uri.host.rpartition(":") if ":" in uri.host else (uri.host, "", "6333")
    return QdrantClient(
        host=host,
        port=int(port),
        api_key=uri.options.get("api_key") or uri.password or None,
        https=flag(uri, "https"),
        prefer_grpc=bool(flag(uri, "prefer_grpc")),
        timeout=seconds(uri),
        check_compatibility=False,  # it queries in a thread and warns
    )


def _open_folder(folder: Path, shown: str) -> Any:
    if not (folder / "meta.json").is_file():
        problem = "Qdrant did not write it" if folder.exists() else "no such folder"
        raise DataError(f"No Qdrant gallery at {folder}: {problem}.")
    for _ in range(TRIES):
        check_free(folder / ".lock", shown)
        before = stamps_of(folder)
        try:
            with without_size_warning():
                client = QdrantClient(path=str(folder))
        except RuntimeError as error:
            if "already accessed" not in str(error):
                raise
            raise is_open(shown) from None  # it was opened just now
        # It reads everything before it locks the folder: read again what was written meanwhile.
        if stamps_of(folder) == before:
            return client
        client.close()
    raise is_open(shown)


def stamps_of(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Returns numbers by file that change when the file is written, without the lock."""
    status_of = {
        str(path): path.stat()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock" and not path.name.endswith("-journal")
    }
    return {
        name: (status.st_ino, status.st_size, status.st_mtime_ns)
        for name, status in status_of.items()
    }


@contextmanager
def without_size_warning() -> Iterator[None]:
    """Suppresses the warning that a server is faster than the embedded engine."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Local mode is not recommended")
        yield


def point_id(text: str) -> int | str | None:
    """Converts an id to Qdrant's type, a whole number or a UUID; None for any other text.

    Example:
        >>> point_id("17"), point_id("017"), point_id("shoe")
        (17, None, None)
        >>> point_id("DE305D54-75B4-431B-ADB2-EB6B9E546014")
        'de305d54-75b4-431b-adb2-eb6b9e546014'
    """
    if text.isascii() and text.isdecimal() and str(int(text)) == text and int(text) <= LARGEST:
        return int(text)
    try:
        uuid = str(UUID(text))
    except ValueError:
        return None
    return uuid if uuid == text.lower() else None


def vectors_of(points: Sequence[Any], name: str, dim: int) -> Matrix:
    """Returns one row per point; NaN for points without a vector of that name (or unnamed)."""
    rows = [
        point.vector.get(name) if isinstance(point.vector, dict) else point.vector
        for point in points
    ]
    return as_matrix([np.full(dim, np.nan) if row is None else row for row in rows], dim)


def with_length(vectors: Matrix, payloads: Sequence[dict[str, Any]]) -> Matrix:
    """Restores the written vectors from the directions that Qdrant stores."""
    length = [payload.get(LENGTH, 1.0) for payload in payloads]
    return np.asarray(unit(vectors) * np.array(length, np.float32).reshape(-1, 1), np.float32)


def length_of(vector: Matrix) -> dict[str, float] | None:
    """Returns the payload that stores the length of a vector; None for unit length."""
    length = float(np.linalg.norm(vector))
    return None if abs(length - 1) < 1e-6 else {LENGTH: length}
