"""Available memory, so that a file that needs more is refused before it is read."""

from contextlib import suppress
from pathlib import Path

from nobackfill.errors import DataError

MEMINFO, STATM = Path("/proc/meminfo"), Path("/proc/self/statm")
LIMITS = (  # of a container: what it may use, and what it uses
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


def available_memory() -> int | None:
    """Returns the bytes that this process can still allocate; None if unknown."""
    known = []
    with suppress(OSError, ValueError, StopIteration):
        lines = MEMINFO.read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        known.append(1024 * int(line.split()[1]))
    for most, used in LIMITS:
        with suppress(OSError, ValueError):
            known.append(int(most.read_text()) - int(used.read_text()))
    with suppress(ImportError, OSError, ValueError):
        import resource  # not on Windows

        most_addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most_addresses != resource.RLIM_INFINITY:
            pages = int(STATM.read_text().split()[0])
            known.append(most_addresses - pages * resource.getpagesize())
    return max(0, min(known)) if known else None


def check_memory(needed: int, what: str, remedy: str) -> None:
    """Raises if there is too little memory.

    Args:
        needed: Required bytes.
        what: Noun phrase for what requires them, for the error.
        remedy: Sentence on what to do, for the error.
    """
    left = available_memory()
    if left is not None and needed > left:
        raise DataError(
            f"{what} needs {needed / 1e9:,.1f} GB of memory, and {left / 1e9:,.1f} GB are left. "
            f"{remedy}"
        )
