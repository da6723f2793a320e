"""Files of relevant items: JSON lines, tables of pairs, or the official lists of ROxford, RParis.

A line of JSON is `{"query": id, "relevant": [ids], "ignored": [ids]}`; "ignored" is optional. A
judging page adds "before", "after" and "preferred" (see docs/without-labels.md). Pairs are the rows
of a table with the columns `query` and `relevant`.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nobackfill.core.suggest import suggest
from nobackfill.data.listing import GroundTruth, Judgement, invalid, read_text
from nobackfill.data.readers.roxford_rparis import PROTOCOLS, read_official, select_truth
from nobackfill.data.tables import TABLES, as_text, read_columns, require_filled
from nobackfill.errors import ConfigError

COLUMNS = ("query", "relevant")  # of a table of pairs
JUDGED = {"before", "after", "preferred"}  # keys of a judgement in a line of JSON


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
    judgements: dict[str, Judgement] = {}
    for number, line in enumerate(read_text(path, "the ground truth").splitlines(), start=1):
        if not line.strip():
            continue
        query, lists, judgement = _read_line(line, number, path)
        if query in relevant:
            raise invalid(
                path,
                f"line {number} has the query {query!r} again",
                "Put all its relevant items into one line.",
            )
        relevant[query], ignored[query] = lists
        if judgement is not None:
            judgements[query] = judgement
    if not relevant:
        raise invalid(path, "it has no queries", "Write it again.")
    if judgements and (others := relevant.keys() - judgements.keys()):
        raise invalid(
            path,
            f"{len(judgements)} lines have judgements and {len(others)} have none, such as that of "
            f"{min(others)!r}",
            "Keep judgements and other relevant items in two files.",
        )
    return GroundTruth(relevant, ignored, judgements)


def _read_line(line: str, number: int, path: Path) -> tuple[str, list[list[str]], Judgement | None]:
    """Reads the query, its relevant and ignored ids, and its judgement; numbers become text."""
    try:
        table = json.loads(line)
        unknown = table.keys() - {"query", "relevant", "ignored", *JUDGED}
        if unknown:
            raise TypeError
        lists = [_texts(table["relevant"]), _texts(table.get("ignored", []))]
        judgement = _judgement(table, lists[0])
        return str(table["query"]), lists, judgement
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise invalid(
            path,
            f"line {number} is {line[:80]!r}",
            'Write lines such as {"query": id, "relevant": [ids], "ignored": [ids]}.',
        ) from None


def _judgement(line: Mapping[str, Any], relevant: list[str]) -> Judgement | None:
    """The judgement of a line, if it has one; raises if it is not one that a page writes."""
    if not JUDGED & line.keys():
        return None
    judgement = Judgement(_texts(line["before"]), _texts(line["after"]), line["preferred"])
    if judgement.preferred not in ("before", "after", "equal"):
        raise ValueError
    if set(relevant) - {*judgement.before, *judgement.after}:
        raise ValueError
    return judgement


def _texts(ids: Any) -> list[str]:
    """A list of ids as text."""
    if not isinstance(ids, list):
        raise TypeError
    return [str(item) for item in ids]


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
    return relevant_of(zip(queries, items, strict=True))


def relevant_of(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Returns the different relevant items of each query, both in the order of the pairs.

    Example:
        >>> relevant_of([("a", "b"), ("a", "c"), ("a", "b")])
        {'a': ['b', 'c']}
    """
    relevant: dict[str, dict[str, None]] = {}
    for query, item in pairs:
        relevant.setdefault(query, {})[item] = None
    return {query: list(items) for query, items in relevant.items()}


def check_level(level: str | None, path: Path | None) -> None:
    """Raises if there is a level but no file that it applies to."""
    if level is not None and path is None:
        raise ConfigError(
            f"The level `{level}` requires a file of official lists. Pass it by --pairs, or "
            f"leave out the level."
        )
