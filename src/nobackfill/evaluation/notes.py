"""What a reader should know of vectors that are compared: who made them, and what is mixed."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from nobackfill.evaluation.search_plan import SearchPlan, rows_of
from nobackfill.methods import METHODS
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import is_in

ROUNDING = 1e-3  # how far apart unit vectors may lie that float16 made of the same


def same_notes(old: Vectors, new: Vectors, plan: SearchPlan) -> list[str]:
    """Whether old and new queries have the same vectors, so that the upgrade is none."""
    for ids in (plan.query_ids[:1], plan.query_ids):  # the first one mostly tells
        if not are_the_same(rows_of(old, ids), rows_of(new, ids)[:, : old.dim]):
            return []
    return [
        "the old and the new vectors of the queries are the same, so nothing can change: check "
        "that these are the right files"
    ]


def are_the_same(one: Float[Tensor, "rows dim"], other: Float[Tensor, "rows dim"]) -> bool:
    """Whether vectors point the same way, but for rounding.

    Example:
        >>> import torch
        >>> are_the_same(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.6, 0.8]]).half())
        True
    """
    apart = F.normalize(one.float(), dim=1) - F.normalize(other.float(), dim=1)
    return bool((apart.norm(dim=1) < ROUNDING).all())


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
