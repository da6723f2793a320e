"""Tables in files, `.csv`, `.tsv` or `.parquet`: read by the names of their columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv

from nobackfill.errors import DataError

SEPARATORS = {".csv": ",", ".tsv": "\t"}
TABLES = (*SEPARATORS, ".parquet")


def read_columns(
    path: Path,
    what: str,
    *,
    needed: Sequence[str],
    text: Sequence[str],
    passed_over: Sequence[str] = (),
) -> pa.Table:
    """Returns the table in a file; raises where it is none, or lacks what is needed.

    Args:
        path: Of the file, with one of the suffixes in `TABLES`.
        what: Its rows are, for the errors: "images".
        needed: Columns that must be there.
        text: Columns that are text, whatever they look like: "007" stays what it is.
        passed_over: Columns of a `.parquet` that are not read.
    """
    separator = SEPARATORS.get(path.suffix.lower())
    try:
        if separator is None:
            with pq.ParquetFile(path) as file:
                table = file.read([n for n in file.schema_arrow.names if n not in passed_over])
        else:
            parse = csv.ParseOptions(delimiter=separator)
            types = csv.ConvertOptions(column_types=dict.fromkeys(text, pa.string()))
            table = csv.read_csv(path, parse_options=parse, convert_options=types)
    except FileNotFoundError:
        raise DataError(
            f"wanted a table of {what} in {path}, but there is no such file. Correct the path."
        ) from None
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"wanted a table of {what} in {path}, but it cannot be read: "
            f"{str(error).rstrip('.')}. {_how_to_write(separator)}"
        ) from None
    names = table.column_names
    if missing := [name for name in needed if name not in names]:
        raise DataError(
            f"wanted the columns {_listed(needed)} in {path}, but there is no "
            f"{' and no '.join(f'`{name}`' for name in missing)}; found: {', '.join(names)}. "
            f"Rename the column that holds it, or write {_named(separator)} between columns if "
            f"this is one name."
        )
    if twice := {name for name in names if names.count(name) > 1}:
        raise DataError(
            f"wanted every column of {path} once, but {', '.join(sorted(twice))} is there twice. "
            f"Rename one."
        )
    if table.num_rows == 0:
        raise DataError(f"wanted {what} in {path}, but it has no rows. Write it anew.")
    return table


def as_text(column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """Returns a column as text; whole numbers are written out, what is missing becomes ""."""
    if pa.types.is_floating(column.type) or pa.types.is_nested(column.type):
        raise DataError(
            f"column `{name}` wants text or whole numbers, but holds {column.type}. Convert it."
        )
    return np.array(column.cast(pa.large_string()).fill_null("").to_pylist(), dtype=np.str_)


def require_filled(texts: dict[str, NDArray[Any]], name: str, path: Path) -> NDArray[Any]:
    """Returns a column in which no row may be empty."""
    if (empty := np.flatnonzero(np.char.strip(texts[name]) == "")).size:
        raise DataError(
            f"wanted `{name}` filled in each row of {path}, but {len(empty)} have none, the first "
            f"being row {empty[0] + 1} below the head. Fill them in, or drop the rows."
        )
    return texts[name]


def _listed(names: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)


def _how_to_write(separator: str | None) -> str:
    """What to do about a file that is no table."""
    if separator is None:
        return "Write it anew, as Parquet."
    return (
        "Columns of a .csv are separated by commas, of a .tsv by tabs, and text with one of these "
        "in it stands in double quotes."
    )


def _named(separator: str | None) -> str:
    return "tabs" if separator == "\t" else "commas"
