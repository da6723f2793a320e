"""Measures the cases of suites one after the other, and appends a line for each figure."""

import importlib.metadata
import importlib.util
import os
import platform
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch

from nobackfill.core.config import suggest
from nobackfill.errors import ConfigError
from nobackfill_bench.results_log import Line, append, mend
from nobackfill_bench.speed.case import Case, Finding, Kind, Suite, in_words
from nobackfill_bench.speed.timing import (
    Turns,
    begin_peak,
    bytes_held,
    clean_up,
    matmul_precision,
    take_turns,
)

LINES = "speed.jsonl"  # beside the page
LIMITS: dict[Kind, float] = {"cpu": 60.0, "cuda": 5.0}  # seconds a case, after its first turn
PACKAGES = ("numpy", "torchmetrics", "scikit-learn", "pytorch-metric-learning", "faiss-cpu")
MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True)
class Measured:
    """A case that is done with.

    Attributes:
        suite: Its name.
        case: What was measured.
        line: The figure; None where it was left out or failed.
        skipped: Why it was left out, and how to have it.
        error: How it failed.
    """

    suite: str
    case: Case | Finding
    line: Line | None = None
    skipped: str = ""
    error: str = ""


def speed_key(line: Line) -> tuple[Any, ...]:
    """What a figure is; of two lines with the same key the later counts."""
    size = tuple(sorted(line["size"].items()))
    return line["suite"], line["case"], size, line["device"]


def kind_of(device: torch.device) -> Kind:
    """Which cases a device has."""
    return "cuda" if device.type == "cuda" else "cpu"


def plan_cases(
    suites: Mapping[str, Suite],
    names: Sequence[str],
    kind: Kind,
    *,
    only: Sequence[str] = (),
    large: bool = False,
) -> list[tuple[str, Case | Finding]]:
    """What to measure.

    Args:
        suites: All there are.
        names: Those to measure; all where none is named.
        kind: Of the device.
        only: Parts of names or sizes, such as "tf32" or "24,393"; a case must have one of them.
        large: Whether to take what needs minutes on a CPU.
    """
    for name in names:
        if name not in suites:
            raise ConfigError(f"unknown suite `{name}`. {suggest(name, suites)}")
    return [
        (name, case)
        for name in names or suites
        for case in suites[name].cases(kind)
        if (large or not case.large)
        and (not only or any(part in f"{case.name}, {in_words(case.size)}" for part in only))
    ]


def measure_all(
    planned: Sequence[tuple[str, Case | Finding]],
    device: torch.device,
    path: Path,
    *,
    repeats: int,
    limit: float | None = None,
) -> Iterator[Measured]:
    """Measures and writes; a case that fails, or has no room, does not stop the others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mend(path, key=speed_key)
    limit = LIMITS[kind_of(device)] if limit is None else limit
    for suite, case in planned:
        clean_up(device)
        if reason := why_not(case, device):
            yield Measured(suite, case, skipped=reason)
            continue
        try:
            line = measure(suite, case, device, repeats=repeats, limit=limit)
        except torch.cuda.OutOfMemoryError:
            yield Measured(suite, case, skipped="does not fit into the memory of this GPU")
            continue
        except Exception:  # whatever it was, the others go on; it is told
            yield Measured(suite, case, error=traceback.format_exc())
            continue
        append(path, line)
        yield Measured(suite, case, line=line)


def why_not(case: Case | Finding, device: torch.device) -> str:
    """Why a case cannot be measured here, and what to do about it; empty where it can."""
    if isinstance(case, Finding):
        return ""
    missing = [name for name in case.wants if importlib.util.find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed: pip install 'nobackfill[bench]'"
    free = free_bytes(device)
    if case.room > free:
        return (
            f"may take {case.room / 1e9:.0f} GB of memory and {free / 1e9:.0f} are free: "
            f"measure it on a larger machine"
        )
    return ""


def free_bytes(device: torch.device) -> float:
    """Memory that can be had; infinite where the system does not tell."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    if MEMORY.exists():
        for line in MEMORY.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    return float("inf")


def measure(
    suite: str, case: Case | Finding, device: torch.device, *, repeats: int, limit: float
) -> Line:
    """The line of one figure."""
    known: Line = {
        "suite": suite,
        "case": case.name,
        "size": dict(case.size),
        "precision": case.precision,
    }
    here = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with here, matmul_precision(case.precision):
        if isinstance(case, Finding):
            known |= {"says": case.says, "found": case.find(device)}
        else:
            begin_peak(device)
            before = bytes_held(device)
            pair = case.make(device)
            begin_peak(device)
            held = max(0, bytes_held(device) - before)
            turns = take_turns(pair, device, repeats=repeats, limit=limit, held=held)
            known |= told(case, turns)
    return known | surroundings(device)


def told(case: Case, turns: Turns) -> Line:
    """What was measured of a case, and what was asked of it."""
    ratios = turns.ratios(case.counts)
    return {
        "peer": case.peer,
        "counts": case.counts,
        "ratio": turns.ratio(case.counts),
        "lowest": ratios[0],
        "highest": ratios[-1],
        "repeats": len(ratios),
        "ours_s": median(turns.ours),
        "peer_s": median(turns.peer),
        "held_mb": round(turns.held / 1e6, 1),
        "added_mb": round(turns.added / 1e6, 1),
        "peer_added_mb": round(turns.peer_added / 1e6, 1),
        "value": turns.value,
        "peer_value": turns.peer_value,
        "target": case.target,
        "target_s": case.target_seconds,
        "target_gb": case.target_gb,
        "operations": case.operations,
        "bytes": case.bytes,
        "steps": case.steps,
        "axis": case.axis,
    }


def surroundings(device: torch.device) -> Line:
    """Where and when a figure was measured."""
    installed = {dist.name.lower() for dist in importlib.metadata.distributions()}
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES
                     if name in installed},
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


def processor() -> str:
    """The model of the CPU, as far as the system tells."""
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        for line in cpus.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
