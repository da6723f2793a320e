"""Cases, findings and suites of the speed benchmark."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

Kind = Literal["cpu", "cuda"]
Precision = Literal["float32", "tf32", "bfloat16", "float64"]
Work = Callable[[], object]  # a returned float, such as a mAP, is stored


@dataclass(frozen=True)
class Pair:
    """Our implementation and its peer, with inputs ready for repeated calls.

    Attributes:
        ours: Implementation of this package.
        peer: Implementation to compare with.
        peer_times: Factor of the peer's time, such as 50 if the peer does one of 50 steps.
    """

    ours: Work
    peer: Work
    peer_times: int = 1


@dataclass(frozen=True)
class Case:
    """One measurement: ours and its peer at one size.

    Attributes:
        name: Short name; unique in its suite together with the size.
        size: Sizes by name, such as `{"classes": 24_393, "dim": 256}`.
        peer: Description of the peer.
        make: Function that creates the inputs on a device.
        counts: Reported ratio: "ours/peer" should be small, "peer/ours" large.
        target: Target of the ratio.
        target_seconds: Target of our seconds.
        target_gb: Target of our memory, including the inputs.
        precision: Precision of matrix products, for ours and the peer.
        operations: Number of our operations; a multiplication with its addition counts two.
        bytes: Bytes to read and write at least, if every input is read once.
        steps: Number of steps in one call, to report steps per second.
        requires: Required modules.
        room: Bytes of memory that ours or the peer may take; machines with less skip the case.
        large: Whether a CPU skips the case without `--large`.
        axis: Size along which a curve is drawn; empty for no curve.
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
    requires: tuple[str, ...] = ()
    room: float = 0.0
    large: bool = False
    axis: str = ""


@dataclass(frozen=True)
class Finding:
    """A measured number other than time, such as the share of neighbours that a precision finds.

    Attributes:
        name: Short name; see `Case`.
        size: Sizes by name; see `Case`.
        description: Description of the number.
        find: Function that computes it on a device.
        precision: Precision of matrix products.
        large: Whether a CPU skips it; see `Case`.
    """

    name: str
    size: Mapping[str, int]
    description: str
    find: Callable[[torch.device], float]
    precision: Precision = "float32"
    large: bool = False


@dataclass(frozen=True)
class Suite:
    """Cases of one section of the page.

    Attributes:
        title: Heading of the section.
        text: Paragraphs of the section: the work, counted operations and bytes, the lower bound.
        cases: Function from a kind of device to its cases.
    """

    title: str
    text: tuple[str, ...]
    cases: Callable[[Kind], Sequence[Case | Finding]]


def in_words(size: Mapping[str, int]) -> str:
    """Formats a size.

    Example:
        >>> in_words({"classes": 24_393, "dim": 256})
        '24,393 classes, 256 dim'
    """
    return ", ".join(f"{value:,} {name}" for name, value in size.items())
