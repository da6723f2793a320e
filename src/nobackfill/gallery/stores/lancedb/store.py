"""A gallery in LanceDB, in a folder."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from nobackfill.errors import DataError, GalleryError
from nobackfill.gallery.stores.base import MARK, Found, Index, Matrix, Rows, Store, unit
from nobackfill.gallery.stores.client import (
    NOTES,
    check_dim,
    check_not_notes,
    check_unit_length,
    no_index,
    squared_distance_as_cosine,
)
from nobackfill.gallery.stores.lancedb.index import LanceIndex, of_dimensions, read_index
from nobackfill.gallery.stores.lancedb.rows import (
    Names,
    Order,
    as_rows,
    dim_of,
    is_in,
    own_id,
    read_order,
    vectors_of,
)
from nobackfill.gallery.stores.lancedb.tables import KEPT, Tables, delete
from nobackfill.gallery.stores.uri import Uri, check_options

OURS = Names("id", "vector")
SAMPLE = 100  # vectors whose lengths are looked at
IDS = 1000  # in one filter
QUERIES = 50  # in one search


class Look(NamedTuple):
    """What is to be known of a table to search it.

    Attributes:
        dim: Of its vectors; 0 where they were removed.
        metric: What its index measures; None where there is none that tells cosines.
    """

    dim: int
    metric: str | None


class LanceStore(Store):
    """A table of LanceDB, searched by its index where it has one; `scan` is ascending by id.

    Ours are tables beside it. Items that lack a vector have a row of NaN; after `retire` all
    vectors of the owner's table have no dimension.

    Args:
        uri: Such as `lancedb://FOLDER/TABLE?id=ID_COLUMN&vector=VECTOR_COLUMN`.
        read_only: Whether every write is refused.
    """

    def __init__(self, uri: Uri, *, read_only: bool = False):
        check_options(uri, "id", "vector")
        super().__init__(Path(uri.path).name, uri.shown, read_only=read_only)
        self.names = Names(uri.options.get("id", "id"), uri.options.get("vector", "vector"))
        self._tables = Tables(uri)
        self._notes = f"{self.main}{MARK}{NOTES}"
        self._orders: dict[str, Order] = {}
        self.id_type = self._check_owner()
        self.exact = self._tables.read(self.main, self._look).metric is None

    def _check_owner(self) -> pa.DataType:
        """Refuses a table that is not there or lacks a column; returns the type of its ids."""
        if not self.exists(self.main):
            raise DataError(f"wanted the table `{self.main}` at {self.shown}; there is none.")
        schema = self._tables.read(self.main, lambda table: table.schema)
        retired = self.exists(self._notes)  # then we may have removed the vectors
        for option, name in self.names._asdict().items():
            if name not in schema.names and not (option == "vector" and retired):
                raise DataError(
                    f"wanted a column `{name}` in {self.shown}, but it has "
                    f"{', '.join(schema.names)}. Tell its name by `?{option}=`."
                )
        dim_of(schema, self.names, self.shown)
        kind = schema.field(self.names.id).type
        if not (pa.types.is_string(kind) or pa.types.is_signed_integer(kind)):
            raise DataError(
                f"wanted ids that are whole numbers or texts in the column `{self.names.id}` of "
                f"{self.shown}, but they are {kind}. Name another column by `?id=`."
            )
        return kind

    def _look(self, table: Any) -> Look:
        """What is to be known of a table to search it."""
        names = self._names(table.name)
        dim = dim_of(table.schema, names, self.shown)
        index = read_index(table, names.vector) if dim else None
        if index is None or index.metric not in ("cosine", "l2", "dot"):
            return Look(dim, None)
        if index.metric != "cosine":
            sample = table.search().select([names.vector]).limit(SAMPLE).to_arrow()
            try:
                check_unit_length(vectors_of(sample, names.vector), index.metric, self.shown)
            except GalleryError:  # then all vectors are looked at
                return Look(dim, None)
        return Look(dim, index.metric)

    def _names(self, collection: str) -> Names:
        return self.names if collection == self.main else OURS

    # Reading.

    def exists(self, collection: str) -> bool:
        """See `Store`."""
        return self._tables.exists(collection)

    def count(self, collection: str) -> int:
        """See `Store`."""
        return int(self._tables.read(collection, lambda table: table.count_rows()))

    def dim(self, collection: str) -> int:
        """See `Store`; 0 for the owner's table after `retire`."""
        schema = self._tables.read(collection, lambda table: table.schema)
        return dim_of(schema, self._names(collection), self.shown)

    def scan(self, collection: str, *, after: str | None = None, limit: int = 1000) -> Rows:
        """See `Store`; ids are read once for each version of a table, vectors by the page."""
        last = None if after is None else own_id(after, self.id_type)
        if after is not None and last is None:
            raise GalleryError(
                f"wanted to go on after an id of {self.shown}, which are whole numbers, but got "
                f"{after!r}."
            )
        rows: Rows = self._tables.read(collection, lambda table: self._page(table, last, limit))
        return rows

    def _page(self, table: Any, last: int | str | None, limit: int) -> Rows:
        names, order = self._names(table.name), self._orders.get(table.name)
        version = self._tables.version(table)
        if order is None or order.version != version:
            order = self._orders[table.name] = read_order(table, names.id, version)
        first = order.first_after(last)
        taken = table.take_row_ids(order.row_ids[first : first + limit].to_pylist())
        return as_rows(taken.to_arrow(), names)

    def get(self, collection: str, ids: Sequence[str]) -> Rows:
        """See `Store`."""
        return as_rows(self._matching(collection, ids), self._names(collection))

    def contained(self, collection: str, ids: Sequence[str]) -> set[str]:
        """See `Store`; vectors are not read."""
        name = self._names(collection).id
        found = self._matching(collection, ids, columns=[name])
        return {str(one) for one in found[name].to_pylist()}

    def _matching(
        self, collection: str, ids: Sequence[str], *, columns: list[str] | None = None
    ) -> pa.Table:
        """Some columns, or all, of those of some items that are there."""
        filters = [*self._filters(self._names(collection).id, ids)] or ["false"]

        def find(table: Any) -> pa.Table:
            questions = (table.search().where(one).limit(IDS) for one in filters)
            return pa.concat_tables(
                [(one.select(columns) if columns else one).to_arrow() for one in questions]
            )

        return self._tables.read(collection, find)

    def _filters(self, name: str, ids: Sequence[str]) -> Iterator[str]:
        """Filters for some items, each of a size that can be asked at once."""
        own = [id for one in dict.fromkeys(ids) if (id := own_id(one, self.id_type)) is not None]
        for first in range(0, len(own), IDS):
            yield is_in(name, own[first : first + IDS])

    def search(self, collection: str, query: Matrix, k: int) -> Found:
        """See `Store`."""
        found: Found = self._tables.search(
            collection, self._look, lambda table, look: self._search(table, look, query, k)
        )
        return found

    def _search(self, table: Any, look: Look, query: Matrix, k: int) -> Found:
        if not look.dim:
            raise GalleryError(f"wanted to search {self.shown}, but its vectors were removed.")
        check_dim(query, look.dim, table.name)
        ids: list[list[str]] = []
        cosines: list[list[float]] = []
        for first in range(0, len(query), QUERIES):
            found = self._nearest(table, look.metric, unit(query[first : first + QUERIES]), k)
            ids += found.ids
            cosines += found.cosines
        return Found(ids, cosines)

    def _nearest(self, table: Any, by_index: str | None, query: Matrix, k: int) -> Found:
        names, metric = self._names(table.name), by_index or "cosine"
        asked = query[0] if len(query) == 1 else query
        question = table.search(asked, vector_column_name=names.vector)
        if by_index is None:
            question = question.bypass_vector_index()  # if any, it tells no cosines
        question = question.distance_type(metric).select([names.id, "_distance"]).limit(k)
        found = question.to_arrow()
        ids = [str(one) for one in found[names.id].to_pylist()]
        cosines = [
            squared_distance_as_cosine(distance) if metric == "l2" else 1 - distance
            for distance in found["_distance"].to_pylist()
        ]
        if len(query) == 1:
            return Found([ids], [cosines])
        ends = np.bincount(found["query_index"].to_numpy(), minlength=len(query)).cumsum().tolist()
        parts = [slice(*pair) for pair in zip([0, *ends], ends, strict=False)]
        return Found([ids[part] for part in parts], [cosines[part] for part in parts])

    # Writing.

    def create(self, collection: str, dim: int) -> None:
        """See `Store`."""
        self.check_writable(collection)
        check_not_notes(collection)
        fields = {OURS.id: self.id_type, OURS.vector: pa.list_(pa.float32(), dim)}
        self._tables.make(collection, fields)

    def upsert(self, collection: str, ids: Sequence[str], vectors: Matrix) -> None:
        """See `Store`; items that their owner has removed are left out."""
        self.check_writable(collection)
        dim = self.dim(collection)
        check_dim(vectors, dim, collection)
        there = self.contained(self.main, ids)
        row_of = {one: row for row, one in enumerate(ids) if one in there}
        flat = pa.array(vectors[list(row_of.values())].astype(np.float32).ravel())
        own = pa.array([own_id(one, self.id_type) for one in row_of], self.id_type)
        self._tables.merge(collection, [own, pa.FixedSizeListArray.from_arrays(flat, dim)])

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """See `Store`."""
        self.check_writable(collection)
        for some in self._filters(OURS.id, ids):
            self._tables.write(collection, partial(delete, where=some))

    def drop(self, collection: str) -> None:
        """See `Store`."""
        self.check_writable(collection)
        self._tables.drop(collection)
        self._orders.pop(collection, None)

    # An index.

    def index_of(self, collection: str) -> Index | None:
        """See `Store`."""
        index = self._index(collection)
        return None if index is None else Index(str(index), index.lacks)

    def _index(self, collection: str) -> LanceIndex | None:
        name = self._names(collection).vector
        index: LanceIndex | None = self._tables.read(
            collection, lambda table: read_index(table, name)
        )
        return index

    def wanted_index(self, collection: str) -> Index | None:
        """See `Store`; vectors that were written since it was built are put in."""
        wanted, there = self._like_owners(collection), self._index(collection)
        built = there is not None and there.like(wanted)
        return Index(str(wanted), there.lacks if there and built else self.count(collection))

    def _like_owners(self, collection: str) -> LanceIndex:
        index = self._index(self.main)
        if index is None:
            raise no_index(self.main, self.shown)
        return of_dimensions(index, self.dim(collection))

    def index(self, collection: str, *, watch: Callable[[str], None] = lambda line: None) -> None:
        """See `Store`; one that was not finished leaves nothing that is ever read."""
        self.check_writable(collection)
        wanted = self._like_owners(collection)
        config = wanted.config()

        def build(table: Any) -> None:
            there = read_index(table, OURS.vector)
            if there is None or not there.like(wanted):
                watch(f"building {wanted} over {table.count_rows():,} vectors")
                table.create_index(OURS.vector, config=config)
            elif there.lacks:
                watch(f"putting {there.lacks:,} vectors into {wanted}")
                table.optimize(cleanup_older_than=KEPT)

        self._tables.write(collection, build)

    def retire(self) -> None:
        """See `Store`; the disk has room again once the owner's older versions are removed."""
        self.check_may_write()
        if self.dim(self.main):
            self._make_notes()  # by which a table is known that may be without vectors
            self._tables.write(self.main, lambda table: table.drop_columns([self.names.vector]))

    # Notes.

    def _make_notes(self) -> None:
        self._tables.make(self._notes, {"key": pa.string(), "text": pa.string()})

    def notes(self) -> dict[str, str]:
        """See `Store`."""
        if not self.exists(self._notes):
            return {}
        found = self._tables.read(self._notes, lambda table: table.to_arrow())
        return dict(zip(found["key"].to_pylist(), found["text"].to_pylist(), strict=True))

    def note(self, key: str, text: str | None) -> None:
        """See `Store`."""
        self.check_may_write()
        if text is not None:
            self._make_notes()
            self._tables.merge(self._notes, [pa.array([key]), pa.array([text])])
        elif self.exists(self._notes):
            self._tables.write(self._notes, partial(delete, where=is_in("key", [key])))
