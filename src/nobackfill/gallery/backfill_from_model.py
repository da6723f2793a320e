"""New vectors that a trained model makes when they are to be written."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from nobackfill.core.config import read_sequence
from nobackfill.errors import DataError
from nobackfill.gallery.stores.base import Matrix
from nobackfill.models.embed import embed
from nobackfill.training.decoding import DEFAULT_DECODING, Decoding
from nobackfill.training.run import Lineage, Run
from nobackfill.vectors.space import Space


class FromModel:
    """Embeds images of a collection as a backfill asks for them.

    Args:
        model: The folder of a finished run.
        data: A recipe, or a run's folder, whose [data] has the items under the gallery's ids.
        device: What to work on.
        decoding: How image files are read.
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
        self._row = {one: row for row, one in enumerate(self.collection.ids)}

    def make(self, ids: Sequence[str]) -> Matrix:
        """See `Source`."""
        if missing := [one for one in ids if one not in self._row]:
            raise DataError(
                f"wanted the images of all items to be written, but {len(missing)} of {len(ids)} "
                f"are not in the collection, the first being {missing[0]!r}. Name a collection "
                f"that has the gallery's items under its ids."
            )
        rows = torch.tensor([self._row[one] for one in ids])
        vectors = embed(self.encoder, self.collection, rows).cpu().numpy()
        return np.asarray(vectors, dtype=np.float32)
