"""How a command ends: its exit code, which is a verdict only if meant as one, and what is said."""

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress

import typer

from nobackfill.errors import NobackfillError

COULD_NOT_RUN, STOPPED = 2, 130
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
SAME = "The same command goes on where this one ended."
GO_ON = {  # of commands that keep what they have done
    ("train",): "Every finished epoch is kept: the same command with --resume goes on from there.",
    ("demo",): SAME,
    ("gallery", "pull"): SAME,
    ("gallery", "backfill"): SAME,
    ("bench", "quality"): "Finished runs are kept: the same command makes the others.",
}


def exit_code_of(command_line: Callable[[], object]) -> int:
    """Runs the command line and returns the exit code; says on stderr why it ended early.

    0 done, 1 a verdict of no, 2 could not run, 3 undecided, 130 stopped by Ctrl-C.
    """
    try:
        command_line()
        code = 0
    except SystemExit as stop:
        code = _meant(stop)
    except KeyboardInterrupt:
        code = STOPPED
    except Exception as error:  # an error of ours, too, means "could not run", never a verdict
        _explain(error)
        code = COULD_NOT_RUN
    if code == STOPPED and (hint := how_to_go_on(sys.argv[1:])):
        _say(hint)
    return _written(code)


def how_to_go_on(arguments: list[str]) -> str:
    """What to do after a command was stopped; empty where it left nothing to go on with.

    Example:
        >>> how_to_go_on(["gallery", "pull", "flat://shop.parquet", "-o", "shop.parquet"])
        'Stopped. The same command goes on where this one ended.'
        >>> how_to_go_on(["gallery", "status", "flat://shop.parquet"])
        ''
    """
    hint = GO_ON.get(tuple(arguments[:1])) or GO_ON.get(tuple(arguments[:2]))
    return f"Stopped. {hint}" if hint and "--dry-run" not in arguments else ""


def _meant(stop: SystemExit) -> int:
    """The code that a command ended with by `typer.Exit`; 2 for whatever else ended it.

    Where the reader of a pipe has gone away, rich and typer end the process with 1, which would be
    taken for a verdict.
    """
    ended = stop.__context__
    return ended.exit_code if isinstance(ended, typer.Exit) else COULD_NOT_RUN


def _explain(error: Exception) -> None:
    """Says in one line what was wrong; with all that led to it where we did not foresee it."""
    if isinstance(error, NobackfillError):
        _say(str(error))
    elif isinstance(error, OSError) and error.errno in FULL:
        _say(
            f"wanted to write what came out, but {error.strerror}. Make room where the output "
            f"goes, or send it elsewhere."
        )
    else:
        import traceback

        with suppress(OSError):
            traceback.print_exc()
        _say(f"unexpected {type(error).__name__}: {error}. Please report this.")


def _say(message: str) -> None:
    """Prints a line on stderr, if that can be written at all."""
    from rich.console import Console
    from rich.text import Text

    with suppress(OSError, SystemExit):  # by which rich ends where the reader has gone away
        Console(stderr=True, soft_wrap=True).print(
            Text("nobackfill: ", style="bold red").append(message, style="default not bold")
        )


def _written(code: int) -> int:
    """The same code once all is written; 2 where something cannot be, which is then dropped.

    Python would try to write it once more, say so on stderr, and end with 120.
    """
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is None:  # closed from the beginning
            continue
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            code = COULD_NOT_RUN
    return code
