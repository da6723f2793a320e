"""A whole fit: closed form, training, and what is chosen on the held-out classes."""

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from statistics import fmean
from typing import Any

import torch

from nobackfill.evaluation.bootstrap import Interval, paired_interval
from nobackfill.head.auto import Weights, fit_best
from nobackfill.head.closed_form import moments
from nobackfill.head.examples import Examples
from nobackfill.head.fitting import choose_closed_form, fit_network, weights_of
from nobackfill.head.network import ExtraDims, HeadNetwork, Network
from nobackfill.head.old_query import best_weight, weigh_old
from nobackfill.head.schedule import AUTO, FitConfig, Progress
from nobackfill.head.split import FitSplit, Fold
from nobackfill.head.validation import (
    choose_queries,
    compare_stored,
    differences_to_old,
    embed_rows,
    old_old_map,
    retrieval_map,
)

SCALES = (0.5, 0.7, 1.0, 1.4, 2.0)  # lengths of the extra dimensions to choose from


def learn(
    network: Network,
    split: FitSplit,
    config: FitConfig,
    *,
    begun: float,
    watch: Callable[[Progress], None],
) -> tuple[Progress, tuple[str, ...]]:
    """Fits a network in place: closed form, training, and choices on the held-out classes.

    Returns:
        The record of the fit, and notes on it.
    """
    if not split.folds:
        return learn_without_classes(network, split.everything, config)
    # Fit by the method, or the best of several. `on_folds` are the weights to measure on each fold.
    if config.method == AUTO:
        progress = Progress()
        on_folds = fit_best(
            network, split, config=config, progress=progress, begun=begun, watch=watch
        )
        steps = 1
    else:
        progress = choose_closed_form(network, split.fitted, split.held_out)
        assert split.held_out is not None
        steps = fit_network(
            network, split.fitted, split.held_out, config=config, progress=progress, begun=begun,
            watch=watch,
        )  # fmt: skip
        on_folds = [weights_of(network)]
    notes = training_notes(progress, steps, config)
    # Measure on the held-out classes, and choose which models embed queries and what to store.
    final = weights_of(network)
    network.load_state_dict(on_folds[0])
    if config.extra and isinstance(network, HeadNetwork):
        add_extra(network, split.fitted, split.held_out, extra=config.extra)
    measure(network, on_folds, split.folds, config, progress)
    network.load_state_dict(final, strict=False)  # extra dimensions stay as they are
    return progress, notes + comparison_notes(progress, config)


def learn_without_classes(
    network: Network, examples: Examples, config: FitConfig
) -> tuple[Progress, tuple[str, ...]]:
    """Starts the network from the default closed form; nothing can be measured."""
    progress = choose_closed_form(network, examples, None)
    if config.extra and isinstance(network, HeadNetwork):
        add_extra(network, examples, None, extra=config.extra)
    if not config.old_query:
        return progress, ()
    progress.old_weight = 1.0
    return progress, (
        "no classes could be held out to weigh the old vector of a query, so the head returns the "
        "old vector",
    )


def measure(
    network: Network,
    on_folds: Sequence[Weights],
    folds: Sequence[Fold],
    config: FitConfig,
    progress: Progress,
) -> None:
    """Compares with the old model on the held-out classes, and chooses queries and stored vectors.

    Queries use both models with `old_query`, or if it is None and the head alone is below the old
    model beyond chance.
    """

    def mean(of_fold: Callable[[Examples], Mapping[Any, float]]) -> dict[Any, float]:
        """Returns the mean over the folds of each of several values."""
        values = []
        for weights, fold in zip(on_folds, folds, strict=True):
            network.load_state_dict(weights, strict=False)
            values.append(of_fold(fold.held_out))
        return {name: fmean(own[name] for own in values) for name in values[0]}

    progress.old_old = fmean(old_old_map(fold.held_out) for fold in folds)
    progress.gain = gain_over_old(network, on_folds, folds).summary()
    is_needed = config.old_query is None and progress.new_alone == "worse" and not config.extra
    if config.old_query or is_needed:
        both = mean(lambda held_out: weigh_old(network, held_out))
        progress.old_weight = best_weight(both)
        progress.both = {f"{weight:g}": value for weight, value in both.items()}
    progress.stored = mean(lambda held_out: compare_stored(network, held_out))


def gain_over_old(network: Network, on_folds: Sequence[Weights], folds: Sequence[Fold]) -> Interval:
    """Returns the difference of mAP between the head and the old model on all held-out classes.

    Its interval resamples classes, because the queries of a class depend on each other.
    """
    differences, groups, first = [], [], 0
    for weights, fold in zip(on_folds, folds, strict=True):
        network.load_state_dict(weights, strict=False)
        of_queries, classes = differences_to_old(network, fold.held_out)
        differences.append(of_queries)
        groups.append(first + classes)  # folds hold out different classes
        first += fold.held_out.number
    return paired_interval(torch.cat(differences).numpy(), torch.cat(groups).numpy())


def comparison_notes(progress: Progress, config: FitConfig) -> tuple[str, ...]:
    """Returns a note if the queries of the head alone are not above those of the old model."""
    assert progress.old_old is not None
    if progress.old_weight == 1:
        return (
            "on the held-out classes no mixture of both models is above the old model, so the head "
            "returns the old vector of a query",
        )
    values = f"{100 * progress.kept:.2f} and {100 * progress.old_old:.2f} % mAP"
    if progress.old_weight is not None and config.old_query is None:
        return (
            f"on the held-out classes new vectors alone are below the old model ({values}, beyond "
            f"chance), so queries need their old vectors, too (`--old OLD`, `transform(new, "
            f"old=old)`); `--without-old-query` (`old_query=False`) fits a head of new vectors "
            f"alone",
        )
    if progress.old_weight is None and not progress.kept >= progress.old_old:
        return (
            f"on the held-out classes the head is below the old model ({values}): do not serve it "
            f"without `evaluate`, or let both models ask (`--with-old-query`, `old_query=True`)",
        )
    return ()


def add_extra(
    network: HeadNetwork, examples: Examples, held_out: Examples | None, *, extra: int
) -> dict[float, float]:
    """Appends extra dimensions to a fitted network, with the scale that is best when held out.

    Directions come from `examples`. Without held-out classes the scale is 1. Returns the new/new
    mAP of each scale.
    """
    module = ExtraDims(examples.new.shape[1], extra).to(examples.old.device)
    module.start_from(moments(examples.blocks()))
    values: dict[float, float] = {}
    if held_out is not None:
        blocks = [new for new, _ in held_out.blocks()]
        mapped = torch.cat([embed_rows(network, new) for new in blocks])
        with torch.no_grad():
            behind = torch.cat([module(new) for new in blocks])
        places = choose_queries(held_out)
        for scale in SCALES:
            stored = torch.cat([mapped, scale * behind], dim=1)
            values[scale] = retrieval_map(stored[places], stored, places, held_out)
        module.scale.fill_(max(values, key=lambda scale: values[scale]))
    network.extra = module
    return values


def training_notes(progress: Progress, steps: int, config: FitConfig) -> tuple[str, ...]:
    """Returns a note if training diverged, ran out of time or had nothing to minimise."""
    if any(isnan(value) for value in progress.history):
        return (
            f"training diverged at a learning rate of {config.learning_rate:g} and was stopped",
        )
    if progress.late:
        return (
            f"the limit of {config.seconds:g} seconds ended training after {progress.seen:,} of "
            f"{progress.planned:,} steps; the learning rate fell over that time",
        )
    if steps == 0 and progress.history:
        return (
            f"`{config.method}` had no loss to minimise, so the head is a closed-form map: set "
            f"`classification` above 0, or choose another method",
        )
    return ()
