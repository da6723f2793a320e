"""Maps vectors of any form by a fitted head."""

from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from nobackfill.core.config import suggest
from nobackfill.errors import ConfigError, SpaceMismatch
from nobackfill.head.inputs import check_lengths
from nobackfill.head.multimodal import Modality, check_padding, modalities_of_rows
from nobackfill.head.seen_items import columns_with_fitted
from nobackfill.head.validation import embed_rows
from nobackfill.vectors import Vectors
from nobackfill.vectors.arrays import Columns, open_source, read_side
from nobackfill.vectors.matrix import Data
from nobackfill.vectors.tables import Table

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
    # Read and check the vectors.
    network, source = head.fitted_network(), open_source(new)
    vectors = read_side("new", source, columns).vectors
    if vectors.dim != network.new_dim:
        raise SpaceMismatch(
            f"The head was fitted on new vectors of {network.new_dim} dimensions, but these "
            f"have the shape {tuple(vectors.vectors.shape)}. Pass vectors of the same new model."
        )
    check_source(head, vectors)
    numbers = modalities_of_rows(vectors, head.modalities_, modality)
    if numbers is not None:
        check_padding(vectors.vectors, numbers, network)
    # Return the form of the input: Vectors for whatever may have ids.
    has_ids = isinstance(source, Vectors | Table)
    if side == "gallery" and head.stores == "as they are":
        return vectors if has_ids else new
    check_lengths(vectors.vectors, vectors.ids)
    mapped = embed_rows(network, vectors.vectors, numbers)
    if has_ids:
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


def check_source(head: "CompatibleHead", new: Vectors) -> None:
    """Raises SpaceMismatch for vectors of another model than the head was fitted on."""
    if head.source_ and new.space and new.space.fingerprint != head.source_:
        raise SpaceMismatch(
            f"The head was fitted on vectors of the space {head.source_}, but these are of "
            f"{new.space.fingerprint}. Embed with the same new model, or fit a head for this "
            f"one."
        )
