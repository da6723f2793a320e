"""Reading of tables, `.csv`, `.tsv` or `.parquet`, by the names of their columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv

from nobackfill.data.listing import invalid
from nobackfill.errors import DataError
from nobackfill.vectors.columns import as_column

SEPARATORS = {".csv": ",", ".tsv": "\t"}
TABLES = (*SEPARATORS, ".parquet")


def read_columns(
    path: Path,
    what: str,
    *,
    needed: Sequence[str],
    text: Sequence[str],
    ignored: Sequence[str] = (),
) -> pa.Table:
    """Reads a table that has at least one row and the needed columns.

    Args:
        path: Path of the file, with one of the suffixes in `TABLES`.
        what: Noun for the rows in errors, such as "images".
        needed: Names of the required columns.
        text: Names of columns that are read as text, so that "007" remains "007".
        ignored: Names of columns of a `.parquet` that are not read.
    """
    separator = SEPARATORS.get(path.suffix.lower())
    try:
        if separator is None:
            with pq.ParquetFile(path) as file:
                table = file.read([n for n in file.schema_arrow.names if n not in ignored])
        else:
            parse = csv.ParseOptions(delimiter=separator)
            types = csv.ConvertOptions(column_types=dict.fromkeys(text, pa.string()))
            table = csv.read_csv(path, parse_options=parse, convert_options=types)
        table.validate(full=True)
        names = table.column_names
    except FileNotFoundError:
        raise DataError(
            f"No table of {what} at {path}: the file does not exist. Correct the path."
        ) from None
    except (OSError, UnicodeError, pa.ArrowException) as error:
        remedy = (
            "Write it again, as Parquet."
            if separator is None
            else "Separate the columns of a .csv by commas and those of a .tsv by tabs, and put "
            "text that contains one of these into double quotes."
        )
        raise invalid(path, f"it cannot be read ({str(error).rstrip('.')})", remedy) from None
    if missing := [f"`{name}`" for name in needed if name not in names]:
        separators = "tabs" if separator == "\t" else "commas"
        raise invalid(
            path,
            f"there is no column {' and no '.join(missing)}; the columns are {', '.join(names)}",
            f"Rename the columns; if this is a single name, separate columns by {separators}.",
        )
    if repeated := {name for name in names if names.count(name) > 1}:
        raise invalid(
            path, f"it has several columns {', '.join(sorted(repeated))}", "Rename all but one."
        )
    if table.num_rows == 0:
        raise invalid(path, "it has no rows", "Write it again.")
    return table


def as_text(column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """Returns a column as text; missing values become ""."""
    if pa.types.is_floating(column.type) or pa.types.is_nested(column.type):
        raise DataError(
            f"Column `{name}` must be text or whole numbers, not {column.type}. Convert it."
        )
    try:
        texts = column.cast(pa.large_string()).fill_null("").to_pylist()
    except pa.ArrowException as error:
        raise DataError(f"Column `{name}` must be text: {error}. Convert it.") from None
    return as_column(texts, name)


def require_filled(texts: dict[str, NDArray[Any]], name: str, path: Path) -> NDArray[Any]:
    """Returns a column in which no row may be empty."""
    if (empty := np.flatnonzero(np.strings.strip(texts[name]) == "")).size:
        raise invalid(
            path,
            f"`{name}` is empty in {len(empty)} rows; the first is row {empty[0] + 1} below the "
            f"header",
            "Fill them in, or drop the rows.",
        )
    return texts[name]
