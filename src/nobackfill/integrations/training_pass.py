"""A pass over the training set of any data loader, for new prototypes."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from nobackfill.errors import ConfigError
from nobackfill.models.evaluating import evaluating

BATCH = 256  # items, where the loader does not say how many
Embed = Callable[[Any], tuple[Tensor, Tensor]]  # from a batch to embeddings and labels


def in_order(loader: object) -> DataLoader[Any]:
    """Returns a loader of the same items, each once and in order, without a sampler."""
    dataset = getattr(loader, "dataset", None)
    if dataset is None or isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise ConfigError(
            "New prototypes require a pass over the training set, but its loader has no data set "
            "of known length. Pass `loader=`, a loader of all training items in their order."
        )
    return DataLoader(
        dataset,
        batch_size=getattr(loader, "batch_size", None) or BATCH,
        collate_fn=getattr(loader, "collate_fn", None),
    )


def embed_all(
    model: nn.Module, batches: Iterable[Any], embed: Embed
) -> tuple[Float[Tensor, "items dim"], Int[Tensor, " items"]]:
    """Returns the embedding and the label of each item, by the model in eval mode."""
    embeddings, labels = [], []
    with evaluating(model):
        for batch in batches:
            new, of = embed(batch)
            embeddings.append(new.float())
            labels.append(of.to(new.device))
    return torch.cat(embeddings), torch.cat(labels)
