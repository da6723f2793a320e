"""Galleries in Milvus, on a server or embedded in a file (Milvus Lite)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pymilvus import DataType, MilvusClient

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import (
    PAGE,
    Index,
    Matrix,
    Rows,
    SearchResults,
    as_matrix,
    notes_of,
)
from nobackfill.gallery.stores.client import as_columns, cosines_from, owner_collections
from nobackfill.gallery.stores.client_store import ClientStore, Key
from nobackfill.gallery.stores.milvus.rows import (
    Schema,
    among,
    close_client,
    key_of,
    literal,
    open_client,
    read_schema,
    remove_incomplete,
)
from nobackfill.gallery.stores.uri import Uri, check_options

OPTIONS = ("collection", "vector", "token", "https", "timeout", "database")
MOST = 16_384  # items that Milvus returns at once
TEXT = 65_535  # largest number of bytes of a text
BREADTH = 256  # smallest number of candidates of a graph index
EXACT = ("FLAT", "BRUTE_FORCE", "")  # indexes that compare every vector
IN_ORDER = {"iterator": "True", "reduce_stop_for_best": "True"}  # smallest keys first
STRONG = {"consistency_level": "Strong"}  # reads see all earlier writes


class MilvusStore(ClientStore):
    """A Milvus collection; search is exact in a file without an index or with a flat one.

    A search returns at most 16,384 items. Writes survive a killed process, but Milvus Lite does
    not flush them to disk, so a power cut may lose the last ones.

    Args:
        uri: URI such as `milvus:FILE.db?collection=photos` or `milvus://db:19530/photos?token=…`.
        read_only: Whether every write is refused.
    """

    id_types = "a whole number of 64 bits"

    def __init__(self, uri: Uri, *, read_only: bool):
        check_options(uri, *OPTIONS)
        self._closed, self._loaded = False, set[str]()
        super().__init__(uri, "pymilvus", read_only=read_only)

    def _open_client(self) -> Any:
        return open_client(self._uri)

    def _owner_collections(self, name: str) -> list[str]:
        return owner_collections(self._collections())

    def _collections(self) -> list[str]:
        return list(self._call(self.client.list_collections))

    def _open_main(self, vector: str) -> None:
        self._schemas = {self.main: self._describe(self.main, vector)}
        self.kind, self.metric = self._choose_index()
        self.exact = not self._uri.host and self.kind in EXACT

    def _describe(self, collection: str, vector: str = "") -> Schema:
        description = self._call(self.client.describe_collection, collection)
        return read_schema(description, vector, f"{self.shown} ({collection})")

    def _schema(self, collection: str) -> Schema:
        """Returns the schema of a collection, read once."""
        if collection not in self._schemas:
            self._schemas[collection] = self._describe(collection)
        return self._schemas[collection]

    def _choose_index(self) -> tuple[str, str]:
        """Returns kind (empty for none) and metric of the owner's index."""
        field = self._schema(self.main).vector
        names = self._call(self.client.list_indexes, self.main, field_name=field)
        index = self._call(self.client.describe_index, self.main, names[0]) if names else {}
        metric = index.get("metric_type", "COSINE")
        if metric not in ("COSINE", "IP", "L2"):
            raise GalleryError(
                f"Cannot compute cosines: `{self.main}` in {self.shown} has the metric {metric}. "
                f"Use the metric COSINE."
            )
        return index.get("index_type", ""), metric

    def _query(self, collection: str, **options: Any) -> list[dict[str, Any]]:
        """Sends a query; loads the collection first, which Milvus requires for reading."""
        if collection not in self._loaded:
            state = self._call(self.client.get_load_state, collection)["state"]
            if state.name != "Loaded":
                self._call(self.client.load_collection, collection)
            self._loaded.add(collection)
        return list(self._call(self.client.query, collection, **options, **STRONG))

    def _key(self, collection: str, id: str) -> Key | None:
        return key_of(id, self._schema(collection))

    def exists(self, collection: str) -> bool:
        """See `Store`."""
        return bool(self._call(self.client.has_collection, collection))

    def count(self, collection: str) -> int:
        """See `Store`."""
        return int(self._query(collection, output_fields=["count(*)"])[0]["count(*)"])

    def dim(self, collection: str) -> int:
        """See `Store`."""
        return self._schema(collection).dim

    def scan(self, collection: str, *, after: str | None = None, limit: int = 1000) -> Rows:
        """See `Store`; in ascending order of the key, at most 16,384 at once."""
        key, limit = self._schema(collection).key, min(limit, MOST)
        last = ""
        if after is not None:
            last = f"{key} > {literal(self._require_key(collection, after))}"
        options = {"filter": last, "output_fields": ["*"], "limit": limit, **IN_ORDER}
        records = sorted(self._query(collection, **options), key=lambda record: record[key])
        return self._rows(collection, records[:limit])

    def id_pages(self, collection: str) -> Iterator[list[str]]:
        """See `Store`."""
        key, after = self._schema(collection).key, ""
        while True:
            options = {"filter": after, "output_fields": [key], "limit": PAGE, **IN_ORDER}
            keys = sorted(record[key] for record in self._query(collection, **options))[:PAGE]
            if not keys:
                return
            yield [str(id) for id in keys]
            after = f"{key} > {literal(keys[-1])}"

    def _retrieve(self, collection: str, keys: Sequence[Key]) -> list[Any]:
        matching = among(self._schema(collection).key, keys)
        return self._query(collection, filter=matching, output_fields=["*"])

    def _present(self, collection: str, keys: Sequence[Key]) -> list[Key]:
        name = self._schema(collection).key
        rows = self._query(collection, filter=among(name, keys), output_fields=[name])
        return [row[name] for row in rows]

    def _rows(self, collection: str, records: Sequence[dict[str, Any]]) -> Rows:
        schema = self._schema(collection)
        hidden = {schema.key, *schema.vectors}
        return Rows(
            [str(record[schema.key]) for record in records],
            as_matrix([record[schema.vector] for record in records], schema.dim),
            as_columns(
                [
                    {name: record[name] for name in record if name not in hidden}
                    for record in records
                ]
            ),
        )

    def search(self, collection: str, query: Matrix, k: int) -> SearchResults:
        """See `Store`; at most 16,384."""
        k = min(k, MOST, self.count(collection))
        return (
            super().search(collection, query, k) if k > 0 else SearchResults.of([[] for _ in query])
        )

    def _nearest(self, collection: str, query: Matrix, k: int) -> list[list[tuple[str, float]]]:
        schema, metric, kind = self._schema(collection), "COSINE", "FLAT"
        if collection == self.main:
            metric, kind = self.metric, self.kind
        graph = "HNSW" in kind or (kind == "AUTOINDEX" and not self._uri.host)
        results = []
        for hits in self._call(
            self.client.search,
            collection,
            data=list(query),
            anns_field=schema.vector,
            limit=k,
            output_fields=[schema.key],
            search_params={"params": {"ef": max(2 * k, BREADTH)} if graph else {}},
            **STRONG,
        ):
            scores = [float(hit["distance"]) for hit in hits]
            cosines = cosines_from(scores, squared_distances=metric == "L2")
            results.append(list(zip((str(hit[schema.key]) for hit in hits), cosines, strict=True)))
        return results

    def create(self, collection: str, dim: int) -> None:
        """See `Store`."""
        self.check_writable(collection)
        main = self._schema(self.main)
        schema = MilvusClient.create_schema(enable_dynamic_field=False)
        if main.is_text:
            schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=main.max_length)
        else:
            schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dim)
        self._create(collection, schema)

    @property
    def _new_kind(self) -> str:
        """Kind of index with which new collections are created."""
        return "AUTOINDEX" if self._uri.host else "FLAT"

    def _create(self, collection: str, schema: Any) -> None:
        """Creates a collection and its index, also after an interrupted creation."""
        index = self.client.prepare_index_params()
        index.add_index("vector", index_type=self._new_kind, metric_type="COSINE")
        if not self.exists(collection):
            remove_incomplete(self._uri, collection)
            self._call(self.client.create_collection, collection, schema=schema, **STRONG)
        if not self._call(self.client.list_indexes, collection):
            self._call(self.client.create_index, collection, index)

    def index_of(self, collection: str) -> Index | None:
        """See `Store`; new collections are created with an index."""
        kind = self.kind if collection == self.main else self._new_kind
        return None if kind in EXACT else Index(kind)

    def _write(self, collection: str, vector_of: Mapping[Key, Matrix]) -> None:
        schema = self._schema(collection)
        rows = [{schema.key: key, schema.vector: vector} for key, vector in vector_of.items()]
        self._call(self.client.upsert, collection, data=rows)

    def _delete(self, collection: str, keys: Sequence[Key]) -> None:
        matching = among(self._schema(collection).key, keys)
        self._call(self.client.delete, collection, filter=matching)

    def drop(self, collection: str) -> None:
        """See `Store`."""
        self.check_writable(collection)
        self._schemas.pop(collection, None)
        self._loaded.discard(collection)
        super().drop(collection)

    def _drop(self, collection: str) -> None:
        self._call(self.client.drop_collection, collection)

    def notes(self) -> dict[str, str]:
        """See `Store`; at most 16,384."""
        collection = notes_of(self.main)
        if not self.exists(collection):
            return {}
        rows = self._query(collection, filter="", output_fields=["key", "text"], limit=MOST)
        return {row["key"]: row["text"] for row in rows}

    def _write_note(self, key: str, text: str) -> None:
        size = len(text.encode())
        if size > TEXT:
            raise GalleryError(f"A note has {size} bytes; Milvus stores at most {TEXT}.")
        # Key, text, and a vector, which Milvus requires in every collection.
        schema = MilvusClient.create_schema(enable_dynamic_field=False)
        schema.add_field("key", DataType.VARCHAR, is_primary=True, max_length=1024)
        schema.add_field("text", DataType.VARCHAR, max_length=TEXT)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=2)
        self._create(notes_of(self.main), schema)
        row = {"key": key, "text": text, "vector": [1.0, 0.0]}
        self._call(self.client.upsert, notes_of(self.main), data=[row])

    def close(self) -> None:
        """See `Store`."""
        if not self._closed:
            self._closed = True
            close_client(self.client, self._uri)
