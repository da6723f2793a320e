"""Maps vectors of any form by a fitted head."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError
from nobackfill.head.inputs import check_lengths
from nobackfill.head.multimodal import Modality, check_padding, modalities_of_rows
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
    numbers = modalities_of_rows(vectors, head.modalities_, modality)
    if numbers is not None:
        check_padding(vectors.vectors, numbers, network)
    # Return the form of the input.
    if side == "gallery" and head.stores == "as they are":
        return new if is_rows else vectors
    check_lengths(vectors.vectors, vectors.ids)
    mapped = embed_rows(network, vectors.vectors, numbers)
    if not is_rows:
        return with_mapped(head, vectors, mapped)
    return mapped if isinstance(new, Tensor) else mapped.numpy()


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
