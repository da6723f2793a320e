"""Input checks shared by the methods."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nobackfill.errors import DataError, OldSpaceError, SpaceMismatch
from nobackfill.methods.old_space import MEANING, Need, OldSpace
from nobackfill.ops.nearest import all_finite


def at_least_single(vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows dim"]:
    """Converts half precision to float32 and keeps every other precision."""
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))


def check_dim(new: Float[Tensor, "batch dim"], dim: int) -> None:
    """Raises unless the new embeddings have the dimension of the method."""
    if new.shape[1] != dim:
        raise SpaceMismatch(
            f"This method needs new embeddings of {dim} dimensions, but got {new.shape[1]}. If the "
            f"old vectors set the dimension, give the new model a projection to {dim}; if the "
            f"method takes `dim`, pass dim={new.shape[1]}."
        )


def check_batch_size(new: Float[Tensor, "batch dim"]) -> None:
    """Raises if the batch has a single item, which BatchNorm cannot normalise."""
    if len(new) < 2:
        raise DataError(
            "This method normalises over the batch and needs at least two items in it, but got "
            "one. Drop the last batch of an epoch if it is that small (`drop_last=True`)."
        )


def require_items(items: Int[Tensor, " batch"] | None) -> Int[Tensor, " batch"]:
    """Returns the rows of a batch's items; raises if there are none."""
    if items is None:
        raise DataError(
            "This method needs the training items of the batch. Pass `items=`, their rows in "
            "OldSpace.embeddings."
        )
    return items


def check_items(vectors: Float[Tensor, "items dim"], need: Need) -> Float[Tensor, "items dim"]:
    """Returns the vectors of the training items; raises if a row has no direction."""
    if finding := row_without_direction(vectors, f"`{need}`"):
        raise OldSpaceError(
            f"{finding}. `{need}` is {MEANING[need]}, and each row needs a direction. Drop these "
            f"items, or embed them again."
        )
    return vectors


def check_classifier(old: OldSpace, num_classes: int) -> Float[Tensor, "old_classes dim"]:
    """Returns the old classifier; raises unless its classes can be the first new classes."""
    rows = at_least_single(old.get("classifier"))
    finite = bool(rows.isfinite().all())
    if len(rows) > num_classes or not finite:
        raise OldSpaceError(
            f"The old classifier must have the finite weights of at most {num_classes} classes, "
            f"the first of the new ones, but got {len(rows)} rows"
            f"{'' if finite else ' with NaN or infinity'}. Number the classes again, those of the "
            f"old model first."
        )
    return rows


def check_class_prototypes(old: OldSpace, num_classes: int) -> Float[Tensor, "classes dim"]:
    """Returns the old prototypes; raises unless each training class has one with a direction."""
    prototypes = at_least_single(old.get("prototypes"))
    if len(prototypes) != num_classes:
        raise OldSpaceError(
            f"This method needs one old prototype for each of the {num_classes} training classes, "
            f"but got {len(prototypes)}. Embed the *new* training set with the old model and take "
            f"its class means (`nobackfill.class_means`)."
        )
    check_prototypes(prototypes)
    return prototypes


def check_prototypes(old: Float[Tensor, "classes dim"]) -> None:
    """Raises unless there are at least two classes, each with a finite direction."""
    if len(old) < 2:
        raise DataError(
            f"Prototypes of at least two classes are needed, but got {len(old)}: a single class "
            f"has no neighbour. Train on more classes."
        )
    if (bad := _without_direction(old)).any():
        raise DataError(
            f"The prototype of class {int(bad.nonzero()[0])} is NaN, infinite or zero "
            f"({int(bad.sum())} such classes). Check the old vectors of this class."
        )


def check_same_classes(
    old: Float[Tensor, "classes dim"], new: Float[Tensor, "new_classes new_dim"]
) -> None:
    """Raises unless the new prototypes are finite and have the shape of the old ones."""
    if old.shape != new.shape:
        raise DataError(
            f"The old prototypes have {len(old)} classes and {old.shape[1]} dimensions, but the "
            f"new ones have {len(new)} classes and {new.shape[1]} dimensions. Train the new model "
            f"with `embedding_dim = {old.shape[1]}` on the classes of the prototypes."
        )
    if not all_finite(new):
        raise DataError(
            "The new prototypes contain NaN or infinity: the training has diverged. Lower the "
            "learning rate."
        )


def row_without_direction(vectors: Float[Tensor, "rows dim"], name: str) -> str | None:
    """Describes the first row that has no direction, as a clause; None if all rows have one.

    Example:
        >>> row_without_direction(torch.tensor([[1.0], [0.0]]), "the vectors")
        'Row 1 of the vectors is all zeros (1 such rows)'
    """
    bad = _without_direction(vectors)
    if not bad.any():
        return None
    row = int(bad.nonzero()[0])
    kind = "is all zeros" if vectors[row].isfinite().all() else "contains NaN or infinity"
    return f"Row {row} of {name} {kind} ({int(bad.sum())} such rows)"


def _without_direction(vectors: Float[Tensor, "rows dim"]) -> Bool[Tensor, " rows"]:
    """Marks the rows that are zero, NaN or infinite."""
    return ~vectors.isfinite().all(dim=-1) | (vectors == 0).all(dim=-1)
