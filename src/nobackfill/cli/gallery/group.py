"""The group `nobackfill gallery`, which its commands join."""

import typer

HELP = "Inspect a gallery in a vector database, backfill it, switch models, and roll back."
gallery = typer.Typer(no_args_is_help=True, add_completion=False, help=HELP)
