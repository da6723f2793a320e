"""Evaluates an upgrade: do new queries on the old gallery beat old queries?"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from nobackfill.data.listing import GroundTruth
from nobackfill.errors import ConfigError
from nobackfill.evaluation.dependence import copies_note, dependent_items, sessions_of
from nobackfill.evaluation.file_columns import columns_of, rows_of
from nobackfill.evaluation.gate import Gate
from nobackfill.evaluation.identity import identity_doubts, relation_note
from nobackfill.evaluation.near_duplicates import Groups
from nobackfill.evaluation.notes import mixed_notes, query_notes, same_notes, space_notes
from nobackfill.evaluation.protocols import PROTOCOLS, Protocol, protocol_named
from nobackfill.evaluation.result import Evaluation
from nobackfill.evaluation.scores import compatibility, p_scores
from nobackfill.evaluation.search import PairVectors, search_pairs
from nobackfill.evaluation.search_plan import SearchPlan, plan_upgrade
from nobackfill.evaluation.seen_queries import SeenQueries, seen_queries
from nobackfill.vectors import Vectors
from nobackfill.vectors.ids import is_in
from nobackfill.vectors.matrix import Data

__all__ = ["PROTOCOLS", "Evaluation", "Protocol", "compatibility", "evaluate", "p_scores"]


def evaluate(
    old: Data,
    new: Data,
    *,
    ids: Any = None,
    labels: Any = None,
    pairs: Any = None,
    groups: Any = None,
    id: str | None = None,
    vector: str | None = None,
    label: str | None = None,
    new_query: Data | None = None,
    query_for_old: Data | None = None,
    independent: Data | None = None,
    protocol: str | None = None,
    modalities: tuple[str, str] | None = None,
    ground_truth: Any = None,
    intersect: bool = False,
    gate: Gate | None = None,
    sessions: str | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
    plan: SearchPlan | None = None,
) -> Evaluation:
    """Compares an old and a new model on the same items: can the new one be deployed today?

    Vectors may be NumPy arrays, torch tensors, lists, tables (pandas, polars, pyarrow), paths or
    `Vectors`; see `nobackfill.as_vectors`. Items are matched by id, or by position if a side has no
    ids, which a note says. The columns `is_query` and `is_gallery` of the old file, or of the new
    one if the old has none, mark queries and gallery; without them every item queries all others.
    An item never finds itself. Labels come from the old file, or from the new one if the old has
    none. Without labels, pairs and groups, use `compare_rankings`.

    Args:
        old: Vectors of the model in service.
        new: Vectors of the model that may replace it. It must cover the queries; if it has none
            of the gallery, new/new is not measured.
        ids: Id of each row of the sides that have none.
        labels: Label of each item, in place of those of the data.
        pairs: Relevant items of each query, in place of labels: a mapping, (query, relevant)
            tuples, or a table of both columns.
        groups: Group of each item, in place of labels: items of one group are relevant to each
            other.
        id: Column of ids, where it is not found by name.
        vector: Column of vectors, likewise.
        label: Column of labels, likewise.
        new_query: Query vectors of the new model, if they differ from its gallery vectors.
        query_for_old: Query vectors of the new model, mapped for the old gallery (the method
            `rm`). new/old uses them, new/new does not.
        independent: Vectors of a new model trained without constraint: the upper bound.
        protocol: Name in `PROTOCOLS`; "plain" by default.
        modalities: Modality of the queries and of the gallery, in place of those of the protocol;
            values of the column `modality`.
        ground_truth: Other name of `pairs`.
        intersect: Whether to leave out items that only one file has, instead of raising an error.
        gate: Requirements on new/old for the verdict "compatible".
        sessions: Column of the photograph or session of each item. Items of one session do not
            find each other, and intervals resample them together.
        seed: Random seed of the intervals.
        device: Device of the search.
        progress: Called with the number of searches done and the number of all searches.
        plan: Plan of the search, if it has been made already by `plan_upgrade`.
    """
    sides, assumed = read_sides(
        {
            "old": old,
            "new": new,
            "new_query": new_query,
            "query_for_old": query_for_old,
            "independent": independent,
        },
        ids=ids,
        labels=labels,
        groups=groups,
        columns=(id, vector, label),
    )
    old, new, new_query, query_for_old, independent = sides
    ground_truth = read_pairs(pairs, ground_truth, labels=labels, groups=groups)
    if ground_truth is not None and ground_truth.judgements:
        raise ConfigError(
            "These pairs are judgements of a person, who saw only a few results of each query. "
            "Pass them to `nobackfill.judge(old, new, pairs)`."
        )
    name, rules = protocol_named(protocol)
    rules = replace(rules, modalities=modalities or rules.modalities)
    queries = new if new_query is None else new_query
    queries_for_old = queries if query_for_old is None else query_for_old
    if plan is None:
        plan = plan_upgrade(
            old, queries_for_old, new, rules, intersect=intersect, ground_truth=ground_truth
        )

    plan, query_groups, seen, copies = independent_queries(
        plan, old, queries_for_old, new, sessions, device
    )

    # search every pair that the files have
    files: dict[str, tuple[Vectors, Vectors, int | None]] = {
        "old_old": (old, old, None),
        "new_old": (queries_for_old, old, queries_for_old.compatible_dim),
    }
    has_queries = bool(is_in(plan.query_ids, queries.ids).all())
    if plan.new_has_gallery and has_queries:
        files["new_new"] = queries, new, None
    if independent is not None:
        files["independent"] = independent, independent, None
    vectors = PairVectors(plan, files, device)
    results = search_pairs(plan, rules, vectors, progress=progress)

    # collect notes for the reader
    doubts = [*filter(None, [seen.doubt]), *identity_doubts(old, queries_for_old, plan, device)]
    notes = (
        *assumed,
        *plan.notes,
        *([] if has_queries else ["new/new is not measured: the new file lacks queries"]),
        *doubts,
        *filter(None, [seen.note]),
        *copies,
        *same_notes(old, queries_for_old, plan),
        *([] if doubts else relation_note(old, queries_for_old, plan)),
        *space_notes(old, queries_for_old),
        *query_notes(new, query_for_old),
        *([] if rules.modalities else mixed_notes((old, queries_for_old), plan)),
    )
    return Evaluation(
        old_old=results["old_old"],
        new_old=results["new_old"],
        new_new=results.get("new_new"),
        independent=results.get("independent"),
        query_ids=plan.query_ids,
        num_gallery=len(plan.gallery_ids),
        protocol=name,
        query_groups=query_groups,
        query_columns=columns_of((old, queries_for_old, new), plan.query_ids),
        plan=plan,
        vectors=vectors,
        notes=notes,
        seed=seed,
        modalities=rules.modalities,
        old_space=old.space,
        query_space=queries_for_old.space,
        num_seen=0 if seen.doubt else int(seen.marks.sum()),
        gate=gate or Gate(),
        doubts=tuple(doubts),
    ).explained()


def read_sides(
    sides: Mapping[str, Data | None], *, columns: tuple[str | None, ...], **values: Any
) -> tuple[list[Vectors | None], tuple[str, ...]]:
    """Reads vectors of any form, in order; also returns notes on assumptions. See `as_sides`."""
    passed = [value for value in (*columns, *values.values()) if value is not None]
    if not passed and all(isinstance(side, Vectors | None) for side in sides.values()):
        return list(sides.values()), ()
    from nobackfill.vectors.column_names import Columns  # files of the command line need neither
    from nobackfill.vectors.sides import as_sides

    present = {
        name: side for name, side in sides.items() if side is not None or name in ("old", "new")
    }
    read = as_sides(present, columns=Columns(*columns), **values)
    return [read.vectors.get(name) for name in sides], (*read.notes, *read.matching)


def read_pairs(pairs: Any, ground_truth: Any, *, labels: Any, groups: Any) -> GroundTruth | None:
    """Returns the relevant items of each query; raises if labels or groups define them too."""
    if pairs is None and ground_truth is None:
        return None
    values = {"pairs": pairs, "ground_truth": ground_truth, "labels": labels, "groups": groups}
    names = [name for name, value in values.items() if value is not None]
    if len(names) > 1:
        raise ConfigError(f"Pass one definition of the relevant items, not {' and '.join(names)}.")
    if isinstance(ground_truth, GroundTruth):
        return ground_truth
    from nobackfill.data.pairs import as_ground_truth

    return as_ground_truth(ground_truth if pairs is None else pairs)


def independent_queries(
    plan: SearchPlan,
    old: Vectors,
    queries: Vectors,
    new: Vectors,
    sessions: str | None,
    device: torch.device | str,
) -> tuple[SearchPlan, Groups, SeenQueries, list[str]]:
    """Returns the search without queries that a head has seen, and the group of each query left.

    If a head has seen all, none is left out. Also returns what was seen, and notes on copies.
    """
    session_of = None
    if sessions is not None:
        session_of, plan = sessions_of(sessions, plan, (old, queries))
    ids, dim = plan.query_ids, queries.compatible_dim
    groups, gallery_groups, copies = dependent_items(
        plan,
        lambda: (rows_of(old, ids).to(device), rows_of(queries, ids)[:, :dim].to(device)),
        session_of,
    )
    seen = seen_queries(old, (queries, new), plan, groups, gallery_groups)
    notes = copies_note(copies, len(ids))
    if seen.doubt is None and seen.marks.any():
        plan, groups = plan.keep(~seen.marks), groups[~seen.marks]
    return plan, groups, seen, notes
