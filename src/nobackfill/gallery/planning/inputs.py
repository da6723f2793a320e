"""Who asks, who is searched, and what is known of every gallery item: from two files of vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

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
    """What is known of every gallery item of the old file.

    Attributes:
        ids: Of all.
        measured: Where those stand that are searched.
        old: Margins by old vectors.
        new: Margins by new vectors; NaN where there is none.
        uncertainty: By old vectors.
        traffic: If told.
        alone: How many have a class of their own.
    """

    ids: NDArray[Any]
    measured: Int[Tensor, " gallery"]
    old: Float[Tensor, " items"]
    new: Float[Tensor, " items"]
    uncertainty: Float[Tensor, " items"]
    traffic: Float[Tensor, " items"] | None
    alone: int

    @classmethod
    def of(
        cls, old: Vectors, new: Vectors, search: SearchPlan, *, traffic: str | None, device: str
    ) -> "Items":
        """Looks at them; all classes are those of the old file, where it has any."""
        ids = search.gallery_ids
        if old.labels is not None:
            gallery = roles_of((old, new), leave_one_out=False)[1]
            ids = gallery[is_in(gallery, old.ids)]
        told = columns_of((old, new), ids)
        classes = torch.from_numpy(np.unique(told["label"], return_inverse=True)[1]).to(device)
        place = {one: row for row, one in enumerate(ids.tolist())}
        measured = torch.tensor([place[one] for one in search.gallery_ids.tolist()], device=device)
        vectors = rows_of(old, ids).to(device)
        by_old = margin(vectors, classes)
        by_new = torch.full_like(by_old, torch.nan)
        known = rows_of(new, search.gallery_ids).to(device)
        by_new[measured] = margin(known, classes[measured]).to(by_new.dtype)
        return cls(
            ids,
            measured,
            by_old,
            by_new,
            uncertainty(vectors, classes),
            None if traffic is None else traffic_of(told, traffic).to(device, by_old.dtype),
            int((classes.bincount() == 1).sum()),
        )

    def scores(self) -> dict[str, Float[Tensor, " items"]]:
        """Of each order but the random one: three by old vectors, one by new ones, and RACT's."""
        return {
            "clear": expected_gain(self.old, lean=CLEAR_FIRST, traffic=self.traffic),
            "unclear": expected_gain(self.old, lean=UNCLEAR_FIRST, traffic=self.traffic),
            "uncertain": weighed(self.uncertainty, self.traffic),
            "informed": expected_gain(self.old, self.new, traffic=self.traffic),
            "uncertainty": self.uncertainty,
        }

    def notes(self, traffic: str | None) -> list[str]:
        """What a reader should know of them."""
        notes = []
        if len(self.measured) < len(self.ids):
            notes.append(
                f"the curves are of {len(self.measured):,} gallery items that have new vectors; "
                f"the order is of all {len(self.ids):,}"
            )
        if self.alone:
            notes.append(
                f"{self.alone:,} items are alone in their class: nothing tells whether they lie "
                f"well, and they count as clear"
            )
        if traffic is not None:
            notes.append(
                f"`{traffic}` weighs the order, but not the curves: every query counts alike there"
            )
        return notes


def grouped(file: Vectors, group: str | None, files: Sequence[Vectors]) -> Vectors:
    """The same vectors, with the groups of a column as labels; raises where nothing tells them."""
    if group is None:
        if all(one.labels is None for one in files):
            raise DataError(
                "wanted to know what belongs together, but neither file has a column `label`. Add "
                "it, or name a column that tells groups, such as products or albums (`--group`)."
            )
        return file
    if not any(group in one.columns for one in files):
        known = sorted({name for one in files for name in one.columns})
        raise DataError(
            f"wanted a column `{group}` that says what belongs together, but the files have "
            f"{', '.join(known) or 'no columns'}."
        )
    return Vectors(
        file.ids,
        file.vectors,
        file.columns.get(group),
        columns=file.columns,
        space=file.space,
        compatible_dim=file.compatible_dim,
    )


def search_of(
    old: Vectors, new: Vectors, asks: Vectors, *, intersect: bool, queries: int
) -> tuple[SearchPlan, list[str]]:
    """Who asks and who is searched, and what a reader should know of it."""
    search = plan_upgrade(old, asks, new, intersect=intersect)
    if not search.new_has_gallery or not is_in(search.query_ids, new.ids).all():
        raise DataError(
            "wanted new vectors of queries and of gallery items, at least of some, but the new "
            "file lacks them. Embed a sample of the gallery with the new model."
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
    return fewer, [*notes, f"of {number:,} queries {queries:,} asked, evenly chosen"]


def traffic_of(told: Mapping[str, NDArray[Any]], name: str) -> Float[Tensor, " items"]:
    """How often each item is asked for."""
    if name not in told:
        raise DataError(
            f"wanted a column `{name}` with the traffic of each gallery item, but no file that has "
            f"all of them has it. They have {', '.join(sorted(told)) or 'none'}."
        )
    values = told[name]
    if values.dtype.kind not in "if":
        raise DataError(f"wanted numbers in the column `{name}`, but it holds {values.dtype}.")
    traffic = torch.from_numpy(values.astype(np.float64))
    if not traffic.isfinite().all() or traffic.min() < 0 or traffic.max() == 0:
        raise DataError(
            f"wanted traffic of 0 or more in the column `{name}`, and some above 0, but it goes "
            f"from {traffic.min().item():g} to {traffic.max().item():g}. Fill in what is missing."
        )
    return traffic
