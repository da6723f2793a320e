"""The formats `.csv` and `.tsv`, read by pyarrow: any usual delimiter, with a header or without."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from nobackfill.vectors.column_names import ColumnChoice
from nobackfill.vectors.shards import SAMPLE, Part, Shard, block_size
from nobackfill.vectors.vector_text import is_list_text

BLOCK = 2**21  # bytes read at a time, at least
DELIMITERS = ",;\t|"
UTF16 = (b"\xff\xfe", b"\xfe\xff")  # as Excel writes "Unicode text"
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")


@dataclass(frozen=True)
class Layout:
    """How a file is written.

    Attributes:
        delimiter: Character between the values.
        encoding: Encoding of the text.
        names: Names of the columns of a file without a header; None if the first line has them.
        decimal_point: Character before the decimals.
        block: Bytes read at a time.
    """

    delimiter: str
    encoding: str
    names: list[str] | None = None
    decimal_point: str = "."
    block: int = BLOCK


def open_shard(path: Path) -> Shard:
    """Guesses the layout and reads the header. The file is read in one pass, block by block."""
    layout = _layout(path)
    with _open(path, layout) as reader:
        schema = pa.schema([(name, pa.string()) for name in reader.schema.names])
    with _open(path, layout, dict.fromkeys(schema.names, pa.string())) as reader:
        sample = next(iter(reader), None)
    cells = {name: _first_cell(sample, name) for name in schema.names}
    if layout.delimiter == ";" and any(DECIMAL_COMMA.fullmatch(cell) for cell in cells.values()):
        layout = replace(layout, decimal_point=",")

    def parts(choice: ColumnChoice, columns: list[str]) -> list[Part]:
        """Returns the whole file."""
        kinds = dict.fromkeys(columns, pa.string())
        if choice.is_wide:
            kinds |= dict.fromkeys(choice.vector, pa.float32())
        return [Part(None, lambda: _batches(path, layout, kinds))]

    text_lists = frozenset(name for name, cell in cells.items() if is_list_text(cell))
    return Shard(path.name, schema, parts, text_lists=text_lists, is_text=True)


def _layout(path: Path) -> Layout:
    """Guesses the layout from the first line, which is a header or a row of numbers."""
    with pa.input_stream(str(path), compression="detect") as file:
        start = file.read(SAMPLE)
    encoding = "utf-16" if start[:2] in UTF16 else "utf-8"
    text = start.decode("utf-16" if encoding == "utf-16" else "utf-8-sig", errors="ignore")
    line = text.split("\n", 1)[0].rstrip("\r")
    is_tab = any(suffix.lower() in (".tsv", ".tab") for suffix in path.suffixes)
    delimiter = "\t" if is_tab else max(DELIMITERS, key=line.count)
    cells = [cell.strip('" ') for cell in line.split(delimiter)]
    if not all(NUMBER.fullmatch(cell) for cell in cells) or _counts(cells):
        return Layout(delimiter, encoding, block=block_size(start, BLOCK))
    names = [f"dim_{number}" for number in range(len(cells))]
    return Layout(delimiter, encoding, names, block=block_size(start, BLOCK))


def _counts(cells: list[str]) -> bool:
    """Whether a header counts the columns, as pandas writes it (0, 1, 2, …).

    Example:
        >>> _counts(["0", "1", "2"]), _counts(["0.5", "1.5"])
        (True, False)
    """
    return all(cell.strip() == str(n) for n, cell in enumerate(cells))


def _open(
    path: Path, layout: Layout, kinds: dict[str, Any] | None = None
) -> pacsv.CSVStreamingReader:
    """Opens a file for reading in blocks. Only the columns of `kinds` are read, if given."""
    options = {"include_columns": list(kinds), "column_types": kinds} if kinds else {}
    return pacsv.open_csv(
        pa.input_stream(str(path), compression="detect"),
        read_options=pacsv.ReadOptions(
            block_size=layout.block, encoding=layout.encoding, column_names=layout.names
        ),
        parse_options=pacsv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(decimal_point=layout.decimal_point, **options),
    )


def _batches(path: Path, layout: Layout, kinds: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the columns of `kinds`."""
    with _open(path, layout, kinds) as reader:
        yield from reader


def _first_cell(sample: pa.RecordBatch | None, name: str) -> str:
    """Returns the first cell of a column that is not empty, or an empty text."""
    cells = [] if sample is None else sample.column(name).slice(0, 100).to_pylist()
    return next((cell for cell in cells if cell), "")
