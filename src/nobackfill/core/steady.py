"""Reads files that another process may replace meanwhile: either all old ones or all new ones."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from nobackfill.errors import DataError

ATTEMPTS = 10

Result = TypeVar("Result")
Identity = tuple[int, int, int, int, int]


def read_steadily(read: Callable[[], Result], paths: Callable[[], Iterable[Path]]) -> Result:
    """Reads until no file was replaced or changed while it was read.

    Args:
        read: Function that reads the files.
        paths: Function that returns the files and folders that it reads.

    Raises:
        DataError: If the files change each time. Errors of `read` are raised if they do not.
    """
    for _ in range(ATTEMPTS):
        before = identities(paths())
        try:
            result = read()
        except Exception:
            if identities(paths()) == before:
                raise
            continue
        if identities(paths()) == before:
            return result
    names = ", ".join(str(path) for path in list(paths())[:2])
    raise DataError(
        f"{names} was written again each time it was read. Wait until the other process is done, "
        f"and run the command again."
    )


def identities(paths: Iterable[Path]) -> dict[Path, Identity | None]:
    """Returns the inode, size and times of each file; None if it does not exist."""
    return {path: _identity(path) for path in paths}


def _identity(path: Path) -> Identity | None:
    try:
        now = os.stat(path)
    except OSError:
        return None
    return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns
