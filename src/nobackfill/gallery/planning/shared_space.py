"""Decides whether old and new vectors are of the same space. Without a declaration they are not.

In one space, one query vector searches both, and its cosines to both can be compared.
"""

from nobackfill.errors import SpaceMismatch
from nobackfill.gallery.provenance import declared
from nobackfill.gallery.sketch import Sketch, compare, is_other
from nobackfill.gallery.stores.base import Store
from nobackfill.methods import METHODS
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import names_a_model

IN_DEVIATIONS = (
    "scores on both halves are compared in deviations from those of unrelated pairs: a search of "
    "the mixed gallery must do the same"
)
UNKNOWN = "nothing declares that the new vectors are of the old space"
UNMAPPED = "new queries searched the old gallery as they are"
PASS_IT = "If they are, pass `compatible`"


def decide_space(
    old: Vectors, new: Vectors, *, compatible: bool | None, mapped: bool
) -> tuple[bool, list[str]]:
    """Returns whether old and new vectors are taken to be of one space, and remarks.

    `compatible` is the decision of the caller, or None to decide it from the files. If queries were
    `mapped` for the old gallery, no query searches both.
    """
    shared_space = (
        not mapped and declares_shared_space(old, new) if compatible is None else compatible
    )
    if shared_space and new.dim != old.dim:
        raise SpaceMismatch(
            f"Old and new vectors have {old.dim} and {new.dim} dimensions, so they are not of one "
            f"space. Leave out `compatible`: scores are then made comparable."
        )
    if shared_space:
        return True, []
    is_open = compatible is None and not mapped
    return False, [IN_DEVIATIONS, *([why_not_one(old, new)] if is_open else [])]


def declares_shared_space(old: Vectors, new: Vectors) -> bool:
    """Whether the records name the same model, or the new one a model made to fit it (`parent`).

    A measurement on the old gallery (`compatible_with`) means only that queries may search it.
    """
    if old.space is None or new.space is None or old.dim != new.dim or not names_a_model(old.space):
        return False
    return old.space.fingerprint in (new.space.parent, new.space.fingerprint)


def why_not_one(old: Vectors, new: Vectors) -> str:
    """Explains why the records do not declare one space."""
    if old.space is None or new.space is None:
        files = {"old": old.space, "new": new.space}
        silent = " and ".join(f"the {name}" for name, space in files.items() if space is None)
        return (
            f"{UNKNOWN}, as {silent} ones do not declare their model (no space.json): {UNMAPPED}. "
            f"{PASS_IT}"
        )
    if not names_a_model(old.space):
        return (
            f"{UNKNOWN}, as the record of the old ones contains neither `weights` nor "
            f"`preprocessing`, so any of {old.dim} dimensions could be meant: {UNMAPPED}. {PASS_IT}"
        )
    gallery = old.space.fingerprint
    if new.space.parent == gallery:
        return (
            f"of the {new.dim} dimensions of new vectors the first {old.dim} were made for the old "
            f"space: with these new queries searched the old gallery"
        )
    for measured in new.space.compatible_with:
        if measured.fingerprint == gallery:
            return (
                f"new queries were measured on the old gallery ({measured.metric} "
                f"{measured.value:.4f}) and may search it, but {UNKNOWN}. {PASS_IT}"
            )
    method = METHODS.get(new.space.method or "")
    if method is not None and method.maps_queries:
        return (
            f"the method {new.space.method} maps its queries for the old gallery, but these are "
            f"not mapped, so their results among old vectors mean nothing: make them with "
            f"`nobackfill embed --side query`, and pass them (`query_for_old`)"
        )
    if new.space.parent is not None:
        return (
            f"the new vectors were made for the space {new.space.parent}, and the old ones are of "
            f"{gallery}: {UNMAPPED}. If they fit these too, pass `compatible`"
        )
    return f"{UNKNOWN}: {UNMAPPED}. {PASS_IT}"


def stored_notes(store: Store, old: Vectors, sketch: Sketch | None = None) -> list[str]:
    """Remarks if the gallery has other vectors than the file from which a plan was made.

    `sketch` is that of the file.
    """
    notes = []
    stored = declared(store, store.main)
    if stored and old.space and stored.fingerprint != old.space.fingerprint:
        notes.append(
            f"the gallery declares vectors of the space {stored.fingerprint}, but the old file is "
            f"of {old.space.fingerprint}: the plan was measured on vectors that the gallery does "
            f"not contain"
        )
    if sketch is not None and is_other(*compare(store, sketch)):
        notes.append(
            "the gallery has other vectors under these ids than the old file: `backfill` will "
            "refuse this plan. Make it from vectors of the gallery (`nobackfill gallery pull`)"
        )
    return notes
