"""Files of relevant items: JSON lines, tables of pairs, or the official lists of ROxford, RParis.

A line of JSON is `{"query": id, "relevant": [ids], "ignored": [ids]}`; "ignored" is optional. Pairs
are the rows of a table with the columns `query` and `relevant`.
"""

import json
from pathlib import Path

from nobackfill.core.config import suggest
from nobackfill.data.listing import GroundTruth, invalid, read_text
from nobackfill.data.readers.roxford_rparis import PROTOCOLS, read_official, select_truth
from nobackfill.data.tables import TABLES, as_text, read_columns, require_filled
from nobackfill.errors import ConfigError

COLUMNS = ("query", "relevant")  # of a table of pairs


def read_ground_truth(path: Path, *, level: str | None = None) -> GroundTruth:
    """Reads the relevant items of queries.

    Args:
        path: `.jsonl`; `.csv`, `.tsv` or `.parquet` with pairs; or the official `gnd_roxford5k.pkl`
            and `gnd_rparis6k.pkl`, where ids are file names.
        level: Level of the official lists: "easy", "medium" (the default) or "hard".
    """
    if path.suffix != ".pkl":
        if level is not None:
            raise ConfigError(
                f"The level `{level}` applies only to the official lists of ROxford or RParis "
                f"(.pkl), not to {path}. Leave it out: other files have one way to count."
            )
        if path.suffix.lower() in TABLES:
            return GroundTruth(read_pairs(path))
        return _read_lines(path)
    level = level or "medium"
    if level not in PROTOCOLS:
        raise ConfigError(f"unknown level `{level}`. {suggest(level, PROTOCOLS)}")
    gallery, queries, entries = read_official(path)
    return select_truth(entries, level, gallery, queries)


def _read_lines(path: Path) -> GroundTruth:
    """Reads lines of JSON."""
    relevant: dict[str, list[str]] = {}
    ignored: dict[str, list[str]] = {}
    for number, line in enumerate(read_text(path, "the ground truth").splitlines(), start=1):
        if not line.strip():
            continue
        query, *lists = _read_line(line, number, path)
        if query in relevant:
            raise invalid(
                path,
                f"line {number} has the query {query!r} again",
                "Put all its relevant items into one line.",
            )
        relevant[query], ignored[query] = lists
    if not relevant:
        raise invalid(path, "it has no queries", "Write it again.")
    return GroundTruth(relevant, ignored)


def _read_line(line: str, number: int, path: Path) -> tuple[str, list[str], list[str]]:
    """Reads the query, relevant and ignored ids of a line; numbers become text."""
    try:
        table = json.loads(line)
        lists = [table["relevant"], table.get("ignored", [])]
        unknown = table.keys() - {"query", "relevant", "ignored"}
        if unknown or not all(isinstance(ids, list) for ids in lists):
            raise TypeError
        relevant, ignored = ([str(item) for item in ids] for ids in lists)
        return str(table["query"]), relevant, ignored
    except (ValueError, KeyError, TypeError, AttributeError):
        raise invalid(
            path,
            f"line {number} is {line[:80]!r}",
            'Write lines such as {"query": id, "relevant": [ids], "ignored": [ids]}.',
        ) from None


def read_pairs(path: Path) -> dict[str, list[str]]:
    """Reads the relevant items of each query from a table, both in the order of the rows.

    Queries and items may have many rows; the same pair counts once.
    """
    table = read_columns(path, "pairs", needed=COLUMNS, text=COLUMNS)
    if others := [name for name in table.column_names if name not in COLUMNS]:
        raise invalid(
            path,
            f"it has columns other than `query` and `relevant`: {', '.join(map(repr, others))}",
            "Drop these, and every row that is no pair.",
        )
    texts = {name: as_text(table.column(name), name) for name in COLUMNS}
    queries, items = (require_filled(texts, name, path).tolist() for name in COLUMNS)
    relevant: dict[str, dict[str, None]] = {}
    for query, item in zip(queries, items, strict=True):
        relevant.setdefault(query, {})[item] = None
    return {query: list(related) for query, related in relevant.items()}


def check_level(level: str | None, path: Path | None) -> None:
    """Raises if there is a level but no file that it applies to."""
    if level is not None and path is None:
        raise ConfigError(
            f"The level `{level}` requires a file of official lists. Pass it by --ground-truth, or "
            f"leave out the level."
        )
