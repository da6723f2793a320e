"""Atomic writes of folders: a killed process leaves the old folder or the new one, whole."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nobackfill.core.atomic_files import (
    part_of,
    plain_errors,
    set_permissions,
    sync,
    take_permissions,
)
from nobackfill.core.exchange import exchange
from nobackfill.core.locks import lock_output
from nobackfill.errors import DataError

OLD = "old"  # name of the old folder within the `.part`, while it is replaced in two steps


@contextmanager
def replacing_folder(path: Path | str, own: Sequence[str]) -> Iterator[Path]:
    """Yields an empty folder to write to, which takes the place of `path` when the block ends.

    An error leaves `path` unchanged. Files of others in `path` are kept.

    Args:
        path: Folder to write.
        own: Paths within `path` of the files that belong to what is replaced, the last one last.
    """
    with lock_output(path) as target, plain_errors(path, target.parent):
        _restore(target)
        with part_of(target) as part:
            made = part / target.name
            made.mkdir()
            yield made
            _settle(made, target)
            if not target.exists():
                os.rename(made, target)
            elif _must_stay(target):
                _move_in(made, target, own, path)
            else:
                _carry_over(target, made, own)
                take_permissions(made, target)
                if not exchange(made, target):  # the old folder is removed with the `.part`
                    os.rename(target, part / OLD)
                    os.rename(made, target)
            sync(target.parent)


def _restore(target: Path) -> None:
    """Puts back the old folder, if a process was killed between two steps of replacing it."""
    old = target.with_name(f".{target.name}.part") / OLD
    if old.is_dir() and not target.exists():
        os.rename(old, target)


def _must_stay(target: Path) -> bool:
    """Whether a folder is a mount point or the working directory, which cannot be replaced."""
    return target.is_mount() or Path.cwd().is_relative_to(target)


def _move_in(made: Path, target: Path, own: Sequence[str], path: Path | str) -> None:
    """Moves new files into a folder that stays; raises if that would replace older ones."""
    if any((target / name).exists() for name in own):
        raise DataError(
            f"Cannot replace {path} in one step, as it is a mount point or the working directory. "
            f"Run the command elsewhere, or choose a folder within it."
        )
    for name in sorted(_files_in(made), key=lambda name: (name in own, name == own[-1])):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        os.rename(made / name, target / name)
    sync(target)


def _carry_over(old: Path, made: Path, own: Sequence[str]) -> None:
    """Adds the files of others in the old folder to the new one, as links to the same contents."""
    for name in _files_in(old):
        place = made / name
        if name not in own and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            _link(old / name, place)


def _files_in(folder: Path) -> list[str]:
    """Returns the paths of all files within a folder, and of links."""
    paths = []
    for parent, folders, files in os.walk(folder):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        paths += [os.path.relpath(Path(parent, name), folder) for name in (*links, *files)]
    return paths


def _link(file: Path | str, place: Path | str) -> None:
    """Links a file, or copies it where the file system has no links."""
    try:
        os.link(file, place, follow_symlinks=False)
    except OSError:
        shutil.copy2(file, place, follow_symlinks=False)


def _settle(made: Path, target: Path) -> None:
    """Sets the permissions of all new files, and waits until they are on the disk."""
    for parent, _, names in os.walk(made):
        for name in names:
            file = Path(parent, name)
            set_permissions(file, target / file.relative_to(made))
            sync(file)
        sync(Path(parent))
