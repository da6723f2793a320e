"""Pairs of what belongs together, one to a row of a table."""

from pathlib import Path

from nobackfill.data.tables import as_text, read_columns, require_filled
from nobackfill.errors import DataError

COLUMNS = ("query", "relevant")


def read_pairs(path: Path) -> dict[str, list[str]]:
    """Reads a table with the columns `query` and `relevant`.

    A query may stand in many rows, and so may what is relevant to it; the same pair counts once.

    Args:
        path: `.csv`, `.tsv` or `.parquet`.

    Returns:
        Of each query what is relevant to it, both in the order of the rows.
    """
    table = read_columns(path, "pairs", needed=COLUMNS, text=COLUMNS)
    if others := [name for name in table.column_names if name not in COLUMNS]:
        raise DataError(
            f"wanted the columns `query` and `relevant` alone in {path}, but found also: "
            f"{', '.join(map(repr, others))}. Drop these, and every row that is no pair."
        )
    texts = {name: as_text(table.column(name), name) for name in COLUMNS}
    queries, items = (require_filled(texts, name, path).tolist() for name in COLUMNS)
    relevant: dict[str, dict[str, None]] = {}
    for query, item in zip(queries, items, strict=True):
        relevant.setdefault(query, {})[item] = None
    return {query: list(found) for query, found in relevant.items()}
