"""Runs a model over a collection, into vectors."""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.data.batches import Batch, Batches, Crew
from nobackfill.data.collection import Collection
from nobackfill.distributed import gather, part
from nobackfill.errors import DataError
from nobackfill.space import Space
from nobackfill.vectors import Vectors

Watch = Callable[[Batches], Iterable[Batch]]  # wraps batches, as a progress bar does


@torch.no_grad()
def embed(
    model: nn.Module,
    collection: Collection,
    rows: Int[Tensor, " rows"],
    *,
    batch_size: int = 512,
    watch: Watch = iter,
    crew: Crew | None = None,
) -> Float[Tensor, "rows dim"]:
    """Returns the embedding of every row, on the model's device; the model is left as it was.

    Under torchrun the processes share the work, and each gets all embeddings.

    Args:
        model: Images in, embeddings out; run in eval mode.
        collection: Where the images are; loaded as for a test, without augmentation.
        rows: Which of them.
        batch_size: How many at a time.
        watch: Wraps the batches, as a progress bar does.
        crew: Processes that load, where some are at work already.
    """
    if len(rows) == 0:
        raise DataError("wanted items to embed, but got none. Check the column `split`.")
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        steps = watch(Batches(collection, rows, batch_size, device=device, part=part(), crew=crew))
        return torch.cat([gather(model(batch.images), len(batch.items)) for batch in steps])
    finally:
        model.train(was_training)


def to_vectors(
    embeddings: Float[Tensor, "rows dim"],
    collection: Collection,
    rows: Int[Tensor, " rows"],
    *,
    space: Space | None = None,
    compatible_dim: int | None = None,
) -> Vectors:
    """Puts embeddings back beside the ids, labels and columns of the items they were made of."""
    where = rows.numpy()
    return Vectors(
        [collection.ids[row] for row in where],
        embeddings.cpu(),
        collection.labels[rows].numpy(),
        columns={name: column[where] for name, column in collection.columns.items()},
        space=space,
        compatible_dim=compatible_dim,
    )
