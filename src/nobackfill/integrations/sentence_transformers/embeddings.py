"""Reads the embeddings that a base loss computes, so that no text is embedded twice."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.integrations.replaced_method import replaced_method

Columns = list[Float[Tensor, "_ _"]]  # embeddings of each column of the data set
Calls = list[tuple[Any, Float[Tensor, "_ _"]]]  # features, and their embeddings


@contextmanager
def recorded(model: nn.Module) -> Iterator[Calls]:
    """Lists what the model embeds within the block, before a loss shortens it."""
    calls: Calls = []
    forward = model.forward

    def record(features: Any, *args: Any, **kwargs: Any) -> Any:
        output = forward(features, *args, **kwargs)
        calls.append((features, output["sentence_embedding"]))
        return output

    with replaced_method(model, "forward", record):
        yield calls


def columns_of(calls: Calls, features: Sequence[Any], sizes: Sequence[int]) -> Columns | None:
    """Returns the embeddings of each column, from the calls of a loss; None if one is missing.

    A loss embeds its columns in order, one by one or several in one call.

    Args:
        calls: Features that the model embedded, and their embeddings.
        features: Features of each column.
        sizes: Number of texts in each column.
    """
    for call, column in zip(calls, features, strict=False):
        if call[0] is not column and any(other is call[0] for other in features):
            return None  # the order is another
    rows = torch.cat([embedding for _, embedding in calls]) if calls else torch.empty(0, 0)
    if len(rows) < sum(sizes):
        return None
    return list(rows[: sum(sizes)].split(list(sizes)))


def cached_loss(base: nn.Module) -> nn.Module | None:
    """Returns the loss that caches gradients (`Cached…Loss`): `base` itself or its inner loss."""
    for part in (base, getattr(base, "loss", None)):
        is_cached = getattr(part, "uses_gradient_cache", False) or hasattr(
            part, "calculate_loss_and_cache_gradients"
        )
        if isinstance(part, nn.Module) and is_cached and hasattr(part, "calculate_loss"):
            return part
    return None


@contextmanager
def added_to_cached(
    cached: nn.Module, term: Callable[[Columns], Float[Tensor, ""]]
) -> Iterator[None]:
    """Adds a term to a loss that caches gradients, within the block.

    Such a loss embeds the batch in parts, computes the gradient in the embeddings in
    `calculate_loss`, and embeds again to pass it on. The term is added there.
    """
    calculate: Callable[..., Any] = cached.calculate_loss  # type: ignore[assignment]

    def calculate_both(reps: list[list[Tensor]], *args: Any, **kwargs: Any) -> Any:
        loss = calculate(reps, *args, **kwargs)
        added = term([torch.cat(column) for column in reps])
        if kwargs.get("with_backward"):
            added.backward()
            added = added.detach()
        return loss + added

    with replaced_method(cached, "calculate_loss", calculate_both):
        yield
