"""Searches in every way to serve an upgrade."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from nobackfill.core.steps import Step, Watch
from nobackfill.evaluation.mixed_scores import (
    Metrics,
    Part,
    Scores,
    half_done,
    metrics_of_queries,
    on_new,
    on_old,
    scale_of,
    two_stage,
)
from nobackfill.evaluation.score_scale import Scale
from nobackfill.head.assess.candidates import BOTH, CONTROL, FULL, KEEP
from nobackfill.head.assess.decision import SHARES, backfilled_name, two_stage_name
from nobackfill.head.assess.fits import Map
from nobackfill.head.old_query import WEIGHTS, add_old, best_weight

Strategy = Callable[[Part], Scores]  # scores of the items of a part on each other


def measure_ways(
    validation: Part,
    test: Part,
    maps: Mapping[str, Map],
    control: Map,
    *,
    k: int,
    seed: int,
    watch: Watch,
) -> tuple[dict[str, tuple[Metrics, Metrics]], str]:
    """Searches in every way that an upgrade can be served.

    Args:
        validation: Items that the best map is chosen on.
        test: Items of other classes.
        maps: Maps from new to old vectors, by name.
        control: Map of old vectors.
        k: Number of items that a second stage ranks again.
        seed: Random seed of the items that are embedded again.
        watch: Callback that receives the progress.

    Returns:
        Metrics of the queries of both parts by the name of each way, and the name of the best map.
    """
    number = count()

    def measure(strategy: Strategy) -> tuple[Metrics, Metrics]:
        watch(Step("searching", next(number), 5 + len(maps) + len(SHARES), "ways"))
        first, second = (metrics_of_queries(part, strategy(part)) for part in (validation, test))
        return first, second

    metrics = {
        KEEP: measure(lambda part: on_old(part, part.old)),
        CONTROL: measure(lambda part: on_old(part, control(part.old))),
        **{name: measure(partial(_search_old, map_new)) for name, map_new in maps.items()},
    }
    # The other ways use the best map.
    best = max(maps, key=lambda name: float(np.nanmean(metrics[name][0]["map"])))
    metrics[BOTH] = measure(query_with_both(maps[best], validation))
    for name, strategy in backfill_strategies(maps[best], validation, k=k, seed=seed).items():
        metrics[name] = measure(strategy)
    return metrics, best


def query_with_both(best: Map, validation: Part) -> Strategy:
    """Returns the strategy of queries by both models, weighed on the validation part."""

    def weighed(weight: float, part: Part) -> Scores:
        return on_old(part, add_old(best(part.new), part.old, weight))

    means = {
        weight: float(
            np.nanmean(metrics_of_queries(validation, weighed(weight, validation))["map"])
        )
        for weight in WEIGHTS
    }
    return partial(weighed, best_weight(means))


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
        FULL: on_new,
    }


def _search_old(map_new: Map, part: Part) -> Scores:
    return on_old(part, map_new(part.new))


def _search_mixed(
    map_new: Map, share: float, scales: tuple[Scale, Scale], seed: int, part: Part
) -> Scores:
    is_new = torch.zeros(len(part.new), dtype=torch.bool)
    is_new[part.is_gallery] = random_share(int(part.is_gallery.sum()), share, seed=seed)
    return half_done(part, map_new(part.new), is_new, scales)


def random_share(number: int, share: float, *, seed: int) -> Bool[Tensor, " items"]:
    """Returns which items are embedded again: a random share; larger shares contain smaller."""
    place = torch.randperm(number, generator=torch.Generator().manual_seed(seed))
    return place < share * number
