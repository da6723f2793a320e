"""Fits a head by a method, stopped where held-out classes say so."""

from collections.abc import Callable, Mapping
from math import cos, isnan, pi
from time import monotonic
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.core.config import resolve_options
from nobackfill.core.seeding import seeded
from nobackfill.head.cuda_graph import RecordedStep
from nobackfill.head.examples import Examples
from nobackfill.head.multimodal import Network
from nobackfill.head.schedule import Round, Schedule, rounds
from nobackfill.head.schedule_progress import Progress
from nobackfill.head.schedule_settings import FitConfig
from nobackfill.head.validation import asked, mapped
from nobackfill.methods import METHODS, Method
from nobackfill.methods.base import ClassifyingMethod
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.prototypes import class_means


def fit_network(
    network: Network,
    examples: Examples,
    held_out: Examples,
    *,
    method: str,
    options: Mapping[str, Any],
    config: FitConfig,
    progress: Progress,
    begun: float | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> int:
    """Trains the network in place; it ends as it was where the held-out classes liked it best.

    Args:
        network: Begun in closed form.
        examples: What to fit on, with classes.
        held_out: Of other classes.
        method: A name of `METHODS`.
        options: Of the method.
        config: How long and how fast.
        progress: Is brought up to date after each round.
        begun: From when on its seconds count, by `time.monotonic`; from now on if not given.
        watch: Is shown the progress.

    Returns:
        How many steps were made; 0 where the method had nothing to learn by.
    """
    begun = monotonic() if begun is None else begun
    learner = Learner(network, examples, method, options, config, begun=begun)
    progress.planned = learner.schedule.total
    best, kept = progress.closed[progress.start], weights_of(network)
    steps, waited = 0, 0
    for number, one in enumerate(rounds(examples, config)):
        if learner.schedule.is_over:
            break
        made = learner.train(one, number)
        value = asked(network, held_out)
        progress.history.append(value)
        progress.done = learner.schedule.done
        steps, waited = steps + made, waited + (made > 0)
        if value > best:
            best, progress.best, waited = value, number + 1, 0
            kept = weights_of(network)
        watch(progress)
        if isnan(value) or waited >= config.patience:
            break
    progress.seen, progress.late = learner.schedule.steps, learner.schedule.is_late
    network.load_state_dict(kept)
    network.eval()
    return steps


class Learner:
    """A network in training: its method, its optimizer, and how far it is.

    Args:
        network: Is trained in place.
        examples: What to fit on, with classes.
        method: A name of `METHODS`.
        options: Of the method.
        config: How long and how fast.
        begun: From when on its seconds count, by `time.monotonic`.
    """

    def __init__(
        self,
        network: Network,
        examples: Examples,
        method: str,
        options: Mapping[str, Any],
        config: FitConfig,
        *,
        begun: float,
    ):
        self.network, self.examples, self.config = network, examples, config
        self.method = make_method(method, options, examples, config)
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

    def train(self, one: Round, number: int) -> int:
        """Learns from a round, as far as time goes; returns how many steps were made."""
        with seeded(self.config.seed + number):
            if one.begins_epoch:
                start_epoch(self.method, self.network, self.examples, one.epoch, self.config.epochs)
                if self.recorded is not None:
                    self.recorded.forget()
            self.network.train()
            steps = 0
            for places in one.batches:
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
                group["lr"].fill_(rate)  # where a recording reads it
            else:
                group["lr"] = rate

    def step(self, places: Int[Tensor, " batch"]) -> bool:
        """One step on some items; none where the method has nothing to learn by, as at first."""
        classes = self.examples.classes
        assert classes is not None
        new = self.network(*self.examples.given(places))
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
    """A copy."""
    return {name: value.clone() for name, value in network.state_dict().items()}


def make_method(
    name: str, options: Mapping[str, Any], examples: Examples, config: FitConfig
) -> Method:
    """A method that knows the old vectors of the examples, and nothing else of the old model."""
    assert examples.classes is not None
    number, prototypes = examples.number, None
    if "prototypes" in METHODS[name].needs:
        prototypes = class_means(examples.old, examples.classes, number)
    old = OldSpace(prototypes=prototypes, embeddings=examples.old, labels=examples.classes)
    checked = resolve_options(METHODS[name], options, where="options")
    with seeded(config.seed + 1):
        method = METHODS[name](old, number, **checked)
    if isinstance(method, ClassifyingMethod):
        method.classifies = config.classification > 0
    return method.to(examples.new.device)


def start_epoch(
    method: Method, network: Network, examples: Examples, epoch: int, epochs: int
) -> None:
    """Tells the method that an epoch begins."""
    classes = examples.classes
    assert classes is not None

    def embeddings() -> Float[Tensor, "items old_dim"]:
        parts = [mapped(network, *examples.given(places)) for places in examples.places()]
        return torch.cat(parts)

    method.start_epoch(
        epoch,
        epochs,
        new_prototypes=lambda: class_means(embeddings(), classes, method.num_classes),
        new_embeddings=embeddings,
    )
