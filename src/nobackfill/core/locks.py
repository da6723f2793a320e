"""One process at a time in a run folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nobackfill.errors import ConfigError, DataError

_ours: set[Path] = set()  # what this process trains in: it would get its own locks once more


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Refuses where another process trains in this folder; a killed one leaves it free."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise DataError(
            f"wanted to write into {folder}, but {error.strerror or error}. Choose another place."
        ) from None
    place = folder.resolve()
    try:
        if place in _ours or not _take(handle):
            raise ConfigError(
                f"wanted to train in {folder}, but another process does so already. Wait for it, "
                f"or choose another folder."
            )
        _ours.add(place)
        try:
            yield
        finally:
            _ours.remove(place)
    finally:
        os.close(handle)  # which frees the lock, as the end of a process does


def _take(handle: int) -> bool:
    """Whether the lock is ours now."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        return True
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # which forked workers do not inherit
    except OSError:
        return False
    return True
