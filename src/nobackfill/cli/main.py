"""The `nobackfill` command. Torch is imported inside the commands, so that help comes at once."""

import sys
from typing import Annotated, NoReturn

import typer

from nobackfill import __version__
from nobackfill.cli.assess import assess
from nobackfill.cli.bench import bench
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


def _version(asked: bool) -> bool:
    if asked:
        typer.echo(f"nobackfill {__version__}")
        raise typer.Exit
    return asked


@app.callback()
def nobackfill(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Upgrade an embedding model without re-embedding the gallery."""


for command in (
    demo,
    train,
    assess,
    fit,
    embed,
    evaluate,
    report,
    matrix,
    methods,
    datasets,
    doctor,
):
    app.command()(command)
app.add_typer(gallery, name="gallery")
app.add_typer(bench, name="bench")


def main() -> NoReturn:
    """Runs the command line: 0 done, 1 no, 2 could not run, 3 undecided, 130 stopped by Ctrl-C."""
    sys.exit(exit_code_of(app))
