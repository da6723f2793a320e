"""Fits a network: closed form first, then a method, with early stopping on held-out classes."""

from collections.abc import Callable
from math import cos, isnan, pi
from time import monotonic

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.core.config import resolve_options
from nobackfill.core.seeding import seeded
from nobackfill.head.closed_form import Affine, closed_forms
from nobackfill.head.cuda_graph import RecordedStep
from nobackfill.head.examples import Examples
from nobackfill.head.network import Network
from nobackfill.head.schedule import FitConfig, Progress, Round, Schedule, rounds
from nobackfill.head.validation import embed_rows, new_old_map
from nobackfill.methods import METHODS, Method
from nobackfill.methods.base import ClassifyingMethod
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.prototypes import averaging, class_means

DEFAULT_FORM = "ridge 0.001"  # closed form of a fit without held-out classes


def forms_by_modality(network: Network, examples: Examples) -> dict[str, list[Affine]]:
    """Returns every closed form by name: a list with one map per modality."""
    forms = [
        closed_forms(examples, modality=modality, width=width)
        for modality, width in enumerate(network.widths)
    ]
    return {name: [maps[name] for maps in forms] for name in forms[0]}


def choose_closed_form(network: Network, examples: Examples, held_out: Examples | None) -> Progress:
    """Starts the network from the closed form that is best on the held-out classes.

    Without held-out classes it starts from `DEFAULT_FORM`. All modalities use the same form.
    """
    progress, forms = Progress(), forms_by_modality(network, examples)
    for name, affines in forms.items():
        network.start_from(*affines)
        progress.closed[name] = float("nan") if held_out is None else new_old_map(network, held_out)
    progress.start = DEFAULT_FORM
    if held_out is not None:
        progress.start = max(progress.closed, key=lambda name: progress.closed[name])
    network.start_from(*forms[progress.start])
    return progress


def fit_network(
    network: Network,
    examples: Examples,
    held_out: Examples,
    *,
    config: FitConfig,
    progress: Progress,
    begun: float | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> int:
    """Trains the network in place and keeps the weights that are best on the held-out classes.

    Starts from a closed form. Returns the number of updates: 0 if the method had no loss.
    """
    begun = monotonic() if begun is None else begun
    learner = Learner(network, examples, config, begun=begun)
    progress.planned = learner.schedule.total
    best, best_weights = progress.closed[progress.start], weights_of(network)
    steps, waited = 0, 0
    for number, current in enumerate(rounds(examples, config)):
        if learner.schedule.done >= 1:
            break
        # Train, then measure on the held-out classes.
        updates = learner.train(current, number)
        value = new_old_map(network, held_out)
        progress.history.append(value)
        progress.done = learner.schedule.done
        steps, waited = steps + updates, waited + (updates > 0)
        # Keep the best weights, and stop when they stay the best.
        if value > best:
            best, progress.best, waited = value, number + 1, 0
            best_weights = weights_of(network)
        watch(progress)
        if isnan(value) or waited >= config.patience:
            break
    progress.seen, progress.late = learner.schedule.steps, learner.schedule.is_late
    progress.method, progress.value = config.method, best
    network.load_state_dict(best_weights)
    network.eval()
    return steps


class Learner:
    """A network in training, with its method, optimizer and schedule."""

    def __init__(self, network: Network, examples: Examples, config: FitConfig, *, begun: float):
        self.network, self.examples, self.config = network, examples, config
        self.method = make_method(examples, config)
        device = examples.old.device
        records = examples.is_on_gpu and not self.method.data_dependent
        rate = config.learning_rate
        self.optimizer = torch.optim.AdamW(
            [*network.parameters(), *self.method.parameters()],
            lr=torch.tensor(rate, device=device) if records else rate,
            weight_decay=config.weight_decay,
            fused=True,
            capturable=records,
        )
        self.schedule = Schedule(config, len(examples), begun)
        self.recorded = RecordedStep(self.step, config.batch_size, device) if records else None

    def train(self, current: Round, number: int) -> int:
        """Trains for a round, or until the time limit; returns the number of updates."""
        with seeded(self.config.seed + number):
            if current.begins_epoch:
                epoch, epochs = current.epoch, self.config.epochs
                start_epoch(self.method, self.network, self.examples, epoch, epochs)
                if self.recorded is not None:
                    self.recorded.forget()
            self.network.train()
            steps = 0
            for places in current.batches:
                if (done := self.schedule.done) >= 1:
                    break
                self._set_rate(self.config.learning_rate * (1 + cos(pi * done)) / 2)
                if self.recorded is not None:
                    steps += self.recorded(places)
                else:
                    steps += self.step(places.to(self.examples.old.device))
                self.schedule.steps += 1
            self.network.eval()
        return steps

    def _set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)  # in place, where the CUDA graph reads it
            else:
                group["lr"] = rate

    def step(self, places: Int[Tensor, " batch"]) -> bool:
        """Makes a step on a batch; returns False if the method has no loss yet."""
        classes = self.examples.classes
        assert classes is not None
        new = self.network(*self.examples.network_inputs(places))
        terms = self.method(new, classes[places], items=places)
        weight = {"classification": self.config.classification}
        loss = torch.stack([weight.get(name, 1.0) * value for name, value in terms.items()]).sum()
        if not loss.requires_grad:
            return False
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return True


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    """Returns a copy of the weights."""
    return {name: value.clone() for name, value in network.state_dict().items()}


def make_method(examples: Examples, config: FitConfig) -> Method:
    """Makes a method that gets nothing of the old model but the old vectors of the examples."""
    assert examples.classes is not None
    kind, number, prototypes = METHODS[config.method], examples.number, None
    options = resolve_options(kind, config.options or {}, where="options")
    if "prototypes" in kind.needs:
        prototypes = class_means(examples.old, examples.classes, number, **averaging(options))
    old = OldSpace(prototypes=prototypes, embeddings=examples.old, labels=examples.classes)
    with seeded(config.seed + 1):
        method = kind(old, number, **options)
    if isinstance(method, ClassifyingMethod):
        method.classifies = config.classification > 0
    return method.to(examples.new.device)


def start_epoch(
    method: Method, network: Network, examples: Examples, epoch: int, epochs: int
) -> None:
    """Starts an epoch of the method, which may request new embeddings or prototypes."""
    classes = examples.classes
    assert classes is not None

    def embeddings() -> Float[Tensor, "items old_dim"]:
        blocks = (examples.network_inputs(places) for places in examples.places())
        return torch.cat([embed_rows(network, *inputs) for inputs in blocks])

    method.start_epoch(
        epoch,
        epochs,
        new_prototypes=lambda: class_means(
            embeddings(), classes, method.num_classes, **method.averaging
        ),
        new_embeddings=embeddings,
    )
