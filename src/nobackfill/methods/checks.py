"""What methods ask of what they are given, and what they say where it cannot be used."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.errors import DataError, OldSpaceError, SpaceMismatch
from nobackfill.methods.checks_checks import check_prototypes
from nobackfill.methods.old_space import MEANING, Need, OldSpace


def at_least_single(vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows dim"]:
    """Half precision as float32; all else as it is."""
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))


def check_dim(new: Float[Tensor, "batch dim"], dim: int) -> None:
    """Raises where an embedding has not the length that the method was made for."""
    if new.shape[1] != dim:
        raise SpaceMismatch(
            f"wanted new embeddings of {dim} dimensions, for which this method was made, but got "
            f"{new.shape[1]}. Where the old vectors set the dimension, give the new model a "
            f"projection to {dim}; where the method takes `dim`, pass dim={new.shape[1]}."
        )


def check_not_alone(new: Float[Tensor, "batch dim"]) -> None:
    """Raises where a batch of one would meet a BatchNorm."""
    if len(new) < 2:
        raise DataError(
            "wanted at least two items in a batch, as this method normalises over it, but got one. "
            "Drop the last batch of an epoch where it is that small (`drop_last=True`)."
        )


def check_given(items: Int[Tensor, " batch"] | None) -> Int[Tensor, " batch"]:
    """Returns the rows of a batch's items; raises where they were not given."""
    if items is None:
        raise DataError(
            "wanted to know which training items this batch is made of, but got no `items`. Pass "
            "`items=`, their rows in OldSpace.embeddings."
        )
    return items


def check_items(vectors: Float[Tensor, "items dim"], need: Need) -> Float[Tensor, "items dim"]:
    """Returns vectors of the training items; raises where one has no direction."""
    bad = ~vectors.isfinite().all(dim=-1) | (vectors == 0).all(dim=-1)
    if bad.any():
        row = int(bad.nonzero()[0])
        kind = "is all zeros" if vectors[row].isfinite().all() else "holds NaN or infinity"
        raise OldSpaceError(
            f"wanted {MEANING[need]}, finite and with a direction, but row {row} of `{need}` "
            f"{kind} ({int(bad.sum())} such rows). Drop these items, or embed them again."
        )
    return vectors


def check_classifier(old: OldSpace, num_classes: int) -> Float[Tensor, "old_classes dim"]:
    """Returns the old classifier; raises where it cannot be one of the first classes."""
    rows = at_least_single(old.get("classifier"))
    finite = bool(rows.isfinite().all())
    if len(rows) > num_classes or not finite:
        raise OldSpaceError(
            f"wanted the finite weights of at most {num_classes} old classes, the first of the "
            f"new, but got {len(rows)} rows{'' if finite else ' with NaN or infinity'}. Number the "
            f"classes again, those of the old model first."
        )
    return rows


def check_class_prototypes(old: OldSpace, num_classes: int) -> Float[Tensor, "classes dim"]:
    """Returns the prototypes; raises where they are not those of the classes, or no directions."""
    prototypes = at_least_single(old.get("prototypes"))
    if len(prototypes) != num_classes:
        raise OldSpaceError(
            f"wanted one old prototype for each of the {num_classes} classes that are trained on, "
            f"but got {len(prototypes)}. Embed the *new* training set with the old model and take "
            f"its class means (`nobackfill.class_means`)."
        )
    check_prototypes(prototypes)
    return prototypes
