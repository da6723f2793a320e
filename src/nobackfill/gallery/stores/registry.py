"""The supported vector databases, one entry per URI scheme, and the function that opens them.

To add an engine, write its adapter (a subclass of `Store`), one entry in `STORES`, and tests.
"""

import importlib
from typing import TYPE_CHECKING, Literal, NamedTuple

from nobackfill.errors import ConfigError

if TYPE_CHECKING:
    from nobackfill.gallery.stores.base import Store
    from nobackfill.gallery.stores.uri import Uri


class Engine(NamedTuple):
    """How to open the galleries of one scheme."""

    module: str  # below `nobackfill.gallery.stores`
    store: str  # name of the `Store` subclass in it
    form: str  # URI form, as shown to people
    address: Literal["path", "host", "either"]  # what follows the scheme
    client: str | None  # package that must be installed, by the extra named like the scheme


STORES: dict[str, Engine] = {
    "flat": Engine("flat", "FlatStore", "flat://FILE", "path", None),
    "faiss": Engine("faiss", "FaissStore", "faiss://FILE", "path", "faiss"),
    "usearch": Engine("usearch", "UsearchStore", "usearch://FILE", "path", "usearch"),
    "qdrant": Engine(
        "qdrant.store",
        "QdrantStore",
        "qdrant://HOST[:PORT]/COLLECTION or qdrant:FOLDER[?collection=NAME]",
        "either",
        "qdrant_client",
    ),
    "pgvector": Engine(
        "pgvector.store",
        "PgvectorStore",
        "pgvector://[USER[:PASSWORD]@][HOST[:PORT]]/DATABASE/TABLE",
        "host",
        "psycopg",
    ),
    "lancedb": Engine("lancedb.store", "LanceStore", "lancedb://FOLDER/TABLE", "path", "lancedb"),
    "milvus": Engine(
        "milvus.store",
        "MilvusStore",
        "milvus:FILE[?collection=NAME] or milvus://HOST:PORT/COLLECTION",
        "either",
        "pymilvus",
    ),
}


def open_store(uri: "str | Uri", *, read_only: bool = False) -> "Store":
    """Opens the gallery at a URI in one of the forms of `STORES`, such as `flat://FILE`."""
    from nobackfill.gallery.stores.uri import read_uri  # which reads STORES

    address = read_uri(uri) if isinstance(uri, str) else uri
    engine = STORES[address.scheme]
    try:
        if engine.client is not None:
            importlib.import_module(engine.client)
        module = importlib.import_module(f"nobackfill.gallery.stores.{engine.module}")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"A {address.scheme} gallery requires {engine.client}, but `{error.name}` is not "
            f"installed. Run `pip install 'nobackfill[{address.scheme}]'`."
        ) from None
    store: Store = getattr(module, engine.store)(address, read_only=read_only)
    return store
