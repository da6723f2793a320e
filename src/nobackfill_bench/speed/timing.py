"""Seconds and memory of two works that take turns, so that both see the same machine."""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

from nobackfill_bench.speed.case import Pair, Precision, Work

SHORT = 0.03  # seconds that a timed turn should take at least
MOST_CALLS = 50  # in a turn
LONG = {"cpu": 1.0, "cuda": 15.0}  # seconds; a work that took longer at first is called once a turn
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Turns:
    """Seconds of ours and of the peer, turn by turn, and the most memory of either.

    Attributes:
        ours: Seconds of one call, in each turn.
        peer: Of as much of the peer as ours contains.
        held: Bytes of the inputs.
        added: Bytes that ours needed beside them, at most.
        peer_added: The same of the peer.
        value: What ours returned, if that was a number.
        peer_value: Likewise.
    """

    ours: tuple[float, ...]
    peer: tuple[float, ...]
    held: int = 0
    added: int = 0
    peer_added: int = 0
    value: float | None = None
    peer_value: float | None = None

    def ratios(self, counts: str) -> list[float]:
        """Of each pair of turns, ascending.

        Example:
            >>> Turns((3.0, 4.0), (1.0, 2.0)).ratios("ours/peer")
            [2.0, 3.0]
            >>> Turns((1.0, 2.0), (4.0, 6.0)).ratios("peer/ours")
            [3.0, 4.0]
        """
        pairs = zip(self.ours, self.peer, strict=True)
        return sorted(a / b if counts == "ours/peer" else b / a for a, b in pairs)

    def ratio(self, counts: str) -> float:
        """The median of the paired ratios."""
        return median(self.ratios(counts))


def take_turns(
    pair: Pair, device: torch.device, *, repeats: int, limit: float, held: int = 0
) -> Turns:
    """Times a pair, after a first turn that does not count.

    The first turn loads and compiles what is needed, and is the one whose memory is told. Short
    works are called several times in a turn.

    Args:
        pair: What is timed.
        device: Where it works.
        repeats: How many turns each has, if time allows.
        limit: Seconds after which no further turn begins; one is always made.
        held: Bytes of the inputs.
    """
    value, added, calls = first_turn(pair.ours, device)
    peer_value, peer_added, peer_calls = first_turn(pair.peer, device)
    ours, peer = list[float](), list[float]()
    begun = perf_counter()
    while len(ours) < repeats and (not ours or perf_counter() - begun < limit):
        ours.append(seconds(pair.ours, device, calls))
        peer.append(pair.peer_times * seconds(pair.peer, device, peer_calls))
    return Turns(tuple(ours), tuple(peer), held, added, peer_added, value, peer_value)


def first_turn(work: Work, device: torch.device) -> tuple[float | None, int, int]:
    """The number that a work returns, the bytes that it adds, how often to call it in a turn."""
    with memory_added(device) as added:
        begun = perf_counter()
        value = number(work())
        wait(device)
        took = perf_counter() - begun
    if took > LONG.get(device.type, 1.0):
        return value, added[0], 1
    again = seconds(work, device)
    return value, added[0], min(MOST_CALLS, max(1, ceil(SHORT / max(again, 1e-9))))


def seconds(work: Work, device: torch.device, calls: int = 1) -> float:
    """Of one call: by CUDA events on a GPU, which is idle when they begin; by the clock else."""
    wait(device)
    if device.type != "cuda":
        begun = perf_counter()
        for _ in range(calls):
            work()
        return (perf_counter() - begun) / calls
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        work()
    end.record()
    wait(device)
    return float(begin.elapsed_time(end)) / 1000 / calls


def wait(device: torch.device) -> None:
    """Until a GPU has done all that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def number(value: object) -> float | None:
    """A float that a work returned, if it was one."""
    return value if isinstance(value, float) else None


@contextmanager
def memory_added(device: torch.device) -> Iterator[list[int]]:
    """Gives a list whose only entry will be the bytes that the block held at most, above before."""
    added = [0]
    begin_peak(device)
    before = bytes_held(device)
    yield added
    added[0] = max(0, peak_bytes(device) - before)


def clean_up(device: torch.device) -> None:
    """Frees what nobody needs any more; between cases, as the next turn has to ask for it again."""
    gc.collect()
    if device.type == "cuda":
        wait(device)
        torch.cuda.empty_cache()


def begin_peak(device: torch.device) -> None:
    """Lets the peak begin anew, from what is held now."""
    if device.type == "cuda":
        wait(device)
        torch.cuda.reset_peak_memory_stats(device)
        return
    if sys.platform == "linux":
        # What was freed goes back first; glibc alone can.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
    if CLEAR.exists():
        CLEAR.write_text("5")


def bytes_held(device: torch.device) -> int:
    """By torch's allocator on a GPU; by the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return process_bytes("VmRSS")


def peak_bytes(device: torch.device) -> int:
    """The most since `begin_peak`; on systems without /proc, since the process began."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return process_bytes("VmHWM")


def process_bytes(field: str) -> int:
    """`VmRSS` or `VmHWM` of this process; the highest ever where the system does not tell."""
    if STATUS.exists():
        for line in STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{field}:"):
                return 1024 * int(line.split()[1])
    import resource  # there is none on Windows

    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest if sys.platform == "darwin" else 1024 * highest


@contextmanager
def matmul_precision(precision: Precision) -> Iterator[None]:
    """Products of float32 in the block are exact, or on tensor cores by TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
