"""A gallery in Milvus, on a server or embedded in a file (Milvus Lite)."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from pymilvus import DataType, MilvusClient

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import MARK, Found, Index, Matrix, Rows, Store, as_matrix, unit
from nobackfill.gallery.stores.client import (
    NOTES,
    Asking,
    as_columns,
    batches,
    check_dim,
    check_not_notes,
    check_unit_length,
    owners,
    squared_distance_as_cosine,
    the_only,
)
from nobackfill.gallery.stores.milvus.rows import (
    Schema,
    among,
    close_client,
    key_of,
    literal,
    need_key,
    open_client,
    read_schema,
    remove_wreck,
)
from nobackfill.gallery.stores.uri import Uri, check_options

OPTIONS = ("collection", "vector", "token", "https", "timeout", "database")
SAMPLE = 100  # vectors whose lengths are looked at
QUERIES = 100  # in one message
MOST = 16_384  # that Milvus returns at once
TEXT = 65_535  # bytes that a text may have
BREADTH = 256  # the least that a graph index looks at
EXACT = ("FLAT", "BRUTE_FORCE", "")  # indexes that look at every vector
IN_ORDER = {"iterator": "True", "reduce_stop_for_best": "True"}  # the smallest keys, ascending
STRONG = {"consistency_level": "Strong"}  # reads see every write before them


class MilvusStore(Store):
    """A collection of Milvus; of a file, without an index or with a flat one, searched exactly.

    A search finds at most 16,384 items. What was written outlives a killed process; Milvus Lite
    leaves it to the system when it reaches the disk, so a power cut may take the last writes.

    Args:
        uri: Such as `milvus:FILE.db?collection=photos` or `milvus://db:19530/photos?token=…`.
        read_only: Whether every write is refused.
    """

    def __init__(self, uri: Uri, *, read_only: bool = False):
        check_options(uri, *OPTIONS)
        self._uri, self._ask = uri, Asking(uri, f"pymilvus {version('pymilvus')}")
        self.client, self._closed = self._ask(open_client, uri), False
        try:
            asked = uri.options.get("collection") or (uri.path.strip("/") if uri.host else "")
            known = owners(self._ask(self.client.list_collections))
            main = the_only("collection", "collection", asked, known, uri.shown)
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
        told = self._ask(self.client.describe_collection, collection)
        return read_schema(told, vector, f"{self.shown} ({collection})")

    def _schema(self, collection: str) -> Schema:
        """What it is made of, asked once."""
        if collection not in self._schemas:
            self._schemas[collection] = self._describe(collection)
        return self._schemas[collection]

    def _choose_index(self) -> tuple[str, str]:
        """The kind of the owner's index, empty for none, and its metric."""
        field = self._schema(self.main).vector
        names = self._ask(self.client.list_indexes, self.main, field_name=field)
        told = self._ask(self.client.describe_index, self.main, names[0]) if names else {}
        metric = told.get("metric_type", "COSINE")
        if metric not in ("COSINE", "IP", "L2"):
            raise GalleryError(
                f"wanted cosines, but `{self.main}` in {self.shown} has the metric {metric}."
            )
        return told.get("index_type", ""), metric

    def _check_cosines(self) -> None:
        """Whether scores of the owner's vectors can be told as cosines."""
        if not self._checked:
            sample = self.scan(self.main, limit=SAMPLE)
            check_unit_length(sample.vectors, f"the metric {self.metric}", self.shown)
            self._checked = bool(sample.ids)

    def _load(self, collection: str) -> None:
        """Milvus reads only what is loaded."""
        if collection not in self._loaded:
            state = self._ask(self.client.get_load_state, collection)["state"]
            if state.name != "Loaded":
                self._ask(self.client.load_collection, collection)
            self._loaded.add(collection)

    def _query(self, collection: str, **named: Any) -> list[dict[str, Any]]:
        self._load(collection)
        return list(self._ask(self.client.query, collection, **named, **STRONG))

    def exists(self, collection: str) -> bool:
        """See `Store`."""
        return bool(self._ask(self.client.has_collection, collection))

    def count(self, collection: str) -> int:
        """See `Store`."""
        return int(self._query(collection, output_fields=["count(*)"])[0]["count(*)"])

    def dim(self, collection: str) -> int:
        """See `Store`."""
        return self._schema(collection).dim

    def scan(self, collection: str, *, after: str | None = None, limit: int = 1000) -> Rows:
        """See `Store`; in ascending order of the key, at most 16,384 at once."""
        schema, limit = self._schema(collection), min(limit, MOST)
        last = "" if after is None else f"{schema.key} > {literal(need_key(after, schema))}"
        found = self._query(collection, filter=last, output_fields=["*"], limit=limit, **IN_ORDER)
        return self._rows(schema, sorted(found, key=lambda row: row[schema.key])[:limit])

    def get(self, collection: str, ids: Sequence[str]) -> Rows:
        """See `Store`."""
        schema, found = self._schema(collection), []
        for some in batches(self._keys(ids, schema), schema.dim):
            found += self._query(collection, filter=among(schema.key, some), output_fields=["*"])
        return self._rows(schema, found)

    def contained(self, collection: str, ids: Sequence[str]) -> set[str]:
        """See `Store`."""
        return set(map(str, self._there(collection, self._keys(ids, self._schema(collection)))))

    def _there(self, collection: str, keys: Sequence[int | str]) -> list[int | str]:
        """The same for keys; nothing but keys is sent."""
        name, there = self._schema(collection).key, []
        for some in batches(keys, 1):
            told = self._query(collection, filter=among(name, some), output_fields=[name])
            there += [row[name] for row in told]
        return there

    def _keys(self, ids: Sequence[str], schema: Schema) -> list[int | str]:
        """Those that can be keys, each once."""
        keys = (key_of(one, schema) for one in ids)
        return list(dict.fromkeys(key for key in keys if key is not None))

    def _rows(self, schema: Schema, found: Sequence[dict[str, Any]]) -> Rows:
        hidden = {schema.key, *schema.vectors}
        return Rows(
            [str(row[schema.key]) for row in found],
            as_matrix([row[schema.vector] for row in found], schema.dim),
            as_columns([{name: row[name] for name in row if name not in hidden} for row in found]),
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
        asked = unit(query)
        for first in range(0, len(asked), QUERIES):
            for hits in self._ask(
                self.client.search,
                collection,
                data=list(asked[first : first + QUERIES]),
                anns_field=schema.vector,
                limit=k,
                output_fields=[schema.key],
                search_params={"params": {"ef": max(2 * k, BREADTH)} if graph else {}},
                **STRONG,
            ):
                ids.append([str(hit[schema.key]) for hit in hits])
                scores = [float(hit["distance"]) for hit in hits]
                cosines.append(
                    [squared_distance_as_cosine(score) for score in scores]
                    if metric == "L2"
                    else scores
                )
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
        self._make(collection, schema)

    @property
    def _ours(self) -> str:
        """The kind of index that our collections are made with."""
        return "AUTOINDEX" if self._uri.host else "FLAT"

    def _make(self, collection: str, schema: Any) -> None:
        """Makes a collection and its index, also where a kill came before or between the two."""
        index = self.client.prepare_index_params()
        index.add_index("vector", index_type=self._ours, metric_type="COSINE")
        if not self.exists(collection):
            remove_wreck(self._uri, collection)
            self._ask(self.client.create_collection, collection, schema=schema, **STRONG)
        if not self._ask(self.client.list_indexes, collection):
            self._ask(self.client.create_index, collection, index)

    def index_of(self, collection: str) -> Index | None:
        """See `Store`; ours are made with an index, which Milvus keeps."""
        kind = self.kind if collection == self.main else self._ours
        return None if kind in EXACT else Index(kind)

    def upsert(self, collection: str, ids: Sequence[str], vectors: Matrix) -> None:
        """See `Store`; items that the owner has removed meanwhile are left out."""
        self.check_writable(collection)
        schema = self._schema(collection)
        check_dim(vectors, schema.dim, collection)
        wanted = dict(zip((need_key(one, schema) for one in ids), vectors, strict=True))
        for some in batches(list(wanted), schema.dim):
            there = self._there(self.main, some)
            rows = [{schema.key: key, schema.vector: wanted[key]} for key in there]
            if rows:
                self._ask(self.client.upsert, collection, data=rows)

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """See `Store`."""
        self.check_writable(collection)
        schema = self._schema(collection)
        for some in batches(self._keys(ids, schema), 1):
            self._ask(self.client.delete, collection, filter=among(schema.key, some))

    def drop(self, collection: str) -> None:
        """See `Store`."""
        self.check_writable(collection)
        self._schemas.pop(collection, None)
        self._loaded.discard(collection)
        if self.exists(collection):
            self._ask(self.client.drop_collection, collection)

    def notes(self) -> dict[str, str]:
        """See `Store`; at most 16,384."""
        collection = f"{self.main}{MARK}{NOTES}"
        if not self.exists(collection):
            return {}
        found = self._query(collection, filter="", output_fields=["key", "text"], limit=MOST)
        return {row["key"]: row["text"] for row in found}

    def note(self, key: str, text: str | None) -> None:
        """See `Store`; a text has at most 65,535 bytes."""
        self.check_may_write()
        collection = f"{self.main}{MARK}{NOTES}"
        if text is not None:
            size = len(text.encode())
            if size > TEXT:
                raise GalleryError(f"wanted a note of at most {TEXT} bytes, but got {size}.")
            self._make(collection, _notes_schema())
            row = {"key": key, "text": text, "vector": [1.0, 0.0]}
            self._ask(self.client.upsert, collection, data=[row])
        elif self.exists(collection):
            self._ask(self.client.delete, collection, filter=among("key", [key]))

    def close(self) -> None:
        """See `Store`."""
        if not self._closed:
            self._closed = True
            close_client(self.client, self._uri)


def _notes_schema() -> Any:
    """A key, a text, and a vector, without which Milvus makes no collection."""
    schema = MilvusClient.create_schema(enable_dynamic_field=False)
    schema.add_field("key", DataType.VARCHAR, is_primary=True, max_length=1024)
    schema.add_field("text", DataType.VARCHAR, max_length=TEXT)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=2)
    return schema
