"""What is measured: a case with its peer, a finding, and the suite that they belong to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

Kind = Literal["cpu", "cuda"]
Precision = Literal["float32", "tf32", "bfloat16", "float64"]
Work = Callable[[], object]  # what it returns is kept where it is a float, such as a mAP


@dataclass(frozen=True)
class Pair:
    """Ours and its peer, ready to be called again and again: their inputs are made.

    Attributes:
        ours: What this package does.
        peer: What it is held against.
        peer_times: How often the peer's work is in ours: 50 where the peer is one step of fifty.
    """

    ours: Work
    peer: Work
    peer_times: int = 1


@dataclass(frozen=True)
class Case:
    """One figure: ours beside its peer, at one size.

    Attributes:
        name: What is done, in a few words; with the size it tells figures of a suite apart.
        size: By name, such as `{"classes": 24_393, "dim": 256}`.
        peer: What the peer is, in words.
        make: Makes the inputs on a device.
        counts: Which ratio is told: "ours/peer" wants to be small, "peer/ours" large.
        target: Of the ratio.
        target_seconds: Of ours.
        target_gb: Of the memory of ours, inputs included.
        precision: Of matrix products, ours and the peer's.
        operations: Of ours, counted; a multiplication with its addition is two.
        bytes: That must at least be read and written, if every input is read once.
        steps: How many steps one call of ours makes, where steps per second are told.
        wants: Modules that must be installed.
        room: Bytes of memory that ours or the peer may take; a machine that has less skips it.
        large: Whether it is left out on a CPU unless asked for.
        axis: The size along which a curve is drawn; empty where none is.
    """

    name: str
    size: Mapping[str, int]
    peer: str
    make: Callable[[torch.device], Pair]
    counts: Literal["ours/peer", "peer/ours"] = "ours/peer"
    target: float | None = None
    target_seconds: float | None = None
    target_gb: float | None = None
    precision: Precision = "float32"
    operations: float = 0.0
    bytes: float = 0.0
    steps: int = 0
    wants: tuple[str, ...] = ()
    room: float = 0.0
    large: bool = False
    axis: str = ""


@dataclass(frozen=True)
class Finding:
    """A figure that is no time, such as how many neighbours a precision finds.

    Attributes:
        name: See `Case`.
        size: See `Case`.
        says: What the number is, in words.
        find: Finds it on a device.
        precision: Of matrix products.
        large: See `Case`.
    """

    name: str
    size: Mapping[str, int]
    says: str
    find: Callable[[torch.device], float]
    precision: Precision = "float32"
    large: bool = False


@dataclass(frozen=True)
class Suite:
    """Figures that belong together.

    Attributes:
        title: Heading of its section.
        says: Paragraphs: what is done, operations and bytes counted, the floor.
        cases: Those of a kind of device, in their order.
    """

    title: str
    says: tuple[str, ...]
    cases: Callable[[Kind], Sequence[Case | Finding]]


def in_words(size: Mapping[str, int]) -> str:
    """A size for people.

    Example:
        >>> in_words({"classes": 24_393, "dim": 256})
        '24,393 classes, 256 dim'
    """
    return ", ".join(f"{value:,} {name}" for name, value in size.items())
