"""Reads `evaluation.json`, the result of a run, and checks what pages and verdicts use of it."""

from pathlib import Path
from typing import Any, Literal, TypedDict

from nobackfill.core.json_files import as_kind, parse_object, read_json_text
from nobackfill.errors import DataError

REMEDY = "Remove it: the run is then evaluated again by `nobackfill report`."

Number = float | None


class IntervalRecord(TypedDict):
    """A change with its interval, whose ends are null if it has none."""

    mean: Number
    low: Number
    high: Number
    confidence: float
    groups: int


class MetricsRecord(TypedDict):
    """The metrics of one pair of models that are always there."""

    map: Number
    recall_at_1: Number
    ndcg_at_10: Number


class FlipsRecord(TypedDict):
    """Shares of queries that lose and gain their hit among the first `k`."""

    k: int
    negative: Number
    positive: Number


class ExpectedRow(TypedDict):
    """One expected number."""

    name: str
    test: str
    expected: float
    measured: Number
    difference: Number


class ExpectedRecord(TypedDict):
    """What a recipe expects beside what was measured."""

    source: str
    rows: list[ExpectedRow]


class SummaryRecord(TypedDict, total=False):
    """A result; earlier versions wrote less, and a model without an old one has only its own."""

    old_old: Number
    new_old: Number
    new_new: Number
    old_new: Number
    independent: Number
    p_up: Number
    p_comp: Number
    p_1: Number
    gain_recovered: Number
    modality_gap: Any
    verdict: Literal["compatible", "not compatible", "mixed", "undecided"]
    verdicts: dict[str, Literal["compatible", "not compatible", "mixed", "undecided"]]
    new_old_above_old_old: bool
    changes: dict[str, IntervalRecord]
    negative_flips: IntervalRecord
    gate: dict[str, Any]
    differences: dict[str, IntervalRecord]
    metrics: dict[str, MetricsRecord]
    flips: list[FlipsRecord]
    recall_at_1: dict[str, Number]
    doubts: list[str]
    notes: list[str]
    protocol: str
    searched: str
    direction: str
    num_queries: int
    num_asked: int
    num_gallery: int
    mean: dict[str, Number]
    expected: ExpectedRecord
    tests: "dict[str, SummaryRecord]"


MEASURED = ("old_old", "new_old", "new_new", "verdict")  # of a verdict
SHOWN = (*MEASURED, "p_up", "p_comp", "p_1", "gain_recovered", "new_old_above_old_old", "changes",
         "differences", "metrics", "flips", "recall_at_1", "protocol", "num_queries", "num_asked",
         "num_gallery", "notes")  # fmt: skip  # of a report
PAIRS = ("old_old", "new_old", "new_new")
CHANGES = ("new_old - old_old", "new_new - old_old", "new_new - new_old")


def read_summary(path: Path) -> dict[str, Any]:
    """Reads the file of a run; raises if a field has another type than it must have.

    The fields of a report are there if `searched` is, those of a verdict if `old_old` is.
    """
    summary = parse_object(read_json_text(path), str(path), REMEDY)
    as_kind(SummaryRecord, summary, str(path), REMEDY)
    for name, part in {"": summary, **summary.get("tests", {})}.items():
        needed = SHOWN if "searched" in summary else MEASURED if "old_old" in part else ()
        _check_present(part, needed, name, path)
        if "searched" in summary:
            _check_present(part["metrics"], PAIRS, f"{name}.metrics".strip("."), path)
            _check_present(part["differences"], CHANGES, f"{name}.differences".strip("."), path)
            _check_present(part["recall_at_1"], PAIRS, f"{name}.recall_at_1".strip("."), path)
            if not part["flips"]:
                raise DataError(f"{path}: `flips` is empty. {REMEDY}")
    return summary


def _check_present(part: dict[str, Any], names: tuple[str, ...], within: str, path: Path) -> None:
    """Raises if a part of the result lacks a field."""
    for name in names:
        if name not in part:
            field = f"{within}.{name}" if within else name
            raise DataError(f"{path}: `{field}` is missing. {REMEDY}")
