"""Atomic writes: a killed process leaves the old file or folder or the new one, never a mixture.

An output is written into the hidden folder `.NAME.part` next to it, synced, and then takes its
place in one step. What a killed process left in that folder is removed by the next write.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nobackfill.errors import DataError

UMASK = os.umask(0o077)  # can only be read by setting it
os.umask(UMASK)
FULL_DISK = 2**20  # bytes; a disk with less free space counts as full
KINDS = (  # paths that are never replaced by a file
    (stat.S_ISDIR, "it is a folder"),
    (stat.S_ISFIFO, "it is a pipe"),
    (stat.S_ISSOCK, "it is a socket"),
    (stat.S_ISCHR, "it is a device"),
    (stat.S_ISBLK, "it is a device"),
)


@contextmanager
def replacing(path: Path | str, *, like: Path | str | None = None) -> Iterator[Path]:
    """Yields a temporary path to write to, and renames it to `path` when the block ends.

    An error leaves `path` unchanged. A second process that writes `path` at the same time is
    refused. Missing folders are created and links are followed. A file that is replaced keeps its
    permissions; a new one gets those that `open` would give it.

    Args:
        path: File to write; a folder, a device or a pipe is refused.
        like: File whose permissions a new file gets.

    Example:
        >>> folder = getfixture("tmp_path")
        >>> with replacing(folder / "new" / "answer.txt") as unfinished:
        ...     _ = unfinished.write_text("42")
        >>> (folder / "new" / "answer.txt").read_text()
        '42'
    """
    check_is_file(path)
    from nobackfill.core.locks import lock_output  # most commands only read

    with lock_output(path) as target, plain_errors(path, target.parent), part_of(target) as part:
        unfinished = part / target.name
        yield unfinished
        set_permissions(unfinished, target, like)
        sync(unfinished)
        os.replace(unfinished, target)
        sync(target.parent)


@contextmanager
def part_of(target: Path) -> Iterator[Path]:
    """Yields the empty folder in which an output is made, and removes it in the end."""
    part = target.with_name(f".{target.name}.part")
    _remove(part)
    part.mkdir(mode=0o700)
    try:
        yield part
    finally:
        _remove(part)


@contextmanager
def plain_errors(path: Path | str, folder: Path) -> Iterator[None]:
    """Raises a DataError for errors of the system, and for any error on a full disk."""
    try:
        yield
    except Exception as error:
        from_system = isinstance(error, OSError) and error.errno is not None
        if from_system or shutil.disk_usage(folder).free < FULL_DISK:
            reason = getattr(error, "strerror", None) or "the disk is full"
            raise DataError(
                f"Cannot write {path}: {reason}. What was there is unchanged. Make room on the "
                f"disk, or choose another path."
            ) from error
        raise


def check_is_file(path: Path | str) -> None:
    """Raises if a path exists and is no regular file: a device would be replaced by a file."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise DataError(
            f"Cannot write {path}: {error.strerror or error}. Choose another path."
        ) from None
    if reason := next((reason for is_kind, reason in KINDS if is_kind(mode)), None):
        raise DataError(f"Cannot write {path}: {reason}. Choose another path.")


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows syncs no folders
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path | str, text: str, *, like: Path | str | None = None) -> None:
    """Writes a UTF-8 text file atomically; see `replacing`."""
    with replacing(path, like=like) as unfinished:
        unfinished.write_text(text, encoding="utf-8", newline="\n")


def take_permissions(made: Path, old: Path) -> None:
    """Gives a file or folder the permissions and, as far as allowed, the owner of another."""
    status = old.stat()
    with suppress(OSError, AttributeError):  # only root may give files away
        os.chown(made, status.st_uid, status.st_gid)
    made.chmod(stat.S_IMODE(status.st_mode))


def set_permissions(made: Path, target: Path, like: Path | str | None = None) -> None:
    """Gives a new file the permissions of the one it replaces, those of `like`, or usual ones."""
    if target.exists():
        take_permissions(made, target)
    elif like is not None and os.path.isfile(like):
        take_permissions(made, Path(like))
    else:  # some libraries create files that only the owner may read
        made.chmod(0o666 & ~UMASK)


def _remove(path: Path) -> None:
    """Removes a file or a folder, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


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
