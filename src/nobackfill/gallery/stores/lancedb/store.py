"""Galleries in LanceDB, in a local folder."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nobackfill.errors import DataError, GalleryError
from nobackfill.gallery.stores.base import (
    MARK,
    Answer,
    Index,
    Matrix,
    Rows,
    SearchResults,
    Store,
    notes_of,
    unit,
)
from nobackfill.gallery.stores.client import (
    alone,
    check_dim,
    check_unit_length,
    cosines_from,
    no_index,
    split,
)
from nobackfill.gallery.stores.lancedb.index import (
    LanceIndex,
    SearchInfo,
    of_dimensions,
    read_index,
)
from nobackfill.gallery.stores.lancedb.rows import (
    Names,
    Order,
    as_rows,
    dim_of,
    is_in,
    own_id,
    read_ids,
    read_order,
    vectors_of,
)
from nobackfill.gallery.stores.lancedb.tables import KEPT, Tables
from nobackfill.gallery.stores.uri import Uri, check_options

NEW = Names("id", "vector")
SAMPLE = 100  # vectors whose lengths are checked
IDS = 1000  # in one filter
QUERIES = 50  # in one search


class LanceStore(Store):
    """A LanceDB table, searched with its index if it has one; `scan` is ascending by id.

    New vectors go into separate tables. Items without a vector have a row of NaN.

    Args:
        uri: URI such as `lancedb://FOLDER/TABLE?id=ID_COLUMN&vector=VECTOR_COLUMN`.
        read_only: Whether every write is refused.
    """

    def __init__(self, uri: Uri, *, read_only: bool):
        check_options(uri, "id", "vector")
        super().__init__(Path(uri.path).name, uri.shown, read_only=read_only)
        self.names = Names(uri.options.get("id", "id"), uri.options.get("vector", "vector"))
        self._tables = Tables(uri)
        self._notes = notes_of(self.main)
        self._orders: dict[str, Order] = {}
        self.id_type = self._check_owner()
        self.exact = self._tables.read(self.main, self._search_info).metric is None

    def _check_owner(self) -> pa.DataType:
        """Raises if the table or a column does not exist; returns the type of its ids."""
        if not self.exists(self.main):
            raise DataError(f"No table `{self.main}` at {self.shown}.")
        schema = self._tables.read(self.main, lambda table: table.schema)
        retired = self.exists(self._notes)  # then the vectors may have been removed
        for option, name in self.names._asdict().items():
            if name not in schema.names and not (option == "vector" and retired):
                raise DataError(
                    f"No column `{name}` in {self.shown}. Set its name with `?{option}=`; the "
                    f"table has: {', '.join(schema.names)}."
                )
        dim_of(schema, self.names, self.shown)
        kind = schema.field(self.names.id).type
        if not (pa.types.is_string(kind) or pa.types.is_signed_integer(kind)):
            raise DataError(
                f"Ids in the column `{self.names.id}` of {self.shown} have the type {kind}, but "
                f"they must be whole numbers or texts. Set another column with `?id=`."
            )
        return kind

    def _search_info(self, table: Any) -> SearchInfo:
        """Reads the properties of a table that a search requires."""
        names = self._names(table.name)
        dim = dim_of(table.schema, names, self.shown)
        index = read_index(table, names.vector) if dim else None
        if index is None or index.metric not in ("cosine", "l2", "dot"):
            return SearchInfo(dim, None)
        if index.metric != "cosine":
            sample = table.search().select([names.vector]).limit(SAMPLE).to_arrow()
            try:
                check_unit_length(vectors_of(sample, names.vector), index.metric, self.shown)
            except GalleryError:  # then every vector is compared
                return SearchInfo(dim, None)
        return SearchInfo(dim, index.metric)

    def _names(self, collection: str) -> Names:
        return self.names if collection == self.main else NEW

    # Reading.

    def exists(self, collection: str) -> bool:
        """See `Store`."""
        return self._tables.exists(collection)

    def count(self, collection: str) -> int:
        """See `Store`."""
        return int(self._tables.read(collection, lambda table: table.count_rows()))

    def dim(self, collection: str) -> int:
        """See `Store`; 0 for the owner's table if its column of vectors was removed."""
        schema = self._tables.read(collection, lambda table: table.schema)
        return dim_of(schema, self._names(collection), self.shown)

    def scan(self, collection: str, *, after: str | None = None, limit: int = 1000) -> Rows:
        """See `Store`; reads ids once for each version of a table, and vectors page by page."""
        last = None if after is None else own_id(after, self.id_type)
        if after is not None and last is None:
            raise GalleryError(
                f"Cannot continue after the id {after!r}: ids of {self.shown} are whole numbers."
            )
        return self._tables.read(collection, lambda table: self._page(table, last, limit))

    def _page(self, table: Any, last: int | str | None, limit: int) -> Rows:
        names, order = self._names(table.name), self._orders.get(table.name)
        version = self._tables.version(table)
        if order is None or order.version != version:
            order = self._orders[table.name] = read_order(table, names.id, version)
        first = order.first_after(last)
        taken = table.take_row_ids(order.row_ids[first : first + limit].to_pylist())
        return as_rows(taken.to_arrow(), names)

    def covered(self, collection: str) -> int:
        """See `Store`; reads the ids of both tables."""
        new, old = (
            self._tables.read(name, lambda table: read_ids(table, self._names(table.name).id))
            for name in (collection, self.main)
        )
        return pc.sum(pc.is_in(new, value_set=old)).as_py() or 0

    def has_exact_vectors(self) -> bool:
        """See `Store`."""
        stored = f"`{self.names.vector}` is not null"
        return self.dim(self.main) > 0 and self._tables.has_any(self.main, stored)

    def get(self, collection: str, ids: Sequence[str]) -> Rows:
        """See `Store`."""
        return as_rows(self._matching(collection, ids), self._names(collection))

    def contained(self, collection: str, ids: Sequence[str]) -> set[str]:
        """See `Store`; does not read vectors."""
        name = self._names(collection).id
        rows = self._matching(collection, ids, columns=[name])
        return {str(id) for id in rows[name].to_pylist()}

    def _matching(
        self, collection: str, ids: Sequence[str], *, columns: list[str] | None = None
    ) -> pa.Table:
        """Returns these columns (None: all) of the items with these ids that exist."""
        filters = [*self._filters(self._names(collection).id, ids)] or ["false"]

        def find(table: Any) -> pa.Table:
            queries = (table.search().where(filter).limit(IDS) for filter in filters)
            return pa.concat_tables(
                [(query.select(columns) if columns else query).to_arrow() for query in queries]
            )

        return self._tables.read(collection, find)

    def _filters(self, name: str, ids: Sequence[str]) -> Iterator[str]:
        """Yields filters for ids, with at most `IDS` ids each."""
        keys = (own_id(id, self.id_type) for id in dict.fromkeys(ids))
        for page in split([key for key in keys if key is not None], IDS):
            yield is_in(name, page)

    def search(self, collection: str, query: Matrix, k: int) -> SearchResults:
        """See `Store`."""
        return self._tables.search(
            collection, self._search_info, lambda table, info: self._search(table, info, query, k)
        )

    def _search(self, table: Any, info: SearchInfo, query: Matrix, k: int) -> SearchResults:
        if not info.dim:
            raise GalleryError(f"Cannot search {self.shown}: its vectors were removed.")
        check_dim(query, info.dim, table.name)
        rows = []
        for first in range(0, len(query), QUERIES):
            rows += self._nearest(table, info.metric, unit(query[first : first + QUERIES]), k)
        return SearchResults.of(rows)

    def _nearest(
        self, table: Any, index_metric: str | None, query: Matrix, k: int
    ) -> list[list[tuple[str, float]]]:
        names, metric = self._names(table.name), index_metric or "cosine"
        vectors = query[0] if len(query) == 1 else query
        builder = table.search(vectors, vector_column_name=names.vector)
        if index_metric is None:
            builder = builder.bypass_vector_index()  # an index, if any, does not give cosines
        builder = builder.distance_type(metric).select([names.id, "_distance"]).limit(k)
        rows = builder.to_arrow()
        distances = rows["_distance"].to_pylist()
        if metric == "l2":
            cosines = cosines_from(distances, squared_distances=True)
        else:
            cosines = [1 - distance for distance in distances]
        pairs = list(zip(map(str, rows[names.id].to_pylist()), cosines, strict=True))
        if len(query) == 1:
            return [pairs]
        # Rows of several queries follow each other: split them.
        ends = np.bincount(rows["query_index"].to_numpy(), minlength=len(query)).cumsum().tolist()
        return [pairs[first:end] for first, end in zip([0, *ends], ends, strict=False)]

    # Writing.

    def exclusively(self, action: str, work: Callable[[], Answer], *, retry: bool = True) -> Answer:
        """See `Store`; by a lock file beside the table."""
        self.check_may_write()
        with alone(self._tables.folder / self.main, self.shown):
            return work()

    def new_collections(self) -> list[str]:
        """See `Store`."""
        names = set(self._tables.names(f"{self.main}{MARK}"))
        return sorted(names - {self._notes})

    def create(self, collection: str, dim: int) -> None:
        """See `Store`."""
        self.check_writable(collection)
        fields = {NEW.id: self.id_type, NEW.vector: pa.list_(pa.float32(), dim)}
        self._tables.make(collection, fields)

    def upsert(self, collection: str, ids: Sequence[str], vectors: Matrix) -> None:
        """See `Store`; items that the owner has removed are left out."""
        self.check_writable(collection)
        dim = self.dim(collection)
        check_dim(vectors, dim, collection)
        present = self.contained(self.main, ids)
        row_of = {id: row for row, id in enumerate(ids) if id in present}
        flat = pa.array(vectors[list(row_of.values())].astype(np.float32).ravel())
        own = pa.array([own_id(id, self.id_type) for id in row_of], self.id_type)
        self._tables.merge(collection, [own, pa.FixedSizeListArray.from_arrays(flat, dim)])

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """See `Store`."""
        self.check_writable(collection)
        for filter in self._filters(NEW.id, ids):
            self._tables.delete(collection, filter)

    def drop(self, collection: str) -> None:
        """See `Store`."""
        self.check_writable(collection)
        self._tables.drop(collection)
        self._orders.pop(collection, None)

    # Index.

    def index_of(self, collection: str) -> Index | None:
        """See `Store`."""
        index = self._index(collection)
        return None if index is None else Index(str(index), index.lacks)

    def _index(self, collection: str) -> LanceIndex | None:
        name = self._names(collection).vector
        return self._tables.read(collection, lambda table: read_index(table, name))

    def wanted_index(self, collection: str) -> Index | None:
        """See `Store`; vectors written after the build are added to the index."""
        target, index = self._target_index(collection), self._index(collection)
        built = index is not None and index.like(target)
        return Index(str(target), index.lacks if index and built else self.count(collection))

    def _target_index(self, collection: str) -> LanceIndex:
        """Returns the owner's index, for the dimensions of a new collection."""
        index = self._index(self.main)
        if index is None:
            raise no_index(self.main, self.shown)
        return of_dimensions(index, self.dim(collection))

    def index(self, collection: str, *, watch: Callable[[str], None] = lambda line: None) -> None:
        """See `Store`; an interrupted build leaves nothing that is ever read.

        Others that write wait for it: LanceDB would add the index to a table that has taken the
        place of this one meanwhile.
        """
        self.check_writable(collection)
        target = self._target_index(collection)
        config = target.config()

        def build(table: Any) -> None:
            index = read_index(table, NEW.vector)
            if index is None or not index.like(target):
                watch(f"building {target} over {table.count_rows():,} vectors")
                table.create_index(NEW.vector, config=config)
            elif index.lacks:
                watch(f"adding {index.lacks:,} vectors to {target}")
                table.optimize(cleanup_older_than=KEPT)

        self.exclusively("build the index", lambda: self._tables.write(collection, build))

    def retire(self, collection: str) -> None:
        """See `Store`; disk space is freed once the owner removes older versions.

        LanceDB has no locks, so the column stays, without values: rows that the owner inserts
        meanwhile keep their vectors.
        """
        self.check_may_write()
        self.check_is_covered(collection)
        ids = self._tables.read(collection, lambda table: read_ids(table, NEW.id))
        if self.dim(self.main):  # else an earlier version removed the column
            self._tables.empty(self.main, self.names.vector, self.names.id, ids)

    # Notes.

    def _make_notes(self) -> None:
        self._tables.make(self._notes, {"key": pa.string(), "text": pa.string()})

    def notes(self) -> dict[str, str]:
        """See `Store`."""
        if not self.exists(self._notes):
            return {}
        rows = self._tables.read(self._notes, lambda table: table.to_arrow())
        return dict(zip(rows["key"].to_pylist(), rows["text"].to_pylist(), strict=True))

    def note(self, key: str, text: str | None) -> None:
        """See `Store`."""
        self.check_may_write()
        if text is not None:
            self._make_notes()
            self._tables.merge(self._notes, [pa.array([key]), pa.array([text])])
        elif self.exists(self._notes):
            self._tables.delete(self._notes, is_in("key", [key]))
