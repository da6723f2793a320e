"""Greedy search: fixes the options of a method one after the other, each at its best value."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from nobackfill.methods import METHODS
from nobackfill_bench.quality.paired import Compared, Measure, both


@dataclass(frozen=True)
class Search:
    """Search space.

    Attributes:
        method: Name in `METHODS`.
        options: Values of each option to try besides its default, in the order of the decisions.
        by: Score of a value: "p_1", or "both", the mean of new/old and new/new.
    """

    method: str
    options: Mapping[str, Sequence[float | int]]
    by: Literal["p_1", "both"] = "p_1"

    def measure(self, compared: Compared) -> Measure:
        """Returns the score of a run among others."""
        return compared.p_1 if self.by == "p_1" else both


@dataclass(frozen=True)
class Step:
    """Decision about one option, with the earlier options fixed.

    Attributes:
        option: Name of the option.
        ways: Method with settings, for each value.
        best: Value with the highest score; None if runs are missing.
    """

    option: str
    ways: Mapping[float, str]
    best: float | None


def search_steps(search: Search, compared: Compared, *, seeds: int) -> list[Step]:
    """Returns the decided steps, then the first step that lacks runs, if any.

    Args:
        search: Search space.
        compared: Runs so far.
        seeds: Number of seeds that each value requires.
    """
    steps: list[Step] = []
    chosen: dict[str, float] = {}
    for option, values in search.options.items():
        ways = {
            value: way_of(search.method, chosen | {option: value})
            for value in sorted({*map(float, values), default_of(search.method, option)})
        }
        scores = {
            value: compared.mean(way, search.measure(compared)) for value, way in ways.items()
        }
        if any(score.seeds < seeds for score in scores.values()):
            return [*steps, Step(option, ways, None)]
        chosen[option] = max(scores, key=lambda value: scores[value].value)
        steps.append(Step(option, ways, chosen[option]))
    return steps


def way_of(method: str, options: Mapping[str, float | int]) -> str:
    """Returns a method with settings in the format of `read_way`, without default values.

    Example:
        >>> way_of("ndpp", {"old_strength": 0.1, "neighbors": 100})
        'ndpp:old_strength=0.1'
        >>> way_of("ndpp", {"neighbors": 100})
        'ndpp'
    """
    changed = [
        f"{option}={value:g}"
        for option, value in options.items()
        if value != default_of(method, option)
    ]
    return f"{method}:{','.join(changed)}" if changed else method


def default_of(method: str, option: str) -> float:
    """Returns the default value of an option."""
    return float(inspect.signature(METHODS[method]).parameters[option].default)
