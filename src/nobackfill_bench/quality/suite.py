"""What a suite is: an upgrade that every method is put to, on several seeds."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nobackfill.core.config import build_recipe, change_tables, suggest
from nobackfill.errors import ConfigError, DataError
from nobackfill.methods import METHODS

Found = dict[str, Any]  # what one run came to, as it stands in a line


@dataclass(frozen=True)
class Place:
    """Where runs are made; nothing of a result depends on it but the device.

    Attributes:
        work: The folder of old models and of what else runs share.
        data: The folder of the collections; None where a suite needs none.
        device: What to train on, in torch's words.
    """

    work: Path
    data: Path | None
    device: str

    @property
    def collections(self) -> Path:
        """The folder of the collections, which must have been named."""
        return folder_of(self.data)


@dataclass(frozen=True)
class Task:
    """One run.

    Attributes:
        suite: A name of `SUITES`.
        way: A method, with options maybe: see `read_way`.
        seed: Of all that is random, the split of the classes among it.
        changes: To every recipe of the suite, such as `train.epochs=3`.
        place: Where to make it.
    """

    suite: str
    way: str
    seed: int
    changes: tuple[str, ...]
    place: Place


@dataclass(frozen=True, kw_only=True)
class Suite(ABC):
    """One upgrade, another for each seed, and how to put a method to it.

    Attributes:
        title: A line of words.
        says: Paragraphs: what is trained and searched, and what to mind.
        ways: Which methods it compares where nobody says.
        seeds: How many by default.
        was_seen: Whether our default was chosen with its numbers in view.
        ours_too: Ways that are our default under another name.
        wants: What must be installed, or lie in the folder of the data.
    """

    title: str
    says: tuple[str, ...]
    ways: tuple[str, ...] = tuple(METHODS)
    seeds: int = 5
    was_seen: bool = False
    ours_too: tuple[str, ...] = ()
    wants: tuple[str, ...] = field(default=())

    def stages(self, ways: Sequence[str]) -> list[list[str]]:
        """What can be run side by side, stage after stage: others may start from its results."""
        return [list(ways)]

    @abstractmethod
    def run(self, task: Task) -> Found | None:
        """Makes one run; None where it only prepares others."""

    def check(self, ways: Sequence[str]) -> None:
        """Refuses what this suite cannot compare, before anything is trained."""
        for way in ways:
            name, _ = read_way(way)
            if name not in METHODS:
                raise ConfigError(f"unknown method `{name}`. {suggest(name, METHODS)}")


def read_way(way: str) -> tuple[str, list[str]]:
    """A method's name, and changes to its options.

    Example:
        >>> read_way("ndpp:accumulate=false,neighbors=10")
        ('ndpp', ['method.accumulate=false', 'method.neighbors=10'])
        >>> read_way("ndpp")
        ('ndpp', [])
    """
    name, _, options = way.partition(":")
    return name, [f"method.{option}" for option in options.split(",") if option]


def options_of(name: str, changes: Sequence[str]) -> Mapping[str, Any]:
    """Options of a method as `read_way` gives them, as values.

    Example:
        >>> options_of("ndpp", ["method.neighbors=10", "method.accumulate=false"])
        {'neighbors': 10, 'accumulate': False}
    """
    return build_recipe(change_tables({"method": {"name": name}}, changes)).method.options


def folder_of(data: Path | None) -> Path:
    """The folder of the data, which must have been named."""
    if data is None:
        raise DataError(
            "wanted the folder of the collections, but was told none. Set NOBACKFILL_DATA, or "
            "pass --data."
        )
    return data
