"""A backfill plan and its file: items in their order, and in the metadata what was measured."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float
from numpy.typing import NDArray

from nobackfill.core.atomic_files import replacing
from nobackfill.core.json_files import as_kind, parse_object
from nobackfill.core.short import Short
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.score_scale import Scale
from nobackfill.gallery.planning.curve import Curve, CurveRecord
from nobackfill.gallery.sketch import BITS, DIGEST, Sketch
from nobackfill.vectors.arrow_columns import to_numpy
from nobackfill.vectors.columns import as_key
from nobackfill.vectors.formats import readable_errors

KEY, SCHEMA = b"nobackfill.backfill", 1
COLUMNS = ("id", "rank", "score")
REMEDY = "Make the plan with `nobackfill gallery plan`."


class PlanRecord(TypedDict):
    """What the metadata of the file contain."""

    schema: int
    order: str
    direction: str
    stop: float | None
    advice: str
    curves: dict[str, CurveRecord]
    scales: tuple[Scale, Scale] | None
    counts: dict[str, int]
    seconds_per_item: float | None
    cost_per_item: float | None
    fingerprint: str
    notes: list[str]
    old_sketch: NotRequired[Sketch | None]
    new_sketch: NotRequired[Sketch | None]


@dataclass(frozen=True, eq=False, repr=False)
class BackfillPlan(Short):
    """Which items to embed again first, and the gain of each share."""

    ids: NDArray[Any]  # all gallery items of the old file, best first
    scores: Float[np.ndarray, " items"]  # of each item; see `expected_gain`
    order: str  # name of the order of `ids`
    direction: str  # items that `planned` puts first: "clear", "unclear" or "uncertain" ones
    curves: Mapping[str, Curve]  # of each measured order
    stop: float | None  # share of the gallery to stop at; None if nothing should be embedded again
    advice: str  # the same in a sentence
    scales: tuple[Scale, Scale] | None  # of scores on the old and the new half, if not comparable
    counts: Mapping[str, int]  # of queries, classes, gallery items measured, items in the order
    seconds_per_item: float | None = None  # time to embed one item, if known
    cost_per_item: float | None = None  # cost of embedding one item in any currency, if known
    notes: Sequence[str] = ()  # remarks for readers
    old_sketch: Sketch | None = None  # of the old vectors; None in files of earlier versions
    new_sketch: Sketch | None = None  # of the new vectors

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the items, whatever their order."""
        return fingerprint_of(self.ids.tolist())

    def first(self, share: float | None = None) -> list[str]:
        """Returns the ids of the first items as text, up to a share of them, or up to `stop`."""
        share = (self.stop or 0.0) if share is None else share
        if not 0 <= share <= 1:
            raise ConfigError(f"The share of the plan must be from 0 to 1, but is {share}.")
        return [str(id) for id in self.ids[: round(share * len(self.ids))].tolist()]

    def effort(self, share: float) -> dict[str, float | int | None]:
        """Returns the number of items of a share, and their time and cost if known."""
        items = round(share * len(self.ids))
        seconds, cost = self.seconds_per_item, self.cost_per_item
        return {
            "share": share,
            "items": items,
            "seconds": None if seconds is None else items * seconds,
            "cost": None if cost is None else items * cost,
        }

    def summary(self) -> dict[str, Any]:
        """Returns everything but the ids and scores, for JSON."""
        shares = next(iter(self.curves.values())).shares
        return {
            "order": self.order,
            "direction": self.direction,
            "stop": self.stop,
            "advice": self.advice,
            "curves": {name: curve.summary() for name, curve in self.curves.items()},
            "scales": [asdict(scale) for scale in self.scales] if self.scales else None,
            "counts": dict(self.counts),
            "seconds_per_item": self.seconds_per_item,
            "cost_per_item": self.cost_per_item,
            "efforts": [self.effort(share) for share in shares],
            "fingerprint": self.fingerprint,
            "notes": list(self.notes),
        }

    def save(self, path: Path | str) -> None:
        """Writes a Parquet file with the columns id, rank (from 1) and score, atomically."""
        ranks = np.arange(1, len(self.ids) + 1)
        table = pa.table({"id": self.ids, "rank": ranks, "score": self.scores})
        sketches = {
            name: None if sketch is None else asdict(sketch)
            for name, sketch in (("old_sketch", self.old_sketch), ("new_sketch", self.new_sketch))
        }
        facts = {"schema": SCHEMA, **self.summary(), **sketches}
        text = json.dumps(facts, allow_nan=False).encode()
        table = table.replace_schema_metadata({KEY: text})
        with replacing(path) as unfinished:
            pq.write_table(table, unfinished, compression="zstd")


def load_plan(path: Path | str) -> BackfillPlan:
    """Reads what `BackfillPlan.save` wrote."""
    try:
        with readable_errors(Path(path), "a backfill plan"):
            return _read_plan(Path(path))
    except DataError as error:
        raise DataError(f"{path}: {error} {REMEDY}") from error


def _read_plan(path: Path) -> BackfillPlan:
    """Reads and checks the table and the record in its metadata."""
    schema = pq.read_schema(path)
    text = (schema.metadata or {}).get(KEY)
    if text is None or not set(COLUMNS) <= set(schema.names):
        raise DataError("It is not a backfill plan but another kind of table.")
    facts = as_kind(PlanRecord, parse_object(text, "its record", ""), "its record", "")
    if facts["schema"] != SCHEMA:
        raise DataError(f"It is not of version {SCHEMA} but {facts['schema']}.")
    _check_curves(facts["curves"])
    for sketch in filter(None, (facts.get("old_sketch"), facts.get("new_sketch"))):
        if not all(DIGEST.fullmatch(digest) for digest in sketch.digests.values()):
            raise DataError(f"A digest of a vector is not of {BITS // 4} hexadecimal digits.")
    table = pq.read_table(path, columns=list(COLUMNS)).sort_by("rank")
    table.validate(full=True)
    scores = to_numpy(table.column("score"), "score")
    if scores.dtype.kind != "f":
        raise DataError("The scores must be numbers.")
    scales = facts["scales"]
    plan = BackfillPlan(
        as_key(to_numpy(table.column("id"), "id"), "id"),
        scores.astype(np.float64),
        facts["order"],
        facts["direction"],
        {name: Curve.from_summary(curve) for name, curve in facts["curves"].items()},
        facts["stop"],
        facts["advice"],
        (scales[0], scales[1]) if scales else None,
        facts["counts"],
        facts["seconds_per_item"],
        facts["cost_per_item"],
        tuple(facts["notes"]),
        facts.get("old_sketch"),
        facts.get("new_sketch"),
    )
    if plan.fingerprint != facts["fingerprint"]:
        raise DataError("Its ids have been changed since it was made.")
    return plan


def _check_curves(curves: Mapping[str, CurveRecord]) -> None:
    """Raises if there is no curve, or one lacks a value at some share."""
    if not curves:
        raise DataError("It has no curves.")
    for name, curve in curves.items():
        shares, chance = len(curve["shares"]), len(curve["over_random"])
        if {len(curve["values"]), len(curve["gains"]), chance or shares} != {shares} or not shares:
            raise DataError(f"Its curve `{name}` must have a value and a gain at each share.")


def fingerprint_of(ids: Iterable[Any]) -> str:
    """Returns sixteen hexadecimal digits, the same for the same ids in any order."""
    text = "\0".join(sorted(map(str, ids)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
