"""Galleries in Milvus, on a server or embedded in a file (Milvus Lite)."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from pymilvus import DataType, MilvusClient

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import Found, Index, Matrix, Rows, Store, as_matrix, unit
from nobackfill.gallery.stores.client import (
    ClientCalls,
    as_columns,
    batches,
    check_dim,
    check_not_notes,
    check_unit_length,
    choose_name,
    cosines_from,
    notes_of,
    owner_collections,
)
from nobackfill.gallery.stores.milvus.rows import (
    Schema,
    among,
    close_client,
    key_of,
    literal,
    open_client,
    read_schema,
    remove_incomplete,
    require_key,
)
from nobackfill.gallery.stores.uri import Uri, check_options

OPTIONS = ("collection", "vector", "token", "https", "timeout", "database")
SAMPLE = 100  # vectors whose lengths are checked
QUERIES = 100  # in one message
MOST = 16_384  # items that Milvus returns at once
TEXT = 65_535  # largest number of bytes of a text
BREADTH = 256  # smallest number of candidates of a graph index
EXACT = ("FLAT", "BRUTE_FORCE", "")  # indexes that compare every vector
IN_ORDER = {"iterator": "True", "reduce_stop_for_best": "True"}  # smallest keys first
STRONG = {"consistency_level": "Strong"}  # reads see all earlier writes


class MilvusStore(Store):
    """A Milvus collection; search is exact in a file without an index or with a flat one.

    A search returns at most 16,384 items. Writes survive a killed process, but Milvus Lite does
    not flush them to disk, so a power cut may lose the last ones.

    Args:
        uri: URI such as `milvus:FILE.db?collection=photos` or `milvus://db:19530/photos?token=…`.
        read_only: Whether every write is refused.
    """

    def __init__(self, uri: Uri, *, read_only: bool = False):
        check_options(uri, *OPTIONS)
        self._uri, self._call = uri, ClientCalls(uri, f"pymilvus {version('pymilvus')}")
        self.client, self._closed = self._call(open_client, uri), False
        try:
            name = uri.options.get("collection") or (uri.path.strip("/") if uri.host else "")
            names = owner_collections(self._call(self.client.list_collections))
            main = choose_name("collection", "collection", name, names, uri.shown)
            super().__init__(main, uri.shown, read_only=read_only)
            self._schemas = {main: self._describe(main, uri.options.get("vector", ""))}
            self.kind, self.metric = self._choose_index()
            self.exact = not uri.host and self.kind in EXACT
            self._loaded: set[str] = set()
            self._checked = self.metric == "COSINE"
            self._check_cosines()
        except BaseException:
            close_client(self.client, uri)
            raise

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

    def _check_cosines(self) -> None:
        """Raises if the scores of the owner's vectors do not give cosines."""
        if not self._checked:
            sample = self.scan(self.main, limit=SAMPLE)
            check_unit_length(sample.vectors, f"the metric {self.metric}", self.shown)
            self._checked = bool(sample.ids)

    def _load(self, collection: str) -> None:
        """Loads a collection, which Milvus requires for reading."""
        if collection not in self._loaded:
            state = self._call(self.client.get_load_state, collection)["state"]
            if state.name != "Loaded":
                self._call(self.client.load_collection, collection)
            self._loaded.add(collection)

    def _query(self, collection: str, **options: Any) -> list[dict[str, Any]]:
        self._load(collection)
        return list(self._call(self.client.query, collection, **options, **STRONG))

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
        schema, limit = self._schema(collection), min(limit, MOST)
        last = "" if after is None else f"{schema.key} > {literal(require_key(after, schema))}"
        rows = self._query(collection, filter=last, output_fields=["*"], limit=limit, **IN_ORDER)
        return self._rows(schema, sorted(rows, key=lambda row: row[schema.key])[:limit])

    def get(self, collection: str, ids: Sequence[str]) -> Rows:
        """See `Store`."""
        schema, rows = self._schema(collection), []
        for keys in batches(self._keys(ids, schema), schema.dim):
            rows += self._query(collection, filter=among(schema.key, keys), output_fields=["*"])
        return self._rows(schema, rows)

    def contained(self, collection: str, ids: Sequence[str]) -> set[str]:
        """See `Store`."""
        return set(map(str, self._present(collection, self._keys(ids, self._schema(collection)))))

    def _present(self, collection: str, keys: Sequence[int | str]) -> list[int | str]:
        """Returns those of the keys that exist, without reading vectors."""
        name, present = self._schema(collection).key, []
        for batch in batches(keys, 1):
            rows = self._query(collection, filter=among(name, batch), output_fields=[name])
            present += [row[name] for row in rows]
        return present

    def _keys(self, ids: Sequence[str], schema: Schema) -> list[int | str]:
        """Returns the ids that the collection can store as keys, without duplicates."""
        keys = (key_of(id, schema) for id in ids)
        return list(dict.fromkeys(key for key in keys if key is not None))

    def _rows(self, schema: Schema, rows: Sequence[dict[str, Any]]) -> Rows:
        hidden = {schema.key, *schema.vectors}
        return Rows(
            [str(row[schema.key]) for row in rows],
            as_matrix([row[schema.vector] for row in rows], schema.dim),
            as_columns([{name: row[name] for name in row if name not in hidden} for row in rows]),
        )

    def search(self, collection: str, query: Matrix, k: int) -> Found:
        """See `Store`; at most 16,384."""
        schema, metric, index = self._schema(collection), "COSINE", "FLAT"
        if collection == self.main:
            self._check_cosines()
            metric, index = self.metric, self.kind
        k, ids, cosines = min(k, MOST, self.count(collection)), [], []
        if k < 1:
            return Found([[] for _ in query], [[] for _ in query])
        graph = "HNSW" in index or (index == "AUTOINDEX" and not self._uri.host)
        vectors = unit(query)
        for first in range(0, len(vectors), QUERIES):
            for hits in self._call(
                self.client.search,
                collection,
                data=list(vectors[first : first + QUERIES]),
                anns_field=schema.vector,
                limit=k,
                output_fields=[schema.key],
                search_params={"params": {"ef": max(2 * k, BREADTH)} if graph else {}},
                **STRONG,
            ):
                ids.append([str(hit[schema.key]) for hit in hits])
                scores = [float(hit["distance"]) for hit in hits]
                cosines.append(cosines_from(scores, squared_distances=metric == "L2"))
        return Found(ids, cosines)

    def create(self, collection: str, dim: int) -> None:
        """See `Store`."""
        self.check_writable(collection)
        check_not_notes(collection)
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

    def upsert(self, collection: str, ids: Sequence[str], vectors: Matrix) -> None:
        """See `Store`; items that the owner has removed are left out."""
        self.check_writable(collection)
        schema = self._schema(collection)
        check_dim(vectors, schema.dim, collection)
        vector_of = dict(zip((require_key(id, schema) for id in ids), vectors, strict=True))
        for keys in batches(list(vector_of), schema.dim):
            present = self._present(self.main, keys)
            rows = [{schema.key: key, schema.vector: vector_of[key]} for key in present]
            if rows:
                self._call(self.client.upsert, collection, data=rows)

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """See `Store`."""
        self.check_writable(collection)
        schema = self._schema(collection)
        for keys in batches(self._keys(ids, schema), 1):
            self._call(self.client.delete, collection, filter=among(schema.key, keys))

    def drop(self, collection: str) -> None:
        """See `Store`."""
        self.check_writable(collection)
        self._schemas.pop(collection, None)
        self._loaded.discard(collection)
        if self.exists(collection):
            self._call(self.client.drop_collection, collection)

    def notes(self) -> dict[str, str]:
        """See `Store`; at most 16,384."""
        collection = notes_of(self.main)
        if not self.exists(collection):
            return {}
        rows = self._query(collection, filter="", output_fields=["key", "text"], limit=MOST)
        return {row["key"]: row["text"] for row in rows}

    def note(self, key: str, text: str | None) -> None:
        """See `Store`; a text has at most 65,535 bytes."""
        self.check_may_write()
        collection = notes_of(self.main)
        if text is not None:
            size = len(text.encode())
            if size > TEXT:
                raise GalleryError(f"A note has {size} bytes; Milvus stores at most {TEXT}.")
            self._create(collection, _notes_schema())
            row = {"key": key, "text": text, "vector": [1.0, 0.0]}
            self._call(self.client.upsert, collection, data=[row])
        elif self.exists(collection):
            self._call(self.client.delete, collection, filter=among("key", [key]))

    def close(self) -> None:
        """See `Store`."""
        if not self._closed:
            self._closed = True
            close_client(self.client, self._uri)


def _notes_schema() -> Any:
    """Key, text, and a vector, which Milvus requires in every collection."""
    schema = MilvusClient.create_schema(enable_dynamic_field=False)
    schema.add_field("key", DataType.VARCHAR, is_primary=True, max_length=1024)
    schema.add_field("text", DataType.VARCHAR, max_length=TEXT)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=2)
    return schema
