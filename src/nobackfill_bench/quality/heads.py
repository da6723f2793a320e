"""Suites of heads fitted to stored vectors; they train only `CompatibleHead`."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import torch

from nobackfill.core.device import choose_device
from nobackfill.errors import ConfigError
from nobackfill.evaluation.evaluate import evaluate
from nobackfill.head import CompatibleHead
from nobackfill.head.closed_form import procrustes, ridge
from nobackfill.head.schedule import AUTO, check_method
from nobackfill.methods import METHODS
from nobackfill.vectors import Vectors
from nobackfill_bench.quality.features import Load, parts, with_vectors
from nobackfill_bench.quality.frozen_features import PREPARATION, epochs_of, known_of
from nobackfill_bench.quality.suite import Results, Suite, Task, options_of, read_way
from nobackfill_bench.quality.trained import circumstances, numbers

CLOSED_FORMS = {"procrustes": procrustes, "ridge": ridge}
WITH_OLD = "+old"  # end of a way whose queries both models embed
CONTRAST = "cross_supcon"  # the earlier default
EARLIER_HEAD = "janus"  # rows of a head by `CONTRAST` that decides what is stored
OUR_HEADS = (AUTO, *(f"{name}{WITH_OLD}" for name in (CONTRAST, AUTO)))


def usable() -> tuple[str, ...]:
    """Returns the closed forms, the methods that need only old vectors, and ours."""
    heads = []
    for name in METHODS:
        with suppress(ConfigError):
            check_method(name)
            heads.append(name)
    return (*CLOSED_FORMS, *heads, EARLIER_HEAD, *OUR_HEADS)


@dataclass(frozen=True, kw_only=True)
class FittedSuite(Suite):
    """Maps from new to old vectors, fitted on the training classes.

    Attributes:
        load: Function that loads the vectors of both models.
        supervision: Argument of `CompatibleHead.fit` that gets the classes.
        trained: Whether the old model is a head that `ScratchSuite` trains on the old vectors.
    """

    load: Load
    supervision: str = "labels"
    trained: bool = False
    ways: tuple[str, ...] = usable()
    default: str = AUTO
    ours_too: tuple[str, ...] = (EARLIER_HEAD, *OUR_HEADS[1:])

    def stages(self, ways: Sequence[str]) -> list[list[str]]:
        """Trains the old head first, if there is one; see `Suite`."""
        return [[PREPARATION], list(ways)] if self.trained else [list(ways)]

    def check(self, ways: Sequence[str]) -> None:
        """Raises if a method needs more than old vectors; see `Suite`."""
        for way in ways:
            name = read_way(way)[0].removesuffix(WITH_OLD)
            if name not in (EARLIER_HEAD, *CLOSED_FORMS):
                check_method(name)

    def run(self, task: Task) -> Results | None:
        """Fits one head; see `Suite`."""
        torch.set_num_threads(1)
        device = choose_device(task.place.device)
        old, new = self.load(task.place.collections, task.seed)
        raw = {"raw_old": alone(old, device), "raw_new": alone(new, device)}
        independent = raw["raw_new"]
        if self.trained:
            known = known_of(old, new, task, epochs=epochs_of(()), device=device)
            old = with_vectors(old, known["old"])
            independent = float(known["independent_map"])
        if task.way == PREPARATION:
            return None
        (old_fit, old_searched), (new_fit, new_searched) = parts(old), parts(new)
        start, began = datetime.now(UTC), time.perf_counter()
        searched = new_searched, old_searched
        queries, stored, how = self.fit(task, old_fit, new_fit, searched, device)
        seconds = time.perf_counter() - began
        result = evaluate(old_searched, stored, query_for_old=queries, device=device).summary()
        return {
            **circumstances(start, device, round(seconds, 2)),
            "epochs": how.pop("rounds", None),
            **numbers(result),
            "independent": independent,
            **raw,
            **how,
        }

    def fit(
        self,
        task: Task,
        old: Vectors,
        new: Vectors,
        searched: tuple[Vectors, Vectors],
        device: torch.device,
    ) -> tuple[Vectors, Vectors, dict[str, Any]]:
        """Returns queries to the old gallery, vectors to store, and facts about the fit.

        `searched` are the new and the old vectors of the searched items.
        """
        name, changes = read_way(task.way)
        new_searched, old_searched = searched
        if name in CLOSED_FORMS:
            affine = CLOSED_FORMS[name](new.vectors.to(device), old.vectors.to(device))
            mapped = with_vectors(new_searched, affine(new_searched.vectors.to(device)).cpu())
            return mapped, mapped, {}
        both, name = name.endswith(WITH_OLD), name.removesuffix(WITH_OLD)
        epochs: dict[str, Any] = {"epochs": epochs_of(task.changes)} if task.changes else {}
        head = CompatibleHead(
            CONTRAST if name == EARLIER_HEAD else name,
            options={} if name == AUTO else dict(options_of(name, changes)),
            old_query=both,
            seed=task.seed,
            device=str(device),
            **epochs,
        )
        supervision: dict[str, Any] = {self.supervision: old.labels}
        head.fit(new, old, **supervision)
        queries = head.transform(new_searched, old=old_searched if both else None)
        stored = queries
        if both or name == EARLIER_HEAD:
            stored = head.transform(new_searched, side="gallery")
        progress = head.progress_
        how = {
            "rounds": len(progress.history),
            "start": progress.start,
            "best_round": progress.best,
            "stores": head.stores if both or name == EARLIER_HEAD else "mapped",
            **({"old_weight": progress.old_weight} if both else {}),
            **({"method": progress.method, "blend": progress.blend} if name == AUTO else {}),
        }
        return plain(queries), plain(stored), how


def plain(vectors: Vectors) -> Vectors:
    """Removes the declared space: the two sides of a head have different spaces."""
    return with_vectors(vectors, vectors.vectors.cpu())


def alone(vectors: Vectors, device: torch.device) -> float:
    """Computes the mAP of the searched vectors as queries and gallery."""
    searched = parts(vectors)[1]
    return evaluate(searched, searched, device=device).old_old.mean_average_precision
