"""What a reader should know of vectors that are compared: who made them, and what is mixed."""

from nobackfill.ids import is_in
from nobackfill.matching import SearchPlan
from nobackfill.methods import METHODS
from nobackfill.vectors import Vectors


def space_notes(old: Vectors, new: Vectors) -> list[str]:
    """What the fingerprints of both spaces tell a reader."""
    if old.space is None or new.space is None:
        both = (("old", old), ("new", new))
        undeclared = " and ".join(f"the {name}" for name, file in both if file.space is None)
        return [f"{undeclared} vectors do not say what made them (no space.json)"]
    if new.space.parent not in (None, old.space.fingerprint):
        return ["the new model was made compatible with another old space than this one"]
    return []


def query_notes(new: Vectors, query_for_old: Vectors | None) -> list[str]:
    """Whether the old gallery was asked with the vectors that are meant for it."""
    if new.space is None:
        return []
    method = METHODS.get(new.space.method or "")
    if query_for_old is None:
        if method is None or not method.maps_queries:
            return []
        return [
            f"the method {new.space.method} maps its queries for the old gallery, but these are "
            f"not mapped, so new/old means nothing: make them by `nobackfill embed --side query`, "
            f"and pass them by --query-for-old"
        ]
    if query_for_old.space is not None and query_for_old.space.weights != new.space.weights:
        return ["the queries for the old gallery were made by another model than the new one"]
    return []


def mixed_notes(files: tuple[Vectors, Vectors], plan: SearchPlan) -> list[str]:
    """Whether one number stands for searches among images and among texts alike."""
    file = next((one for one in files if "modality" in one.columns), None)
    if file is None:
        return []
    kinds = [
        set(file.columns["modality"][is_in(file.ids, ids)].tolist())
        for ids in (plan.query_ids, plan.gallery_ids)
    ]
    if max(map(len, kinds)) < 2:
        return []
    held = " and ".join(f"{kind}s" for kind in sorted(set.union(*kinds)))
    return [
        f"these files hold {held}: all ask and are searched together, and one number stands for "
        f"all; --by-modality tells them apart"
    ]
