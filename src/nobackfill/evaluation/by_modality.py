"""Evaluates the upgrade of a multimodal retriever: each direction by itself, and the modality gap.

A direction is named by the modality of its queries and of its gallery: `text_to_image`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import torch

from nobackfill.core.short import Short
from nobackfill.errors import DataError
from nobackfill.evaluation.evaluate import evaluate
from nobackfill.evaluation.file_columns import check_agreement, columns_of, file_with, roles_of
from nobackfill.evaluation.gate import Gate
from nobackfill.evaluation.metrics import Retrieval
from nobackfill.evaluation.modality_gap import Gap, gaps_between
from nobackfill.evaluation.notes import maps_queries
from nobackfill.evaluation.protocols import Protocol, protocol_named
from nobackfill.evaluation.result import Evaluation, metrics_of
from nobackfill.evaluation.search import PairVectors, search_as_planned
from nobackfill.evaluation.search_plan import SearchPlan, plan_upgrade
from nobackfill.evaluation.verdict import (
    Verdict,
    again_gains,
    directions_sentence,
    is_between_modalities,
    is_compatible,
    joint_verdict,
)
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import Ids, is_in

BLOCK = 1024  # queries that are checked together


class Direction(NamedTuple):
    """Modality of the queries and of the gallery."""

    query: str
    gallery: str

    @property
    def name(self) -> str:
        """The name in JSON: `text_to_image`."""
        return f"{self.query}_to_{self.gallery}"


@dataclass(frozen=True, eq=False, repr=False)
class ByModality(Short):
    """The evaluations of all directions."""

    # evaluation of each direction by its name, such as `text_to_image`: those between two
    # modalities come first
    directions: Mapping[str, Evaluation]
    # old queries on the new gallery in each direction; None if not comparable
    old_new: Mapping[str, Retrieval | None]
    gap_pairs: tuple[Gap, ...]  # gaps between every two modalities
    notes: tuple[str, ...] = ()  # notes for the reader of the results

    @property
    def gaps(self) -> dict[str, float | None]:
        """The gaps by name: `old`, `new`, `new_text_old_image` and `new_image_old_text`.

        With more than two modalities the first are `old_image_text`, `new_image_text`, and so on.
        """
        named: dict[str, float | None] = {}
        for pair in self.gap_pairs:
            tail = "" if len(self.gap_pairs) == 1 else f"_{pair.first}_{pair.second}"
            named[f"old{tail}"], named[f"new{tail}"] = pair.old, pair.new
            named[f"new_{pair.second}_old_{pair.first}"] = pair.second_to_first
            named[f"new_{pair.first}_old_{pair.second}"] = pair.first_to_second
        return named

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict of each direction between two modalities."""
        return {
            name: evaluation.verdict
            for name, evaluation in self.directions.items()
            if is_between_modalities(name)
        }

    @property
    def verdict(self) -> Verdict:
        """The joint verdict of the directions between two modalities."""
        return joint_verdict(self.verdicts.values())

    @property
    def compatible(self) -> bool | None:
        """The verdict as a truth value; None if it is undecided."""
        return is_compatible(self.verdict)

    @property
    def conclusion(self) -> str:
        """The verdict in a sentence, with what to do."""
        counted = [self.directions[name].summary() for name in self.verdicts]
        return directions_sentence(self.verdicts, gains_again=again_gains(counted))

    def summary(self) -> dict[str, Any]:
        """Returns the numbers for JSON: fractions, and None for what was not measured."""
        return {
            "directions": {
                name: _with_old_new(evaluation.summary(), self.old_new[name])
                for name, evaluation in self.directions.items()
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
    gate: Gate | None = None,
    sessions: str | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> ByModality:
    """Compares an old and a new model in every direction between the modalities of their files.

    The column `modality` of the old file, or of the new one if the old has none, holds the
    modality of each item. A direction in which no query has a relevant item is left out, with a
    note, and so are those whose queries the new file lacks. Arguments are those of `evaluate`; the
    modalities of a protocol are ignored.
    """
    _, rules = protocol_named(protocol)
    queries = new if query_for_old is None else query_for_old
    plans, missing = _plan_directions(old, queries, new, rules, intersect=intersect)
    searches = 4 + (independent is not None)
    total = searches * sum(len(plan.query_ids) for plan in plans.values())
    directions: dict[str, Evaluation] = {}
    old_new: dict[str, Retrieval | None] = {}
    before = 0
    for direction, plan in plans.items():

        def report(done: int, _: int, before: int = before) -> None:
            if progress is not None:
                progress(before + done, total)

        directions[direction.name] = evaluate(
            old,
            new,
            query_for_old=query_for_old,
            independent=independent,
            protocol=protocol,
            modalities=direction,
            gate=gate,
            sessions=sessions,
            seed=seed,
            device=device,
            progress=report,
            plan=plan,
        )
        old_new[direction.name] = None
        if plan.new_has_gallery and old.dim == new.dim:
            pair = PairVectors(plan, {"old_new": (old, new, None)}, device)["old_new"]
            old_new[direction.name] = search_as_planned(plan, rules, *pair)
        before += searches * len(plan.query_ids)
        report(0, total, before)
    return ByModality(
        directions,
        old_new,
        gaps_between({(*direction,): plan for direction, plan in plans.items()}, old, new, queries),
        notes=(
            *(f"{name} is left out: {reason}" for name, reason in missing.items()),
            *_direction_notes(plans, old, new, mapped=query_for_old is not None),
            *_merged({name: evaluation.notes for name, evaluation in directions.items()}),
        ),
    )


def has_something_to_find(plan: SearchPlan) -> bool:
    """Whether any query has a relevant item that is not ignored."""
    return any(
        bool((plan.is_relevant(rows) & ~plan.is_ignored(rows)).any())
        for rows in torch.arange(len(plan.query_ids)).split(BLOCK)
    )


def _with_old_new(summary: dict[str, Any], result: Retrieval | None) -> dict[str, Any]:
    """Adds old queries on the new gallery to the summary of a direction."""
    metrics = {} if result is None else metrics_of(result)
    return {
        **summary,
        "old_new": metrics.get("map"),
        "metrics": {**summary["metrics"], **({"old_new": metrics} if metrics else {})},
        "recall_at_1": {**summary["recall_at_1"], "old_new": metrics.get("recall_at_1")},
    }


def _plan_directions(
    old: Vectors, queries: Vectors, new: Vectors, rules: Protocol, *, intersect: bool
) -> tuple[dict[Direction, SearchPlan], dict[str, str]]:
    """Returns the plan of every direction, and the reason why others have none, by their name."""
    roles = _roles(old, queries, leave_one_out=rules.leave_one_out)
    plans: dict[Direction, SearchPlan] = {}
    missing: dict[str, str] = {}
    within = [(modality, modality) for modality in sorted(roles)]
    for query, gallery in [*permutations(roles, 2), *within]:
        direction = Direction(query, gallery)
        reason = _no_search(direction, roles[query][0], roles[gallery][1], old, queries)
        if reason is None:
            plan = plan_upgrade(
                old, queries, new, replace(rules, modalities=direction), intersect=intersect
            )
            if has_something_to_find(plan):
                plans[direction] = plan
                continue
            other = "another" if query == gallery else "any"
            reason = f"no {query} has {other} {gallery} to find"
        missing[direction.name] = reason
    if not plans:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        raise DataError(
            f"there is no direction in which any query has something to find ({reasons}). Check "
            f"the columns `label` and `modality`: items that belong together share a label."
        )
    return plans, missing


def _roles(old: Vectors, new: Vectors, *, leave_one_out: bool) -> dict[str, tuple[Ids, Ids]]:
    """Returns the ids of the queries and of the gallery of each modality; texts before images."""
    file = file_with("modality", (old, new))
    if file is None:
        raise DataError(
            "an evaluation by modality needs a column `modality`, but neither file has one. Add it "
            "to either (`image`, `text`), or evaluate all items together, without --by-modality."
        )
    column = file.columns["modality"]
    queries, gallery = roles_of((old, new), leave_one_out=leave_one_out)
    searched = is_in(file.ids, queries) | is_in(file.ids, gallery)
    if column.dtype.kind not in "UT" or (column[searched] == "").any():
        values = ", ".join(map(repr, np.unique(column[searched])[:3].tolist()))
        raise DataError(
            f"every item needs a word in the column `modality`, such as `image` or `text`, but it "
            f"contains {values}. Correct the column."
        )
    check_agreement("modality", {"the old file": old, "the new file": new})
    return {
        name: (
            queries[is_in(queries, file.ids[column == name])],
            gallery[is_in(gallery, file.ids[column == name])],
        )
        for name in sorted(set(column[searched].tolist()), reverse=True)
    }


def _no_search(
    direction: Direction, queries: Ids, gallery: Ids, old: Vectors, new: Vectors
) -> str | None:
    """Returns the reason why a direction has no search; None if it has one."""
    if len(queries) == 0:
        return f"there are no {direction.query} queries"
    if len(gallery) == 0:
        return f"there are no {direction.gallery} gallery items"
    if not is_in(queries, new.ids).any():
        return f"the new file has no {direction.query} queries"
    labels = columns_of((old, new), np.union1d(queries, gallery)).get("label")
    if labels is not None and len(np.unique(labels)) < 2:
        return "all items are of one class, so every result is right"
    return None


def _direction_notes(
    plans: Mapping[Direction, SearchPlan], old: Vectors, new: Vectors, *, mapped: bool
) -> list[str]:
    """Returns notes on a missing verdict, and on old queries on the new gallery."""
    notes = []
    if all(direction.query == direction.gallery for direction in plans):
        notes.append("without a direction between two modalities there is no verdict, and no gap")
    if old.dim != new.dim:
        return [
            *notes,
            f"old/new is not measured: old queries have {old.dim} dimensions, the new gallery "
            f"{new.dim}",
        ]
    lacking = [direction.name for direction, plan in plans.items() if not plan.new_has_gallery]
    if lacking:
        notes.append(
            f"old/new is not measured in {', '.join(lacking)}: the new file lacks the gallery"
        )
    if mapped or maps_queries(new.space):
        notes.append(
            "new queries are mapped for the old gallery, so new gallery vectors have a space of "
            "their own: old/new is expected to find nothing"
        )
    return notes


def _merged(notes: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Returns each note of any direction once, with the directions' names unless all have it."""
    names: dict[str, list[str]] = {}
    for name, of_direction in notes.items():
        for note in of_direction:
            names.setdefault(note, []).append(name)
    return [
        note if len(holders) == len(notes) else f"{', '.join(holders)}: {note}"
        for note, holders in names.items()
    ]
