"""Checks of what a command is about to write, before it does any work."""

import os
from collections.abc import Iterable
from glob import glob, has_magic
from pathlib import Path

from nobackfill.core.atomic_files import check_is_file
from nobackfill.errors import ConfigError


def check_outputs(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Raises if an output is no file that can be replaced, or is an input or another output.

    Args:
        outputs: Files to write.
        inputs: Files, folders and patterns that are read. An output within such a folder is an
            error, too: it would be read the next time.
    """
    read = [file for path in inputs for file in _named_by(path)]
    seen: set[Path] = set()
    for output in outputs:
        if (folder := output.parent).is_file():
            raise ConfigError(f"Cannot write {output}: {folder} is a file. Choose another folder.")
        check_is_file(output)
        resolved = Path(os.path.realpath(output))
        if resolved in seen:
            raise ConfigError(f"Two outputs would be written to {output}. Choose another path.")
        seen.add(resolved)
        for file in read:
            if _is_same(output, file):
                raise ConfigError(
                    f"{output} is read by this command, and would be replaced by its output. "
                    f"Choose another path for the output."
                )
            if file.is_dir() and resolved.is_relative_to(os.path.realpath(file)):
                raise ConfigError(
                    f"The output {output} is in the folder {file}, which is read. Choose a path "
                    f"outside of it."
                )


def _named_by(path: Path) -> list[Path]:
    """Returns the files that a path or a pattern names."""
    if has_magic(str(path)) and not os.path.exists(path):
        return [Path(name) for name in glob(str(path), recursive=True)]
    return [path]


def _is_same(first: Path, second: Path) -> bool:
    """Whether two paths name one file, by links too."""
    try:
        return os.path.samefile(first, second)
    except OSError:  # a path does not exist
        return os.path.realpath(first) == os.path.realpath(second)
