"""Maps vectors of any form by a fitted head."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError, SpaceMismatch
from nobackfill.evaluation.file_columns import rows_of
from nobackfill.head.multimodal import Modality, check_padding, modalities_of_rows
from nobackfill.head.old_query import add_old
from nobackfill.head.seen_items import columns_with_fitted
from nobackfill.head.source import check_source
from nobackfill.head.validation import embed_rows
from nobackfill.vectors import Vectors
from nobackfill.vectors.arrays import open_source
from nobackfill.vectors.column_names import Columns
from nobackfill.vectors.matrix import Data
from nobackfill.vectors.sides import as_sides

if TYPE_CHECKING:
    from nobackfill.head.head import CompatibleHead

SIDES = ("query", "gallery")


def map_vectors(
    head: "CompatibleHead",
    new: Data,
    old: Data | None = None,
    *,
    side: str,
    modality: Modality | None,
    columns: Columns,
) -> Any:
    """Maps vectors into the old space; see `CompatibleHead.transform`."""
    if side not in SIDES:
        raise ConfigError(f"unknown side `{side}`. {suggest(side, SIDES)}")
    # Read and check the vectors. Rows, such as arrays and lists, are their own source.
    network = head.fitted_network()
    source = new if isinstance(new, str | Path) else open_source(new)
    is_rows = source is new and not isinstance(new, str | Path | Vectors)
    vectors = as_sides({"new": source}, columns=columns).vectors["new"]
    check_source(
        vectors,
        new_dim=network.new_dim,
        old_dim=network.old_dim,
        source=head.source_,
        space=head.space_,
    )
    needs_old = head.old_weight is not None and side == "query"
    if needs_old != (old is not None):
        raise ConfigError(_old_is_missing() if needs_old else _old_is_too_much(side))
    numbers = modalities_of_rows(vectors, head.modalities_, modality)
    if numbers is not None:
        check_padding(vectors.vectors, numbers, network)
    # Return the form of the input.
    if side == "gallery" and head.stores == "as they are":
        return new if is_rows else vectors
    mapped = embed_rows(network, vectors.vectors, numbers)
    if old is not None and head.old_weight is not None:
        mapped = add_old(mapped, old_rows(head, old, vectors, columns=columns), head.old_weight)
    if not is_rows:
        return with_mapped(head, vectors, mapped)
    return mapped if isinstance(new, Tensor) else mapped.numpy()


def old_rows(
    head: "CompatibleHead", old: Data, new: Vectors, *, columns: Columns
) -> Float[Tensor, "rows old_dim"]:
    """Returns the old vectors of the items that are mapped, in their order."""
    read = as_sides({"old": old, "new": new}, columns=columns)
    sides = read.vectors["old"], read.vectors["new"]
    if sides[0].dim != head.fitted_network().old_dim:
        raise SpaceMismatch(
            f"The head was fitted on old vectors of {head.fitted_network().old_dim} dimensions, "
            f"but these have {sides[0].dim}. Pass vectors of the same old model."
        )
    own = sides[0].space.fingerprint if sides[0].space else None
    if None not in (own, head.space_.parent) and own != head.space_.parent:
        raise SpaceMismatch(
            f"The head was fitted on old vectors of the space {head.space_.parent}, but these are "
            f"of {own}. Pass vectors of the same old model."
        )
    rows = rows_of(sides[0], sides[1].ids)
    return rows.to(new.vectors.device, torch.float32)


def _old_is_missing() -> str:
    return (
        "This head weighs the old and the new vector of a query, so it needs both. Pass the old "
        "vectors of the same items: `transform(new, old=old)`, `nobackfill embed HEAD NEW --old "
        "OLD`."
    )


def _old_is_too_much(side: str) -> str:
    if side == "gallery":
        return "Vectors to store need no old vectors. Leave them out, or choose the side `query`."
    return (
        "This head maps new vectors alone. Leave out the old ones, or fit a head with "
        "`old_query=True` (`--with-old-query`)."
    )


def with_mapped(
    head: "CompatibleHead", vectors: Vectors, mapped: Float[Tensor, "rows dim"]
) -> Vectors:
    """Returns the mapped vectors with ids, labels and columns, and marks of the fitted items."""
    network = head.fitted_network()
    return Vectors(
        vectors.ids,
        mapped,
        vectors.labels,
        columns=columns_with_fitted(vectors, head.fitted_),
        space=head.space_,
        compatible_dim=network.old_dim if network.extra else None,
    )
