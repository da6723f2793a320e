"""Locks: one process at a time trains in a folder, and one writes an output."""

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nobackfill.errors import ConfigError, DataError

HELD = {errno.EACCES, errno.EAGAIN}  # errors of a lock that another process holds
PAUSE = 0.005  # seconds between two tries while waiting for a lock

_locked: set[Path] = set()  # folders that this process has locked
_writing: dict[Path, int] = {}  # outputs of this process, and the thread that writes each
_guard = threading.Lock()  # of `_locked` and `_writing`


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Locks a folder, or raises if another process holds the lock; a killed process frees it."""
    resolved = folder.resolve()
    with _guard:
        # To open and close the file a second time would free the lock of this process.
        handle = None if resolved in _locked else _lock_in(folder)
        if handle is not None:
            _locked.add(resolved)
    if handle is None:
        raise ConfigError(
            f"Another process trains in {folder}. Wait for it, or choose another folder."
        )
    try:
        yield
    finally:
        with _guard:
            _locked.remove(resolved)
            os.close(handle)  # frees the lock


def _lock_in(folder: Path) -> int | None:
    """Opens and locks the lock file of a folder; None if another process holds the lock."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise DataError(
            f"Cannot write into {folder}: {error.strerror or error}. Choose another folder."
        ) from None
    if _try_lock(handle):
        return handle
    os.close(handle)
    return None


@contextmanager
def lock_output(path: Path | str, *, wait: float = 0.0) -> Iterator[Path]:
    """Locks a file or folder for writing, and yields it with links followed.

    Raises if another process or thread still writes it after `wait` seconds. A thread may lock an
    output again. The lock is a file `.NAME.lock` in the same folder, which is removed; that of a
    killed process is free.
    """
    target, end = Path(os.path.realpath(path)), time.monotonic() + wait
    while (owner := _claim(target)) not in (None, threading.get_ident()):
        if time.monotonic() >= end:
            raise _is_written(path)
        time.sleep(PAUSE)
    if owner is not None:  # locked by this thread already
        yield target
        return
    lock, handle = target.with_name(f".{target.name}.lock"), None
    try:
        handle = _open_locked(lock, path, end)
        yield target
    finally:
        if handle is not None:
            with suppress(OSError):
                lock.unlink()  # while it is locked, so that no process locks a removed file
            os.close(handle)
        with _guard:
            del _writing[target]


def _claim(target: Path) -> int | None:
    """Returns the thread that writes an output in this process; if none does, this one will."""
    with _guard:
        owner = _writing.get(target)
        _writing.setdefault(target, threading.get_ident())
    return owner


def _open_locked(lock: Path, path: Path | str, end: float) -> int:
    """Opens and locks a file, which another process may be removing; tries until `end`."""
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
                if time.monotonic() >= end:
                    raise _is_written(path)
                time.sleep(PAUSE)
            elif os.fstat(handle).st_ino == lock.stat().st_ino:
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
