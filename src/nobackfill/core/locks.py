"""Locks: one process at a time trains in a folder, and one writes an output."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nobackfill.errors import ConfigError, DataError

HELD = {errno.EACCES, errno.EAGAIN}  # errors of a lock that another process holds

_locked: set[Path] = set()  # folders of this process, which would get its own lock a second time
_writing: dict[Path, int] = {}  # outputs of this process, and the thread that writes each
_guard = threading.Lock()  # of `_writing`


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


@contextmanager
def lock_output(path: Path | str) -> Iterator[Path]:
    """Locks a file or folder for writing, and yields it with links followed.

    Raises if another process or thread writes it. A thread may lock an output again. The lock is a
    file `.NAME.lock` in the same folder, which is removed; that of a killed process is free.
    """
    target, thread = Path(os.path.realpath(path)), threading.get_ident()
    with _guard:
        owner = _writing.get(target)
        _writing.setdefault(target, thread)
    if owner == thread:
        yield target
        return
    if owner is not None:
        raise _is_written(path)
    lock, handle = target.with_name(f".{target.name}.lock"), None
    try:
        handle = _open_locked(lock, path)
        yield target
    finally:
        if handle is not None:
            with suppress(OSError):
                lock.unlink()  # while it is locked, so that nobody locks a removed file
            os.close(handle)
        with _guard:
            del _writing[target]


def _open_locked(lock: Path, path: Path | str) -> int:
    """Opens and locks a file, which another process may be removing."""
    while True:
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except OSError as error:
            raise DataError(
                f"Cannot write {path}: {error.strerror or error}. Choose another path."
            ) from None
        try:
            if not _try_lock(handle):
                raise _is_written(path)
            if os.fstat(handle).st_ino == lock.stat().st_ino:
                return handle
        except FileNotFoundError:  # the process that held it has removed it
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_written(path: Path | str) -> ConfigError:
    return ConfigError(f"Another process is writing {path}. Wait for it, or choose another path.")


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
    except OSError as error:
        return error.errno not in HELD  # some network file systems have no locks
    return True
