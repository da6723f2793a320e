"""The option --quiet, which every command has."""

from typing import Annotated, Any

import typer

_is_quiet = False


def is_quiet() -> bool:
    """Whether the command prints neither progress nor notes."""
    return _is_quiet


def _set_quiet(quiet: bool) -> bool:
    global _is_quiet
    _is_quiet = quiet
    return quiet


def _quiet(
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            callback=_set_quiet,
            expose_value=False,
            help="Print neither progress nor notes.",
        ),
    ] = False,
) -> None:
    """Has the option, and nothing else."""


def add_quiet(command: Any) -> Any:
    """Adds the option to a command, or to every command of a group; returns the command."""
    commands = getattr(command, "commands", None)
    if commands is not None:
        for part in commands.values():
            add_quiet(part)
        return command
    only = typer.Typer(add_completion=False)
    only.command()(_quiet)
    command.params.append(typer.main.get_command(only).params[0])
    return command
