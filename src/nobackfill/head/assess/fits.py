"""Fits the maps of an assessment, one after the other, within a time limit."""

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.core.steps import Step, Watch
from nobackfill.head.closed_form import closed_forms
from nobackfill.head.examples import Examples
from nobackfill.head.head import CompatibleHead
from nobackfill.head.schedule import Progress

Map = Callable[[Tensor], Tensor]  # from new vectors to vectors of the old space


class Fits:
    """Fits heads one after the other; each gets an equal share of the time that is left.

    Args:
        settings: Settings of every head.
        watch: Callback that receives the name of each fit, and how far it is.
        number: Number of fits.
        seconds: Time limit of all fits; None for none.
        begun: When the time began, by `time.monotonic`.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        watch: Watch,
        *,
        number: int,
        seconds: float | None,
        begun: float,
    ):
        self.settings, self.watch, self.number = settings, watch, number
        self.seconds, self.begun = seconds, begun
        self.done = 0

    def fit(
        self,
        method: str,
        new: Float[Tensor, "items new_dim"],
        old: Float[Tensor, "items old_dim"],
        classes: Int[Tensor, " items"],
        *,
        name: str,
    ) -> Map:
        """Fits a head that maps new vectors alone."""
        place, number = self.done, self.number
        self.watch(Step(f"fitting {name}", place, number))

        def report(fitting: Progress) -> None:
            self.watch(Step(f"fitting {name}", place + fitting.done, number))

        head = CompatibleHead(method, old_query=False, seconds=self.share(), **self.settings)
        head.fit(new, old, classes, watch=report)
        self.done += 1
        return head.transform

    def share(self) -> float | None:
        """Returns the seconds of the next fit; None without a limit."""
        if self.seconds is None:
            return None
        left = self.seconds - (monotonic() - self.begun)
        return max(0.0, left) / (self.number - self.done)


def fit_maps(
    new: Float[Tensor, "items new_dim"],
    old: Float[Tensor, "items old_dim"],
    classes: Int[Tensor, " items"],
    methods: Sequence[str],
    fits: Fits,
) -> dict[str, Map]:
    """Returns every map by name: closed forms, then a head by each method."""
    maps: dict[str, Map] = {**closed_forms(Examples(new, old, None))}
    for method in methods:
        maps[method] = fits.fit(method, new, old, classes, name=method)
    return maps
