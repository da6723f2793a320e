"""Are old and new vectors of one space? As their records declare; where nothing does, they are not.

Of one space means that one query vector asks both, and that its cosines to both can be compared.
"""

from nobackfill.errors import SpaceMismatch
from nobackfill.gallery.provenance import declared
from nobackfill.gallery.stores.base import Store
from nobackfill.methods import METHODS
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import names_a_model

IN_DEVIATIONS = (
    "scores on both halves are compared in deviations from those of strangers: a search of the "
    "mixed gallery must do the same"
)
ASKED_AS_THEY_ARE = "new queries asked the old gallery as they are"
SAY_SO = "If they are, say so (`compatible`)"


def judged(
    old: Vectors, new: Vectors, *, told: bool | None, asked_apart: bool
) -> tuple[bool, list[str]]:
    """Whether old and new vectors are taken to be of one space, and what a reader should know then.

    Args:
        old: Vectors of the model in service.
        new: Vectors of the new model.
        told: What the caller says, which counts; None where the files are to say it.
        asked_apart: Whether queries were mapped for the old gallery, so that none asks both.
    """
    one_space = not asked_apart and says_one_space(old, new) if told is None else told
    if one_space and new.dim != old.dim:
        raise SpaceMismatch(
            f"wanted old and new vectors of one space, but they have {old.dim} and {new.dim} "
            f"dimensions. Leave out `compatible`: scores are then made comparable."
        )
    if one_space:
        return True, []
    is_open = told is None and not asked_apart
    return False, [IN_DEVIATIONS, *([why_not_one(old, new)] if is_open else [])]


def says_one_space(old: Vectors, new: Vectors) -> bool:
    """Whether the files declare that the new vectors are of the old space.

    They do where the record of the old ones tells which model made them, and that of the new ones
    names the same model, or a model that was made to fit it (`parent`). That queries were measured
    on the old gallery (`compatible_with`) says that they may ask it, and no more.
    """
    if old.space is None or new.space is None or old.dim != new.dim or not names_a_model(old.space):
        return False
    return old.space.fingerprint in (new.space.parent, new.space.fingerprint)


def why_not_one(old: Vectors, new: Vectors) -> str:
    """What the files say of their spaces, where they do not declare that these are one."""
    unknown = "nothing says that the new vectors are of the old space"
    files = {"old": old.space, "new": new.space}
    if old.space is None or new.space is None:
        silent = " and ".join(f"the {name}" for name, space in files.items() if space is None)
        return (
            f"{unknown}, as {silent} ones do not say what made them (no space.json): "
            f"{ASKED_AS_THEY_ARE}. {SAY_SO}"
        )
    if not names_a_model(old.space):
        return (
            f"{unknown}, as the record of the old ones tells neither `weights` nor `preprocessing` "
            f"and any of {old.dim} dimensions could be meant: {ASKED_AS_THEY_ARE}. {SAY_SO}"
        )
    gallery = old.space.fingerprint
    if new.space.parent == gallery:
        return (
            f"of the {new.dim} dimensions of new vectors the first {old.dim} were made for the old "
            f"space: with these new queries asked the old gallery"
        )
    for one in new.space.compatible_with:
        if one.fingerprint == gallery:
            return (
                f"new queries were measured on the old gallery ({one.metric} {one.value:.4f}) and "
                f"may ask it, but {unknown}. {SAY_SO}"
            )
    method = METHODS.get(new.space.method or "")
    if method is not None and method.maps_queries:
        return (
            f"the method {new.space.method} maps its queries for the old gallery, but these are "
            f"not mapped, so what they find among old vectors means nothing: make them by "
            f"`nobackfill embed --side query`, and pass them (`query_for_old`)"
        )
    if new.space.parent is not None:
        return (
            f"the new vectors were made for the space {new.space.parent}, and the old ones are of "
            f"{gallery}: {ASKED_AS_THEY_ARE}. If they fit these too, say so (`compatible`)"
        )
    return f"{unknown}: {ASKED_AS_THEY_ARE}. {SAY_SO}"


def stored_notes(store: Store, old: Vectors) -> list[str]:
    """Whether the gallery declares other vectors than those that a plan was made from."""
    stored = declared(store, store.main)
    if stored is None or old.space is None or stored.fingerprint == old.space.fingerprint:
        return []
    return [
        f"the gallery declares vectors of the space {stored.fingerprint}, but the old file is of "
        f"{old.space.fingerprint}: the plan was measured on vectors that the gallery does not hold"
    ]
