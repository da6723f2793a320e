"""Locks of run folders: one process at a time trains in a folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nobackfill.errors import ConfigError, DataError

_locked: set[Path] = set()  # folders of this process, which would get its own lock a second time


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Locks a folder, or raises if another process holds the lock; a killed process frees it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise DataError(
            f"Cannot write into {folder}: {error.strerror or error}. Choose another folder."
        ) from None
    resolved = folder.resolve()
    try:
        if resolved in _locked or not _try_lock(handle):
            raise ConfigError(
                f"Another process trains in {folder}. Wait for it, or choose another folder."
            )
        _locked.add(resolved)
        try:
            yield
        finally:
            _locked.remove(resolved)
    finally:
        os.close(handle)  # frees the lock


def _try_lock(handle: int) -> bool:
    """Locks an open file, and returns whether that succeeded."""
    try:
        try:
            import fcntl
        except ImportError:  # Windows
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not inherited by forked workers
    except OSError:
        return False
    return True
