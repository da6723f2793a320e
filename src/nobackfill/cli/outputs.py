"""The outputs of a command: checked and locked before it does any work, until it ends."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any

_locks: ContextVar[ExitStack | None] = ContextVar("locks", default=None)


def claim(
    *files: Path | None,
    folder: Path | None = None,
    inputs: Iterable[Path | None] = (),
    pages: Sequence[Path | None] = (),
) -> None:
    """Checks that outputs replace nothing that is read, and locks them until the command ends.

    Args:
        files: Files to write.
        folder: Folder of a head to write.
        inputs: Files, folders and patterns that are read.
        pages: Reports to write, with the files next to them.
    """
    if folder is None and not any((*files, *pages)):
        return
    from nobackfill.core.locks import lock_output
    from nobackfill.core.outputs import check_outputs

    written = [file for file in files if file is not None]
    for page in pages:
        if page is not None:
            from nobackfill.report.titles import check_page, files_of_page

            check_page(page)
            written += files_of_page(page)
    read = [path for path in inputs if path is not None]
    within = []
    if folder is not None:
        from nobackfill.head.storage import FILES

        within = [folder / name for name in FILES]
    check_outputs([*written, *within], read)
    stack = _locks.get()
    for output in [*written, *([folder] if folder is not None else [])]:
        if stack is not None:
            stack.enter_context(lock_output(output))


def release_outputs(command: Any) -> Any:
    """Makes a command, or those of a group, free the outputs that it claimed when it ends."""
    for part in getattr(command, "commands", {}).values():
        release_outputs(part)
    if command.callback is not None:
        command.callback = _releasing(command.callback)
    return command


def _releasing(function: Any) -> Any:
    @wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        with ExitStack() as stack:
            token = _locks.set(stack)
            try:
                return function(*arguments, **options)
            finally:
                _locks.reset(token)

    return run
