"""Query by query: which change for the worse, in which classes and slices, at which threshold."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.bootstrap import Interval, paired_interval
from nobackfill.config import suggest
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation import Evaluation
from nobackfill.files import replacing

BLOCK = 2**24  # cosines held at a time
PAIRS = 50_000_000  # from which on queries are chosen


@dataclass(frozen=True)
class Flipped:
    """A query that loses or wins its hit in the top `k` on the day of the upgrade.

    Attributes:
        query: Its id.
        rank_before: Of its first hit with the old model; 0 where it has none.
        rank_after: The same with the new one.
        top_before: The ids that it found first with the old model.
        top_after: The same with the new one.
    """

    query: Any
    rank_before: int
    rank_after: int
    top_before: list[Any]
    top_after: list[Any]


@dataclass(frozen=True)
class Slice:
    """Queries that have something in common.

    Attributes:
        value: What that is.
        queries: How many they are, of those that have something to find.
        old_old: Their mAP today.
        new_old: Their mAP on the day of the upgrade.
        difference: The second less the first, with its interval.
        lost: The share that loses its first hit.
        won: The share that wins one.
    """

    value: Any
    queries: int
    old_old: float
    new_old: float
    difference: Interval
    lost: float
    won: float


@dataclass(frozen=True)
class Threshold:
    """Where to put a threshold of similarity, so that as few strangers pass as is asked for.

    Attributes:
        pair: Query/gallery, such as "new_old".
        false_accept: The share of pairs of different classes at or above it.
        value: The threshold, a cosine.
        true_accept: The share of pairs of one class at or above it.
    """

    pair: str
    false_accept: float
    value: float
    true_accept: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """An evaluation, looked at query by query.

    Args:
        evaluation: As `evaluate` returns it.
    """

    evaluation: Evaluation

    def flipped(self, k: int = 1, *, top: int = 5, limit: int | None = None) -> list[Flipped]:
        """Queries that lose their hit in the top `k`, the worst first; `won` has the others."""
        return self._changed(k, top, limit, lost=True)

    def won(self, k: int = 1, *, top: int = 5, limit: int | None = None) -> list[Flipped]:
        """Queries that win a hit in the top `k`, those that gain most first."""
        return self._changed(k, top, limit, lost=False)

    def slices(self, column: str = "label", *, smallest: int = 1) -> list[Slice]:
        """What becomes of the queries with each value of a column, the worst first.

        Args:
            column: `label`, or any other column of the files.
            smallest: How many queries a slice must have to be shown.
        """
        evaluation = self.evaluation
        known = evaluation.query_columns
        if column not in known:
            raise ConfigError(f"no column `{column}` of the queries. {suggest(column, known)}")
        counted = (evaluation.old_old.num_relevant > 0).numpy()
        before, after = (
            pair.average_precision.numpy() for pair in (evaluation.old_old, evaluation.new_old)
        )
        had, has = (pair.found_by(1).numpy() for pair in (evaluation.old_old, evaluation.new_old))
        slices = []
        for value in np.unique(known[column][counted]):
            rows = counted & (known[column] == value)
            if rows.sum() < smallest:
                continue
            groups = evaluation.query_groups[rows]
            alone = column == "label"  # one class: its queries are all there is to draw from
            slices.append(
                Slice(
                    value=value.item(),
                    queries=int(rows.sum()),
                    old_old=float(before[rows].mean()),
                    new_old=float(after[rows].mean()),
                    difference=paired_interval(
                        (after - before)[rows],
                        np.arange(len(groups)) if alone else groups,
                        seed=evaluation.seed,
                    ),
                    lost=float((had & ~has)[rows].mean()),
                    won=float((~had & has)[rows].mean()),
                )
            )
        return sorted(slices, key=lambda one: one.difference.mean)

    def thresholds(self, false_accept: float = 0.001) -> list[Threshold]:
        """For each pair of models, the threshold at which no more strangers pass than may.

        Args:
            false_accept: The share of query-gallery pairs of different classes that may pass.
        """
        if not 0 < false_accept < 1:
            raise ConfigError(f"wanted a share between 0 and 1 to pass, but got {false_accept}.")
        found = []
        for pair in self.evaluation.pairs:
            same, different = self.cosines(pair)
            if min(len(same), len(different)) == 0:
                raise DataError(
                    "wanted pairs of one class and of different classes, but there are none of one "
                    "kind. Check the column `label`."
                )
            refused = different.topk(int(false_accept * len(different)) + 1).values[-1]
            value = float(torch.nextafter(refused, refused.new_tensor(torch.inf)))
            found.append(
                Threshold(
                    pair,
                    float((different >= value).double().mean()),
                    value,
                    float((same >= value).double().mean()),
                )
            )
        return found

    def cosines(self, pair: str) -> tuple[Float[Tensor, " same"], Float[Tensor, " different"]]:
        """The similarity of queries to gallery items: of their class, and of others.

        Of all queries; where these are more than 50 million pairs, of evenly chosen ones.

        Args:
            pair: Query/gallery, such as "new_old".
        """
        same, different = [], []
        for cosine, is_relevant, is_ignored in self._blocks(pair):
            same.append(cosine[is_relevant & ~is_ignored])
            different.append(cosine[~is_relevant & ~is_ignored])
        return torch.cat(same), torch.cat(different)

    def top(self, pair: str, row: int, k: int) -> list[Any]:
        """The ids that one query finds first, without what it passes over.

        Args:
            pair: Query/gallery, such as "new_old".
            row: Of the query, in the order of `query_ids`.
            k: How many.
        """
        plan = self.evaluation.plan
        query, gallery = self.evaluation.vectors[pair]
        cosine = F.normalize(query[row].float(), dim=0) @ F.normalize(gallery.float(), dim=1).T
        ignored = plan.is_ignored(row, row + 1)[0]
        places = cosine.cpu().masked_fill(ignored, -torch.inf).argsort(descending=True, stable=True)
        shown = places[: min(k, int((~ignored).sum()))]
        return [plan.gallery_ids[place].item() for place in shown.tolist()]

    def save_queries(self, path: Path | str) -> None:
        """Writes a Parquet file with a row per query: its values in every pair, and its columns."""
        evaluation = self.evaluation
        columns: dict[str, NDArray[Any]] = {"id": evaluation.query_ids}
        for name, pair in evaluation.pairs.items():
            columns[f"average_precision_{name}"] = pair.average_precision.numpy()
            columns[f"first_hit_{name}"] = pair.first_hit.numpy()
        columns["num_relevant"] = evaluation.old_old.num_relevant.numpy()
        columns |= {k: v for k, v in evaluation.query_columns.items() if k not in columns}
        with replacing(path) as unfinished:
            pq.write_table(pa.table(columns), unfinished)

    def _blocks(self, pair: str) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Cosines of some queries at a time, what is relevant to them, and what is passed over."""
        sides = self.evaluation.vectors[pair]
        query, gallery = (F.normalize(side.float(), dim=-1) for side in sides)
        plan, every = self.evaluation.plan, -(-len(query) * len(gallery) // PAIRS)
        step = 1 if every > 1 else max(1, BLOCK // len(gallery))
        for first in range(0, len(query), every * step):
            last = min(first + step, len(query))
            cosine = (query[first:last] @ gallery.T).cpu()
            yield cosine, plan.is_relevant(first, last), plan.is_ignored(first, last)

    def _changed(self, k: int, top: int, limit: int | None, *, lost: bool) -> list[Flipped]:
        evaluation = self.evaluation
        before, after = (pair.found_by(k) for pair in (evaluation.old_old, evaluation.new_old))
        changed = (before & ~after) if lost else (~before & after)
        gain = evaluation.new_old.average_precision - evaluation.old_old.average_precision
        rows = changed.nonzero().flatten()
        order = gain[rows].argsort(descending=not lost, stable=True)
        return [
            Flipped(
                query=evaluation.query_ids[row].item(),
                rank_before=int(evaluation.old_old.first_hit[row]),
                rank_after=int(evaluation.new_old.first_hit[row]),
                top_before=self.top("old_old", row, top),
                top_after=self.top("new_old", row, top),
            )
            for row in rows[order][:limit].tolist()
        ]


def compare(evaluation: Evaluation) -> Comparison:
    """Looks at an evaluation query by query."""
    return Comparison(evaluation)
