"""Copies a collection from its database into a file of vectors; safe to interrupt."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from nobackfill.core.atomic_files import replacing, write_text
from nobackfill.core.json_files import parse_object, read_json_text
from nobackfill.core.locks import lock_output
from nobackfill.errors import ConfigError, DataError, GalleryError
from nobackfill.gallery.provenance import declared, reading, token_of
from nobackfill.gallery.sketch import Sketch, is_other, spread
from nobackfill.gallery.stores.base import Rows, Store
from nobackfill.vectors.contents import SPACE
from nobackfill.vectors.space import Space

PAGE = 10_000
SOURCE = "source.json"  # beside the pages: what they are of


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
    after the last one, if it is of the same collection of the same model. Raises if the collection
    is written anew meanwhile, or another process writes the output.

    Args:
        store: Gallery; it is only read.
        collection: Name of the collection.
        output: Path of a `.parquet` file.
        page: Number of items per page; only one page is in memory.
        progress: Callback that receives the number of items so far.
    """
    if output.suffix != ".parquet":
        raise ConfigError(f"The output must be a .parquet file, but is {output}.")
    with lock_output(output):
        folder = output.with_name(f".{output.name}.pages")
        folder.mkdir(parents=True, exist_ok=True)
        parts = sorted(folder.glob("*.parquet"))
        source = _source(store, collection)
        if parts:
            _check_source(store, collection, folder, parts[-1], source)
        else:
            write_text(folder / SOURCE, json.dumps(source))
        try:
            with reading(store, collection):
                total = _pull_pages(store, collection, folder, parts, page, progress)
        except GalleryError:
            if token_of(store, collection) != source["token"]:
                _remove_pages(folder)  # perhaps of two models
            raise
        if not parts:
            _remove_pages(folder)
            raise DataError(f"`{collection}` of {store.shown} is empty: there is nothing to pull.")
        with replacing(output) as unfinished:
            _join(parts, unfinished, declared(store, collection))
        _remove_pages(folder)
    return total


def _remove_pages(folder: Path) -> None:
    """Removes pages from the last to the first, then what they are of.

    Whatever a kill leaves, a second start can continue.
    """
    for part in sorted(folder.glob("*.parquet"), reverse=True):
        part.unlink()
    shutil.rmtree(folder)


def _pull_pages(
    store: Store,
    collection: str,
    folder: Path,
    parts: list[Path],
    page: int,
    progress: Callable[[int], None],
) -> int:
    """Writes the pages after the last one of `parts` and adds them; returns the number of items."""
    after = _last_id(parts[-1]) if parts else None
    total = sum(int(pq.read_metadata(part).num_rows) for part in parts)
    for rows in store.pages(collection, after=after, limit=page):
        parts.append(folder / f"{len(parts):08d}.parquet")
        with replacing(parts[-1]) as unfinished:
            pq.write_table(as_table(rows), unfinished)
        total += len(rows.ids)
        progress(total)
    return total


def _source(store: Store, collection: str) -> dict[str, str | None]:
    """Returns what pages are of; pages of different sources never become one file."""
    space = declared(store, collection)
    return {
        "gallery": store.shown,
        "collection": collection,
        "space": None if space is None else space.fingerprint,
        "token": token_of(store, collection),
    }


def _check_source(
    store: Store, collection: str, folder: Path, last: Path, source: dict[str, str | None]
) -> None:
    """Refuses to continue a pull of another gallery, collection or model, or of other vectors."""
    path = folder / SOURCE
    remedy = f"Remove the folder {folder} to start again, or choose another output."
    known = parse_object(read_json_text(path), str(path), remedy) if path.exists() else {}
    if known != source:
        names = {"gallery": "a gallery", "collection": "a collection"}
        other = next((names[key] for key in names if known.get(key) != source[key]), "vectors")
        raise DataError(
            f"{folder} has pages of a pull that was stopped, of {other} other than now. {remedy}"
        )
    table = pq.read_table(last, columns=["id", "vector"])
    table = table.take(spread(len(table)))
    ids = [str(id) for id in table["id"].to_pylist()]
    pulled = Sketch.of(ids, np.array(table["vector"].to_pylist(), dtype=np.float32))
    if is_other(*pulled.agreement(store.get(collection, ids))):
        raise DataError(
            f"{folder} has pages of a pull that was stopped, but `{collection}` has other vectors "
            f"under the same ids now. {remedy}"
        )


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


def _join(parts: Sequence[Path], output: Path, space: Space | None = None) -> None:
    """Joins files page by page, with the space; a column that a file lacks is empty there."""
    schema = pa.unify_schemas(
        [pq.read_schema(part).remove_metadata() for part in parts], promote_options="permissive"
    )
    metadata = None if space is None else {SPACE: space.to_json()}
    with pq.ParquetWriter(output, schema.with_metadata(metadata), compression="zstd") as writer:
        for part in parts:
            table = pq.read_table(part)
            for name in schema.names:
                if name not in table.column_names:
                    table = table.append_column(name, pa.nulls(len(table), schema.field(name).type))
            rows = table.select(schema.names).cast(schema)
            writer.write_table(rows.replace_schema_metadata(metadata))
