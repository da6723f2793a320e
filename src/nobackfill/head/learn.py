"""A whole fit: closed form, training, and what is chosen on the held-out classes."""

from collections.abc import Callable
from math import isnan

import torch

from nobackfill.head.auto import fit_best
from nobackfill.head.closed_form import moments
from nobackfill.head.examples import Examples
from nobackfill.head.fitting import choose_closed_form, fit_network
from nobackfill.head.network import ExtraDims, HeadNetwork, Network
from nobackfill.head.old_query import best_weight, weigh_old
from nobackfill.head.schedule import AUTO, FitConfig, Progress
from nobackfill.head.validation import (
    choose_queries,
    compare_stored,
    embed_rows,
    old_old_map,
    retrieval_map,
)

SCALES = (0.5, 0.7, 1.0, 1.4, 2.0)  # lengths of the extra dimensions to choose from


def learn(
    network: Network,
    examples: Examples,
    held_out: Examples | None,
    config: FitConfig,
    *,
    begun: float,
    watch: Callable[[Progress], None],
) -> tuple[Progress, tuple[str, ...]]:
    """Fits a network in place: closed form, training, and choices on the held-out classes.

    Returns:
        The record of the fit, and notes on it.
    """
    # Start from a closed form, then train by the method, or by the best candidate.
    progress = choose_closed_form(network, examples, held_out)
    notes: tuple[str, ...] = ()
    if held_out is not None:
        if config.method == AUTO:
            config, steps = fit_best(
                network, examples, held_out, config=config, progress=progress, begun=begun,
                watch=watch,
            )  # fmt: skip
        else:
            steps = fit_network(
                network, examples, held_out, config=config, progress=progress, begun=begun,
                watch=watch,
            )  # fmt: skip
        notes = training_notes(progress, steps, config)
    if config.extra and isinstance(network, HeadNetwork):
        add_extra(network, examples, held_out, extra=config.extra)
    # Compare with the old model, and choose what asks and what to store.
    if held_out is not None:
        progress.old_old = old_old_map(held_out)
        if config.old_query:
            both = weigh_old(network, held_out)
            progress.old_weight = best_weight(both)
            progress.both = {f"{weight:g}": value for weight, value in both.items()}
        progress.stored = compare_stored(network, held_out)
        notes += comparison_notes(progress, config)
    elif config.old_query:
        progress.old_weight = 1.0
        notes += (
            "no classes could be held out to weigh the old vector of a query, so the head returns "
            "the old vector",
        )
    return progress, notes


def comparison_notes(progress: Progress, config: FitConfig) -> tuple[str, ...]:
    """Returns a note if the queries of the head are not above those of the old model."""
    assert progress.old_old is not None
    if progress.old_weight == 1:
        return (
            "on the held-out classes no mixture of both models is above the old model, so the head "
            "returns the old vector of a query",
        )
    if not config.old_query and progress.kept < progress.old_old:
        return (
            f"on the held-out classes the head is below the old model ({100 * progress.kept:.2f} "
            f"and {100 * progress.old_old:.2f} % mAP): do not serve it without `evaluate`, or let "
            f"both models ask (`--with-old-query`, `old_query=True`)",
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
