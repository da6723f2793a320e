"""Is the upgrade worth making, and how? A verdict from two files of vectors."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

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
from nobackfill.head import CompatibleHead
from nobackfill.head.assess.crowding import Crowding, advice, crowding_of
from nobackfill.head.assess.split import (
    ThreeParts,
    divide,
    items_of,
    split_notes,
    three_parts,
    training_items,
)
from nobackfill.head.examples import Examples
from nobackfill.head.head import check_method
from nobackfill.head.initial_map import closed_forms
from nobackfill.head.supervision import Pairs
from nobackfill.vectors import Vectors

__all__ = ["Candidate", "Verdict", "assess", "decide", "divide", "some_of"]

Map = Callable[[Tensor], Tensor]  # new vectors in, vectors of the old space out
Way = Callable[[Part], Scores]  # items that ask each other in, their scores out
Answer = Literal[
    "upgrade with head",
    "two-stage",
    "backfill first",
    "full backfill",
    "keep the old model",
    "inconclusive",
]
EXIT = {"upgrade with head": 0, "two-stage": 0, "inconclusive": 3}  # 1 for the others
SHARES = (0.1, 0.25, 0.5)  # of the gallery, embedded again
KEEP_BELOW = 0.005  # of mAP: a gain that would not be worth it
KEEP, CONTROL = "keep the old model", "old vectors with a head"  # ways without the new model
SAME = 0.01  # how far apart vectors may lie that are told to be the same


@dataclass(frozen=True)
class Candidate:
    """One way to serve the upgrade.

    Attributes:
        name: What it is.
        validation: Its mAP on the classes that the choice was made on.
        test: Its mAP on the test classes.
        gain: That less the old model's, query by query, with its interval.
        added: That less what the same head gives on the old model's own vectors.
    """

    name: str
    validation: float
    test: float
    gain: Interval
    added: Interval

    @property
    def uses_new(self) -> bool:
        """Whether the new model takes part in it."""
        return self.name not in (KEEP, CONTROL)

    @property
    def pays(self) -> bool:
        """Whether it is better than the old model, with and without a head of its own."""
        return self.gain.low > 0 and self.added.low > 0

    def summary(self) -> dict[str, Any]:
        """As it goes into JSON."""
        return {
            "name": self.name,
            "validation": self.validation,
            "test": self.test,
            "gain": self.gain.summary(),
            "added": self.added.summary(),
        }


@dataclass(frozen=True)
class Verdict:
    """What to do, and what it rests on.

    Attributes:
        verdict: One of six answers.
        reason: In one sentence.
        candidates: Every way that was tried; the old model first.
        chosen: The name of the head or map that was best on the validation classes.
        headroom: The mAP of the best of queries on the stored vectors, about.
        crowding: How crowded the old space is.
        counts: Classes and items of each part.
        notes: What a reader should know of these numbers.
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
        """What the paper would choose in so crowded a space."""
        return advice(self.crowding)

    @property
    def exit_code(self) -> int:
        """0 to go, 1 not to go yet or not at all, 3 where it cannot be said."""
        return EXIT.get(self.verdict, 1)

    def summary(self) -> dict[str, Any]:
        """As it goes into JSON."""
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "candidates": [one.summary() for one in self.candidates],
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
    methods: Sequence[str] = ("cross_supcon",),
    k: int = 100,
    seed: int = 0,
    device: str = "cpu",
    epochs: int = 30,
    watch: Callable[[str], None] = lambda what: None,
) -> Verdict:
    """Compares ways to serve an upgrade on classes that nothing was fitted on.

    Heads and maps are fitted on some classes, the best is chosen on others, and tested once on
    the rest; see `divide`. Where the files have a column `split`, fitting sees its training items.

    Args:
        old: Vectors of the model in service.
        new: Vectors of the model that may take its place, of the same items.
        labels: What belongs together, an entry per item that both have; those of the files where
            they are not given.
        pairs: In place of labels: of each query what is relevant to it, by id. Items in no pair
            take part in nothing.
        methods: To fit heads by.
        k: How many items a second stage looks at again.
        seed: Of all that is random.
        device: What to fit on.
        epochs: Of each head, at most.
        watch: Is told what is being tried.
    """
    for method in methods:
        check_method(method)
    if labels is not None and pairs is not None:
        raise ConfigError("wanted one kind of supervision, but got labels and pairs.")
    items = items_of(old, new, labels=labels, pairs=pairs)
    is_training = training_items((old, new), items.ids)
    parts = three_parts(items, is_training, seed=seed)
    fitted, chosen_on, tested_on = parts

    settings: dict[str, Any] = {"seed": seed, "device": device, "epochs": epochs}
    maps = fit_maps(*fitted, methods, settings, watch)
    watch("fitting a head to the old vectors alone")
    control = CompatibleHead(methods[0], **settings).fit(fitted.old, fitted.old, fitted.classes)

    watch("searching")
    tried = _Tried(chosen_on, tested_on, control.transform, seed)
    for name, one in maps.items():
        tried.add(name, partial(_mapped, one))
    best = tried.best_of(maps)
    for name, scores in ways_that_embed_again(maps[best], chosen_on, k=k, seed=seed).items():
        tried.add(name, scores)

    candidates = tried.candidates()
    answer, reason = decide(candidates, best, k)
    if is_the_same(maps["procrustes"](tested_on.new), tested_on.old):
        answer, reason = "keep the old model", "the new vectors are the old ones, but for a turn."
    crowding = crowding_of(items.old, items.classes, items.class_names)
    return Verdict(
        answer,
        reason,
        list(candidates.values()),
        best,
        float(np.nanmean(precision_of(tested_on, headroom(tested_on)))),
        crowding,
        {"items": len(items), "classes": crowding.classes, **counts_of(parts)},
        notes=[*items.notes, *split_notes(is_training)],
    )


def counts_of(parts: ThreeParts) -> dict[str, int]:
    """How many classes each part has, and how many queries are tested."""
    return {
        "fitted_classes": len(parts.fitted.classes.unique()),
        "validation_classes": len(np.unique(parts.chosen_on.groups)),
        "test_classes": len(np.unique(parts.tested_on.groups)),
        "test_queries": len(parts.tested_on.queries),
    }


def fit_maps(
    new: Float[Tensor, "items new_dim"],
    old: Float[Tensor, "items old_dim"],
    classes: Int[Tensor, " items"],
    methods: Sequence[str],
    settings: Mapping[str, Any],
    watch: Callable[[str], None],
) -> dict[str, Map]:
    """Every map from the new space into the old one, by name: closed forms, then heads.

    Args:
        new: New vectors to fit on.
        old: Old vectors of the same items.
        classes: Their classes.
        methods: To fit heads by, beside one that only mimics the old vectors.
        settings: Of each head.
        watch: Is told what is being fitted.
    """
    maps: dict[str, Map] = dict(closed_forms(Examples(new, old, None)))
    for method in dict.fromkeys(["mimic", *methods]):
        watch(f"fitting {method}")
        maps[method] = CompatibleHead(method, **settings).fit(new, old, classes).transform
    return maps


def ways_that_embed_again(best: Map, chosen_on: Part, *, k: int, seed: int) -> dict[str, Way]:
    """The ways that embed items again, by name; stored vectors are asked by the best map.

    Args:
        best: The map that was chosen.
        chosen_on: The items on which scores of both kinds are made to mean the same.
        k: How many items a second stage looks at again.
        seed: Of which items are embedded again first.
    """
    scales = (
        scale_of(chosen_on, _mapped(best, chosen_on)),
        scale_of(chosen_on, on_new(chosen_on)),
    )
    return {
        second_stage(k): lambda part: two_stage(part, best(part.new), k),
        **{backfilled(share): partial(_half_done, best, share, scales, seed) for share in SHARES},
        "full backfill": on_new,
    }


def second_stage(k: int) -> str:
    """The name of the way that looks at the first hits again."""
    return f"two-stage, top {k}"


def backfilled(share: float) -> str:
    """The name of the way that embeds a share of the gallery again.

    Example:
        >>> backfilled(0.25)
        '25 % backfilled'
    """
    return f"{100 * share:.0f} % backfilled"


def _mapped(one: Map, part: Part) -> Scores:
    return on_old(part, one(part.new))


def _half_done(
    one: Map, share: float, scales: tuple[Scale, Scale], seed: int, part: Part
) -> Scores:
    return half_done(part, one(part.new), some_of(len(part.new), share, seed=seed), scales)


class _Tried:
    """The average precision of every way that was tried, on both parts."""

    def __init__(
        self, chosen_on: Part, tested_on: Part, control: Callable[[Tensor], Tensor], seed: int
    ):
        self.parts = chosen_on, tested_on
        self.seed = seed
        self.validation: dict[str, NDArray[Any]] = {}
        self.test: dict[str, NDArray[Any]] = {}
        self.add(KEEP, lambda part: on_old(part, part.old))
        self.add(CONTROL, lambda part: on_old(part, control(part.old)))

    def add(self, name: str, scores: Way) -> None:
        """Tries one way."""
        chosen_on, tested_on = self.parts
        self.validation[name] = precision_of(chosen_on, scores(chosen_on))
        self.test[name] = precision_of(tested_on, scores(tested_on))

    def best_of(self, names: Iterable[str]) -> str:
        """The one that is best on the validation classes."""
        return max(names, key=lambda name: float(np.nanmean(self.validation[name])))

    def candidates(self) -> dict[str, Candidate]:
        """All of them, with how sure their gains are."""
        keep, control = (self.test[name] for name in list(self.test)[:2])
        groups = self.parts[1].groups
        return {
            name: Candidate(
                name,
                float(np.nanmean(self.validation[name])),
                float(np.nanmean(found)),
                paired_interval(found - keep, groups, seed=self.seed),
                paired_interval(found - control, groups, seed=self.seed),
            )
            for name, found in self.test.items()
        }


def some_of(number: int, share: float, *, seed: int) -> Bool[Tensor, " items"]:
    """Which of some items are embedded again: a random share; more of them hold fewer."""
    place = torch.randperm(number, generator=torch.Generator().manual_seed(seed))
    return place < share * number


def is_the_same(one: Float[Tensor, "items dim"], other: Float[Tensor, "items dim"]) -> bool:
    """Whether two kinds of unit vectors are the same but for rounding."""
    return bool((one - other).norm(dim=1).median() < SAME)


def decide(candidates: Mapping[str, Candidate], best: str, k: int) -> tuple[Answer, str]:
    """The answer, and the reason in a sentence."""
    head = candidates[best]
    gain = in_points(head.gain.summary())
    ways: list[tuple[str, Answer]] = [
        (best, "upgrade with head"),
        (second_stage(k), "two-stage"),
    ]
    ways += [(backfilled(share), "backfill first") for share in SHARES]
    for name, answer in ways:
        if candidates[name].pays:
            return answer, _why(candidates[name], answer)
    full = candidates["full backfill"]
    if full.gain.low > 0:
        return "full backfill", (
            f"only a full backfill is surely better than the old model, by "
            f"{in_points(full.gain.summary())} points of mAP; with the stored vectors {best} "
            f"gives {gain}."
        )
    if head.gain.high < 0:
        return "keep the old model", (
            f"even the best way to search the stored vectors, {best}, loses: {gain} points of mAP."
        )
    if head.gain.high < KEEP_BELOW:
        return "keep the old model", (
            f"the best way to search the stored vectors, {best}, gives {gain} points of mAP: less "
            f"than half a point at most."
        )
    if head.gain.low > 0:
        return "keep the old model", (
            f"{best} gives {gain} points of mAP, but so does a head on the old model's own vectors "
            f"({in_points(head.added.summary())} on top of it): the gain comes from the labels, "
            f"not from the new model."
        )
    return "inconclusive", (
        f"{best} gives {gain} points of mAP, which may be chance: bring queries of more classes."
    )


def _why(one: Candidate, answer: Answer) -> str:
    said = {
        "upgrade with head": f"queries mapped by {one.name} beat the old model on its own gallery",
        "two-stage": "the stored vectors find, and new vectors of the first hits put in order",
        "backfill first": f"with {one.name} at random, the mixed gallery beats the old one",
    }[answer]
    return f"{said}, by {in_points(one.gain.summary())} points of mAP."
