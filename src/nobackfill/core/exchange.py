"""Swaps two folders in one step, where the system can."""

import ctypes
import os
import sys
from pathlib import Path

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux
RENAME_SWAP = 2  # of macOS


def exchange(first: Path, second: Path) -> bool:
    """Swaps two paths atomically; returns False if the system or the file system cannot."""
    library = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
    try:
        if sys.platform == "linux":
            arguments = (
                AT_FDCWD,
                os.fsencode(first),
                AT_FDCWD,
                os.fsencode(second),
                RENAME_EXCHANGE,
            )
            return bool(library.renameat2(*arguments) == 0)  # type: ignore[union-attr]
        if sys.platform == "darwin":
            arguments = (os.fsencode(first), os.fsencode(second), RENAME_SWAP)
            return bool(library.renamex_np(*arguments) == 0)
    except AttributeError:  # an older C library
        pass
    return False
