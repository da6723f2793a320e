"""Measures the cases of suites one after the other and appends a result for each."""

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

from nobackfill.core.device import device_name
from nobackfill.core.memory import available_memory
from nobackfill.core.suggest import suggest
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

LINES = "speed.jsonl"  # next to the page
LIMITS: dict[Kind, float] = {"cpu": 60.0, "cuda": 5.0}  # seconds per case, after its first turn
PACKAGES = ("numpy", "torchmetrics", "scikit-learn", "pytorch-metric-learning", "faiss-cpu")


@dataclass(frozen=True)
class Measured:
    """Outcome of a case.

    Attributes:
        suite: Name of the suite.
        case: The case.
        line: Result; None if the case was skipped or failed.
        skipped: Reason why it was skipped, and what to do about it.
        error: Traceback of a failure.
    """

    suite: str
    case: Case | Finding
    line: Line | None = None
    skipped: str = ""
    error: str = ""


def speed_key(line: Line) -> tuple[Any, ...]:
    """Returns the key of a result; a later result replaces an earlier one with the same key."""
    size = tuple(sorted(line["size"].items()))
    return line["suite"], line["case"], size, line["device"]


def kind_of(device: torch.device) -> Kind:
    """Returns the kind of a device."""
    return "cuda" if device.type == "cuda" else "cpu"


def plan_cases(
    suites: Mapping[str, Suite],
    names: Sequence[str],
    kind: Kind,
    *,
    only: Sequence[str] = (),
    large: bool = False,
) -> list[tuple[str, Case | Finding]]:
    """Lists the cases to measure.

    Args:
        suites: All suites.
        names: Names of the suites to measure; empty for all.
        kind: Kind of the device.
        only: Parts of names or sizes, such as "tf32" or "24,393"; a case must contain one of them.
        large: Whether to include cases that take minutes on a CPU.
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
    """Measures cases and appends results; failed or skipped cases do not stop the others."""
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
        except Exception:  # reported at the end; the other cases continue
            yield Measured(suite, case, error=traceback.format_exc())
            continue
        append(path, line)
        yield Measured(suite, case, line=line)


def why_not(case: Case | Finding, device: torch.device) -> str:
    """Returns why a case cannot be measured here, and what to do; empty if it can."""
    if isinstance(case, Finding):
        return ""
    missing = [name for name in case.requires if importlib.util.find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed: pip install 'nobackfill[bench]'"
    free = free_bytes(device)
    if case.room > free:
        return (
            f"may take {case.room / 1e9:.0f} GB of memory, but only {free / 1e9:.0f} GB are free: "
            f"measure it on a larger machine"
        )
    return ""


def free_bytes(device: torch.device) -> float:
    """Returns the free bytes of memory; infinite if the system does not report them."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    available = available_memory()
    return float("inf") if available is None else float(available)


def measure(
    suite: str, case: Case | Finding, device: torch.device, *, repeats: int, limit: float
) -> Line:
    """Measures one case and returns its result."""
    known: Line = {
        "suite": suite,
        "case": case.name,
        "size": dict(case.size),
        "precision": case.precision,
    }
    here = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with here, matmul_precision(case.precision):
        if isinstance(case, Finding):
            known |= {"says": case.description, "found": case.find(device)}
        else:
            begin_peak(device)
            before = bytes_held(device)
            pair = case.make(device)
            begin_peak(device)
            held = max(0, bytes_held(device) - before)
            turns = take_turns(pair, device, repeats=repeats, limit=limit, held=held)
            known |= timings(case, turns)
    return known | surroundings(device)


def timings(case: Case, turns: Turns) -> Line:
    """Returns the measured values and the targets of a case."""
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
    """Returns device, versions, load and date."""
    installed = {dist.name.lower() for dist in importlib.metadata.distributions()}
    return {
        "device": device_name(device),
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
    """Returns the model of the CPU, if the system reports it."""
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        for line in cpus.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
