"""What both perturbations ask of the prototypes they are given."""

from jaxtyping import Float
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.ops.nearest import all_finite


def check_prototypes(old: Float[Tensor, "classes dim"]) -> None:
    """Raises unless there are at least two classes, each with a finite direction."""
    if len(old) < 2:
        raise DataError(
            f"wanted the prototypes of at least two classes, but got {len(old)}: a class alone has "
            f"no neighbour to be moved from. Train on more classes."
        )
    if (bad := ~old.isfinite().all(dim=-1) | (old == 0).all(dim=-1)).any():
        raise DataError(
            f"wanted finite prototypes with a direction, but that of class {int(bad.nonzero()[0])} "
            f"is NaN, infinite or zero ({int(bad.sum())} such classes). Check the old vectors of "
            f"this class."
        )


def check_same_classes(
    old: Float[Tensor, "classes dim"], new: Float[Tensor, "new_classes new_dim"]
) -> None:
    """Raises unless the new prototypes are finite, of the same classes in the same dimension."""
    check_same_shape(old, new)
    check_not_diverged(finite=all_finite(new))


def check_same_shape(
    old: Float[Tensor, "classes dim"], new: Float[Tensor, "new_classes new_dim"]
) -> None:
    """Raises unless the new prototypes stand for the same classes in the same dimension."""
    if old.shape != new.shape:
        raise DataError(
            f"wanted new prototypes of the same {len(old)} classes and {old.shape[1]} dimensions "
            f"as the old ones, but got {len(new)} classes and {new.shape[1]} dimensions. Train the "
            f"new model with `embedding_dim = {old.shape[1]}` on the classes of the prototypes."
        )


def check_not_diverged(*, finite: bool) -> None:
    """Raises unless the new prototypes are finite, which whoever asks has found out."""
    if not finite:
        raise DataError(
            "wanted finite new prototypes, but found NaN or infinity: the training has diverged. "
            "Lower the learning rate."
        )
