"""Files written so that a kill at any moment leaves the old one or the new one, never a half."""

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


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """Gives a path to write to; what was written there becomes `path` once the block has ended.

    The file in the making lies in the same folder under a hidden name, `.NAME.….part`. An error
    removes it and leaves `path` as it was; a killed process may leave it behind, but never under
    the name of `path`. A missing folder is made; a link is followed, and others may read what is
    written, as `open` has it.

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
            raise IsADirectoryError(None, "that is a folder")
    except OSError as error:
        raise DataError(
            f"wanted to write {path}, but {error.strerror or error}. Choose another place."
        ) from None
    unfinished = target.with_name(f".{target.name}.{token_hex(4)}.part")
    try:
        yield unfinished
        if unfinished.is_file():  # some libraries write what nobody else may read
            unfinished.chmod(0o666 & ~UMASK)
        flush_to_disk(unfinished)
        os.replace(unfinished, target)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        told = isinstance(error, OSError) and error.errno is not None
        if told or (isinstance(error, Exception) and _is_full(target.parent)):
            reason = getattr(error, "strerror", None) or "the disk is full"
            raise DataError(
                f"wanted to write {path}, but {reason}. "
                f"What was there before is untouched. Make room, or choose another place."
            ) from error
        raise


def _is_full(folder: Path) -> bool:
    """Whether a disk has no room left: libraries that write for us say so in many ways."""
    return shutil.disk_usage(folder).free < 2**20


def find_given(path: str | Path, what: str) -> Path:
    """Where something lies that a recipe names: from here, or from the folder NOBACKFILL_DATA.

    Args:
        path: As the recipe has it.
        what: It is, in words, for the error: "a collection".
    """
    below = os.environ.get("NOBACKFILL_DATA")
    for place in (Path(path).expanduser(), *([Path(below) / path] if below else [])):
        if place.exists():
            return place
    raise DataError(
        f"wanted {what} at {path}, but there is none{f' (nor below {below})' if below else ''}. "
        f"Write where it lies, or set the environment variable NOBACKFILL_DATA to the folder that "
        f"holds it."
    )


def flush_to_disk(path: Path) -> None:
    """Waits until the contents of a file are on the disk, not only in the system's memory."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def write_text(path: Path | str, text: str) -> None:
    """Writes a text file as UTF-8, whole or not at all."""
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="\n")


def sha256(path: Path | str) -> str:
    """Returns the SHA-256 of a file's contents, as 64 hexadecimal digits."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
