"""Fits a head: closed forms first, then a method, stopped where held-out classes say so."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, cos, inf, isnan, pi
from time import monotonic
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.adapters import Affine, moments, procrustes_of, ridge_of
from nobackfill.config import resolve_options, suggest
from nobackfill.errors import ConfigError
from nobackfill.head.examples import Examples, drawn
from nobackfill.head.extra import Extra
from nobackfill.head.network import HeadNetwork
from nobackfill.methods import METHODS, Method
from nobackfill.methods.base import ClassifyingMethod
from nobackfill.metrics import retrieval
from nobackfill.oldspace import OldSpace
from nobackfill.prototypes import class_means
from nobackfill.randomness import seeded

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)
MIDDLING = "ridge 0.001"  # where no held-out classes say which is best
QUERIES = 2000  # of the held-out classes that are asked after each round
SCALES = (0.5, 0.7, 1.0, 1.4, 2.0)  # of extra dimensions, beside a vector of unit length
ROUND = 200  # steps at most until they are asked again


@dataclass(frozen=True)
class FitConfig:
    """How long and how fast a head is fitted.

    Attributes:
        epochs: At most.
        batch_size: How many items make a step.
        learning_rate: Of AdamW; falls to 0 along half a cosine.
        weight_decay: Likewise.
        classification: Weight of the method's classification term.
        together: How many items of a class come together into a batch.
        patience: Rounds without a better one after which to stop.
        seconds: What it all may take; None for no limit. The learning rate falls in that time, so
            what comes out depends on how fast the machine is.
        seed: Of all that is random.
    """

    epochs: int = 30
    batch_size: int = 512
    learning_rate: float = 3e-4
    weight_decay: float = 1e-2
    classification: float = 0.0
    together: int = 1
    patience: int = 6
    seconds: float | None = None
    seed: int = 0


@dataclass
class Progress:
    """How a fit went.

    Attributes:
        closed: Of each closed form new/old mAP on the held-out classes; NaN where there are none.
        start: The name of the closed form that was begun with.
        history: new/old mAP on the held-out classes after each round: an epoch, or a part of one
            where epochs are long.
        best: The round that was kept; 0 for the closed form.
        planned: How many batches there are to learn from without limits of time or patience.
        seen: How many were learned from.
        late: Whether time was up before the rest.
        done: The share of the training that is behind, by steps or by time.
        stored: New/new mAP on the held-out classes of what could be stored: see `compare_stored`.
    """

    closed: dict[str, float] = field(default_factory=dict)
    start: str = ""
    history: list[float] = field(default_factory=list)
    best: int = 0
    planned: int = 0
    seen: int = 0
    late: bool = False
    done: float = 0.0
    stored: dict[str, float] = field(default_factory=dict)


def check_method(name: str) -> None:
    """Refuses a method that needs more of the old model than its vectors, or fixes a dimension."""
    usable = [
        known
        for known, kind in METHODS.items()
        if kind.needs <= {"prototypes", "embeddings"}
        and not kind.same_kind
        and not kind.maps_queries
    ]
    if name not in METHODS:
        raise ConfigError(f"unknown method `{name}`. {suggest(name, usable)}")
    if name not in usable:
        raise ConfigError(
            f"wanted a method that needs nothing but old vectors, but `{name}` needs more, or "
            f"another dimension, or has a map of its own. Choose one of {', '.join(usable)}."
        )


def check_config(config: FitConfig) -> None:
    """Refuses numbers that make no sense."""
    wanted = {
        "epochs": config.epochs >= 0,
        "batch_size": config.batch_size >= 1,
        "learning_rate": 0 <= config.learning_rate < inf,
        "weight_decay": 0 <= config.weight_decay < inf,
        "classification": 0 <= config.classification < inf,
        "together": config.together >= 1,
        "seconds": config.seconds is None or config.seconds >= 0,
    }
    for name, sensible in wanted.items():
        if not sensible:
            least = 1 if name in ("batch_size", "together") else 0
            raise ConfigError(
                f"wanted `{name}` of {least} or more, but got {getattr(config, name)}."
            )


def closed_forms(examples: Examples) -> Iterator[tuple[str, Affine]]:
    """All maps in closed form, by name."""
    known = moments(examples.blocks())
    yield "procrustes", procrustes_of(known).to(torch.float32)
    for strength in STRENGTHS:
        yield f"ridge {strength:g}", ridge_of(known, strength=strength).to(torch.float32)


def choose_closed_form(
    network: HeadNetwork, examples: Examples, held_out: Examples | None
) -> Progress:
    """Lets the network begin with the closed form that is best on the held-out classes.

    Without any, with ridge regression of middling strength.
    """
    progress, found = Progress(), dict(closed_forms(examples))
    for name, affine in found.items():
        network.start_from(affine)
        progress.closed[name] = float("nan") if held_out is None else asked(network, held_out)
    progress.start = MIDDLING
    if held_out is not None:
        progress.start = max(progress.closed, key=lambda name: progress.closed[name])
    network.start_from(found[progress.start])
    return progress


def fit_network(
    network: HeadNetwork,
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
        network: HeadNetwork,
        examples: Examples,
        method: str,
        options: Mapping[str, Any],
        config: FitConfig,
        *,
        begun: float,
    ):
        self.network, self.examples, self.config = network, examples, config
        self.method = make_method(method, options, examples, config)
        self.optimizer = torch.optim.AdamW(
            [*network.parameters(), *self.method.parameters()],
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.schedule = Schedule(config, len(examples), begun)

    def train(self, one: "Round", number: int) -> int:
        """Learns from a round, as far as time goes; returns how many steps were made."""
        with seeded(self.config.seed + number):
            if one.begins_epoch:
                start_epoch(self.method, self.network, self.examples, one.epoch, self.config.epochs)
            self.network.train()
            steps = 0
            for places in one.batches:
                if (done := self.schedule.done) >= 1:
                    break
                for group in self.optimizer.param_groups:
                    group["lr"] = self.config.learning_rate * (1 + cos(pi * done)) / 2
                steps += self.step(places.to(self.examples.old.device))
                self.schedule.steps += 1
            self.network.eval()
        return steps

    def step(self, places: Int[Tensor, " batch"]) -> bool:
        """One step on some items; none where the method has nothing to learn by, as at first."""
        classes = self.examples.classes
        assert classes is not None
        new = self.network(self.examples.new_of(places))
        terms = self.method(new, classes[places], items=places)
        weight = {"classification": self.config.classification}
        loss = torch.stack([weight.get(name, 1.0) * value for name, value in terms.items()]).sum()
        if not loss.requires_grad:
            return False
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return True


@dataclass(frozen=True)
class Round:
    """What is learned from before the held-out classes are asked again.

    Attributes:
        epoch: Which one it is in.
        begins_epoch: Whether it is its first.
        batches: Places of the items of each step.
    """

    epoch: int
    begins_epoch: bool
    batches: Sequence[Tensor]


def rounds(examples: Examples, config: FitConfig) -> Iterator[Round]:
    """Every epoch, each item once in it; long ones in even parts of at most `ROUND` steps."""
    assert examples.classes is not None
    generator = torch.Generator().manual_seed(config.seed)
    for epoch in range(config.epochs):
        batches = drawn(examples.classes, config.together, generator).split(config.batch_size)
        parts = ceil(len(batches) / ROUND)
        ends = [len(batches) * part // parts for part in range(parts + 1)]
        for first, last in pairwise(ends):
            yield Round(epoch, first == 0, batches[first:last])


class Schedule:
    """How far a fit is, by its steps or by its time, whichever is further.

    Args:
        config: How long it may go on.
        items: How many there are.
        begun: When it began, by `time.monotonic`.
    """

    def __init__(self, config: FitConfig, items: int, begun: float):
        self.total = config.epochs * ceil(items / config.batch_size)
        self.seconds, self.begun = config.seconds, begun
        self.steps = 0

    @property
    def done(self) -> float:
        """The share that is behind."""
        return min(1.0, max(self.steps / max(self.total, 1), self._time_behind()))

    @property
    def is_late(self) -> bool:
        """Whether time is up and steps are left."""
        return self._time_behind() >= 1 and self.steps < self.total

    def _time_behind(self) -> float:
        if self.seconds is None:
            return 0.0
        return (monotonic() - self.begun) / self.seconds if self.seconds else 1.0

    @property
    def is_over(self) -> bool:
        """Whether no step is left."""
        return self.done >= 1


def add_extra(
    network: HeadNetwork, examples: Examples, held_out: Examples | None, *, extra: int
) -> dict[float, float]:
    """Puts dimensions behind those of a fitted network, as loud as held-out classes like them.

    Args:
        network: Fitted; its map into the old space stays as it is.
        examples: Of which the directions are taken.
        held_out: Of other classes, on which new vectors search each other; without, each part of a
            vector counts alike.
        extra: How many.

    Returns:
        Of each scale that was tried new/new mAP on the held-out classes.
    """
    more = Extra(examples.new.shape[1], extra).to(examples.old.device)
    more.start_from(moments(examples.blocks()))
    found: dict[float, float] = {}
    if held_out is not None:
        blocks = [new for new, _ in held_out.blocks()]
        own = torch.cat([mapped(network, new) for new in blocks])
        with torch.no_grad():
            behind = torch.cat([more(new) for new in blocks])
        places = asking(held_out)
        for scale in SCALES:
            stored = torch.cat([own, scale * behind], dim=1)
            found[scale] = searched(stored[places], stored, places, held_out)
        more.scale.fill_(max(found, key=lambda scale: found[scale]))
    network.extra = more
    return found


def compare_stored(network: HeadNetwork, held_out: Examples) -> dict[str, float]:
    """New/new mAP on the held-out classes, where items are embedded again.

    Returns:
        Of "mapped" vectors, and of new vectors "as they are".
    """
    places = asking(held_out)
    as_they_are = torch.cat([new for new, _ in held_out.blocks()])
    vectors = {
        "mapped": mapped(network, as_they_are),
        "as they are": F.normalize(as_they_are, dim=1),
    }
    return {
        name: searched(stored[places], stored, places, held_out) for name, stored in vectors.items()
    }


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
    method: Method, network: HeadNetwork, examples: Examples, epoch: int, epochs: int
) -> None:
    """Tells the method that an epoch begins."""
    classes = examples.classes
    assert classes is not None

    def embeddings() -> Float[Tensor, "items old_dim"]:
        return torch.cat([mapped(network, new) for new, _ in examples.blocks()])

    method.start_epoch(
        epoch,
        epochs,
        new_prototypes=lambda: class_means(embeddings(), classes, method.num_classes),
        new_embeddings=embeddings,
    )


@torch.no_grad()
def mapped(
    network: HeadNetwork, new: Float[Tensor, "rows new_dim"], *, block: int = 65_536
) -> Float[Tensor, "rows dim"]:
    """What the network makes of vectors, some rows at a time; without dropout."""
    was_training = network.training
    network.eval()
    parts = [network.embed(part) for part in new.split(block)]
    network.train(was_training)
    return torch.cat(parts)


def asked(network: HeadNetwork, held_out: Examples) -> float:
    """New/old mAP of the network on the held-out classes; NaN where training has diverged."""
    places = asking(held_out)
    query = mapped(network, held_out.new_of(places))
    return cross_map(query, places, held_out) if query.isfinite().all() else float("nan")


def asking(held_out: Examples) -> Int[Tensor, " query"]:
    """The places of the items that ask: all, or some thousand of them, evenly chosen."""
    device, number = held_out.old.device, len(held_out)
    if number <= QUERIES:
        return torch.arange(number, device=device)
    return torch.arange(QUERIES, device=device) * number // QUERIES


def cross_map(
    query: Float[Tensor, "query old_dim"], places: Int[Tensor, " query"], held_out: Examples
) -> float:
    """The mAP of mapped new vectors on the old ones, each item asking for the others.

    Args:
        query: The mapped vectors of the items that ask.
        places: Theirs among all.
        held_out: All.
    """
    return searched(query, held_out.old.float(), places, held_out)


def searched(
    query: Float[Tensor, "query dim"],
    gallery: Float[Tensor, "items dim"],
    places: Int[Tensor, " query"],
    held_out: Examples,
) -> float:
    """The mAP of some items' queries on all items but themselves."""
    assert held_out.classes is not None
    found = retrieval(
        query,
        gallery,
        held_out.classes[places].cpu(),
        held_out.classes.cpu(),
        ignored=[[place] for place in places.tolist()],
    )
    return found.mean_average_precision
