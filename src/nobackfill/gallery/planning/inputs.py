"""Queries, gallery and what is known of every gallery item, from two files of vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.suggest import suggest
from nobackfill.errors import DataError
from nobackfill.evaluation.file_columns import columns_of, roles_of, rows_of
from nobackfill.evaluation.search_plan import SearchPlan, plan_upgrade
from nobackfill.gallery.planning.order import (
    CLEAR_FIRST,
    UNCLEAR_FIRST,
    expected_gain,
    margin,
    uncertainty,
    weighed,
)
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import is_in


@dataclass(frozen=True, eq=False)
class Items:
    """All gallery items of the old file."""

    ids: NDArray[Any]
    measured: Int[Tensor, " gallery"]  # positions of the items that are searched
    old: Float[Tensor, " items"]  # margins by old vectors
    new: Float[Tensor, " items"]  # margins by new vectors; NaN where there are none
    uncertainty: Float[Tensor, " items"]  # by old vectors
    traffic: Float[Tensor, " items"] | None
    alone: int  # number of items with a class of their own

    @classmethod
    def of(
        cls, old: Vectors, new: Vectors, search: SearchPlan, *, traffic: str | None, device: str
    ) -> "Items":
        """Measures the items; classes are those of the old file if it has any."""
        # Find all items, and those that are searched among them.
        ids = search.gallery_ids
        if old.labels is not None:
            gallery = roles_of((old, new), leave_one_out=False)[1]
            ids = gallery[is_in(gallery, old.ids)]
        columns = columns_of((old, new), ids)
        classes = torch.from_numpy(np.unique(columns["label"], return_inverse=True)[1]).to(device)
        place = {id: row for row, id in enumerate(ids.tolist())}
        measured = torch.tensor([place[id] for id in search.gallery_ids.tolist()], device=device)

        # Compute their margins.
        vectors = rows_of(old, ids).to(device)
        by_old = margin(vectors, classes)
        by_new = torch.full_like(by_old, torch.nan)
        new_vectors = rows_of(new, search.gallery_ids).to(device)
        by_new[measured] = margin(new_vectors, classes[measured]).to(by_new.dtype)
        return cls(
            ids,
            measured,
            by_old,
            by_new,
            uncertainty(vectors, classes),
            None if traffic is None else traffic_of(columns, traffic).to(device, by_old.dtype),
            int((classes.bincount() == 1).sum()),
        )

    def scores(self) -> dict[str, Float[Tensor, " items"]]:
        """Scores of each order but the random one: by old vectors, by new ones, and RACT's."""
        return {
            "clear": expected_gain(self.old, lean=CLEAR_FIRST, traffic=self.traffic),
            "unclear": expected_gain(self.old, lean=UNCLEAR_FIRST, traffic=self.traffic),
            "uncertain": weighed(self.uncertainty, self.traffic),
            "informed": expected_gain(self.old, self.new, traffic=self.traffic),
            "uncertainty": self.uncertainty,
        }

    def notes(self, traffic: str | None) -> list[str]:
        """Remarks on the items of a plan."""
        notes = []
        if len(self.measured) < len(self.ids):
            notes.append(
                f"the curves are of {len(self.measured):,} gallery items that have new vectors; "
                f"the order is of all {len(self.ids):,}"
            )
        if self.alone:
            notes.append(
                f"{self.alone:,} items are alone in their class and count as clear, as nothing can "
                f"be measured on them"
            )
        if traffic is not None:
            notes.append(
                f"`{traffic}` weighs the order, but not the curves: there every query counts alike"
            )
        return notes


def grouped(file: Vectors, group: str | None, files: Sequence[Vectors]) -> Vectors:
    """Returns the same vectors with a column of groups as labels; raises if there are none."""
    if group in (None, "label"):
        if all(each.labels is None for each in files):
            raise DataError(
                "Neither file has a column `label` of classes. Add it, or name a column of groups, "
                "such as products or albums (`--label`)."
            )
        return file
    if not any(group in each.columns for each in files):
        known = sorted({name for each in files for name in each.columns})
        known += ["label"] * any(each.labels is not None for each in files)
        raise DataError(
            f"No column `{group}` in either file. "
            f"{suggest(group, known) if known else 'They have no columns.'}"
        )
    return replace(file, labels=file.columns.get(group))


def search_of(
    old: Vectors, new: Vectors, query_file: Vectors, *, intersect: bool, queries: int
) -> tuple[SearchPlan, list[str]]:
    """Returns which queries search which gallery, and remarks."""
    search = plan_upgrade(old, query_file, new, intersect=intersect)
    if not search.new_has_gallery or not is_in(search.query_ids, new.ids).all():
        raise DataError(
            "The new file must have vectors of queries and of gallery items, at least of some, but "
            "it lacks them. Embed a sample of the gallery with the new model."
        )
    number, notes = len(search.query_ids), list(search.notes)
    if number <= queries:
        return search, notes
    rows = np.arange(queries) * number // queries
    assert search.query_labels is not None
    fewer = replace(
        search,
        query_ids=search.query_ids[rows],
        query_labels=search.query_labels[torch.from_numpy(rows)],
        ignored=None if search.ignored is None else [search.ignored[row] for row in rows.tolist()],
    )
    return fewer, [*notes, f"measured with {queries:,} of {number:,} queries, evenly chosen"]


def traffic_of(columns: Mapping[str, NDArray[Any]], name: str) -> Float[Tensor, " items"]:
    """Returns the traffic of each item; raises if it is missing or negative."""
    if name not in columns:
        raise DataError(
            f"No file with all gallery items has a column `{name}` of traffic. "
            f"{suggest(name, sorted(columns)) if columns else 'They have no columns.'}"
        )
    values = columns[name]
    if values.dtype.kind not in "if":
        raise DataError(f"The column `{name}` must have numbers, but it has {values.dtype}.")
    traffic = torch.from_numpy(values.astype(np.float64))
    if not traffic.isfinite().all() or traffic.min() < 0 or traffic.max() == 0:
        raise DataError(
            f"Traffic in the column `{name}` must be 0 or more, and above 0 for some items, but it "
            f"is from {traffic.min().item():g} to {traffic.max().item():g}. Fill in the rest."
        )
    return traffic
