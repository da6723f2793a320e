"""Texts of any origin, such as what people type: embedded by a finished model, to ask a gallery."""

from collections.abc import Sequence
from pathlib import Path

import torch

from nobackfill.data.captions import Captions
from nobackfill.data.listing import read_text
from nobackfill.errors import DataError
from nobackfill.models.embed import embed_texts
from nobackfill.training.run import Run
from nobackfill.training.run_vectors import vectors_path
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import read_space


def embed_sentences(
    model: Path | str,
    texts: Sequence[str],
    *,
    ids: Sequence[str] | None = None,
    side: str = "query",
    device: torch.device | str = "cpu",
) -> Vectors:
    """What the model of a finished run makes of texts.

    Args:
        model: The run's folder; its recipe must have [text].
        texts: One for each vector.
        ids: Of the texts; their numbers from 0 on where none are given.
        side: "query" for what asks the old gallery, "gallery" for what is stored beside, or asks,
            vectors of the same model.
        device: What to work on.
    """
    run, device = Run.open(Path(model)), torch.device(device)
    if not texts:
        raise DataError("wanted texts to embed, but got none.")
    names = [str(number) for number in range(len(texts))] if ids is None else list(ids)
    count = torch.ones(len(texts), dtype=torch.int64)
    prepared = run.prepare(Captions(list(texts), names, count.cumsum(0) - 1, count))
    side = side if run.maps_queries else "gallery"
    vectors = embed_texts(run.encoder(device, side, modality="text"), prepared).cpu()
    return Vectors(
        names,
        vectors,
        columns={"modality": ["text"] * len(texts), "text": list(texts)},
        space=read_space(vectors_path(run, side=side)),  # one with its images
    )


def read_sentences(path: Path) -> list[str]:
    """The lines of a text file, one text each; empty ones are left out."""
    lines = [line.strip() for line in read_text(path, "texts to embed").splitlines()]
    return [line for line in lines if line]
