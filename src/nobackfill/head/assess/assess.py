"""Assesses an upgrade from two files of vectors: is it worth making, and how?"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.config.defaults import DEFAULT_HEAD_METHOD
from nobackfill.core.notebook import data_frame
from nobackfill.core.page import Page, Readable
from nobackfill.core.steps import Watch, unwatched
from nobackfill.evaluation.identity import exchanged, repeated, shifted
from nobackfill.evaluation.mixed_scores import Part, headroom, metrics_of_queries
from nobackfill.evaluation.swapped import swap_notes
from nobackfill.head.arguments import read_arguments
from nobackfill.head.assess.candidates import CONTROL, FULL, KEEP, Candidate, make_candidates
from nobackfill.head.assess.copies import SEEN, independent_queries
from nobackfill.head.assess.crowding import Crowding, advice, crowding_of
from nobackfill.head.assess.decision import Answer, decide
from nobackfill.head.assess.fits import Fits, fit_maps
from nobackfill.head.assess.overview import assessment_page
from nobackfill.head.assess.split import (
    items_of,
    roles_of_items,
    split_for_assessment,
    split_notes,
    training_items,
)
from nobackfill.head.assess.ways import measure_ways
from nobackfill.head.inputs import partner_notes
from nobackfill.head.schedule import FitConfig, check_method
from nobackfill.vectors import Vectors
from nobackfill.vectors.column_names import Columns
from nobackfill.vectors.matrix import Data

if TYPE_CHECKING:
    from pandas import DataFrame

SAME = 0.01  # largest median distance of vectors that are equal up to rounding


@dataclass(frozen=True, repr=False)
class Verdict(Readable):
    """Recommendation of an assessment; `print` shows its numbers.

    Attributes:
        verdict: One of seven answers.
        reason: Reason, and why a way with a higher mAP was not preferred.
        candidates: Every way to serve that was tried; the old model is first.
        chosen: Name of the head or map that is best on the validation classes.
        headroom: Approximate mAP of the best possible queries on the stored vectors.
        crowding: Crowding of the old space.
        counts: Numbers of classes and items of each part.
        notes: Notes on the numbers.
        doubts: Reasons why the numbers prove nothing; with any, no upgrade is recommended.
    """

    verdict: Answer
    reason: str
    candidates: Sequence[Candidate]
    chosen: str
    headroom: float
    crowding: Crowding
    counts: Mapping[str, int]
    notes: Sequence[str] = ()
    doubts: Sequence[str] = ()

    def page(self) -> Page:
        """Returns the page that `print` and `nobackfill assess` show."""
        return assessment_page(self)

    def __repr__(self) -> str:
        maps = {way.name: f"{way.name} {100 * way.test:.2f}" for way in self.candidates}
        shown = ", ".join(maps[name] for name in (KEEP, self.chosen, FULL) if name in maps)
        queries = f"{self.counts.get('test_queries', 0):,} test queries"
        return f"Verdict({self.verdict!r}, mAP {shown}, {queries})"

    def to_pandas(self) -> "DataFrame":
        """Returns a DataFrame of one row per way, with fractions. Requires pandas."""
        return data_frame([candidate.row() for candidate in self.candidates])

    @property
    def advice(self) -> str:
        """How crowded the old space is, and what the paper says about methods for it."""
        return advice(self.crowding)

    def summary(self) -> dict[str, Any]:
        """Returns what goes into JSON."""
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "candidates": [candidate.summary() for candidate in self.candidates],
            "chosen": self.chosen,
            "headroom": self.headroom,
            "crowding": asdict(self.crowding),
            "advice": self.advice,
            "counts": dict(self.counts),
            "notes": list(self.notes),
            "doubts": list(self.doubts),
        }


def assess(
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
    methods: Sequence[str] = (DEFAULT_HEAD_METHOD,),
    k: int = 100,
    seed: int = 0,
    device: str = "cpu",
    epochs: int = FitConfig.epochs,
    seconds: float | None = None,
    watch: Watch = unwatched,
) -> Verdict:
    """Compares ways to serve an upgrade on classes that nothing was fitted on.

    Vectors may be NumPy arrays, torch tensors, lists, tables (pandas, polars, pyarrow), paths or
    `Vectors`; see `nobackfill.as_vectors`. Items are matched by id, or by position if a side has
    no ids, which a note says.

    Heads and maps are fitted on a part of the classes. The best is chosen on a second part and
    tested once on the rest; see `divide`. If the files have a column `split`, the fit uses its
    training items. If they have the columns `is_query` and `is_gallery`, only queries search, and
    only gallery items are searched; other items can be fitted on.

    Args:
        old: Vectors of the model in service.
        new: Vectors of its possible successor, of the same items.
        ids: Id of each row of the sides that have none.
        labels: Label of each item; None for the labels of the data.
        pairs: Relevant items of each query by id (or row number), in place of labels: a mapping,
            (query, relevant) tuples, a table of both columns, or a path. Items in no pair are not
            used.
        groups: Group of each item, in place of labels.
        id: Column of ids, where it is not found by name.
        vector: Column of vectors, likewise.
        label: Column of labels, likewise.
        methods: Methods to fit heads by.
        k: Number of items that a second stage ranks again.
        seed: Random seed.
        device: Device to fit on.
        epochs: Largest number of epochs of each head.
        seconds: Time limit of all fits together; None for none. Searches come on top. With a limit,
            the result depends on the speed of the machine.
        watch: Callback that receives the name of each step.
    """
    begun = monotonic()
    for method in methods:
        check_method(method)
    read = read_arguments(
        new,
        old,
        ids=ids,
        labels=labels,
        pairs=pairs,
        groups=groups,
        columns=Columns(id, vector, label),
    )
    old, new = read.old, read.new
    items = items_of(old, new, pairs=read.pairs)
    is_training = training_items((old, new), items.ids)
    roles = roles_of_items((old, new), items.ids)
    parts = split_for_assessment(items, is_training, roles, seed=seed)
    independent = independent_queries(parts.test, parts.fitted)
    parts = parts._replace(test=independent.part)
    validation, test = parts.validation, parts.test

    # Fit all maps, and a head on the old vectors alone as a control.
    settings: dict[str, Any] = {"seed": seed, "device": device, "epochs": epochs}
    names = list(dict.fromkeys(["mimic", *methods]))
    fits = Fits(settings, watch, number=len(names) + 1, seconds=seconds, begun=begun)
    maps = fit_maps(*parts.fitted, names, fits)
    old_rows, classes = parts.fitted.old, parts.fitted.classes
    control = fits.fit(methods[0], old_rows, old_rows, classes, name=CONTROL)

    # Decide.
    metrics, best = measure_ways(validation, test, maps, control, k=k, seed=seed, watch=watch)
    candidates = make_candidates(metrics, independent.groups, seed=seed)
    answer, reason = decide(candidates, best, k)
    mapped = maps["procrustes"](test.new)
    distance = (mapped - test.old).norm(dim=1).median()
    doubts = [*swap_notes(old, new), *([f"all test queries are {SEEN}"] * independent.all_seen)]
    doubts += doubts_on_items(old, items.ids[parts.test_rows], test, mapped)
    if distance < SAME:
        answer, reason = KEEP, "the new vectors are the old ones, only rotated."
    elif doubts:
        answer, reason = "inconclusive", f"this assessment proves nothing: {'; '.join(doubts)}."
    crowding = crowding_of(items.old, items.classes, items.class_names)
    return Verdict(
        answer,
        reason,
        list(candidates.values()),
        best,
        float(np.nanmean(metrics_of_queries(test, headroom(test))["map"])),
        crowding,
        {"items": len(items), "classes": crowding.classes, **parts.counts},
        notes=[
            *read.matching,
            *read.notes,
            *partner_notes(old, new, only_training=False),
            *items.notes,
            *independent.notes,
            *split_notes(is_training),
        ],
        doubts=doubts,
    )


def doubts_on_items(
    old: Vectors,
    ids: NDArray[Any],
    part: Part,
    mapped: Float[Tensor, "items old_dim"],
) -> list[str]:
    """Returns reasons to doubt that new vectors belong to the items whose ids they have.

    `ids` are those of the items of the part, and `mapped` are their new vectors in the old space.
    """
    queries = part.queries
    before, after = part.old[queries], mapped[queries]
    return [
        *(shifted(old, ids[queries.numpy()], after) or exchanged(before, after)),
        *repeated(before, after),
    ]
