"""Every kind of vector database by its scheme. A new one is a file, a line here, and tests."""

import importlib

from nobackfill.errors import ConfigError
from nobackfill.gallery.stores.base import Store
from nobackfill.gallery.stores.uri import Uri, read_uri

# by scheme: module and class
STORES: dict[str, tuple[str, str]] = {
    "flat": ("flat", "FlatStore"),
    "faiss": ("faiss", "FaissStore"),
    "usearch": ("usearch", "UsearchStore"),
    "qdrant": ("qdrant.store", "QdrantStore"),
    "pgvector": ("pgvector.store", "PgvectorStore"),
    "lancedb": ("lancedb.store", "LanceStore"),
    "milvus": ("milvus.store", "MilvusStore"),
}
# what must be installed; the extra that brings it has the name of the scheme
CLIENTS: dict[str, str] = {
    "faiss": "faiss",
    "usearch": "usearch",
    "qdrant": "qdrant_client",
    "pgvector": "psycopg",
    "lancedb": "lancedb",
    "milvus": "pymilvus",
}


def open_store(uri: str | Uri, *, read_only: bool = False) -> Store:
    """Opens the gallery at a line such as `lancedb://galleries/photos`.

    Args:
        uri: See `nobackfill.gallery.stores.uri.FORMS`.
        read_only: Whether every write is refused.
    """
    where = read_uri(uri) if isinstance(uri, str) else uri
    module, name = STORES[where.scheme]
    client = CLIENTS.get(where.scheme)
    try:
        if client is not None:
            importlib.import_module(client)
        kind = getattr(importlib.import_module(f"nobackfill.gallery.stores.{module}"), name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"wanted {client} to open a {where.scheme} gallery, but `{error.name}` is not "
            f"installed. `pip install 'nobackfill[{where.scheme}]'`."
        ) from None
    store: Store = kind(where, read_only=read_only)
    return store
