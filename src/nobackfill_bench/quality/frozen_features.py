"""Suites of heads trained from scratch on frozen features."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from nobackfill.core.atomic_files import replacing
from nobackfill.core.config import change_tables, resolve_options
from nobackfill.core.device import choose_device
from nobackfill.core.seeding import seeded
from nobackfill.data.splits import order_classes
from nobackfill.errors import ConfigError
from nobackfill.evaluation.evaluate import evaluate
from nobackfill.methods import METHODS, Method
from nobackfill.methods.base import ClassifyingMethod
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.prototypes import averaging, class_means
from nobackfill.vectors import Vectors
from nobackfill_bench.quality.features import Load, parts, with_vectors
from nobackfill_bench.quality.suite import Results, Suite, Task, options_of, read_way
from nobackfill_bench.quality.trained import circumstances, numbers

EPOCHS, BATCH, LEARNING_RATE, HIDDEN, DIM = 60, 256, 2e-3, 1024, 256
OLD_SHARE = 0.3  # share of the training classes for the old head
PREPARATION = "old"  # trains the old and the independent head


@dataclass(frozen=True, kw_only=True)
class ScratchSuite(Suite):
    """Old head on old features of some classes; new heads on new features of all classes.

    Attributes:
        load: Function that loads the features.
    """

    load: Load

    def stages(self, ways: Sequence[str]) -> list[list[str]]:
        """Trains the old and the independent head first; see `Suite`."""
        return [[PREPARATION], list(ways)]

    def check(self, ways: Sequence[str]) -> None:
        """Raises for CoReS, whose dimension depends on the classes; see `Suite`."""
        super().check(ways)
        for way in ways:
            if METHODS[read_way(way)[0]].same_kind:
                raise ConfigError(
                    f"Heads of this suite have {DIM} dimensions, but `{way}` sets its own "
                    f"dimension. Leave it out."
                )

    def run(self, task: Task) -> Results | None:
        """Trains one head; see `Suite`."""
        torch.set_num_threads(1)
        epochs, device = epochs_of(task.changes), choose_device(task.place.device)
        old, new = self.load(task.place.collections, task.seed)
        known = known_of(old, new, task, epochs=epochs, device=device)
        if task.way == PREPARATION:
            return None
        (old_fit, old_searched), (new_fit, new_searched) = (
            parts(side) for side in (with_vectors(old, known["old"]), new)
        )
        is_training = torch.from_numpy(new.columns["split"] == "train")
        classes, number = numbered(new_fit.labels, task.seed)
        space = OldSpace(
            prototypes=class_means(
                old_fit.vectors,
                classes,
                int(classes.max()) + 1,
                **averaging(options_of(*read_way(task.way))),
            ),
            embeddings=old_fit.vectors,
            classifier=known["classifier"],
            independent=known["independent"][is_training],
            labels=classes,
            known_classes=number,
        )
        start, began = datetime.now(UTC), time.perf_counter()
        network, method = train_head(
            new_fit.vectors.to(device), classes.to(device), task.way, space.to(device),
            seed=task.seed, epochs=epochs,
        )  # fmt: skip
        seconds = time.perf_counter() - began
        stored, queries = sides_of(network, method, new_searched, device)
        result = evaluate(old_searched, stored, query_for_old=queries, device=device).summary()
        return {
            **circumstances(start, device, round(seconds, 1)),
            "epochs": epochs,
            **numbers(result),
            "independent": float(known["independent_map"]),
            "raw_old": float(known["raw_old"]),
            "raw_new": float(known["raw_new"]),
        }


def epochs_of(changes: Sequence[str]) -> int:
    """Returns the number of epochs, the only setting that can be changed.

    Example:
        >>> epochs_of(["train.epochs=2"])
        2
    """
    tables = change_tables({"train": {"epochs": EPOCHS}}, changes)
    if set(tables) != {"train"} or set(tables["train"]) != {"epochs"}:
        raise ConfigError(
            f"This suite accepts only --set train.epochs=N, not {', '.join(changes)}."
        )
    return int(tables["train"]["epochs"])


def known_of(
    old: Vectors, new: Vectors, task: Task, *, epochs: int, device: torch.device
) -> Mapping[str, Tensor]:
    """Returns what all heads of a seed share; it is computed once and cached.

    Returns:
        `old` and `independent`: embeddings of all items by the old head (old features, some
        classes) and the independent head (new features, all classes). `classifier`: that of the
        old head. `independent_map`, `raw_old` and `raw_new`: mAP of the independent head and of
        both features.
    """
    path = task.place.work / task.suite / f"{task.seed}_{epochs}_epochs.npz"
    if not path.exists():
        with replacing(path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, **prepare(old, new, seed=task.seed, epochs=epochs, device=device))
    with np.load(path, allow_pickle=False) as archive:
        return {key: torch.from_numpy(archive[key]) for key in archive}


def prepare(
    old: Vectors, new: Vectors, *, seed: int, epochs: int, device: torch.device
) -> dict[str, Any]:
    """Computes the tensors of `known_of`."""
    classes, known = numbered(parts(old)[0].labels, seed)
    features: dict[str, Tensor] = {}
    for name, side, chosen, its_seed in (
        ("old", old, classes < known, seed + 1000),  # other initial weights than the new heads
        ("independent", new, classes >= 0, seed),
    ):
        network, method = train_head(
            parts(side)[0].vectors[chosen].to(device), classes[chosen].to(device), "independent",
            OldSpace(), seed=its_seed, epochs=epochs,
        )  # fmt: skip
        features[name] = embedded(network, side.vectors.to(device)).cpu()
        if name == "old":
            assert isinstance(method, ClassifyingMethod)
            features["classifier"] = method.classifier.weight.detach().cpu()
    alone = {
        "independent_map": with_vectors(new, features["independent"]),
        "raw_old": old,
        "raw_new": new,
    }
    for name, vectors in alone.items():
        searched = parts(vectors)[1]
        result = evaluate(searched, searched, device=device)
        features[name] = torch.tensor(result.old_old.mean_average_precision, dtype=torch.float64)
    return {name: value.numpy() for name, value in features.items()}


def numbered(labels: NDArray[Any] | None, seed: int) -> tuple[Int[Tensor, " items"], int]:
    """Numbers the classes, those of the old head first; returns labels and the number of these.

    Args:
        labels: Labels of the training items.
        seed: Random seed of the choice.
    """
    assert labels is not None
    original = torch.from_numpy(np.unique(labels, return_inverse=True)[1])
    order = order_classes(
        int(original.max()) + 1, (OLD_SHARE, 1.0), generator=torch.Generator().manual_seed(seed)
    )
    return order.label_of[original], order.counts[0]


def train_head(
    features: Float[Tensor, "items dim"],
    classes: Int[Tensor, " items"],
    way: str,
    space: OldSpace,
    *,
    seed: int,
    epochs: int,
) -> tuple[nn.Module, Method]:
    """Trains a head with a method.

    Args:
        features: Features of the training items, on the training device.
        classes: Classes of the items, starting at 0.
        way: Method with optional settings.
        space: Parts of the old head that the method needs.
        seed: Random seed.
        epochs: Number of epochs.
    """
    with seeded(seed):
        number, device = int(classes.max()) + 1, features.device
        name, changes = read_way(way)
        dim = 2 * DIM if name == "bt2" else DIM
        network = make_network(features.shape[1], dim).to(device)
        method = make_method(name, changes, space, number, dim=dim).to(device)

        def embeddings() -> Float[Tensor, "items dim"]:
            return embedded(network, features)

        optimizer = torch.optim.AdamW(
            [*network.parameters(), *method.parameters()], lr=LEARNING_RATE
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(epochs, 1))
        for epoch in range(epochs):
            method.start_epoch(
                epoch,
                epochs,
                new_prototypes=lambda: class_means(
                    method.compared(embeddings()).detach(), classes, number, **method.averaging
                ),
                new_embeddings=embeddings,
            )
            for rows in torch.randperm(len(features)).to(device).split(BATCH):
                if len(rows) == 1:
                    continue  # BatchNorm needs at least two items
                terms = method(network(features[rows]), classes[rows], items=rows)
                loss = torch.stack(list(terms.values())).sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            schedule.step()
    return network.eval(), method.eval()


def make_network(features: int, dim: int) -> nn.Module:
    """Creates a network of dropout, a wide layer and a projection with BatchNorm."""
    return nn.Sequential(
        nn.Dropout(0.3),
        nn.Linear(features, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, dim),
        nn.BatchNorm1d(dim),
    )


def make_method(
    name: str, changes: Sequence[str], space: OldSpace, number: int, *, dim: int
) -> Method:
    """Creates a method with the options that `read_way` returns."""
    options = resolve_options(METHODS[name], options_of(name, changes), where="method")
    if "dim" in options:
        options["dim"] = dim
    return METHODS[name](space, number, **options)


@torch.no_grad()
def embedded(
    network: nn.Module, features: Float[Tensor, "items features"]
) -> Float[Tensor, "items dim"]:
    """Embeds features without dropout."""
    was_training = network.training
    embeddings: Tensor = network.eval()(features)
    network.train(was_training)
    return embeddings


@torch.no_grad()
def sides_of(
    network: nn.Module, method: Method, features: Vectors, device: torch.device
) -> tuple[Vectors, Vectors | None]:
    """Returns the vectors to store, and queries to the old gallery if they differ."""
    embeddings = embedded(network, features.vectors.to(device))
    stored = with_vectors(features, method.gallery(embeddings).cpu())
    if stored.dim > DIM:
        stored = replace(stored, compatible_dim=DIM)
    if not method.maps_queries:
        return stored, None
    return stored, with_vectors(features, method.query(embeddings).cpu())
