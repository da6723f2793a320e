"""New vectors that a trained model computes when they are written."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from nobackfill.core.config import read_sequence
from nobackfill.gallery.backfill import rows_of_ids
from nobackfill.gallery.stores.base import Matrix
from nobackfill.models.embed import embed
from nobackfill.training.decoding import DEFAULT_DECODING, Decoding
from nobackfill.training.run import Lineage, Run
from nobackfill.vectors.space import Space


class FromModel:
    """Embeds the images of a collection when a backfill requires them.

    `model` is the folder of a finished run; `data` is a recipe or run folder whose [data] contains
    the items under the gallery's ids.
    """

    def __init__(
        self,
        model: Path,
        data: Path,
        *,
        device: torch.device,
        decoding: Decoding = DEFAULT_DECODING,
    ):
        run = Run.open(model)
        recipe = read_sequence(data / "config.toml" if data.is_dir() else data)[-1]
        self.collection = decoding.open(recipe.data, run.recipe.images)
        self.encoder, self.dim = run.encoder(device), run.dim
        lineage = Lineage() if run.maps_queries else run.lineage()
        self.space: Space | None = run.space(self.collection, lineage.parent, dim=self.dim)
        self._row_of = {id: row for row, id in enumerate(self.collection.ids)}

    def make(self, ids: Sequence[str]) -> Matrix:
        """See `Source`."""
        remedy = (
            "are not in the collection. Name a collection that has the gallery's items under "
            "their ids"
        )
        rows = torch.tensor(rows_of_ids(self._row_of, ids, remedy))
        vectors = embed(self.encoder, self.collection, rows).cpu().numpy()
        return np.asarray(vectors, dtype=np.float32)
