"""A backfill plan as a file: items in their order, and in the metadata what was measured."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nobackfill.core.atomic_files import replacing
from nobackfill.errors import DataError
from nobackfill.vectors.columns import as_key

KEY, SCHEMA = b"nobackfill.backfill", 1
COLUMNS = ("id", "rank", "score")


def write_plan(
    path: Path | str, ids: NDArray[Any], scores: NDArray[np.float64], summary: dict[str, Any]
) -> None:
    """Writes ids, best first, with their ranks from 1 and scores; whole or not at all."""
    table = pa.table({"id": ids, "rank": np.arange(1, len(ids) + 1), "score": scores})
    told = json.dumps({"schema": SCHEMA, **summary}, allow_nan=False).encode()
    with replacing(path) as unfinished:
        pq.write_table(table.replace_schema_metadata({KEY: told}), unfinished, compression="zstd")


def read_plan(
    path: Path | str,
) -> tuple[NDArray[Any], NDArray[np.float64], dict[str, Any]]:
    """Returns ids and scores, best first, and the summary."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(
            f"wanted a backfill plan at {path}, but it cannot be read: {error}. Make it by "
            f"`nobackfill gallery plan`."
        ) from error
    text = (table.schema.metadata or {}).get(KEY)
    if text is None or not set(COLUMNS) <= set(table.column_names):
        raise DataError(
            f"wanted a backfill plan, but {path} is another kind of table. Make one by "
            f"`nobackfill gallery plan`."
        )
    told = json.loads(text)
    if told.pop("schema") != SCHEMA:
        raise DataError(
            f"wanted a backfill plan of version {SCHEMA}, but {path} is of another. Make it again."
        )
    table = table.sort_by("rank")
    ids = as_key(table.column("id").to_numpy(), "id")
    return ids, table.column("score").to_numpy().astype(np.float64), told
