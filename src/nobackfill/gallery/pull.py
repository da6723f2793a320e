"""A collection out of its database into a file of vectors; can be stopped anywhere."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nobackfill.core.atomic_files import replacing
from nobackfill.errors import ConfigError, DataError
from nobackfill.gallery.stores.base import Rows, Store

PAGE = 10_000


def pull(
    store: Store,
    collection: str,
    output: Path,
    *,
    page: int = PAGE,
    progress: Callable[[int], None] = lambda done: None,
) -> int:
    """Writes ids, vectors and payload of a collection into one Parquet file; returns how many.

    Pages go into a folder beside it first, each whole; a second start goes on behind the last one.

    Args:
        store: Where the collection is; nothing is written there.
        collection: Its name.
        output: A `.parquet` file.
        page: How many items at a time: all that is ever in memory.
        progress: Told how many items are there.
    """
    if output.suffix != ".parquet":
        raise ConfigError(f"wanted to write a .parquet file, but got {output}.")
    parts = output.with_name(f".{output.name}.pages")
    parts.mkdir(parents=True, exist_ok=True)
    done = sorted(parts.glob("*.parquet"))
    after = _last_id(done[-1]) if done else None
    total = sum(int(pq.read_metadata(one).num_rows) for one in done)
    while (rows := store.scan(collection, after=after, limit=page)).ids:
        with replacing(parts / f"{len(done):08d}.parquet") as unfinished:
            pq.write_table(as_table(rows), unfinished)
        done.append(parts / f"{len(done):08d}.parquet")
        after, total = rows.ids[-1], total + len(rows.ids)
        progress(total)
    if not done:
        raise DataError(f"wanted items in `{collection}` of {store.shown}, but it is empty.")
    with replacing(output) as unfinished:
        _join(done, unfinished)
    shutil.rmtree(parts)
    return total


def as_table(rows: Rows) -> pa.Table:
    """A page as a table, as a file of vectors has it."""
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array(rows.vectors.reshape(-1)), rows.vectors.shape[1]
    )
    payload = {
        key: pa.array([plain(one) for one in values], from_pandas=True)
        for key, values in rows.columns.items()
        if key not in ("id", "vector")
    }
    return pa.table({"id": pa.array(rows.ids), "vector": vectors, **payload})


def plain(value: Any) -> str | int | float | bool | None:
    """A value of the payload as a table can hold it; lists and objects as JSON.

    Example:
        >>> plain({"a": [1]}), plain("b"), plain(None)
        ('{"a": [1]}', 'b', None)
    """
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return json.dumps(value, default=str)


def _last_id(path: Path) -> str:
    """The id of the last item of a page."""
    return str(pq.read_table(path, columns=["id"]).column("id")[-1].as_py())


def _join(parts: Sequence[Path], output: Path) -> None:
    """One file of several, page by page; a column that one of them lacks is empty there."""
    schema = pa.unify_schemas(
        [pq.read_schema(one).remove_metadata() for one in parts], promote_options="permissive"
    )
    with pq.ParquetWriter(output, schema, compression="zstd") as writer:
        for one in parts:
            table = pq.read_table(one)
            lacking = [name for name in schema.names if name not in table.column_names]
            for name in lacking:
                table = table.append_column(name, pa.nulls(len(table), schema.field(name).type))
            writer.write_table(table.select(schema.names).cast(schema))
