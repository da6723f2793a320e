"""Embedding of collections and texts by a model."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from nobackfill.core.distributed import gather, part
from nobackfill.data.collection import Collection
from nobackfill.data.loader import Batch, Batches, Crew
from nobackfill.errors import DataError
from nobackfill.models.base import check_images
from nobackfill.models.evaluating import evaluating
from nobackfill.vectors import Vectors
from nobackfill.vectors.columns import FLAGS
from nobackfill.vectors.space import Space

BATCH = 512  # images or texts embedded at a time
Watch = Callable[[Batches], Iterable[Batch]]  # wraps batches, as a progress bar does


def embed(
    model: nn.Module,
    collection: Collection,
    rows: Int[Tensor, " rows"],
    *,
    batch_size: int = BATCH,
    watch: Watch = iter,
    crew: Crew | None = None,
) -> Float[Tensor, "rows dim"]:
    """Returns the embedding of every row, on the model's device, by the model in eval mode.

    Under torchrun the processes share the work, and each gets all embeddings.

    Args:
        model: Model from images to embeddings.
        collection: Collection of the images, which are not augmented.
        rows: Rows of the collection.
        batch_size: Number of images per batch.
        watch: Wraps the batches, as a progress bar does.
        crew: Running worker processes of the collection.
    """
    if len(rows) == 0:
        raise DataError("There are no items to embed. Check the column `split`.")
    device = next(model.parameters()).device
    with evaluating(model):
        steps = watch(Batches(collection, rows, batch_size, device=device, part=part(), crew=crew))
        try:
            return torch.cat([gather(model(batch.images), len(batch.items)) for batch in steps])
        except (RuntimeError, ValueError):
            check_images(model, collection.shape)  # says why, if it is that
            raise


def embed_texts(
    model: nn.Module, prepared: Shaped[Tensor, "texts ..."]
) -> Float[Tensor, "texts dim"]:
    """Returns the embeddings of texts as `embed` does; see `TextEncoder.prepare`."""
    (rank, world), device = part(), next(model.parameters()).device
    with evaluating(model):
        return torch.cat(
            [
                gather(model(batch.tensor_split(world)[rank].to(device)), len(batch))
                for batch in prepared.split(BATCH)
            ]
        )


def to_vectors(
    embeddings: Float[Tensor, "items dim"],
    collection: Collection,
    rows: Int[Tensor, " rows"],
    *,
    modalities: Sequence[str] = ("image",),
    space: Space | None = None,
    compatible_dim: int | None = None,
) -> Vectors:
    """Returns embeddings with the ids, labels and columns of their items.

    With texts, there is a column `modality`, and no `is_query` and `is_gallery`, which apply to
    images alone.

    Args:
        embeddings: Embeddings of the images, of their texts, or of both in this order.
        collection: Collection of the images.
        rows: Rows of the collection.
        modalities: "image", "text", or both.
        space: Space of the embeddings.
        compatible_dim: Number of leading dimensions to compare, see `Vectors`.
    """
    parts = [collection.rows_of(rows, modality) for modality in modalities]
    items = torch.cat(parts)
    columns = {name: column[items.numpy()] for name, column in collection.columns.items()}
    if "text" in modalities:
        columns = {name: column for name, column in columns.items() if name not in FLAGS}
        columns["modality"] = np.repeat(np.array(modalities), [len(rows) for rows in parts])
    return Vectors(
        [item for modality in modalities for item in collection.ids_of(rows, modality)],
        embeddings.cpu(),
        collection.labels[items].numpy(),
        columns=columns,
        space=space,
        compatible_dim=compatible_dim,
    )
