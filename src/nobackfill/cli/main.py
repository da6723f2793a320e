"""The `nobackfill` command line.

Commands import torch inside their functions, so that `--help` is fast.
"""

import sys
from typing import Annotated, NoReturn

import typer

from nobackfill import __version__
from nobackfill.cli.assess import assess
from nobackfill.cli.bench import add_bench
from nobackfill.cli.datasets import datasets
from nobackfill.cli.demo import demo
from nobackfill.cli.doctor import doctor
from nobackfill.cli.embed import embed
from nobackfill.cli.evaluate.command import evaluate
from nobackfill.cli.exit_codes import exit_code_of
from nobackfill.cli.fit import fit
from nobackfill.cli.gallery.commands import gallery
from nobackfill.cli.matrix import matrix
from nobackfill.cli.methods import methods
from nobackfill.cli.report import report
from nobackfill.cli.train import train

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> bool:
    if requested:
        typer.echo(f"nobackfill {__version__}")
        raise typer.Exit
    return requested


@app.callback()
def nobackfill(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Upgrade an embedding model without re-embedding the gallery."""


COMMANDS = (demo, train, assess, fit, embed, evaluate, report, matrix, methods, datasets, doctor)
for command in COMMANDS:
    app.command()(command)
app.add_typer(gallery, name="gallery")
add_bench(app)


def main() -> NoReturn:
    """Runs the command line and exits with one of the codes of `nobackfill.cli.exit_codes`."""
    sys.exit(exit_code_of(app))
