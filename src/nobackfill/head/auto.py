"""Chooses a head's method on the held-out classes, and blends the result with a closed form."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from math import ceil, inf, isnan
from time import monotonic

import torch
from torch import Tensor

from nobackfill.head.examples import Examples
from nobackfill.head.fitting import fit_network, weights_of
from nobackfill.head.network import Network
from nobackfill.head.schedule import CANDIDATES, FitConfig, Progress
from nobackfill.head.validation import new_old_map

TRIAL = 0.25  # share of the epochs, and of the time limit, of each candidate's trial
SHARES = (0.75, 0.5, 0.25)  # shares of the trained head in a blend with its closed form


def fit_best(
    network: Network,
    examples: Examples,
    held_out: Examples,
    *,
    config: FitConfig,
    progress: Progress,
    begun: float,
    watch: Callable[[Progress], None],
) -> tuple[FitConfig, int]:
    """Trains by the candidate that is best in a short trial, then blends with the closed form.

    Each of `CANDIDATES` is tried for a quarter of the epochs, from the same closed form. The winner
    is trained in full from there, and its trial is kept if that is better. A blend replaces it if
    that is better on the held-out classes.

    Returns:
        The settings of the last fit, with the name of the chosen method, and its number of updates.
    """
    start = weights_of(network)
    trials = {
        name: _try(name, network, examples, held_out, config=config, start=progress)
        for name in CANDIDATES
    }
    progress.tried = {name: value for name, (value, _) in trials.items()}
    winner = max(trials, key=lambda name: trials[name][0])
    value, weights = trials[winner]
    # Train the winner in full, in the time that is left.
    chosen = replace(config, method=winner, seconds=_time_left(config, begun))
    steps = fit_network(
        network, examples, held_out, config=chosen, progress=progress, begun=monotonic(),
        watch=watch,
    )  # fmt: skip
    progress.method = winner
    if value > progress.kept:
        network.load_state_dict(weights)
        progress.value = value
    progress.blend, progress.value = blend(network, start, held_out, value=progress.kept)
    return chosen, steps


def _try(
    name: str,
    network: Network,
    examples: Examples,
    held_out: Examples,
    *,
    config: FitConfig,
    start: Progress,
) -> tuple[float, dict[str, Tensor]]:
    """Trains a copy for a share of the epochs; returns its mAP on the held-out classes, and it."""
    tried, progress = deepcopy(network), Progress(closed=start.closed, start=start.start)
    seconds = None if config.seconds is None else TRIAL * config.seconds
    short = replace(config, method=name, epochs=ceil(TRIAL * config.epochs), seconds=seconds)
    fit_network(tried, examples, held_out, config=short, progress=progress, begun=monotonic())
    return progress.kept, weights_of(tried)


def _time_left(config: FitConfig, begun: float) -> float | None:
    if config.seconds is None:
        return None
    return max(0.0, config.seconds - (monotonic() - begun))


@torch.no_grad()
def blend(
    network: Network, start: dict[str, Tensor], held_out: Examples, *, value: float
) -> tuple[float, float]:
    r"""Blends a trained network with the closed form that it started from, if that is better.

    .. math::
        h_s(v) = s\, h(v) + (1 - s)\,(W_0 \hat v + b_0)

    The correction of the start is 0, so a blend has the form of the network: every weight of the
    last layers is :math:`s` times its trained value plus :math:`1 - s` times its start.

    Returns:
        The share :math:`s`, 1 for the network as it was trained, and its mAP.
    """
    trained = weights_of(network)
    values = {1.0: value}
    for share in SHARES:
        network.load_state_dict(blended(trained, start, share))
        values[share] = new_old_map(network, held_out)
    best = max(values, key=lambda share: -inf if isnan(values[share]) else values[share])
    network.load_state_dict(blended(trained, start, best))
    return best, values[best]


def blended(
    trained: dict[str, Tensor], start: dict[str, Tensor], share: float
) -> dict[str, Tensor]:
    """Returns the weights of a blend: all layers but the hidden one are linear in their weights."""
    return {
        name: weight if ".inner." in f".{name}" else share * weight + (1 - share) * start[name]
        for name, weight in trained.items()
    }
