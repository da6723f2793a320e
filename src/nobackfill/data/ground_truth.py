"""What queries shall find, from a file: JSON, pairs, or the official lists of ROxford, RParis.

A line of JSON is `{"query": id, "relevant": [ids], "ignored": [ids]}`; the last may be left out.
Pairs are the rows of a table with the columns `query` and `relevant`.
"""

import json
from pathlib import Path

from nobackfill.core.config import suggest
from nobackfill.data.listing import GroundTruth, read_text
from nobackfill.data.readers.roxford_rparis import PROTOCOLS, check_truth, select_truth
from nobackfill.data.safe_pickle import read_pickle
from nobackfill.data.tables import TABLES, as_text, read_columns, require_filled
from nobackfill.errors import ConfigError, DataError

COLUMNS = ("query", "relevant")  # of a table of pairs


def read_ground_truth(path: Path, *, level: str | None = None) -> GroundTruth:
    """Reads the lists of a file.

    Args:
        path: `.jsonl`; `.csv`, `.tsv` or `.parquet` with pairs; or `gnd_roxford5k.pkl` and
            `gnd_rparis6k.pkl` as their authors give them out, where items are named by their files.
        level: Of the official lists, which count: "easy", "medium" (the default) or "hard".
    """
    if path.suffix != ".pkl":
        if level is not None:
            raise ConfigError(
                f"wanted a level of the official lists of ROxford or RParis (.pkl), but got "
                f"`{level}` with {path}. Leave it out: lines of JSON and pairs have one way to "
                f"count."
            )
        if path.suffix.lower() in TABLES:
            return GroundTruth(read_pairs(path))
        return read_lines(path)
    level = level or "medium"
    if level not in PROTOCOLS:
        raise ConfigError(f"unknown level `{level}`. {suggest(level, PROTOCOLS)}")
    truth = read_pickle(path, "the ground truth")
    check_truth(truth, path)
    gallery, asking = ([f"{name}.jpg" for name in truth[names]] for names in ("imlist", "qimlist"))
    return select_truth(truth["gnd"], PROTOCOLS[level], gallery, asking)


def read_lines(path: Path) -> GroundTruth:
    """Reads lines of JSON."""
    relevant: dict[str, list[str]] = {}
    ignored: dict[str, list[str]] = {}
    for number, line in enumerate(read_text(path, "the ground truth").splitlines(), start=1):
        if not line.strip():
            continue
        query, found, passed_over = _one(line, number, path)
        if query in relevant:
            raise DataError(
                f"wanted each query once in {path}, but line {number} has {query!r} again. Put all "
                f"that is relevant to it into one line."
            )
        relevant[query], ignored[query] = found, passed_over
    if not relevant:
        raise DataError(f"wanted queries in {path}, but it has no lines. Write it anew.")
    return GroundTruth(relevant, ignored)


def _one(line: str, number: int, path: Path) -> tuple[str, list[str], list[str]]:
    """What one line says; ids that are numbers are taken as text."""
    wanted = '{"query": id, "relevant": [ids], "ignored": [ids]}'
    try:
        table = json.loads(line)
        lists = [table["relevant"], table.get("ignored", [])]
        unknown = table.keys() - {"query", "relevant", "ignored"}
        if unknown or not all(isinstance(one, list) for one in lists):
            raise TypeError
        query, *ids = str(table["query"]), *([str(item) for item in one] for one in lists)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DataError(
            f"wanted lines such as {wanted} in {path}, but line {number} is {line[:80]!r}."
        ) from None
    return query, ids[0], ids[1]


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


def check_level(level: str | None, path: Path | None) -> None:
    """Refuses a level where no lists are given that have any."""
    if level is not None and path is None:
        raise ConfigError(
            f"wanted a level of official lists, but got `{level}` and no lists. Pass these by "
            f"--ground-truth, or leave it out."
        )
