"""Runs a model over a collection, into vectors."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from nobackfill.core.distributed import gather, part
from nobackfill.data.collection import Collection
from nobackfill.data.loader import Batch, Batches, Crew
from nobackfill.errors import DataError
from nobackfill.vectors import Vectors
from nobackfill.vectors.columns import FLAGS
from nobackfill.vectors.space import Space

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


@torch.no_grad()
def embed_texts(
    model: nn.Module, prepared: Shaped[Tensor, "texts ..."], *, batch_size: int = 512
) -> Float[Tensor, "texts dim"]:
    """Returns the embedding of every text, on the model's device; the model is left as it was.

    Under torchrun the processes share the work, and each gets all embeddings.

    Args:
        model: Texts as they were prepared in, embeddings out; run in eval mode.
        prepared: See `TextEncoder.prepare`.
        batch_size: How many at a time.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    mine, of = part()
    try:
        return torch.cat(
            [
                gather(model(some.tensor_split(of)[mine].to(device)), len(some))
                for some in prepared.split(batch_size)
            ]
        )
    finally:
        model.train(was_training)


def to_vectors(
    embeddings: Float[Tensor, "items dim"],
    collection: Collection,
    rows: Int[Tensor, " rows"],
    *,
    modalities: Sequence[str] = ("image",),
    space: Space | None = None,
    compatible_dim: int | None = None,
) -> Vectors:
    """Puts embeddings back beside the ids, labels and columns of the items they were made of.

    Where texts are among them, a column `modality` tells which, and who asks whom is the caller's:
    `is_query` and `is_gallery` are told of images alone.

    Args:
        embeddings: Of the images, of their texts, or of both in this order.
        collection: Where the images are.
        rows: Which of them.
        modalities: "image", "text", or both.
        space: What made the embeddings.
        compatible_dim: See `Vectors`.
    """
    each = [collection.rows_of(rows, one) for one in modalities]
    where = torch.cat(each).numpy()
    columns = {name: column[where] for name, column in collection.columns.items()}
    if "text" in modalities:
        columns = {name: column for name, column in columns.items() if name not in FLAGS}
        columns["modality"] = np.repeat(np.array(modalities), [len(some) for some in each])
    return Vectors(
        [item for one in modalities for item in collection.ids_of(rows, one)],
        embeddings.cpu(),
        collection.labels[torch.from_numpy(where)].numpy(),
        columns=columns,
        space=space,
        compatible_dim=compatible_dim,
    )
