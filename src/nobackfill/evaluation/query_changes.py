"""Changes of single queries, of classes and slices, and of thresholds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.atomic_files import replacing
from nobackfill.core.page import Readable
from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.bootstrap import Interval, paired_interval
from nobackfill.evaluation.metrics import unit
from nobackfill.evaluation.result import Evaluation
from nobackfill.ops.nearest import best_by_partition, comparable, rows_per_block

if TYPE_CHECKING:
    from pandas import DataFrame

BLOCK = 2**24  # cosines held at a time
PAIRS = 50_000_000  # most pairs whose cosines are compared; queries are sampled above it


@dataclass(frozen=True)
class Flipped:
    """A query that loses or gains a hit in the top `k` by the upgrade."""

    query: Any  # id of the query
    rank_before: int  # rank of the first hit of the old query; 0 if it has none
    rank_after: int  # rank of the first hit of the new query; 0 if it has none
    top_before: list[Any]  # ids of the first results of the old query
    top_after: list[Any]  # ids of the first results of the new query
    right_before: list[bool]  # whether each result of the old query is relevant
    right_after: list[bool]  # whether each result of the new query is relevant


@dataclass(frozen=True)
class Slice:
    """The queries with one value of a column."""

    value: Any  # value of the column
    queries: int  # number of queries that have a relevant item
    old_old: float  # mAP of old/old
    new_old: float  # mAP of new/old
    difference: Interval  # difference new/old - old/old, with its interval
    lost: float  # share of the queries that lose their first hit
    won: float  # share of the queries that gain a first hit


@dataclass(frozen=True)
class Threshold:
    """A threshold of similarity."""

    pair: str  # pair of models (query/gallery), such as "new_old"
    false_accept: float  # share of pairs of different classes at or above the threshold
    value: float  # a cosine
    true_accept: float  # share of pairs of one class at or above the threshold


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Readable):
    """Compares old and new results query by query."""

    evaluation: Evaluation

    def __repr__(self) -> str:
        flips, queries = self.evaluation.flips(1), int(self.evaluation.counted.sum())
        lost, won = (round(share * queries) for share in (flips.negative, flips.positive))
        return f"Comparison({queries:,} queries: {lost:,} lose their first hit, {won:,} gain one)"

    def to_pandas(self) -> "DataFrame":
        """Returns a DataFrame of one row per query, as in `save_queries`. Requires pandas."""
        from nobackfill.core.notebook import data_frame

        return data_frame(self._columns())

    def flipped(self, k: int = 1, *, top: int = 5, limit: int | None = None) -> list[Flipped]:
        """Returns the queries that lose their hit in the top `k`, the worst first."""
        return self._changed(k, top, limit, lost=True)

    def won(self, k: int = 1, *, top: int = 5, limit: int | None = None) -> list[Flipped]:
        """Returns the queries that gain a hit in the top `k`, the best first."""
        return self._changed(k, top, limit, lost=False)

    def slices(self, column: str = "label", *, smallest: int = 1) -> list[Slice]:
        """Returns the results of the queries with each value of a column, the worst first.

        A slice has at least `smallest` queries.
        """
        evaluation = self.evaluation
        columns = evaluation.query_columns
        if column not in columns:
            raise ConfigError(f"no column `{column}` of the queries. {suggest(column, columns)}")
        values, counted = columns[column], evaluation.counted
        before, after = (
            pair.average_precision.numpy() for pair in (evaluation.old_old, evaluation.new_old)
        )
        had, has = (pair.found_by(1).numpy() for pair in (evaluation.old_old, evaluation.new_old))
        slices = []
        for value in np.unique(values[counted]).tolist():
            rows = counted & (values == value)
            if rows.sum() < smallest:
                continue
            groups = evaluation.query_groups[rows]
            if column == "label":  # one class: draw its queries
                groups = np.arange(len(groups))
            slices.append(
                Slice(
                    value=value,
                    queries=int(rows.sum()),
                    old_old=float(before[rows].mean()),
                    new_old=float(after[rows].mean()),
                    difference=paired_interval(
                        (after - before)[rows], groups, seed=evaluation.seed
                    ),
                    lost=float((had & ~has)[rows].mean()),
                    won=float((~had & has)[rows].mean()),
                )
            )
        return sorted(slices, key=lambda part: part.difference.mean)

    def thresholds(self, false_accept: float = 0.001) -> list[Threshold]:
        """Returns the threshold of each pair of models at a rate of false accepts.

        Args:
            false_accept: Largest share of query-gallery pairs of different classes that may pass.
        """
        return [
            threshold_for(pair, *self.cosines(pair), false_accept) for pair in self.evaluation.pairs
        ]

    def cosines(self, pair: str) -> tuple[Float[Tensor, " same"], Float[Tensor, " different"]]:
        """Returns the cosines of queries to gallery items of their class, and of other classes.

        With more than 50 million pairs, only those of evenly chosen queries.

        Args:
            pair: Pair of models (query/gallery), such as "new_old".
        """
        query, gallery = self._unit(pair)
        plan, step = self.evaluation.plan, -(-len(query) * len(gallery) // PAIRS)
        same, different = [], []
        for rows in torch.arange(0, len(query), step).split(max(1, BLOCK // len(gallery))):
            cosine = (query[rows.to(query.device)] @ gallery.T).cpu()
            relevant, ignored = plan.is_relevant(rows), plan.is_ignored(rows)
            same.append(cosine[relevant & ~ignored])
            different.append(cosine[~relevant & ~ignored])
        return torch.cat(same), torch.cat(different)

    def top(self, pair: str, row: int, k: int) -> list[Any]:
        """Returns the ids of the first results of a query, without ignored items.

        Args:
            pair: Pair of models (query/gallery), such as "new_old".
            row: Row of the query in `query_ids`.
            k: Number of results.
        """
        return self._ids(self._top_places(pair, [row], k)[0])

    def _top_places(self, pair: str, rows: Sequence[int], k: int) -> list[Int[Tensor, " found"]]:
        """Gallery rows of the first results of each query."""
        plan = self.evaluation.plan
        query, gallery = self._unit(pair)
        top: list[Int[Tensor, " found"]] = []
        for block in torch.tensor(rows, dtype=torch.int64).split(rows_per_block(4 * len(gallery))):
            cosine = (query[block.to(query.device)] @ gallery.T).cpu()
            ignored = plan.is_ignored(block)
            best = best_by_partition(cosine.masked_fill_(ignored, -torch.inf), min(k, len(gallery)))
            top += [
                places[: int((~is_ignored).sum())]
                for places, is_ignored in zip(best, ignored, strict=True)
            ]
        return top

    def _ids(self, places: Int[Tensor, " found"]) -> list[Any]:
        return [self.evaluation.plan.gallery_ids[place].item() for place in places.tolist()]

    def save_queries(self, path: Path | str) -> None:
        """Writes a Parquet file of one row per query: its results in every pair and its columns."""
        with replacing(path) as unfinished:
            pq.write_table(pa.table(self._columns()), unfinished)

    def _columns(self) -> dict[str, NDArray[Any]]:
        """Returns the results of each query in every pair, and its columns."""
        evaluation = self.evaluation
        columns: dict[str, NDArray[Any]] = {"id": evaluation.query_ids}
        for name, pair in evaluation.pairs.items():
            columns[f"average_precision_{name}"] = pair.average_precision.numpy()
            columns[f"first_hit_{name}"] = pair.first_hit.numpy()
        columns["num_relevant"] = evaluation.old_old.num_relevant.numpy()
        return columns | {k: v for k, v in evaluation.query_columns.items() if k not in columns}

    def _unit(self, pair: str) -> tuple[Tensor, Tensor]:
        """Query and gallery vectors of unit length."""
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
        """Returns the change of a query, from the gallery rows of its first results."""
        evaluation = self.evaluation
        right = evaluation.plan.is_relevant(torch.tensor([row]))[0]
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
    """Compares old and new results query by query."""
    return Comparison(evaluation)


def threshold_for(
    pair: str,
    same: Float[Tensor, " same"],
    different: Float[Tensor, " different"],
    false_accept: float,
) -> Threshold:
    """Returns the lowest threshold that at most the share `false_accept` of `different` reaches."""
    if not 0 < false_accept < 1:
        raise ConfigError(f"false accepts must be a share between 0 and 1, not {false_accept}.")
    if min(len(same), len(different)) == 0:
        raise DataError(
            "a threshold needs pairs of one class and pairs of different classes, but there are "
            "none of one kind. Check the column `label`."
        )
    refused = different.topk(int(false_accept * len(different)) + 1).values[-1]
    value = float(torch.nextafter(refused, refused.new_tensor(torch.inf)))
    return passing(pair, same, different, value)


def passing(
    pair: str, same: Float[Tensor, " same"], different: Float[Tensor, " different"], value: float
) -> Threshold:
    """Makes a threshold, with the shares of pairs at or above it."""
    false, true = ((part >= value).double().mean().item() for part in (different, same))
    return Threshold(pair, false, value, true)
