"""Query by query: which change for the worse, in which classes and slices, at which threshold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.atomic_files import replacing
from nobackfill.core.config import suggest
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.bootstrap import Interval, paired_interval
from nobackfill.evaluation.metrics import unit
from nobackfill.evaluation.result import Evaluation
from nobackfill.ops.nearest import best_by_partition, comparable, rows_per_block

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
        right_before: Which of the former are what it looked for.
        right_after: The same of the latter.
    """

    query: Any
    rank_before: int
    rank_after: int
    top_before: list[Any]
    top_after: list[Any]
    right_before: list[bool]
    right_after: list[bool]


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
        return [
            threshold_for(pair, *self.cosines(pair), false_accept) for pair in self.evaluation.pairs
        ]

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
        return self._ids(self._top_places(pair, [row], k)[0])

    def _top_places(self, pair: str, rows: Sequence[int], k: int) -> list[Int[Tensor, " found"]]:
        """Places in the gallery of what some queries find first."""
        plan = self.evaluation.plan
        query, gallery = self._unit(pair)
        found = []
        for some in torch.tensor(rows, dtype=torch.int64).split(rows_per_block(4 * len(gallery))):
            cosine = (query[some.to(query.device)] @ gallery.T).cpu()
            ignored = torch.cat([plan.is_ignored(row, row + 1) for row in some.tolist()])
            best = best_by_partition(cosine.masked_fill_(ignored, -torch.inf), min(k, len(gallery)))
            found += [
                places[: int((~passed_over).sum())]
                for places, passed_over in zip(best, ignored, strict=True)
            ]
        return found

    def _ids(self, places: Int[Tensor, " found"]) -> list[Any]:
        return [self.evaluation.plan.gallery_ids[place].item() for place in places.tolist()]

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
        """Cosines of some queries at a time, what is relevant to them, and what is passed over.

        Of very many pairs, every so many queries are looked at.
        """
        query, gallery = self._unit(pair)
        plan, every = self.evaluation.plan, -(-len(query) * len(gallery) // PAIRS)
        rows = torch.arange(0, len(query), every)
        for some in rows.split(max(1, BLOCK // len(gallery))):
            cosine = (query[some.to(query.device)] @ gallery.T).cpu()
            relevant, ignored = (
                torch.cat([marks(row, row + 1) for row in some.tolist()])
                for marks in (plan.is_relevant, plan.is_ignored)
            )
            yield cosine, relevant, ignored

    def _unit(self, pair: str) -> tuple[Tensor, Tensor]:
        """The vectors of both sides, of length 1."""
        query, gallery = comparable(*self.evaluation.vectors[pair])
        return unit(query, "query"), unit(gallery, "gallery")

    def _changed(self, k: int, top: int, limit: int | None, *, lost: bool) -> list[Flipped]:
        evaluation = self.evaluation
        before, after = (pair.found_by(k) for pair in (evaluation.old_old, evaluation.new_old))
        changed = (before & ~after) if lost else (~before & after)
        gain = evaluation.new_old.average_precision - evaluation.old_old.average_precision
        rows = changed.nonzero().flatten()
        order = gain[rows].argsort(descending=not lost, stable=True)
        chosen = rows[order][:limit].tolist()
        tops = [
            self._top_places(pair, chosen, top) if chosen else [] for pair in ("old_old", "new_old")
        ]
        return [self._flipped(row, old, new) for row, old, new in zip(chosen, *tops, strict=True)]

    def _flipped(
        self, row: int, before: Int[Tensor, " before"], after: Int[Tensor, " after"]
    ) -> Flipped:
        """One query, given the places of what it finds first with either model."""
        evaluation = self.evaluation
        right = evaluation.plan.is_relevant(row, row + 1)[0]
        return Flipped(
            query=evaluation.query_ids[row].item(),
            rank_before=int(evaluation.old_old.first_hit[row]),
            rank_after=int(evaluation.new_old.first_hit[row]),
            top_before=self._ids(before),
            top_after=self._ids(after),
            right_before=right[before].tolist(),
            right_after=right[after].tolist(),
        )


def compare(evaluation: Evaluation) -> Comparison:
    """Looks at an evaluation query by query."""
    return Comparison(evaluation)


def threshold_for(
    pair: str,
    same: Float[Tensor, " same"],
    different: Float[Tensor, " different"],
    false_accept: float,
) -> Threshold:
    """The lowest threshold that no more than a share of strangers reaches.

    Args:
        pair: Query/gallery, such as "new_old".
        same: Cosines of pairs of one class.
        different: Cosines of pairs of different classes.
        false_accept: The share of these that may pass.
    """
    if not 0 < false_accept < 1:
        raise ConfigError(f"wanted a share between 0 and 1 to pass, but got {false_accept}.")
    if min(len(same), len(different)) == 0:
        raise DataError(
            "wanted pairs of one class and of different classes, but there are none of one "
            "kind. Check the column `label`."
        )
    refused = different.topk(int(false_accept * len(different)) + 1).values[-1]
    value = float(torch.nextafter(refused, refused.new_tensor(torch.inf)))
    return passing(pair, same, different, value)


def passing(
    pair: str, same: Float[Tensor, " same"], different: Float[Tensor, " different"], value: float
) -> Threshold:
    """What passes a threshold: the share of each kind of pair that lies at or above it."""
    false, true = ((part >= value).double().mean().item() for part in (different, same))
    return Threshold(pair, false, value, true)
