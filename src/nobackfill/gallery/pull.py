"""Copies a collection from its database into a file of vectors; safe to interrupt."""

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
    """Writes ids, vectors and payload of a collection into a Parquet file; returns their number.

    Pages are first written into a folder next to it, each atomically; a second start continues
    after the last one.

    Args:
        store: Gallery; it is only read.
        collection: Name of the collection.
        output: Path of a `.parquet` file.
        page: Number of items per page; only one page is in memory.
        progress: Callback that receives the number of items so far.
    """
    if output.suffix != ".parquet":
        raise ConfigError(f"The output must be a .parquet file, but is {output}.")
    folder = output.with_name(f".{output.name}.pages")
    folder.mkdir(parents=True, exist_ok=True)
    parts = sorted(folder.glob("*.parquet"))
    after = _last_id(parts[-1]) if parts else None
    total = sum(int(pq.read_metadata(part).num_rows) for part in parts)
    for rows in store.pages(collection, after=after, limit=page):
        parts.append(folder / f"{len(parts):08d}.parquet")
        with replacing(parts[-1]) as unfinished:
            pq.write_table(as_table(rows), unfinished)
        total += len(rows.ids)
        progress(total)
    if not parts:
        raise DataError(f"`{collection}` of {store.shown} is empty: there is nothing to pull.")
    with replacing(output) as unfinished:
        _join(parts, unfinished)
    shutil.rmtree(folder)
    return total


def as_table(rows: Rows) -> pa.Table:
    """Converts a page to a table, in the format of a file of vectors."""
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array(rows.vectors.reshape(-1)), rows.vectors.shape[1]
    )
    payload = {
        key: pa.array([plain(value) for value in values], from_pandas=True)
        for key, values in rows.columns.items()
        if key not in ("id", "vector")
    }
    return pa.table({"id": pa.array(rows.ids), "vector": vectors, **payload})


def plain(value: Any) -> str | int | float | bool | None:
    """Converts a value of the payload for a table; lists and objects become JSON.

    Example:
        >>> plain({"a": [1]}), plain("b"), plain(None)
        ('{"a": [1]}', 'b', None)
    """
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return json.dumps(value, default=str)


def _last_id(path: Path) -> str:
    return str(pq.read_table(path, columns=["id"]).column("id")[-1].as_py())


def _join(parts: Sequence[Path], output: Path) -> None:
    """Joins files page by page; a column that a file lacks is empty there."""
    schema = pa.unify_schemas(
        [pq.read_schema(part).remove_metadata() for part in parts], promote_options="permissive"
    )
    with pq.ParquetWriter(output, schema, compression="zstd") as writer:
        for part in parts:
            table = pq.read_table(part)
            for name in schema.names:
                if name not in table.column_names:
                    table = table.append_column(name, pa.nulls(len(table), schema.field(name).type))
            writer.write_table(table.select(schema.names).cast(schema))
