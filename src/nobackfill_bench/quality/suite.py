"""Suite of the benchmark: an upgrade on which all methods are compared, over several seeds."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nobackfill.core.config import build_recipe, change_tables
from nobackfill.core.config.defaults import DEFAULT_METHOD
from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError, DataError
from nobackfill.methods import METHODS

Results = dict[str, Any]  # results of one run, as in a line of the log


@dataclass(frozen=True)
class Place:
    """Folders and device of the runs. Results depend only on the device.

    Attributes:
        work: Folder of old models and other files that runs share.
        data: Folder of the collections; None if a suite needs none.
        device: Device to train on, as torch names it.
    """

    work: Path
    data: Path | None
    device: str

    @property
    def collections(self) -> Path:
        """Folder of the collections; raises if there is none."""
        return folder_of(self.data)


@dataclass(frozen=True)
class Task:
    """One run.

    Attributes:
        suite: Name in `SUITES`.
        way: Method with optional settings; see `read_way`.
        seed: Seed of everything random, including the split of the classes.
        changes: Changed settings of every recipe, such as `train.epochs=3`.
        place: Folders and device.
    """

    suite: str
    way: str
    seed: int
    changes: tuple[str, ...]
    place: Place


@dataclass(frozen=True, kw_only=True)
class Suite(ABC):
    """One upgrade, different for each seed, and how to run a method on it.

    Attributes:
        title: Title of the section.
        text: Paragraphs of the section: data, models and caveats.
        ways: Methods that it compares by default.
        seeds: Number of seeds by default.
        was_seen: Whether its numbers were known when our default was chosen.
        default: Row of our default.
        ours_too: Other names of our default.
        requires: Packages and data that must be present.
        has_section: Whether the page has a section for it; if not, its runs belong to studies.
    """

    title: str
    text: tuple[str, ...]
    ways: tuple[str, ...] = tuple(METHODS)
    seeds: int = 5
    was_seen: bool = False
    default: str = DEFAULT_METHOD
    ours_too: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    has_section: bool = True

    def stages(self, ways: Sequence[str]) -> list[list[str]]:
        """Returns stages of runs; the runs of a stage may use the results of earlier stages."""
        return [list(ways)]

    @abstractmethod
    def run(self, task: Task) -> Results | None:
        """Makes one run; returns None if it only prepares others."""

    def check(self, ways: Sequence[str]) -> None:
        """Raises if the suite cannot compare a method, before anything is trained."""
        for way in ways:
            name, _ = read_way(way)
            if name not in METHODS:
                raise ConfigError(f"unknown method `{name}`. {suggest(name, METHODS)}")


def read_way(way: str) -> tuple[str, list[str]]:
    """Returns a method's name and the changes of its options.

    Example:
        >>> read_way("ndpp:accumulate=false,neighbors=10")
        ('ndpp', ['method.accumulate=false', 'method.neighbors=10'])
        >>> read_way("ndpp")
        ('ndpp', [])
    """
    name, _, options = way.partition(":")
    return name, [f"method.{option}" for option in options.split(",") if option]


def options_of(name: str, changes: Sequence[str]) -> Mapping[str, Any]:
    """Returns the values of the options that `read_way` returns.

    Example:
        >>> options_of("ndpp", ["method.neighbors=10", "method.accumulate=false"])
        {'neighbors': 10, 'accumulate': False}
    """
    return build_recipe(change_tables({"method": {"name": name}}, changes)).method.options


def folder_of(data: Path | None) -> Path:
    """Returns the folder of the data; raises if there is none."""
    if data is None:
        raise DataError(
            "The folder of the collections is unknown. Set NOBACKFILL_DATA, or pass --data."
        )
    return data
