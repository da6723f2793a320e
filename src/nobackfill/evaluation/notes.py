"""Notes for the reader of a comparison: where the vectors come from."""

from collections.abc import Mapping

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from nobackfill.evaluation.file_columns import file_with, rows_of
from nobackfill.evaluation.search_plan import SearchPlan
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import is_in
from nobackfill.vectors.space import Space

ROUNDING = 1e-3  # largest distance of two unit vectors that float16 rounded from the same vector


def same_notes(old: Vectors, new: Vectors, plan: SearchPlan) -> list[str]:
    """Returns a note if old and new queries have the same vectors."""
    for ids in (plan.query_ids[:1], plan.query_ids):  # the first query usually decides
        if not are_the_same(rows_of(old, ids), rows_of(new, ids)[:, : old.dim]):
            return []
    return [
        "the old and the new vectors of the queries are the same, so nothing can change: check "
        "that these are the right files"
    ]


def are_the_same(first: Float[Tensor, "rows dim"], second: Float[Tensor, "rows dim"]) -> bool:
    """Whether the rows of two matrices have the same directions, up to rounding.

    Example:
        >>> import torch
        >>> are_the_same(torch.tensor([[3.0, 4.0]]), torch.tensor([[0.6, 0.8]]).half())
        True
    """
    difference = F.normalize(first.float(), dim=1) - F.normalize(second.float(), dim=1)
    return bool((difference.norm(dim=1) < ROUNDING).all())


def space_notes(old: Vectors, new: Vectors) -> list[str]:
    """Returns notes on the declared spaces of both files."""
    if old.space is None or new.space is None:
        both = (("old", old), ("new", new))
        undeclared = " and ".join(f"the {name}" for name, file in both if file.space is None)
        return [f"{undeclared} vectors do not declare the model that made them (no space.json)"]
    if new.space.parent not in (None, old.space.fingerprint):
        return ["the new model was made compatible with another old space than this one"]
    return []


def maps_queries(space: Space | None) -> bool:
    """Whether the method of a space maps its queries for the old gallery."""
    if space is None or space.method is None:
        return False
    from nobackfill.methods import METHODS  # imports every method, so only where one is named

    method = METHODS.get(space.method)
    return method is not None and method.maps_queries


def query_notes(new: Vectors, query_for_old: Vectors | None) -> list[str]:
    """Returns a note if the method makes other queries for the old gallery than these."""
    if new.space is None:
        return []
    if query_for_old is None:
        if not maps_queries(new.space):
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
    """Returns a note if one number covers several modalities."""
    file = file_with("modality", files)
    if file is None:
        return []
    modalities = [
        set(file.columns["modality"][is_in(file.ids, ids)].tolist())
        for ids in (plan.query_ids, plan.gallery_ids)
    ]
    if max(map(len, modalities)) < 2:
        return []
    names = " and ".join(f"{modality}s" for modality in sorted(set.union(*modalities)))
    return [
        f"these files contain {names}: they are searched together, and one number covers all; "
        f"--by-modality evaluates each direction"
    ]


def dimension_notes(models: Mapping[str, Vectors]) -> list[str]:
    """Returns notes on models of different dimensions."""
    if len({file.dim for file in models.values()}) == 1:
        return []
    dims = ", ".join(f"`{name}` {file.dim}" for name, file in models.items())
    notes = [
        f"the models differ in dimensions ({dims}): queries with more dimensions are compared by "
        f"their first ones, queries with fewer are not compared"
    ]
    names = list(models)
    pairs = [(new, old) for i, new in enumerate(names) for old in names[:i]]
    missing = [(new, old) for new, old in pairs if models[new].dim < models[old].dim]
    if missing:
        new, old = missing[0]
        notes.append(
            f"no AC and AM: {len(missing)} of the entries below the diagonal cannot be measured, "
            f"the first being queries by `{new}` on the gallery of `{old}`"
        )
    return notes


def order_notes(models: Mapping[str, Vectors]) -> list[str]:
    """Returns notes on the declared spaces of the files."""
    notes: list[str] = []
    spaces = {name: file.space for name, file in models.items() if file.space is not None}
    by_fingerprint = {space.fingerprint: name for name, space in spaces.items()}
    order = list(models)
    for name, space in spaces.items():
        if maps_queries(space):
            notes.append(
                f"the method {space.method} of `{name}` maps its queries for older galleries, but "
                f"these are not mapped: only the entry of its own gallery is meaningful"
            )
        parent = by_fingerprint.get(space.parent or "")
        if parent is not None and order.index(parent) > order.index(name):
            notes.append(
                f"`{name}` was made compatible with `{parent}`, which comes after it: check that "
                f"the oldest model comes first"
            )
    return notes
