"""Milvus' own forms: a client at a line, keys in filters, and what a collection is made of."""

import logging
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pymilvus import DataType, MilvusClient

from nobackfill.errors import ConfigError, DataError, GalleryError
from nobackfill.gallery.stores.base import MARK
from nobackfill.gallery.stores.client import check_free, flag, seconds, the_only
from nobackfill.gallery.stores.uri import Uri

VECTORS = re.compile("VECTOR")  # in the name of every type of vector
ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
LOGS = ("milvus_lite", "grpc")  # of the engine in this process; errors come to us as well
CALLS = "pymilvus.decorators"  # the log of errors that are raised anyway

_stores: Counter[str] = Counter()  # open in this process, by file; the last one ends the engine
_silent = logging.NullHandler()  # on a log that nobody reads: else it goes to the terminal


class Schema(NamedTuple):
    """What a collection is made of.

    Attributes:
        key: The name of the primary key.
        is_text: Whether it is text; else a whole number.
        max_length: Of a text key, in bytes.
        vector: The name of the vector.
        dim: Of the vector.
        vectors: The names of all vectors, which are no columns.
    """

    key: str
    is_text: bool
    max_length: int
    vector: str
    dim: int
    vectors: frozenset[str]


def open_client(uri: Uri) -> Any:
    """A client for a server, or for an engine that is started for a file."""
    logging.getLogger(CALLS).setLevel(logging.CRITICAL)  # else it prints them, with a traceback
    if uri.host:
        scheme = "https" if flag(uri, "https") else "http"
        host = uri.host if ":" in uri.host else f"{uri.host}:19530"
        person = f"{uri.user}:{uri.password}" if uri.user else ""
        return MilvusClient(
            uri=f"{scheme}://{host}",
            token=uri.options.get("token") or person,
            db_name=uri.options.get("database", ""),
            timeout=seconds(uri),
        )
    path = Path(uri.path).absolute()
    _check_file(path)
    started = _engines().get(str(path))
    if started is None:
        check_free(path / "LOCK", uri.shown)
    for name in LOGS:
        logging.getLogger(name).addHandler(_silent)
    client = MilvusClient(uri=str(path), timeout=seconds(uri))
    if started is None or _stores[str(path)]:  # else it is of another part of this process
        _stores[str(path)] += 1
    return client


def close_client(client: Any, uri: Uri) -> None:
    """Closes it, and with the last one of a file the engine, with its threads."""
    client.close()
    path = str(Path(uri.path).absolute())
    if uri.host or not _stores[path]:
        return
    _stores[path] -= 1
    if not _stores[path]:
        from milvus_lite.server_manager import server_manager_instance

        server_manager_instance.release_server(path)


def remove_wreck(uri: Uri, collection: str) -> None:
    """Removes what is left of one of ours where a kill or a full disk came while it was made.

    Milvus Lite makes a folder, then the schema in it. Without that it knows no such collection,
    but makes none in that folder either.
    """
    folder = Path(uri.path) / "collections" / collection
    began = folder.is_dir() and not (folder / "schema.json").exists()
    if not uri.host and MARK in collection and began:
        shutil.rmtree(folder)


def _engines() -> dict[str, Any]:
    """Those that run in this process, by file."""
    try:
        from milvus_lite.server_manager import server_manager_instance
    except ImportError:
        raise ConfigError(
            "wanted milvus-lite to open a file, but it is not installed. "
            "`pip install 'nobackfill[milvus]'`."
        ) from None
    return dict(getattr(server_manager_instance, "_servers", {}))


def _check_file(path: Path) -> None:
    if path.suffix != ".db":
        raise ConfigError(f"wanted a Milvus Lite gallery that ends with .db, but got {path}.")
    if path.is_file():
        raise DataError(
            f"wanted a gallery of Milvus Lite 3 at {path}, which is a folder, but it is a file, as "
            f"earlier versions wrote. Export it with the version that wrote it."
        )
    if not (path / "collections").is_dir():
        what = "that is no folder of Milvus Lite" if path.exists() else "there is nothing"
        raise DataError(f"wanted a Milvus Lite gallery at {path}, but {what}.")


def read_schema(described: dict[str, Any], asked: str, shown: str) -> Schema:
    """What a collection is made of, by what Milvus tells.

    Args:
        described: By Milvus.
        asked: The name of the vector; empty for the only one.
        shown: Where the collection is.
    """
    fields = {field["name"]: field for field in described["fields"]}
    (key,) = [field for field in fields.values() if field.get("is_primary")]
    of_type = {name: DataType(field["type"]).name for name, field in fields.items()}
    known = [name for name, kind in of_type.items() if kind == "FLOAT_VECTOR"]
    vector = the_only("vector of 32-bit numbers", "vector", asked, known, shown)
    return Schema(
        key=key["name"],
        is_text=of_type[key["name"]] == "VARCHAR",
        max_length=int(key["params"].get("max_length", 65_535)),
        vector=vector,
        dim=int(fields[vector]["params"]["dim"]),
        vectors=frozenset(name for name, kind in of_type.items() if VECTORS.search(kind)),
    )


def key_of(text: str, schema: Schema) -> int | str | None:
    """A primary key; None where a text cannot be one."""
    if schema.is_text:
        return text
    if not re.fullmatch(r"0|-?[1-9]\d*", text, re.ASCII) or abs(int(text)) >= 2**63:
        return None
    return int(text)


def need_key(text: str, schema: Schema) -> int | str:
    """The same, or an error."""
    key = key_of(text, schema)
    if key is None:
        raise GalleryError(f"wanted an id that is a whole number of 64 bits, but got {text!r}.")
    return key


def literal(key: int | str) -> str:
    r"""A key inside a filter.

    Example:
        >>> print(literal('5" \\ x'), literal(-7))
        "5\" \\ x" -7
    """
    if isinstance(key, int):
        return str(key)
    return '"' + "".join(ESCAPED.get(letter, letter) for letter in key) + '"'


def among(name: str, keys: Sequence[int | str]) -> str:
    """The filter for some keys.

    Example:
        >>> among("id", [1, 2])
        'id in [1, 2]'
    """
    return f"{name} in [{', '.join(map(literal, keys))}]"
