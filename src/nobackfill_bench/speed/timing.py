"""Measures seconds and memory of two functions that take turns on the same machine."""

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

SHORT = 0.03  # minimum seconds of a timed turn
MOST_CALLS = 50  # maximum calls in a turn
LONG = {
    "cpu": 1.0,
    "cuda": 15.0,
}  # seconds; slower functions are called once per turn
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Turns:
    """Seconds of ours and of the peer in each turn, and the peak memory of both.

    Attributes:
        ours: Seconds per call of ours, in each turn.
        peer: Seconds of the peer for the same amount of work, in each turn.
        held: Bytes of the inputs.
        added: Peak bytes of ours above the inputs.
        peer_added: Peak bytes of the peer above the inputs.
        value: Number that ours returned, if any.
        peer_value: Number that the peer returned, if any.
    """

    ours: tuple[float, ...]
    peer: tuple[float, ...]
    held: int = 0
    added: int = 0
    peer_added: int = 0
    value: float | None = None
    peer_value: float | None = None

    def ratios(self, counts: str) -> list[float]:
        """Returns the ratio of each pair of turns, in ascending order.

        Example:
            >>> Turns((3.0, 4.0), (1.0, 2.0)).ratios("ours/peer")
            [2.0, 3.0]
            >>> Turns((1.0, 2.0), (4.0, 6.0)).ratios("peer/ours")
            [3.0, 4.0]
        """
        pairs = zip(self.ours, self.peer, strict=True)
        return sorted(a / b if counts == "ours/peer" else b / a for a, b in pairs)

    def ratio(self, counts: str) -> float:
        """Returns the median of the paired ratios."""
        return median(self.ratios(counts))


def take_turns(
    pair: Pair, device: torch.device, *, repeats: int, limit: float, held: int = 0
) -> Turns:
    """Times a pair after a first, untimed turn.

    The first turn loads and compiles; its memory is reported. Short functions are called several
    times per turn.

    Args:
        pair: Functions to time.
        device: Device of their inputs.
        repeats: Number of turns, if time allows.
        limit: Seconds after which no turn starts; there is always one.
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
    """Returns the function's value, its peak bytes, and the number of calls per turn."""
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
    """Returns the seconds of one call: by CUDA events on an idle GPU, by the clock elsewhere."""
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
    """Waits until a GPU is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def number(value: object) -> float | None:
    """Returns the value if it is a float, else None."""
    return value if isinstance(value, float) else None


@contextmanager
def memory_added(device: torch.device) -> Iterator[list[int]]:
    """Yields a list whose only entry becomes the peak bytes of the block above those before it."""
    added = [0]
    begin_peak(device)
    before = bytes_held(device)
    yield added
    added[0] = max(0, peak_bytes(device) - before)


def clean_up(device: torch.device) -> None:
    """Frees unused memory between cases."""
    gc.collect()
    if device.type == "cuda":
        wait(device)
        torch.cuda.empty_cache()


def begin_peak(device: torch.device) -> None:
    """Resets the peak to the memory in use now."""
    if device.type == "cuda":
        wait(device)
        torch.cuda.reset_peak_memory_stats(device)
        return
    if sys.platform == "linux":
        # Return freed memory to the system first; only glibc supports this.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
    if CLEAR.exists():
        CLEAR.write_text("5")


def bytes_held(device: torch.device) -> int:
    """Returns the bytes of torch's allocator on a GPU, of the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return process_bytes("VmRSS")


def peak_bytes(device: torch.device) -> int:
    """Returns the peak since `begin_peak`; without /proc, since the start of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return process_bytes("VmHWM")


def process_bytes(field: str) -> int:
    """Returns `VmRSS` or `VmHWM` of this process; without /proc, its peak."""
    if STATUS.exists():
        for line in STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{field}:"):
                return 1024 * int(line.split()[1])
    import resource  # not available on Windows

    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest if sys.platform == "darwin" else 1024 * highest


@contextmanager
def matmul_precision(precision: Precision) -> Iterator[None]:
    """Computes float32 products in the block exactly, or in TF32 on tensor cores."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
