"""A greedy search: options are decided one after the other, each by the runs of its values."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nobackfill.methods import METHODS
from nobackfill_bench.quality.paired import Compared


@dataclass(frozen=True)
class Search:
    """What is searched.

    Attributes:
        method: A name of `METHODS`.
        options: Of each option the values that are tried beside its default, in the order in which
            they are decided.
    """

    method: str
    options: Mapping[str, Sequence[float | int]]


@dataclass(frozen=True)
class Step:
    """One option, with those before it decided.

    Attributes:
        option: Its name.
        ways: Of each value the way that it is.
        best: The value with the highest P_1; None where runs are missing.
    """

    option: str
    ways: Mapping[float, str]
    best: float | None


def walk(search: Search, compared: Compared, *, seeds: int) -> list[Step]:
    """The steps that the runs allow: decided ones, and then one that waits for runs, if any.

    Args:
        search: What is searched.
        compared: The runs.
        seeds: How many of them each value must have.
    """
    steps: list[Step] = []
    chosen: dict[str, float] = {}
    for option, values in search.options.items():
        ways = {
            value: way_of(search.method, chosen | {option: value})
            for value in sorted({*map(float, values), default_of(search.method, option)})
        }
        scores = {value: compared.mean(way, compared.p_1) for value, way in ways.items()}
        if any(score.seeds < seeds for score in scores.values()):
            return [*steps, Step(option, ways, None)]
        chosen[option] = max(scores, key=lambda value: scores[value].value)
        steps.append(Step(option, ways, chosen[option]))
    return steps


def way_of(method: str, options: Mapping[str, float | int]) -> str:
    """A way in the words of `read_way`; options that are as they are by default go unsaid.

    Example:
        >>> way_of("ndpp", {"old_strength": 0.1, "neighbors": 100})
        'ndpp:old_strength=0.1'
        >>> way_of("ndpp", {"neighbors": 100})
        'ndpp'
    """
    said = [
        f"{option}={value:g}"
        for option, value in options.items()
        if value != default_of(method, option)
    ]
    return f"{method}:{','.join(said)}" if said else method


def default_of(method: str, option: str) -> float:
    """What an option is where nothing is said of it."""
    return float(inspect.signature(METHODS[method]).parameters[option].default)
