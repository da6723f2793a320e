"""Qdrant's own forms: a client at a line, points by text ids, and what is stored of them."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from qdrant_client import QdrantClient

from nobackfill.errors import ConfigError, DataError, GalleryError
from nobackfill.gallery.stores.base import Matrix, as_matrix, unit
from nobackfill.gallery.stores.client import check_free, flag, seconds
from nobackfill.gallery.stores.uri import Uri

LENGTH = "length"  # of a vector of ours, where it is not 1: Qdrant keeps directions only
LARGEST = 2**64 - 1


def open_client(uri: Uri) -> Any:
    """A client for a server, or the engine itself on a folder."""
    if not hasattr(QdrantClient, "query_batch_points"):
        raise ConfigError(
            f"wanted qdrant-client 1.10 or later, but {version('qdrant-client')} is installed. "
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
        check_compatibility=False,  # asks in a thread, and warns where nobody reads it
    )


def _open_folder(folder: Path, shown: str) -> Any:
    if not (folder / "meta.json").is_file():
        what = "is no folder that Qdrant wrote" if folder.exists() else "there is no such folder"
        raise DataError(f"wanted a Qdrant gallery at {folder}, but {what}.")
    check_free(folder / ".lock", shown)
    with without_size_warning():
        return QdrantClient(path=str(folder))


@contextmanager
def without_size_warning() -> Iterator[None]:
    """Above 20,000 points the embedded engine warns that a server is faster; its owner knows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Local mode is not recommended")
        yield


def point_id(text: str) -> int | str | None:
    """An id of Qdrant: a whole number or a UUID; None for any other text.

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


def need_id(text: str) -> int | str:
    """The same, or an error."""
    one = point_id(text)
    if one is None:
        raise GalleryError(
            f"wanted an id as Qdrant has them, a whole number or a UUID, not {text}."
        )
    return one


def vectors_of(points: Sequence[Any], name: str, dim: int) -> Matrix:
    """One row for each point; NaN where it has no vector of that name.

    Args:
        points: With vectors.
        name: Of the vector; empty for the unnamed one.
        dim: Of the vectors.
    """
    found = [
        point.vector.get(name) if isinstance(point.vector, dict) else point.vector
        for point in points
    ]
    return as_matrix([np.full(dim, np.nan) if one is None else one for one in found], dim)


def with_length(vectors: Matrix, payloads: Sequence[dict[str, Any]]) -> Matrix:
    """What we wrote, from what Qdrant keeps: directions, but embedded and reopened the vectors."""
    length = [payload.get(LENGTH, 1.0) for payload in payloads]
    return np.asarray(unit(vectors) * np.array(length, np.float32).reshape(-1, 1), np.float32)


def length_of(vector: Matrix) -> dict[str, float] | None:
    """What to keep of a vector beside its direction; nothing where it is of unit length."""
    length = float(np.linalg.norm(vector))
    return None if abs(length - 1) < 1e-6 else {LENGTH: length}
