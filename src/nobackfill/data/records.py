"""Records of a file of texts, one at a time: JSON lines, a delimited table, or Parquet."""

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from nobackfill.core.suggest import suggest_path
from nobackfill.data.listing import invalid
from nobackfill.errors import DataError

SEPARATORS = {".csv": ",", ".tsv": "\t"}
LINES = (".jsonl", ".ndjson", ".json")
LONGEST = 2**24  # characters of a cell
ROWS = 1024  # rows of Parquet read at a time


@dataclass(frozen=True)
class Record:
    """The values of one line.

    Attributes:
        path: Path of the file.
        where: Place in the file, such as "line 3".
        values: Value of each column.
        is_sparse: Whether each line has its own columns.
        fault: Reason why the line cannot be read; "" if it can.
    """

    path: Path
    where: str
    values: dict[str, Any]
    is_sparse: bool = False
    fault: str = ""


def read_records(path: Path, what: str) -> Iterator[Record]:
    """Yields the records of a `.jsonl`, `.csv`, `.tsv` or `.parquet` file, in its order.

    Args:
        path: Path of the file.
        what: Noun for its content in errors, such as "pairs".
    """
    suffix = path.suffix.lower()
    readers = {
        **dict.fromkeys(LINES, _json_lines),
        **dict.fromkeys(SEPARATORS, _delimited),
        ".parquet": _parquet,
    }
    if suffix not in readers:
        raise DataError(
            f"Cannot read {what} from {path}: its name must end with .jsonl, .csv, .tsv or "
            f".parquet."
        )
    with _reading(path, what):
        yield from readers[suffix](path)


def _json_lines(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where = f"line {number}"
            try:
                values = json.loads(line)
            except (ValueError, RecursionError):
                values = None
            if isinstance(values, dict):
                yield Record(path, where, values, is_sparse=True)
            else:
                yield Record(path, where, {}, fault="it is no JSON object")


def _delimited(path: Path) -> Iterator[Record]:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    separator = SEPARATORS[path.suffix.lower()]
    with path.open(encoding="utf-8-sig", newline="") as lines:
        rows = csv.reader(lines, delimiter=separator, strict=True)
        header = next(rows, [])
        if len(set(header)) < len(header):
            raise invalid(path, "two columns have the same name", "Rename one of them.")
        first = rows.line_num + 1
        for row in rows:
            where, first = f"line {first}", rows.line_num + 1
            if not row:
                continue
            if len(row) == len(header):
                yield Record(path, where, dict(zip(header, row, strict=True)))
            else:
                fault = f"it has {len(row)} cells, the header has {len(header)}"
                yield Record(path, where, {}, fault=fault)


def _parquet(path: Path) -> Iterator[Record]:
    row = 0
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=ROWS):
            for values in batch.to_pylist():
                row += 1
                yield Record(path, f"row {row}", values)


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    """Raises a DataError if a file cannot be read."""
    try:
        yield
    except FileNotFoundError:
        remedy = suggest_path(path, "Correct the path.")
        raise DataError(f"No {what} at {path}: the file does not exist. {remedy}") from None
    except UnicodeDecodeError:
        raise invalid(path, "it is not UTF-8 text", "Write it again.") from None
    except (OSError, csv.Error, pa.ArrowException) as error:
        raise invalid(path, f"it cannot be read ({error})", "Write it again.") from None
