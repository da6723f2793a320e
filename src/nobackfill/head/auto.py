"""Chooses a head among several by cross-validation over classes, and refits it on all of them."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from math import ceil, inf, isnan, nan
from statistics import fmean
from time import monotonic

import torch
from jaxtyping import Float
from torch import Tensor

from nobackfill.head.class_targets import forms_of, target_moments
from nobackfill.head.closed_form import RIGID, Affine, Moments, without
from nobackfill.head.examples import Examples
from nobackfill.head.fitting import Learner, weights_of
from nobackfill.head.network import Network
from nobackfill.head.schedule import FitConfig, Progress, rounds
from nobackfill.head.split import FitSplit, Fold
from nobackfill.head.validation import choose_queries, new_old_map, retrieval_map

SHARES = (1.0, 0.75, 0.5, 0.25)  # shares of a trained head in a blend with the rotation
KEPT = 2  # methods that go on after the first fold
LONGER = 2  # times as long with many classes, which overfit less; the last fit again
TRIALS = 0.6  # share of a time limit for all trials


@dataclass(frozen=True)
class Trial:
    """How a candidate is trained, on the folds and again on all items."""

    batch_size: int  # at most
    epochs: float  # share of the epochs of a fit
    rate: float  # multiple of the learning rate


CANDIDATES = {
    "cross_supcon": Trial(256, 1 / 8, 2.0),  # contrast with old items
    "prototype_alignment": Trial(256, 1 / 8, 2.0),  # contrast with class means
    "rbcl": Trial(128, 1 / 16, 1.0),  # ranking; its cost grows with the square of the batch
}

Weights = Mapping[str, Tensor]
Forms = Mapping[str, list[Affine]]  # closed forms by name, with a map for each modality


@dataclass(eq=False)
class Candidate:
    """A head that was tried: a closed form, or what a method made of it."""

    name: str
    weights: list[Weights] = field(default_factory=list)  # on each fold
    values: dict[float, list[float]] = field(default_factory=dict)  # mAP of blends on each fold

    @property
    def share(self) -> float:
        """Share of the head in the blend with the highest mean mAP over the folds."""
        return max(self.values, key=lambda share: finite(fmean(self.values[share])))

    @property
    def value(self) -> float:
        """Mean mAP of that blend over the folds."""
        return fmean(self.values[self.share])


def fit_best(
    network: Network,
    split: FitSplit,
    *,
    config: FitConfig,
    progress: Progress,
    begun: float,
    watch: Callable[[Progress], None],
) -> list[Weights]:
    """Fits the candidate that is best on held-out classes to all classes.

    Candidates are the closed form that is best on the folds, and a head trained by each of
    `CANDIDATES` from there, each in blends with the rotation. Every fold holds out other classes.
    After the first fold the `KEPT` best methods go on; the mean mAP over all folds decides. The
    winner is then fitted to the items of all folds.

    Returns:
        The weights of the winner on each fold; the held-out classes of the fold did not train them.
    """
    everything, folds, initial = split.everything, split.folds, weights_of(network)
    forms, all_forms = closed_forms_of_folds(network, everything, folds)
    choose_start(network, folds, forms, progress)
    # Train the candidates on every fold, and measure their blends.
    tried = [Candidate(progress.start), *map(Candidate, CANDIDATES)]
    rotations: list[Weights] = []
    longer = 1 if len(folds) > 1 else LONGER
    total = len(CANDIDATES) + KEPT * (len(folds) - 1)  # trainings
    done = 0
    for fold, own in zip(folds, forms, strict=True):
        rotations.append(weights_from(network, initial, own[RIGID]))
        turned = outputs(network, rotations[-1], fold.held_out)
        start = weights_from(network, initial, own[progress.start])
        for candidate in tried:
            weights = start
            if candidate.name in CANDIDATES:
                limit = time_left(config, begun, TRIALS, total - done)
                trial = trial_config(config, candidate.name, limit, longer=longer)
                network.load_state_dict(start)
                weights = train(network, fold.fitted, trial, progress)
                done += 1
            candidate.weights.append(weights)
            mapped = outputs(network, weights, fold.held_out)
            measure_blends(candidate, mapped, turned, fold.held_out)
            progress.done = done / (total + 1)
            watch(progress)
        tried = [
            tried[0],
            *sorted(tried[1:], key=lambda candidate: -finite(candidate.value))[:KEPT],
        ]
    progress.tried = {candidate.name: candidate.value for candidate in tried}
    best = max(tried, key=lambda candidate: finite(candidate.value))
    progress.method, progress.blend, progress.value = best.name, best.share, best.value
    # Fit the winner to the items of all folds.
    rotation = weights_from(network, initial, all_forms[RIGID])
    final = weights_from(network, initial, all_forms[progress.start])
    if best.name in CANDIDATES:
        winner = trial_config(config, best.name, time_left(config, begun), longer=longer**2)
        final = train(network, everything, winner, progress)
    on_folds = [
        blend_of(network, weights, rotation, best.share, fold.held_out)
        for weights, rotation, fold in zip(best.weights, rotations, folds, strict=True)
    ]
    network.load_state_dict(blend_of(network, final, rotation, best.share, everything))
    progress.done = 1.0
    watch(progress)
    return on_folds


def finite(value: float) -> float:
    """Returns the value, or minus infinity for NaN: the head has no valid output."""
    return -inf if isnan(value) else value


def weights_from(network: Network, initial: Weights, maps: Sequence[Affine]) -> Weights:
    """Returns the initial weights with closed forms as linear maps, one for each modality."""
    network.load_state_dict(initial)
    network.start_from(*maps)
    return weights_of(network)


def closed_forms_of_folds(
    network: Network, everything: Examples, folds: Sequence[Fold]
) -> tuple[list[Forms], Forms]:
    """Returns the closed forms of the items that each fold fits to, and those of all items.

    All items are read once; those that a fold holds out are taken from their statistics.
    """
    total = target_moments(everything, network.widths)

    def forms(statistics: Sequence[Moments]) -> Forms:
        own = [forms_of(part) for part in statistics]
        return {name: [maps[name] for maps in own] for name in own[0]}

    of_folds = []
    for fold in folds:
        parts = target_moments(fold.held_out, network.widths)
        of_folds.append(forms([without(*pair) for pair in zip(total, parts, strict=True)]))
    return of_folds, forms(total)


def choose_start(
    network: Network, folds: Sequence[Fold], forms: Sequence[Forms], progress: Progress
) -> None:
    """Records the mean mAP of each closed form over the folds, and the best one as the start."""
    values: dict[str, list[float]] = {name: [] for name in forms[0]}
    for fold, own in zip(folds, forms, strict=True):
        for name, maps in own.items():
            network.start_from(*maps)
            values[name].append(new_old_map(network, fold.held_out))
    progress.closed = {name: fmean(of_folds) for name, of_folds in values.items()}
    progress.start = max(progress.closed, key=lambda name: progress.closed[name])


def trial_config(
    config: FitConfig, name: str, seconds: float | None, *, longer: int = 1
) -> FitConfig:
    """Returns the settings with which a candidate is trained, `longer` times as long."""
    trial = CANDIDATES[name]
    return replace(
        config,
        method=name,
        batch_size=min(trial.batch_size, config.batch_size),
        epochs=ceil(longer * trial.epochs * config.epochs),
        learning_rate=trial.rate * config.learning_rate,
        seconds=seconds,
    )


def time_left(config: FitConfig, begun: float, share: float = 1.0, parts: int = 1) -> float | None:
    """Returns the seconds of each of `parts` equal parts of what is left of a share of the limit.

    None without a limit.
    """
    if config.seconds is None:
        return None
    return max(0.0, share * config.seconds - (monotonic() - begun)) / parts


def train(network: Network, examples: Examples, config: FitConfig, progress: Progress) -> Weights:
    """Trains a copy of the network to the end, and counts its steps; returns its weights."""
    learner = Learner(deepcopy(network), examples, config, begun=monotonic())
    for number, current in enumerate(rounds(examples, config)):
        if learner.schedule.done >= 1:
            break
        learner.train(current, number)
    progress.planned += learner.schedule.total
    progress.seen += learner.schedule.steps
    progress.late |= learner.schedule.is_late
    return weights_of(learner.network)


@torch.no_grad()
def outputs(network: Network, weights: Weights, examples: Examples) -> Float[Tensor, "query dim"]:
    """Returns what the network makes of at most 2,000 items, not normalized."""
    network.load_state_dict(weights)
    network.eval()
    mapped: Tensor = network(*examples.network_inputs(choose_queries(examples)))
    return mapped


def measure_blends(
    candidate: Candidate,
    mapped: Float[Tensor, "query dim"],
    turned: Float[Tensor, "query dim"],
    held_out: Examples,
) -> None:
    """Adds the mAP of each blend of a candidate on a fold, from the outputs of both maps."""
    gallery, places = held_out.old.float(), choose_queries(held_out)
    for share in SHARES[:1] if candidate.name == RIGID else SHARES:
        query = share * mapped + rotation_factor(mapped, turned, share) * turned
        is_valid = bool((query.isfinite().all(dim=1) & (query != 0).any(dim=1)).all())
        value = retrieval_map(query, gallery, places, held_out) if is_valid else nan
        candidate.values.setdefault(share, []).append(value)


def rotation_factor(
    mapped: Float[Tensor, "query dim"], turned: Float[Tensor, "query dim"], share: float
) -> float:
    r"""Returns the factor of the rotation in a blend with a share of a head.

    .. math::
        h_s(v) = s\, h(v) + (1 - s)\, k\, R(v), \qquad
        k = \frac{\mathrm{mean}_i \lVert h(v_i) \rVert}{\mathrm{mean}_i \lVert R(v_i) \rVert}

    The factor is :math:`(1 - s)\, k`: heads that were trained for cosines may have any length.
    """
    return float((1 - share) * mapped.norm(dim=1).mean() / turned.norm(dim=1).mean())


def blended(trained: Weights, rotation: Weights, share: float, factor: float) -> Weights:
    """Returns the weights of a blend; see `rotation_factor`.

    The correction of the rotation is 0, so a blend has the form of the network: its linear map and
    its last layer are sums of both.
    """
    if share == 1:
        return trained
    return {
        name: weight if ".inner." in f".{name}" else share * weight + factor * rotation[name]
        for name, weight in trained.items()
    }


def blend_of(
    network: Network, trained: Weights, rotation: Weights, share: float, examples: Examples
) -> Weights:
    """Returns the weights of a blend with the factor that belongs to some items."""
    mapped, turned = (outputs(network, weights, examples) for weights in (trained, rotation))
    return blended(trained, rotation, share, rotation_factor(mapped, turned, share))
