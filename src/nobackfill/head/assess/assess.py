"""Assesses an upgrade from two files of vectors: is it worth making, and how?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.core.config.defaults import DEFAULT_HEAD_METHOD
from nobackfill.errors import ConfigError
from nobackfill.evaluation.bootstrap import Interval, in_points, paired_interval
from nobackfill.evaluation.mixed_scores import (
    Part,
    Scores,
    half_done,
    headroom,
    on_new,
    on_old,
    precision_of,
    scale_of,
    two_stage,
)
from nobackfill.evaluation.score_scale import Scale
from nobackfill.head.assess.crowding import Crowding, advice, crowding_of
from nobackfill.head.assess.split import (
    items_of,
    split_for_assessment,
    split_notes,
    training_items,
)
from nobackfill.head.closed_form import closed_forms
from nobackfill.head.examples import Examples
from nobackfill.head.head import CompatibleHead
from nobackfill.head.schedule import FitConfig, check_method
from nobackfill.head.supervision import Pairs
from nobackfill.vectors import Vectors

Map = Callable[[Tensor], Tensor]  # from new vectors to vectors of the old space
Strategy = Callable[[Part], Scores]  # scores of the items of a part on each other
Precision = NDArray[np.floating[Any]]  # average precision of each query
Answer = Literal[
    "upgrade with head",
    "two-stage",
    "backfill first",
    "full backfill",
    "keep the old model",
    "inconclusive",
]
SHARES = (0.1, 0.25, 0.5)  # shares of the gallery to embed again
KEEP_BELOW = 0.005  # gain in mAP that is not worth an upgrade
KEEP: Answer = "keep the old model"  # a candidate, too
CONTROL = "old vectors with a head"
SAME = 0.01  # largest median distance of vectors that are equal up to rounding


@dataclass(frozen=True)
class Candidate:
    """One way to serve the upgrade."""

    name: str
    validation: float  # mAP on the validation classes, which the choice was made on
    test: float  # mAP on the test classes
    gain: Interval  # difference to the old model on the test classes, with its interval
    added: Interval  # difference to a head on the old model's own vectors

    @property
    def uses_new(self) -> bool:
        """Whether it uses the new model."""
        return self.name not in (KEEP, CONTROL)

    @property
    def pays(self) -> bool:
        """Whether it beats the old model, with and without a head on the old vectors."""
        return self.gain.low > 0 and self.added.low > 0

    def summary(self) -> dict[str, Any]:
        """Returns what goes into JSON."""
        intervals = {"gain": self.gain.summary(), "added": self.added.summary()}
        return {"name": self.name, "validation": self.validation, "test": self.test, **intervals}


@dataclass(frozen=True)
class Verdict:
    """Recommendation of an assessment, with its numbers.

    Attributes:
        verdict: One of six answers.
        reason: Reason in one sentence.
        candidates: Every way to serve that was tried; the old model is first.
        chosen: Name of the head or map that is best on the validation classes.
        headroom: Approximate mAP of the best possible queries on the stored vectors.
        crowding: Crowding of the old space.
        counts: Numbers of classes and items of each part.
        notes: Notes on the numbers.
    """

    verdict: Answer
    reason: str
    candidates: Sequence[Candidate]
    chosen: str
    headroom: float
    crowding: Crowding
    counts: Mapping[str, int]
    notes: Sequence[str] = ()

    @property
    def advice(self) -> str:
        """Method that the paper favours in such a crowded space, and why."""
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
        }


def assess(
    old: Vectors,
    new: Vectors,
    *,
    labels: Sequence[Any] | NDArray[Any] | None = None,
    pairs: Pairs | None = None,
    methods: Sequence[str] = (DEFAULT_HEAD_METHOD,),
    k: int = 100,
    seed: int = 0,
    device: str = "cpu",
    epochs: int = FitConfig.epochs,
    watch: Callable[[str], None] = lambda what: None,
) -> Verdict:
    """Compares ways to serve an upgrade on classes that nothing was fitted on.

    Heads and maps are fitted on a part of the classes. The best is chosen on a second part and
    tested once on the rest; see `divide`. If the files have a column `split`, the fit uses its
    training items.

    Args:
        old: Vectors of the model in service.
        new: Vectors of its possible successor, of the same items.
        labels: Label of each item that both files have; None for the labels of the files.
        pairs: Relevant items of each query by id, in place of labels. Items in no pair are not
            used.
        methods: Methods to fit heads by.
        k: Number of items that a second stage ranks again.
        seed: Random seed.
        device: Device to fit on.
        epochs: Largest number of epochs of each head.
        watch: Callback that receives the name of each step.
    """
    for method in methods:
        check_method(method)
    if labels is not None and pairs is not None:
        raise ConfigError("Pass one kind of supervision, not labels and pairs.")
    items = items_of(old, new, labels=labels, pairs=pairs)
    is_training = training_items((old, new), items.ids)
    parts = split_for_assessment(items, is_training, seed=seed)
    validation, test = parts.validation, parts.test

    # Fit all maps, and a head on the old vectors alone as a control.
    settings: dict[str, Any] = {"seed": seed, "device": device, "epochs": epochs}
    maps = fit_maps(*parts.fitted, methods, settings, watch)
    watch("fitting a head to the old vectors alone")
    old_rows, classes = parts.fitted.old, parts.fitted.classes
    control = CompatibleHead(methods[0], **settings).fit(old_rows, old_rows, classes)

    # Search with every map, then with the ways that embed items again, which use the best map.
    def measure(strategy: Strategy) -> tuple[Precision, Precision]:
        first, second = (precision_of(part, strategy(part)) for part in (validation, test))
        return first, second

    watch("searching")
    precisions = {
        KEEP: measure(lambda part: on_old(part, part.old)),
        CONTROL: measure(lambda part: on_old(part, control.transform(part.old))),
        **{name: measure(partial(_search_old, map_new)) for name, map_new in maps.items()},
    }
    best = max(maps, key=lambda name: float(np.nanmean(precisions[name][0])))
    for name, strategy in backfill_strategies(maps[best], validation, k=k, seed=seed).items():
        precisions[name] = measure(strategy)

    # Decide.
    candidates = make_candidates(precisions, test.groups, seed=seed)
    answer, reason = decide(candidates, best, k)
    distance = (maps["procrustes"](test.new) - test.old).norm(dim=1).median()
    if distance < SAME:
        answer, reason = KEEP, "the new vectors are the old ones, only rotated."
    crowding = crowding_of(items.old, items.classes, items.class_names)
    return Verdict(
        answer,
        reason,
        list(candidates.values()),
        best,
        float(np.nanmean(precision_of(test, headroom(test)))),
        crowding,
        {"items": len(items), "classes": crowding.classes, **parts.counts},
        notes=[*items.notes, *split_notes(is_training)],
    )


def fit_maps(
    new: Float[Tensor, "items new_dim"],
    old: Float[Tensor, "items old_dim"],
    classes: Int[Tensor, " items"],
    methods: Sequence[str],
    settings: Mapping[str, Any],
    watch: Callable[[str], None],
) -> dict[str, Map]:
    """Returns every map by name: closed forms, then a head by `mimic` and by each method."""
    maps: dict[str, Map] = dict(closed_forms(Examples(new, old, None)))
    for method in dict.fromkeys(["mimic", *methods]):
        watch(f"fitting {method}")
        maps[method] = CompatibleHead(method, **settings).fit(new, old, classes).transform
    return maps


def backfill_strategies(best: Map, validation: Part, *, k: int, seed: int) -> dict[str, Strategy]:
    """Returns the strategies that embed items again, by name; `best` maps queries to old vectors.

    Scores on old and on new vectors are brought to one scale on the validation part.
    """
    scales = (
        scale_of(validation, _search_old(best, validation)),
        scale_of(validation, on_new(validation)),
    )
    return {
        two_stage_name(k): lambda part: two_stage(part, best(part.new), k),
        **{
            backfilled_name(share): partial(_search_mixed, best, share, scales, seed)
            for share in SHARES
        },
        "full backfill": on_new,
    }


def two_stage_name(k: int) -> str:
    """Name of the candidate that ranks the first results again."""
    return f"two-stage, top {k}"


def backfilled_name(share: float) -> str:
    """Name of the candidate that embeds a share of the gallery again."""
    return f"{100 * share:.0f} % backfilled"


def _search_old(map_new: Map, part: Part) -> Scores:
    return on_old(part, map_new(part.new))


def _search_mixed(
    map_new: Map, share: float, scales: tuple[Scale, Scale], seed: int, part: Part
) -> Scores:
    is_new = random_share(len(part.new), share, seed=seed)
    return half_done(part, map_new(part.new), is_new, scales)


def make_candidates(
    precisions: Mapping[str, tuple[Precision, Precision]], groups: NDArray[Any], *, seed: int
) -> dict[str, Candidate]:
    """Returns a candidate with intervals for each pair of validation and test precisions."""
    return {
        name: Candidate(
            name,
            float(np.nanmean(validation)),
            float(np.nanmean(test)),
            paired_interval(test - precisions[KEEP][1], groups, seed=seed),
            paired_interval(test - precisions[CONTROL][1], groups, seed=seed),
        )
        for name, (validation, test) in precisions.items()
    }


def random_share(number: int, share: float, *, seed: int) -> Bool[Tensor, " items"]:
    """Returns which items are embedded again: a random share; larger shares contain smaller."""
    place = torch.randperm(number, generator=torch.Generator().manual_seed(seed))
    return place < share * number


def decide(candidates: Mapping[str, Candidate], best: str, k: int) -> tuple[Answer, str]:
    """Returns the answer, and the reason in a sentence."""
    # The cheapest way that pays.
    ways: dict[str, tuple[Answer, str]] = {
        best: (
            "upgrade with head",
            f"queries mapped by {best} beat the old model on its own gallery",
        ),
        two_stage_name(k): (
            "two-stage",
            "stored vectors find the first results, and their new vectors put them in order",
        ),
    }
    for name in map(backfilled_name, SHARES):
        reason = f"with {name} at random, the mixed gallery beats the old one"
        ways[name] = "backfill first", reason
    for name, (answer, reason) in ways.items():
        if candidates[name].pays:
            gain = in_points(candidates[name].gain.summary())
            return answer, f"{reason}, by {gain} points of mAP."

    # No cheap way pays.
    full, head = candidates["full backfill"], candidates[best]
    gain = in_points(head.gain.summary())
    if full.gain.low > 0:
        return "full backfill", (
            f"only a full backfill surely beats the old model, by "
            f"{in_points(full.gain.summary())} points of mAP; with the stored vectors, {best} "
            f"gains {gain}."
        )
    if head.gain.high < 0:
        return KEEP, (
            f"even the best way to search the stored vectors, {best}, loses: {gain} points of mAP."
        )
    if head.gain.high < KEEP_BELOW:
        return KEEP, (
            f"the best way to search the stored vectors, {best}, gains {gain} points of mAP: less "
            f"than half a point at most."
        )
    if head.gain.low > 0:
        return KEEP, (
            f"{best} gains {gain} points of mAP, but so does a head on the old model's own vectors "
            f"(difference: {in_points(head.added.summary())}): the gain comes from the labels, not "
            f"from the new model."
        )
    return "inconclusive", (
        f"{best} gains {gain} points of mAP, which may be chance: add queries of more classes."
    )
