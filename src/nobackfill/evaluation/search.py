"""Searches every pair of models as planned."""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.evaluation.file_columns import rows_of
from nobackfill.evaluation.metrics import Retrieval, retrieval
from nobackfill.evaluation.protocols import Protocol
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.vectors import Vectors

Progress = Callable[[int, int], None]  # receives the numbers of done and of all queries


def part_of(progress: Progress | None, before: int, total: int) -> Callable[[int], None]:
    """Returns a function that reports the progress of one of several searches.

    Args:
        progress: Receives the progress of all searches; None for nothing.
        before: Number of queries of the searches that are done.
        total: Number of queries of all searches.
    """

    def report(done: int) -> None:
        if progress is not None:
            progress(before + done, total)

    return report


class PairVectors(Mapping[str, tuple[Tensor, Tensor]]):
    """Query and gallery vectors of each pair of models, by name, read from the files on access.

    Only the files and the pair that was read last are held in memory.

    Args:
        plan: Queries and gallery of the search.
        files: For each pair, the file of the queries, the file of the gallery, and the number of
            dimensions of a query that are compared (None: all).
        device: Device of the vectors.
    """

    def __init__(
        self,
        plan: SearchPlan,
        files: Mapping[str, tuple[Vectors, Vectors, int | None]],
        device: torch.device | str,
    ):
        self._plan, self._files, self._device = plan, files, device
        self._last: tuple[str, tuple[Tensor, Tensor]] | None = None

    def __getitem__(self, pair: str) -> tuple[Tensor, Tensor]:
        if self._last is None or self._last[0] != pair:
            query, gallery, dim = self._files[pair]
            self._last = None  # free the memory of the last pair first
            sides = (
                rows_of(query, self._plan.query_ids)[:, :dim].to(self._device),
                rows_of(gallery, self._plan.gallery_ids).to(self._device),
            )
            self._last = pair, sides
        return self._last[1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def search_pairs(
    plan: SearchPlan,
    protocol: Protocol,
    vectors: Mapping[str, tuple[Tensor, Tensor]],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Retrieval]:
    """Searches every pair of models, by name."""
    queries = len(plan.query_ids)
    return {
        pair: search_as_planned(
            plan,
            protocol,
            *vectors[pair],
            progress=part_of(progress, place * queries, len(vectors) * queries),
        )
        for place, pair in enumerate(vectors)
    }


def search_as_planned(
    plan: SearchPlan,
    protocol: Protocol,
    query: Tensor,
    gallery: Tensor,
    *,
    progress: Callable[[int], None] | None = None,
) -> Retrieval:
    """Searches one pair of models, with one row per query and per gallery item of the plan."""
    result = retrieval(
        query,
        gallery,
        plan.query_labels,
        plan.gallery_labels,
        query_camera=plan.query_camera,
        gallery_camera=plan.gallery_camera,
        relevant=plan.relevant,
        ignored=plan.ignored,
        at=protocol.at,
        area=protocol.area,
        progress=progress,
    )
    if not result.num_relevant.any():
        if plan.relevant is None:
            reason = (
                "no gallery item has the label of any query. Check the column of labels, and that "
                "queries and gallery are of the same classes."
            )
        else:
            reason = (
                "of the items that the ground truth lists, nothing is in the gallery and counts; a "
                "query does not count for itself. Check the list of each query."
            )
        raise DataError(f"there are no queries that have something to find: {reason}")
    return result
