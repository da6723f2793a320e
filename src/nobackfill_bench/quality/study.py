"""Study of the benchmark: methods or options under several settings of one suite."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nobackfill_bench.quality.greedy_search import Search, Step, search_steps
from nobackfill_bench.quality.paired import Compared
from nobackfill_bench.results_log import Line


@dataclass(frozen=True)
class Request:
    """Runs of a suite that belong together.

    Attributes:
        ways: Methods with optional settings.
        seeds: Seeds.
        changes: Changed settings of every recipe.
    """

    ways: tuple[str, ...]
    seeds: range
    changes: tuple[str, ...] = ()

    def of(self, lines: Iterable[Line]) -> Compared:
        """Returns the requested ones of the results."""
        return Compared.of(
            line
            for line in lines
            if tuple(line["changes"]) == self.changes
            and line["seed"] in self.seeds
            and line["way"] in self.ways
        )


@dataclass(frozen=True)
class Study:
    """Comparison of methods or options under several settings of one suite.

    Attributes:
        suite: Name in `SUITES`.
        title: Title of the section.
        text: Question of the study.
        ways: Methods with optional settings.
        settings: Changed settings of the recipes, by display name.
        seeds: Number of seeds.
        first_seed: First seed.
        search: Options to decide one after the other, in addition to `ways`.
    """

    suite: str
    title: str
    text: str
    ways: tuple[str, ...]
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"": ()})
    seeds: int = 3
    first_seed: int = 0
    search: Search | None = None

    @property
    def decides(self) -> bool:
        """Whether later runs depend on the results of earlier ones."""
        return self.search is not None

    @property
    def all_seeds(self) -> range:
        """Returns the seeds of the study."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def requests(self, lines: Sequence[Line]) -> list[Request]:
        """Returns the runs of the study, finished or not, as far as these results decide them."""
        ways = self.ways_after(lines)
        return [Request(ways, self.all_seeds, changes) for changes in self.settings.values()]

    def compared(self, lines: Sequence[Line], changes: tuple[str, ...] = ()) -> Compared:
        """Returns the runs under one of the settings."""
        return Compared.of(
            line
            for line in lines
            if tuple(line["changes"]) == changes and line["seed"] in self.all_seeds
        )

    def steps(self, lines: Sequence[Line]) -> list[Step]:
        """Returns the steps of the search so far; see `search_steps`."""
        if self.search is None:
            return []
        return search_steps(self.search, self.compared(lines), seeds=self.seeds)

    def ways_after(self, lines: Sequence[Line]) -> tuple[str, ...]:
        """Returns the methods to run after these results; a search adds some at every step."""
        searched = [way for step in self.steps(lines) for way in step.ways.values()]
        return tuple(dict.fromkeys((*self.ways, *searched)))


def grid(method: str, option: str, values: Sequence[float | int]) -> tuple[str, ...]:
    """Returns one method with several values of an option.

    Example:
        >>> grid("ndpp", "neighbors", [1, 10])
        ('ndpp:neighbors=1', 'ndpp:neighbors=10')
    """
    return tuple(f"{method}:{option}={value:g}" for value in values)
