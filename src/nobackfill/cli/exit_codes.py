"""Exit codes, and the message on stderr when a command ends early.

0 done or yes, 1 no, 2 could not run, 3 undecided, 130 stopped by Ctrl-C. Only a command that raises
`typer.Exit` can end with 1 or 3.
"""

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress

import typer

from nobackfill.errors import NobackfillError

DONE, NO, COULD_NOT_RUN, UNDECIDED, STOPPED = 0, 1, 2, 3, 130
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
COMPLETION = "_NOBACKFILL_COMPLETE"  # variable that a shell sets for completion
COMPLETION_OPTIONS = ("--install-completion", "--show-completion")


def code_of_verdict(verdict: str) -> int:
    """Exit code of a verdict on compatibility; "mixed" is undecided, too.

    Example:
        >>> code_of_verdict("compatible"), code_of_verdict("undecided")
        (0, 3)
    """
    return {"compatible": DONE, "not compatible": NO}.get(verdict, UNDECIDED)


def code_of_assessment(verdict: str) -> int:
    """Exit code of the verdict of `nobackfill assess`."""
    if verdict in {"upgrade with head", "both models ask", "two-stage"}:
        return DONE
    return UNDECIDED if verdict == "inconclusive" else NO


def code_of_search_check(*, may_search: bool, is_measured: bool, strict: bool) -> int:
    """Exit code of `nobackfill gallery check`; `strict` requires a measured verdict."""
    if not may_search:
        return NO
    return UNDECIDED if strict and not is_measured else DONE


def exit_code_of(command_line: Callable[[], object]) -> int:
    """Runs the command line and returns its exit code; prints on stderr why it ended early."""
    try:
        command_line()
        code = DONE
    except SystemExit as stop:
        code = _code_of_exit(stop)
    except KeyboardInterrupt:
        code = STOPPED
    except Exception as error:  # a bug, too, means "could not run", never a verdict
        _explain(error)
        code = COULD_NOT_RUN
    if code == STOPPED:
        from nobackfill.cli.interrupts import how_to_continue

        if hint := how_to_continue(sys.argv[1:]):
            _print_error(hint)
    return _flush(code)


def _code_of_exit(stop: SystemExit) -> int:
    """Code of a `typer.Exit`, or of the completion of a shell; 2 for any other exit.

    On a broken pipe, rich and typer exit with 1, which would look like a verdict.
    """
    if COMPLETION in os.environ or {*COMPLETION_OPTIONS} & {*sys.argv[1:2]}:
        return COULD_NOT_RUN if stop.code else DONE  # an unknown shell is no verdict
    cause = stop.__context__
    return cause.exit_code if isinstance(cause, typer.Exit) else COULD_NOT_RUN


def _explain(error: Exception) -> None:
    """Prints the error in one line; an unexpected error with its traceback."""
    if isinstance(error, NobackfillError):
        _print_error(str(error))
    elif isinstance(error, OSError) and error.errno in FULL:
        _print_error(
            f"Cannot write the output: {error.strerror}. Free some space, or write to another "
            f"place."
        )
    elif isinstance(error, OSError) and error.filename is not None:
        _print_error(f"{error.filename}: {error.strerror}. Check the path and its permissions.")
    elif isinstance(error, RuntimeError) and "can't allocate memory" in str(error):  # of torch
        _print_error("The settings require more memory than there is. Choose smaller ones.")
    elif isinstance(error, MemoryError):
        _print_error("There is not enough memory. Use a larger machine, or less data.")
    else:
        import traceback

        from nobackfill.core.console import visible

        with suppress(OSError):
            print(visible(traceback.format_exc(), lines=True), end="", file=sys.stderr)
        _print_error(f"unexpected {type(error).__name__}: {error}. Please report this.")


def _print_error(message: str) -> None:
    """Prints a line on stderr; does nothing if stderr cannot be written."""
    from rich.text import Text

    from nobackfill.core.console import PlainConsole, visible

    with suppress(OSError, SystemExit):  # rich raises SystemExit on a broken pipe
        console = PlainConsole(stderr=True)
        text = Text("nobackfill: ", style="bold red")
        text.append(visible(shortened(message)), style="default not bold")
        console.print(text, soft_wrap=not console.is_terminal)  # a terminal wraps it at words


def shortened(message: str) -> str:
    """A message without its middle, if that repeats a long text of a file.

    Example:
        >>> len(shortened("x" * 10_000)), shortened("Short.")
        (1503, 'Short.')
    """
    return message if len(message) <= 1500 else f"{message[:1000]} … {message[-500:]}"


def _flush(code: int) -> int:
    """Flushes both streams; returns `code`, or 2 if a stream cannot be written.

    Unwritten output is dropped: otherwise Python writes it again at exit and ends with 120.
    """
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is None:  # closed before the start
            continue
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            code = COULD_NOT_RUN
    return code
