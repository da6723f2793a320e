"""Signs that the old and the new file are swapped, from their records and dimensions."""

from nobackfill.vectors import Vectors

SWAPPED = "the old and the new file seem to be swapped"


def swap_of(old: Vectors, new: Vectors) -> str | None:
    """What shows that two files are swapped; None if nothing does."""
    if old.space and new.space:
        if old.space.parent == new.space.fingerprint != old.space.fingerprint:
            return "the old vectors were made compatible with the new ones"
        searched = [measured.fingerprint for measured in old.space.compatible_with]
        if new.space.fingerprint in searched:
            return "the old vectors are declared to search the new ones"
    if old.compatible_dim is not None and old.compatible_dim == new.dim < old.dim:
        return (
            f"the first {old.compatible_dim} of the {old.dim} dimensions of the old vectors are "
            f"for galleries of an older model, and the new vectors have {new.dim}"
        )
    return None


def swap_notes(old: Vectors, new: Vectors) -> tuple[str, ...]:
    """Returns a sentence if the files seem to be swapped.

    Example:
        >>> import torch
        >>> old = Vectors([1], torch.ones(1, 3), compatible_dim=2)
        >>> swap_notes(old, Vectors([1], torch.ones(1, 2)))[0][:42]
        'the old and the new file seem to be swappe'
    """
    sign = swap_of(old, new)
    return () if sign is None else (f"{SWAPPED}: {sign}",)
