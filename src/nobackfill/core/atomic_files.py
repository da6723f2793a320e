"""Atomic file writes: a killed process leaves the old file or the new one, never a partial one."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from nobackfill.errors import DataError

UMASK = os.umask(0o077)  # can only be read by setting it
os.umask(UMASK)
FULL_DISK = 2**20  # bytes; a disk with less free space counts as full


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """Yields a temporary path to write to, and renames it to `path` when the block ends.

    The temporary file is in the same folder, as `.NAME.….part`. An error removes it and leaves
    `path` unchanged; a killed process may leave it behind. Missing folders are created, links are
    followed, and the file gets the permissions that `open` would give it.

    Example:
        >>> folder = getfixture("tmp_path")
        >>> with replacing(folder / "new" / "answer.txt") as unfinished:
        ...     _ = unfinished.write_text("42")
        >>> (folder / "new" / "answer.txt").read_text()
        '42'
    """
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            raise IsADirectoryError(None, "it is a folder")
    except OSError as error:
        raise DataError(
            f"Cannot write {path}: {error.strerror or error}. Choose another path."
        ) from None
    unfinished = target.with_name(f".{target.name}.{token_hex(4)}.part")
    try:
        yield unfinished
        if unfinished.is_file():  # some libraries create files that only the owner may read
            unfinished.chmod(0o666 & ~UMASK)
        # Flush the contents to the disk before the file gets its final name.
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, target)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        # Libraries report a full disk by many exceptions, so look at the disk as well.
        from_system = isinstance(error, OSError) and error.errno is not None
        if from_system or (
            isinstance(error, Exception) and shutil.disk_usage(target.parent).free < FULL_DISK
        ):
            reason = getattr(error, "strerror", None) or "the disk is full"
            raise DataError(
                f"Cannot write {path}: {reason}. The previous file is unchanged. Make room on "
                f"the disk, or choose another path."
            ) from error
        raise


def write_text(path: Path | str, text: str) -> None:
    """Writes a UTF-8 text file atomically."""
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="\n")


def find_path(path: str | Path, what: str) -> Path:
    """Finds a path of a recipe: relative to the working directory, or to NOBACKFILL_DATA.

    Args:
        path: Path as written in the recipe.
        what: Noun for the error message, such as "collection".
    """
    data = os.environ.get("NOBACKFILL_DATA")
    for candidate in (Path(path).expanduser(), *([Path(data) / path] if data else [])):
        if candidate.exists():
            return candidate
    raise DataError(
        f"No {what} at {path}{f', nor below {data}' if data else ''}: the path does not exist. "
        f"Correct it, or set the environment variable NOBACKFILL_DATA to the folder that contains "
        f"it."
    )


def sha256(path: Path | str) -> str:
    """Returns the SHA-256 of a file's contents, as 64 hexadecimal digits."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
