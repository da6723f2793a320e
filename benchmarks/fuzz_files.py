"""Damages files of every format that is read, reads them, and counts what must not happen.

    python benchmarks/fuzz_files.py                # 20,000 files; appends to fuzz_files.jsonl
    python benchmarks/fuzz_files.py --files 500 --seed 3 --dry-run
    python benchmarks/fuzz_files.py --again 3:17   # file 17 of seed 3, with what was printed

A damaged file may be read or refused in a sentence, with exit code 2. It must not end in a
traceback, a signal, a time-out, more memory than twice the file or 1 GB, or a half-written output.
Each file is read by a fork of a process that has imported everything, within a limit of memory and
time. The same seed damages the same files in the same way.
"""

import argparse
import gc
import importlib
import json
import os
import pkgutil
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random

os.environ.setdefault("OMP_NUM_THREADS", "1")

from fuzz_mutations import mutate
from fuzz_seeds import Seed, make_seeds

import nobackfill
from nobackfill.cli.exit_codes import exit_code_of
from nobackfill.cli.main import app

HERE = Path(__file__).parent
PATIENCE = 20  # seconds for one file
MEMORY = 10**9  # bytes above those of the process before the file, at least
ROOM = 2 * 2**30  # further bytes of addresses, which threads reserve and do not use
TOGETHER = 16  # files that one process reads; after a fault each is read alone
LONGEST = 4000  # characters of what is printed about a file that is read
PAGE = resource.getpagesize()


@dataclass(frozen=True)
class Outcome:
    """What happened to one file.

    Attributes:
        fault: Kind of what must not happen, or "".
        code: Exit code, negative for a signal.
        grown: Bytes of memory above those before.
        printed: Text on both streams.
    """

    fault: str
    code: int
    grown: int
    printed: str


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="stop after that time")
    parser.add_argument("--only", default="", help="seeds whose name has this text")
    parser.add_argument("--again", help="SEED:NUMBER of a file to damage and read again")
    parser.add_argument("--dry-run", action="store_true", help="append nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seeds = [seed for seed in whole_seeds(Path(folder)) if options.only in seed.name]
        if options.again:
            seed, number = map(int, options.again.split(":"))
            case, name = damaged(seeds, seed, number, Path(folder) / "alone")
            outcome = read_in_a_fork([case], Path(folder))[0]
            print(
                f"{case.name}, {name}: {outcome.fault or 'fine'}, {outcome.code}\n{outcome.printed}"
            )
            return
        found = fuzz(seeds, options.files, options.seed, Path(folder), options.seconds)
    print(json.dumps(found, indent=1))
    if not options.dry_run:
        line = {"date": datetime.now(UTC).isoformat(timespec="seconds"), **found}
        with (HERE / "fuzz_files.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
    sys.exit(bool(found["faults"]))


def whole_seeds(folder: Path) -> list[Seed]:
    """Makes all seeds; each must be read without a fault before it is damaged."""
    import_everything()
    seeds = make_seeds(folder)
    scratch = folder / "scratch"
    for seed in seeds:
        outcome = read_in_a_fork([copied(seed, scratch)], folder)[0]
        whole = not outcome.fault and outcome.code in (0, 1, 3)
        assert whole, f"{seed.name}: {outcome.printed}"
    gc.collect()
    gc.freeze()  # a fork then copies fewer pages
    return seeds


def import_everything() -> None:
    """Imports the package, but no client of a database: their threads do not survive a fork."""
    for module in pkgutil.walk_packages(nobackfill.__path__, "nobackfill."):
        if not re.search(r"stores\.(lancedb|milvus|qdrant|pgvector)|__main__", module.name):
            with suppress(ImportError):
                importlib.import_module(module.name)


def fuzz(
    seeds: list[Seed], files: int, seed: int, folder: Path, seconds: float | None = None
) -> dict[str, object]:
    """Damages and reads files; returns the counts, and where the first faults of each kind are."""
    began, grown = time.monotonic(), 0
    counts: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    for first in range(0, files, TOGETHER):
        if seconds is not None and time.monotonic() - began > seconds:
            break
        numbers = range(first, min(files, first + TOGETHER))
        cases = [damaged(seeds, seed, number, folder / f"scratch{number}") for number in numbers]
        for number, case, outcome in zip(
            numbers, cases, read_in_a_fork([case[0] for case in cases], folder), strict=True
        ):
            if outcome.fault:  # whoever is to blame: each is read again, alone
                outcome = fuzz_one(seeds, seed, number, folder)
            counts["refused" if outcome.code == 2 else "read"] += 1
            grown = max(grown, outcome.grown)
            shutil.rmtree(case[0].folder, ignore_errors=True)
            if outcome.fault:
                faults[outcome.fault] += 1
                last = outcome.printed.strip().splitlines()[-1:] or [""]
                what = f"{case[0].name}, {case[1]}: {outcome.fault}: {last[0][:300]}"
                print(f"{seed}:{number} {what}", flush=True)
                examples.setdefault(outcome.fault, []).append(f"{seed}:{number}")
    return {
        "files": sum(counts.values()),
        "seed": seed,
        "seeds": len(seeds),
        **counts,
        "faults": dict(faults),
        "examples": {kind: where[:20] for kind, where in examples.items()},
        "largest_memory_mb": round(grown / 1e6),
        "seconds": round(time.monotonic() - began),
    }


def fuzz_one(seeds: list[Seed], seed: int, number: int, folder: Path) -> Outcome:
    """Damages one file, which the seed and the number decide, and reads it alone."""
    case, _ = damaged(seeds, seed, number, folder / "alone")
    return read_in_a_fork([case], folder)[0]


def damaged(seeds: list[Seed], seed: int, number: int, folder: Path) -> tuple[Seed, str]:
    """Copies files of a seed, and damages one of them; returns its name, too."""
    random = Random(f"{seed} {number}")
    chosen = random.choices(seeds, [case.share for case in seeds])[0]
    name = random.choice(chosen.damaged)
    case = copied(chosen, folder)
    path = case.folder / name
    path.write_bytes(mutate(path.read_bytes(), path.name, random))
    return case, name


def copied(seed: Seed, folder: Path) -> Seed:
    """Copies the files of a seed to a folder, which is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(seed.folder, folder)
    return replace(seed, folder=folder)


def read_in_a_fork(cases: list[Seed], folder: Path) -> list[Outcome]:
    """Reads files in a process of its own, within limits."""
    sizes = [sum(path.stat().st_size for path in files_of(case)) for case in cases]
    output = folder / "printed"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    child = os.fork()
    if child == 0:
        _read_all(cases, max(sizes), output)
    status, used = os.wait4(child, 0)[1:]
    grown = max(0, 1024 * used.ru_maxrss - PAGE * pages)
    last = os.waitstatus_to_exitcode(status)
    outcomes = []
    for number, (case, size) in enumerate(zip(cases, sizes, strict=True)):
        code_file, text = output / f"{number}.code", output / f"{number}"
        code = int(code_file.read_text()) if code_file.exists() else last or 70
        printed = text.read_text(errors="replace") if text.exists() else ""
        fault = _fault(case, code, grown, size, printed)
        outcomes.append(Outcome(fault, code, grown, printed))
    return outcomes


def files_of(case: Seed) -> list[Path]:
    """The files that are damaged."""
    return [case.folder / name for name in case.damaged if (case.folder / name).exists()]


def _read_all(cases: list[Seed], size: int, output: Path) -> None:
    """Reads files one after the other, and ends the process."""
    with suppress(BaseException):
        addresses = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
        most = addresses + max(MEMORY, 2 * size) + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number, case in enumerate(cases):
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
            handle = os.open(output / f"{number}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            os.close(handle)
            sys.stdout, sys.stderr = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(2), "w")
            code = _read(case)
            sys.stdout.flush()
            sys.stderr.flush()
            (output / f"{number}.code").write_text(f"{code}")
    os._exit(0)


def _read(case: Seed) -> int:
    """Reads files, and returns the exit code."""
    os.chdir(case.folder)
    if not isinstance(case.read, list):
        return exit_code_of(case.read)
    arguments = case.read
    sys.argv = ["nobackfill", *arguments]
    return exit_code_of(lambda: app(arguments, prog_name="nobackfill"))


def _fault(case: Seed, code: int, grown: int, size: int, printed: str) -> str:
    """The kind of what must not happen, or ""."""
    if code == -signal.SIGALRM:
        return "time-out"
    if code < 0:
        return "signal"
    if "Traceback (most recent" in printed or code not in (0, 1, 2, 3):
        return "traceback"
    if grown > max(MEMORY, 2 * size) or "not enough memory" in printed:
        return "memory"
    if code == 2 and (left := list(_left(case))):
        return f"half-written {left[0]}"
    if any(ord(character) < 32 and character not in "\n\t\r" for character in printed):
        return "raw control characters"
    if code == 2 and len(printed) > LONGEST:
        return "a long message"
    return ""


def _left(case: Seed) -> Iterator[str]:
    """Names of outputs that a failed command has left."""
    for name in case.writes:
        if (case.folder / name).exists():
            yield name


if __name__ == "__main__":
    main()
