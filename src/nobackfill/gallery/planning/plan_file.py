"""A backfill plan and its file: items in their order, and in the metadata what was measured."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float
from numpy.typing import NDArray

from nobackfill.core.atomic_files import replacing
from nobackfill.core.short import Short
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.score_scale import Scale
from nobackfill.gallery.planning.curve import Curve
from nobackfill.gallery.sketch import Sketch
from nobackfill.vectors.columns import as_key

KEY, SCHEMA = b"nobackfill.backfill", 1
COLUMNS = ("id", "rank", "score")


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
    # Read the table, and check that it is a plan.
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(
            f"The backfill plan at {path} cannot be read: {error}. Make it with `nobackfill "
            f"gallery plan`."
        ) from error
    text = (table.schema.metadata or {}).get(KEY)
    if text is None or not set(COLUMNS) <= set(table.column_names):
        raise DataError(
            f"{path} is not a backfill plan but another kind of table. Make a plan with "
            f"`nobackfill gallery plan`."
        )
    summary = json.loads(text)
    if summary["schema"] != SCHEMA:
        raise DataError(
            f"The backfill plan at {path} is not of version {SCHEMA} but {summary['schema']}. Make "
            f"it again."
        )

    # Build the plan, and check its items.
    table = table.sort_by("rank")
    scales = summary["scales"]
    plan = BackfillPlan(
        as_key(table.column("id").to_numpy(), "id"),
        table.column("score").to_numpy().astype(np.float64),
        summary["order"],
        summary["direction"],
        {name: Curve.from_summary(curve) for name, curve in summary["curves"].items()},
        summary["stop"],
        summary["advice"],
        (Scale(**scales[0]), Scale(**scales[1])) if scales else None,
        summary["counts"],
        summary["seconds_per_item"],
        summary["cost_per_item"],
        tuple(summary["notes"]),
        *(_sketch_of(summary.get(name)) for name in ("old_sketch", "new_sketch")),
    )
    if plan.fingerprint != summary["fingerprint"]:
        raise DataError(
            f"The ids in the plan at {path} have been changed since it was made. Make it again."
        )
    return plan


def _sketch_of(values: Mapping[str, Any] | None) -> Sketch | None:
    """Converts what `asdict` returned."""
    return None if values is None else Sketch(**values)


def fingerprint_of(ids: Iterable[Any]) -> str:
    """Returns sixteen hexadecimal digits, the same for the same ids in any order."""
    text = "\0".join(sorted(map(str, ids)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
