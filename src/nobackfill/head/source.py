"""Checks that vectors are of the models that a head was fitted on."""

from contextlib import suppress
from pathlib import Path

from nobackfill.errors import DataError, SpaceMismatch
from nobackfill.evaluation.swapped import SWAPPED
from nobackfill.head.storage import is_head, read_folder
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import Space


def check_source(
    rows: Vectors, *, new_dim: int, old_dim: int, source: str | None, space: Space
) -> None:
    """Raises SpaceMismatch for vectors of another model, and says so if they are the old ones.

    Args:
        rows: Vectors to map.
        new_dim: Number of dimensions of the new model.
        old_dim: Number of dimensions of the old model.
        source: Fingerprint of the new vectors that the head was fitted on, if known.
        space: Space of mapped vectors.
    """
    own, dim = rows.space.fingerprint if rows.space else None, rows.dim
    remedy = "Pass vectors of the same new model."
    if own is not None and own == space.parent != source:
        remedy = "They are of the old model, so old and new seem to be swapped. Pass the new ones."
    elif own is not None and own == space.fingerprint:
        remedy = "A head has mapped them already. Pass the vectors of the new model."
    elif dim == old_dim != new_dim:
        remedy = (
            f"The old model has {dim} dimensions, so old and new may be swapped. Pass the new "
            f"vectors."
        )
    if dim != new_dim:
        raise SpaceMismatch(
            f"The head was fitted on new vectors of {new_dim} dimensions, but these have {dim}. "
            f"{remedy}"
        )
    if source and own not in (None, source):
        raise SpaceMismatch(
            f"The head was fitted on vectors of the space {source}, but these are of {own}. "
            f"{remedy}"
        )


def swap_notes_of_head(folder: Path, old: Vectors, new: Vectors) -> tuple[str, ...]:
    """Returns a sentence if the head in a folder was fitted on these files the other way round."""
    with suppress(DataError):  # a damaged head is replaced like any other
        head = read_folder(folder) if is_head(folder) else None
        if head is None:
            return ()
        dims = head.config["new_dim"], head.config["old_dim"]
        own = [file.space.fingerprint if file.space else None for file in (old, new)]
        recorded = [head.config.get("source"), head.space.parent]
        is_other_way = None not in own and own[0] != own[1] and own == recorded
        if is_other_way or (dims == (old.dim, new.dim) and old.dim != new.dim):
            return (f"{SWAPPED}: the head that was in {folder} maps the old vectors to the new",)
    return ()
