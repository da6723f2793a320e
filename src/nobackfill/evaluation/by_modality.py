"""The upgrade of a multimodal retriever: each direction by itself, and the gap between modalities.

Directions are named by who asks and who is searched: `text_to_image`. Pairs are query/gallery.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.evaluation.evaluate import (
    Evaluation,
    evaluate,
    metrics_of,
    search_as_planned,
)
from nobackfill.evaluation.file_columns import check_agreement, columns_of, roles_of, rows_of
from nobackfill.evaluation.metrics import Retrieval, unit
from nobackfill.evaluation.notes import maps_queries
from nobackfill.evaluation.pair_vectors import PairVectors
from nobackfill.evaluation.protocols import Protocol, protocol_named
from nobackfill.evaluation.search_plan import SearchPlan, plan_search
from nobackfill.evaluation.verdict import (
    ADVICE,
    Verdict,
    directions_sentence,
    is_between_modalities,
    is_compatible,
    joint_verdict,
)
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import Ids, is_in

BLOCK = 1024  # queries that are looked at together


class Direction(NamedTuple):
    """Who asks, and who is searched."""

    asks: str
    searched: str

    @property
    def name(self) -> str:
        """As JSON has it: `text_to_image`."""
        return f"{self.asks}_to_{self.searched}"


class Gap(NamedTuple):
    """The gaps between two modalities, None where not measured.

    Attributes:
        one: The first modality, such as `image`.
        other: The second, such as `text`.
        old: Before the upgrade.
        new: After every item has been embedded again.
        other_asks: Between new queries of the second and the old gallery of the first.
        one_asks: Between new queries of the first and the old gallery of the second.
    """

    one: str
    other: str
    old: float | None
    new: float | None
    other_asks: float | None
    one_asks: float | None

    @property
    def sentence(self) -> str:
        """In words, without what was not measured.

        Example:
            >>> Gap("image", "text", 0.8, 0.6, 0.7, None).sentence
            'The gap between images and texts: 0.800 before, 0.600 after a full backfill; 0.700 ...'
        """
        own = {"before": self.old, "after a full backfill": self.new}
        met = {
            f"from new {self.other}s to old {self.one}s": self.other_asks,
            f"from new {self.one}s to old {self.other}s": self.one_asks,
        }
        parts = [
            ", ".join(f"{gap:.3f} {what}" for what, gap in some.items() if gap is not None)
            for some in (own, met)
        ]
        told = "; ".join(part for part in parts if part)
        return f"The gap between {self.one}s and {self.other}s: {told}."


@dataclass(frozen=True, eq=False)
class ByModality:
    """What was measured, direction by direction.

    Attributes:
        directions: By name, such as `text_to_image`; those between two modalities come first.
        old_new: Old queries on the new gallery, of the same directions; None where these cannot
            be compared.
        gap_pairs: How far every two modalities lie apart.
        notes: What a reader should know about these numbers.
    """

    directions: Mapping[str, Evaluation]
    old_new: Mapping[str, Retrieval | None]
    gap_pairs: tuple[Gap, ...]
    notes: tuple[str, ...] = ()

    @property
    def gaps(self) -> dict[str, float | None]:
        """The gaps by name: `old`, `new`, `new_text_old_image` and `new_image_old_text`.

        Of more than two modalities `old_image_text`, `new_image_text`, and so on.
        """
        named: dict[str, float | None] = {}
        for pair in self.gap_pairs:
            tail = "" if len(self.gap_pairs) == 1 else f"_{pair.one}_{pair.other}"
            named[f"old{tail}"], named[f"new{tail}"] = pair.old, pair.new
            named[f"new_{pair.other}_old_{pair.one}"] = pair.other_asks
            named[f"new_{pair.one}_old_{pair.other}"] = pair.one_asks
        return named

    def between(self, *verdicts: Verdict) -> list[str]:
        """The names of the directions between two modalities that came to one of these verdicts."""
        return [
            name
            for name, one in self.directions.items()
            if is_between_modalities(name) and one.verdict in verdicts
        ]

    @property
    def verdict(self) -> Verdict:
        """The joint verdict of the directions between two modalities."""
        return joint_verdict(
            result.verdict
            for name, result in self.directions.items()
            if is_between_modalities(name)
        )

    @property
    def compatible(self) -> bool | None:
        """The verdict as a truth value; None if it is undecided."""
        return is_compatible(self.verdict)

    @property
    def conclusion(self) -> str:
        """The verdict in a sentence, with what to do."""
        return directions_sentence(
            {name: self.directions[name].verdict for name in self.between(*ADVICE)}
        )

    def summary(self) -> dict[str, Any]:
        """The numbers as they go into JSON: fractions, and None for what was not measured."""
        return {
            "directions": {
                name: _with_old_new(one.summary(), self.old_new[name])
                for name, one in self.directions.items()
            },
            "modality_gap": self.gaps,
            "compatible": self.compatible,
            "notes": list(self.notes),
        }


def evaluate_modalities(
    old: Vectors,
    new: Vectors,
    *,
    query_for_old: Vectors | None = None,
    independent: Vectors | None = None,
    protocol: str | None = None,
    intersect: bool = False,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> ByModality:
    """Compares an old and a new model in every direction between the modalities of their files.

    The modality of each item stands in the column `modality` of the old file, or of the new if the
    old has none. A direction in which no query has anything to find is left out, with a note.

    Args:
        old: Vectors of the model in service.
        new: Vectors of the model that may take its place. Where it has none of a modality, that
            one does not ask.
        query_for_old: The new model's queries as a map made them for the old gallery.
        independent: Vectors of a new model trained without constraint: the ceiling.
        protocol: A name of `PROTOCOLS`, whose modalities are not looked at; "plain" by default.
        intersect: Whether items that only one file has are left out instead of being an error.
        seed: Of the drawing that intervals come from.
        device: Where to search.
        progress: Told from time to time how many searches are done, and of how many.
    """
    _, rules = protocol_named(protocol)
    asks = new if query_for_old is None else query_for_old
    planned, missing = _plan_directions(old, asks, new, rules, intersect=intersect)
    searches = 4 + (independent is not None)
    total = searches * sum(len(plan.query_ids) for plan in planned.values())
    directions: dict[str, Evaluation] = {}
    old_new: dict[str, Retrieval | None] = {}
    before = 0
    for one, plan in planned.items():
        directions[one.name] = evaluate(
            old,
            new,
            query_for_old=query_for_old,
            independent=independent,
            protocol=protocol,
            modalities=(one.asks, one.searched),
            intersect=intersect,
            seed=seed,
            device=device,
            progress=_going_on(progress, before, total),
        )
        old_new[one.name] = None
        if plan.new_has_gallery and old.dim == new.dim:
            pair = PairVectors(plan, {"old_new": (old, new, None)}, device)["old_new"]
            old_new[one.name] = search_as_planned(plan, rules, *pair)
        before += searches * len(plan.query_ids)
        if progress is not None:
            progress(before, total)
    return ByModality(
        directions,
        old_new,
        _gaps(planned, old, new, asks),
        notes=(
            *(f"{name} is left out: {reason}" for name, reason in missing.items()),
            *_cross_notes(planned),
            *_old_new_notes(planned, old, new, mapped=query_for_old is not None),
            *_said_once({name: one.notes for name, one in directions.items()}),
        ),
    )


def modality_gap(image: Float[Tensor, "images dim"], text: Float[Tensor, "texts dim"]) -> float:
    r"""The distance between the centroids of two modalities.

    .. math::
        \Bigl\lVert \frac{1}{n} \sum_{i=1}^{n} \frac{u_i}{\lVert u_i \rVert}
        - \frac{1}{m} \sum_{j=1}^{m} \frac{v_j}{\lVert v_j \rVert} \Bigr\rVert

    with the vectors :math:`u_i` of the one and :math:`v_j` of the other. From 0 to 2; the means
    are taken in float64. Liang et al., Mind the Gap: Understanding the Modality Gap in Multi-modal
    Contrastive Representation Learning, NeurIPS 2022.

    Args:
        image: Vectors of any length but zero.
        text: Likewise.

    Example:
        >>> modality_gap(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.0, 3.0]]))
        1.414...
    """
    if len(image) == 0 or len(text) == 0:
        raise DataError(
            f"wanted vectors of both modalities, but got {len(image)} and {len(text)}. Check the "
            f"column `modality`."
        )
    centroids = [
        unit(vectors.detach().to(torch.promote_types(vectors.dtype, torch.float32)), name)
        .mean(dim=0, dtype=torch.float64)
        .cpu()
        for vectors, name in ((image, "image"), (text, "text"))
    ]
    return float((centroids[0] - centroids[1]).norm())


def has_something_to_find(plan: SearchPlan) -> bool:
    """Whether any query has anything to find that counts."""
    count = len(plan.query_ids)
    return any(
        bool((plan.is_relevant(first, last) & ~plan.is_ignored(first, last)).any())
        for first in range(0, count, BLOCK)
        for last in (min(first + BLOCK, count),)
    )


def _with_old_new(summary: dict[str, Any], found: Retrieval | None) -> dict[str, Any]:
    """A direction's summary, with old queries on the new gallery beside the other pairs."""
    mean, first, metrics = None, None, {}
    if found is not None:
        mean, first = found.mean_average_precision, found.recall(1)
        metrics = {"old_new": metrics_of(found)}
    return {
        **summary,
        "old_new": mean,
        "metrics": {**summary["metrics"], **metrics},
        "recall_at_1": {**summary["recall_at_1"], "old_new": first},
    }


def _plan_directions(
    old: Vectors, asks: Vectors, new: Vectors, rules: Protocol, *, intersect: bool
) -> tuple[dict[Direction, SearchPlan], dict[str, str]]:
    """The searches of every direction, and by name why others have none."""
    sides = _sides(old, asks, leave_one_out=rules.leave_one_out)
    planned: dict[Direction, SearchPlan] = {}
    missing: dict[str, str] = {}
    for one in _directions(sides):
        if (reason := _no_search(one, sides, old, asks)) is not None:
            missing[one.name] = reason
            continue
        plan = plan_search(
            old,
            asks,
            new,
            same_camera=rules.same_camera,
            leave_one_out=rules.leave_one_out,
            modalities=(one.asks, one.searched),
            intersect=intersect,
        )
        if has_something_to_find(plan):
            planned[one] = plan
        else:
            other = "another" if one.asks == one.searched else "any"
            missing[one.name] = f"no {one.asks} has {other} {one.searched} to find"
    if not planned:
        told = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        raise DataError(
            f"wanted a direction in which some query has something to find, but there is none "
            f"({told}). Check the columns `label` and `modality`: what belongs together shares a "
            f"label."
        )
    return planned, missing


def _sides(old: Vectors, asks: Vectors, *, leave_one_out: bool) -> dict[str, tuple[Ids, Ids]]:
    """Of each modality the ids that ask and those that are searched; texts before images."""
    file = next((one for one in (old, asks) if "modality" in one.columns), None)
    if file is None:
        raise DataError(
            "wanted a column `modality`, which tells images from texts, but neither file has one. "
            "Add it to either (`image`, `text`), or evaluate all items together, without "
            "--by-modality."
        )
    kind = file.columns["modality"]
    queries, gallery = roles_of((old, asks), leave_one_out=leave_one_out)
    takes_part = is_in(file.ids, queries) | is_in(file.ids, gallery)
    if kind.dtype.kind != "U" or (kind[takes_part] == "").any():
        raise DataError(
            f"wanted a word in the column `modality` of every item, such as `image` or `text`, but "
            f"it holds {', '.join(map(repr, np.unique(kind[takes_part])[:3].tolist()))}. Write it "
            f"again."
        )
    shared = old.ids[is_in(old.ids, asks.ids)]
    check_agreement("modality", {"the old file": old, "the new file": asks}, shared)
    return {
        name: (
            queries[is_in(queries, file.ids[kind == name])],
            gallery[is_in(gallery, file.ids[kind == name])],
        )
        for name in sorted(set(kind[takes_part].tolist()), reverse=True)
    }


def _directions(sides: Mapping[str, tuple[Ids, Ids]]) -> Iterator[Direction]:
    """Every direction, those between two modalities first."""
    yield from (Direction(*pair) for pair in permutations(sides, 2))
    yield from (Direction(kind, kind) for kind in sorted(sides))


def _no_search(
    direction: Direction, sides: Mapping[str, tuple[Ids, Ids]], old: Vectors, asks: Vectors
) -> str | None:
    """Why a direction has no search at all; None where it has one."""
    queries, gallery = sides[direction.asks][0], sides[direction.searched][1]
    if len(queries) == 0:
        return f"no {direction.asks} asks"
    if len(gallery) == 0:
        return f"no {direction.searched} is searched"
    if not is_in(queries, asks.ids).any():
        return f"the new file has no {direction.asks} that asks"
    labels = columns_of((old, asks), np.union1d(queries, gallery)).get("label")
    if labels is not None and len(np.unique(labels)) < 2:
        return "all items are of one class, and whatever is found is right"
    return None


def _gaps(
    planned: Mapping[Direction, SearchPlan], old: Vectors, new: Vectors, asks: Vectors
) -> tuple[Gap, ...]:
    """The gaps between every two modalities, of the items that took part."""
    items: dict[str, Ids] = {}
    for direction, plan in planned.items():
        for kind, ids in zip(direction, (plan.query_ids, plan.gallery_ids), strict=True):
            items[kind] = np.union1d(items.get(kind, ids), ids)

    def met(asking: str, stored: str) -> float | None:
        plan = planned.get(Direction(asking, stored))
        return None if plan is None else _gap(asks, plan.query_ids, old, plan.gallery_ids)

    return tuple(
        Gap(
            one,
            other,
            old=_gap(old, items[one], old, items[other]),
            new=_gap(new, items[one], new, items[other]),
            other_asks=met(other, one),
            one_asks=met(one, other),
        )
        for one, other in combinations(sorted(items), 2)
    )


def _gap(one: Vectors, ids: Ids, other: Vectors, other_ids: Ids) -> float | None:
    """Between items of two files, by the dimensions that meet; None where a file lacks some."""
    if not (is_in(ids, one.ids).all() and is_in(other_ids, other.ids).all()):
        return None
    return modality_gap(rows_of(one, ids)[:, : other.dim], rows_of(other, other_ids))


def _cross_notes(planned: Mapping[Direction, SearchPlan]) -> list[str]:
    """Whether there is no direction between modalities to decide by."""
    if any(one.asks != one.searched for one in planned):
        return []
    return ["without a direction between two modalities there is no verdict, and no gap"]


def _old_new_notes(
    planned: Mapping[Direction, SearchPlan], old: Vectors, new: Vectors, *, mapped: bool
) -> list[str]:
    """Why old queries cannot be put to the new gallery, or need not be."""
    if old.dim != new.dim:
        return [
            f"old/new is not measured: old queries have {old.dim} dimensions, the new gallery "
            f"{new.dim}"
        ]
    lacking = [one.name for one, plan in planned.items() if not plan.new_has_gallery]
    notes = []
    if lacking:
        notes.append(
            f"old/new is not measured in {', '.join(lacking)}: the new file lacks the gallery"
        )
    if mapped or maps_queries(new.space):
        notes.append(
            "new queries are mapped for the old gallery, so new gallery vectors lie in a space of "
            "their own: old/new is expected to find nothing"
        )
    return notes


def _said_once(notes: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Notes of all directions, each once; where not all have it, with the names of those."""
    told: dict[str, list[str]] = {}
    for name, some in notes.items():
        for note in some:
            told.setdefault(note, []).append(name)
    return [
        note if len(names) == len(notes) else f"{', '.join(names)}: {note}"
        for note, names in told.items()
    ]


def _going_on(
    progress: Callable[[int, int], None] | None, before: int, total: int
) -> Callable[[int, int], None] | None:
    """Counts the searches of one direction on from those before it."""
    if progress is None:
        return None
    return lambda done, _: progress(before + done, total)
