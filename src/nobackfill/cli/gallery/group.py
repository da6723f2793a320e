"""The group `nobackfill gallery`, which its commands join."""

import os
from pathlib import Path
from typing import Annotated

import typer

HELP = "Inspect a gallery in a vector database, backfill it, switch models, and roll back."
gallery = typer.Typer(no_args_is_help=True, add_completion=False, help=HELP)


@gallery.callback()
def _of_every_command(
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            help="File whose first line is the password, API key or token of the server, which a "
            "list of processes would show within the URI.",
        ),
    ] = None,
) -> None:
    """Has the option of every command."""
    from nobackfill.gallery.stores.uri import PASSWORD_FILE

    if password_file is not None:
        os.environ[PASSWORD_FILE] = str(password_file)
