"""A linear map from queries to the old space, as a module of the model."""

from typing import Any

import torch
from torch import Tensor, nn

from nobackfill.errors import ConfigError
from nobackfill.integrations.sentence_transformers.releases import (
    Dense,
    Dropout,
    Normalize,
    Router,
)


def add_query_map(model: Any, old_dim: int) -> Any:
    """Appends a linear map from the new dimension to the old one, for queries only.

    `encode_query` then returns vectors of the old dimension, to search old vectors with, and
    `encode_document` those of the model, to store. The map starts as the identity, cut or padded
    with zeros. It is a `Router` of sentence-transformers, so that a saved model loads without
    nobackfill. The training arguments must name the columns of queries:
    `router_mapping={"anchor": "query", "positive": "document"}`.

    Args:
        model: SentenceTransformer; it is changed.
        old_dim: Dimension of the old vectors.

    Returns:
        The model.
    """
    if any(isinstance(module, Router) for module in model.children()):
        raise ConfigError(
            "The model has a Router already. Append the map to its query route yourself, or train "
            "a model that encodes queries and documents alike."
        )
    dim = embedding_dim(model)
    dense = Dense(dim, old_dim, bias=False, activation_function=nn.Identity())
    with torch.no_grad():
        dense.linear.weight.copy_(torch.eye(old_dim, dim))
    router = Router.for_query_document(
        query_modules=[dense, Normalize()], document_modules=[Dropout(0.0)]
    )
    model.append(router.to(model.device))
    return model


def query_map_of(model: Any) -> nn.Module | None:
    """Returns the map that `add_query_map` appended; None without one."""
    last = list(getattr(model, "module", model).children())[-1]
    if not isinstance(last, Router) or "query" not in last.sub_modules:
        return None
    first: nn.Module = last.sub_modules["query"][0]
    return first if isinstance(first, Dense) else None


def mapped(query_map: nn.Module | None, embeddings: Tensor) -> Tensor:
    """Maps embeddings to the old space; without a map, returns them unchanged."""
    if query_map is None:
        return embeddings
    result: Tensor = query_map({"sentence_embedding": embeddings})["sentence_embedding"]
    return result


def embedding_dim(model: Any) -> int:
    """Returns the dimension of a model's embeddings, in any release of sentence-transformers."""
    for name in ("get_embedding_dimension", "get_sentence_embedding_dimension"):
        if hasattr(model, name):
            return int(getattr(model, name)())
    raise ConfigError("The model does not know its dimension. Pass a SentenceTransformer.")
