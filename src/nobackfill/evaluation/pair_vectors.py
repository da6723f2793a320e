"""The vectors that a search compares, taken from their files when asked for."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from nobackfill.evaluation.file_columns import rows_of
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.vectors import Vectors


class PairVectors(Mapping[str, tuple[Tensor, Tensor]]):
    """Query and gallery vectors of each pair of models, by name, taken from the files when asked.

    Nothing is held but the files and the last pair that was asked for.

    Args:
        plan: Who asks and who is searched.
        files: Of each pair the file of the queries, that of the gallery, and how many dimensions
            of a query are compared: all where it is None.
        device: Where they are wanted.
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
            self._last = None  # make room first
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
