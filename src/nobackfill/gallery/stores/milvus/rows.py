"""Clients, schemas, keys and filters of Milvus."""

import logging
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import ConnectionConfigException

from nobackfill.errors import ConfigError, DataError
from nobackfill.gallery.stores.base import MARK
from nobackfill.gallery.stores.client import check_free, choose_name, flag, seconds
from nobackfill.gallery.stores.uri import Uri

VECTORS = re.compile("VECTOR")  # in the name of every type of vector
ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
LOGS = ("milvus_lite", "grpc")  # loggers of the embedded engine; its errors are raised as well
CALLS = "pymilvus.decorators"  # logger of errors that are raised anyway

# open stores in this process by file; closing the last one stops the engine
_stores: Counter[str] = Counter()
_silent = logging.NullHandler()  # keeps unread log records off the terminal


class Schema(NamedTuple):
    """The schema of a collection."""

    key: str  # name of the primary key
    is_text: bool  # whether the key is text; else a whole number
    max_length: int  # of a text key, in bytes
    vector: str  # name of the vector field
    dim: int
    vectors: frozenset[str]  # names of all vector fields, which are not returned as columns


def open_client(uri: Uri) -> Any:
    """Opens a client for a server, or starts the embedded engine for a file."""
    logging.getLogger(CALLS).setLevel(logging.CRITICAL)  # else it prints errors with a traceback
    if uri.host:
        scheme = "https" if flag(uri, "https") else "http"
        host = uri.host if ":" in uri.host else f"{uri.host}:19530"
        credentials = f"{uri.user}:{uri.password}" if uri.user else ""
        return MilvusClient(
            uri=f"{scheme}://{host}",
            token=uri.options.get("token") or credentials,
            db_name=uri.options.get("database", ""),
            timeout=seconds(uri),
        )
    path = Path(uri.path).absolute()
    _check_file(path)
    engine = _engines().get(str(path))
    if engine is None:
        check_free(path / "LOCK", uri.shown)
    for name in LOGS:
        logging.getLogger(name).addHandler(_silent)
    try:
        client = MilvusClient(uri=str(path), timeout=seconds(uri))
    except ConnectionConfigException:
        if engine is not None:
            raise
        check_free(path / "LOCK", uri.shown)  # another process has opened it since
        client = MilvusClient(uri=str(path), timeout=seconds(uri))  # and has closed it again
    if engine is None or _stores[str(path)]:  # else other code started the engine
        _stores[str(path)] += 1
    return client


def close_client(client: Any, uri: Uri) -> None:
    """Closes a client; the last client of a file also stops the engine and its threads."""
    client.close()
    path = str(Path(uri.path).absolute())
    if uri.host or not _stores[path]:
        return
    _stores[path] -= 1
    if not _stores[path]:
        from milvus_lite.server_manager import server_manager_instance

        server_manager_instance.release_server(path)


def remove_incomplete(uri: Uri, collection: str) -> None:
    """Removes a new collection whose creation was interrupted by a kill or a full disk.

    Milvus Lite creates a folder, then the schema in it. A folder without a schema is not a
    collection, but prevents creating one.
    """
    folder = Path(uri.path) / "collections" / collection
    incomplete = folder.is_dir() and not (folder / "schema.json").exists()
    if not uri.host and MARK in collection and incomplete:
        shutil.rmtree(folder)


def _engines() -> dict[str, Any]:
    """Returns the engines that run in this process, by file."""
    try:
        from milvus_lite.server_manager import server_manager_instance
    except ImportError:
        raise ConfigError(
            "A Milvus file requires milvus-lite, which is not installed. "
            "Run `pip install 'nobackfill[milvus]'`."
        ) from None
    return dict(getattr(server_manager_instance, "_servers", {}))


def _check_file(path: Path) -> None:
    if path.suffix != ".db":
        raise ConfigError(f"The path {path} of a Milvus Lite gallery must end with .db.")
    if path.is_file():
        raise DataError(
            f"{path} is a file of an earlier version of Milvus Lite; galleries of Milvus Lite 3 "
            f"are folders. Export it with the version that wrote it."
        )
    if not (path / "collections").is_dir():
        problem = "the folder is not of Milvus Lite" if path.exists() else "it does not exist"
        raise DataError(f"No Milvus Lite gallery at {path}: {problem}.")


def read_schema(description: dict[str, Any], vector: str, shown: str) -> Schema:
    """Reads a schema from a description by Milvus; `vector` is empty for the only vector field."""
    fields = {field["name"]: field for field in description["fields"]}
    (key,) = [field for field in fields.values() if field.get("is_primary")]
    of_type = {name: DataType(field["type"]).name for name, field in fields.items()}
    names = [name for name, kind in of_type.items() if kind == "FLOAT_VECTOR"]
    vector = choose_name("vector of 32-bit numbers", "vector", vector, names, shown)
    return Schema(
        key=key["name"],
        is_text=of_type[key["name"]] == "VARCHAR",
        max_length=int(key["params"].get("max_length", 65_535)),
        vector=vector,
        dim=int(fields[vector]["params"]["dim"]),
        vectors=frozenset(name for name, kind in of_type.items() if VECTORS.search(kind)),
    )


def key_of(text: str, schema: Schema) -> int | str | None:
    """Converts an id to a primary key; None if the collection cannot store it."""
    if schema.is_text:
        return text
    if not re.fullmatch(r"0|-?[1-9]\d*", text, re.ASCII) or abs(int(text)) >= 2**63:
        return None
    return int(text)


def literal(key: int | str) -> str:
    r"""Quotes a key for a filter.

    Example:
        >>> print(literal('5" \\ x'), literal(-7))
        "5\" \\ x" -7
    """
    if isinstance(key, int):
        return str(key)
    return '"' + "".join(ESCAPED.get(letter, letter) for letter in key) + '"'


def among(name: str, keys: Sequence[int | str]) -> str:
    """Returns a filter that matches these keys.

    Example:
        >>> among("id", [1, 2])
        'id in [1, 2]'
    """
    return f"{name} in [{', '.join(map(literal, keys))}]"
