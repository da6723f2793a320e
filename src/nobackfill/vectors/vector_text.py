"""Vectors that are written as text in a cell: `[0.1, 0.2]`, as in a column of a CSV file."""

import re

import pyarrow as pa
import pyarrow.compute as pc

from nobackfill.errors import DataError

LIST = re.compile(r"\s*[\[({]\s*[-+]?(\d|\.\d|nan|inf)", re.IGNORECASE)  # start of a list
BRACKETS = r"^[\s\[({]+|[\s\])}]+$"
BETWEEN = r"[\s,;]+"


def is_list_text(text: str | None) -> bool:
    """Whether a cell contains a list of numbers.

    Example:
        >>> [is_list_text(text) for text in ("[0.1, 2]", "{-1}", "[a]", "0.1", None)]
        [True, True, False, False, False]
    """
    return text is not None and LIST.match(text) is not None


def parse_lists(cells: pa.Array, name: str) -> pa.Array:
    """Returns the lists of numbers in a column of text, as float32.

    Numbers are between brackets of any kind, or none, and separated by commas, semicolons or
    spaces: lists of Python and JSON, arrays of NumPy, and vectors of PostgreSQL.

    Example:
        >>> parse_lists(pa.array(["[1, 2]", "[3,4]"]), "v").to_pylist()
        [[1.0, 2.0], [3.0, 4.0]]
        >>> parse_lists(pa.array(["[1. 2.]", None]), "v").to_pylist()
        [[1.0, 2.0], None]
    """
    if pc.any(pc.match_substring(cells, "...")).as_py():
        raise DataError(
            f"`{name}` has vectors of which a part was left out: they contain `...`, as NumPy "
            f"prints long arrays. Write lists, e.g. by `.tolist()`, or another format."
        )
    cells = pc.if_else(pc.equal(cells, ""), None, cells)
    kind = pa.list_(pa.float32())
    is_bracketed = pc.and_(pc.starts_with(cells, "["), pc.ends_with(cells, "]"))
    if pc.all(is_bracketed).as_py():
        try:  # as json.dumps and Python write lists
            return pc.split_pattern(pc.utf8_slice_codeunits(cells, 1, -1), ", ").cast(kind)
        except pa.ArrowInvalid:
            pass  # other spaces
    plain = pc.replace_substring_regex(cells, BRACKETS, "")
    try:
        lists = pc.split_pattern(pc.replace_substring_regex(plain, BETWEEN, ","), ",")
        return lists.cast(kind)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"`{name}` must have a list of numbers in each row, such as `[0.1, 0.2]` ({error})."
        ) from error
