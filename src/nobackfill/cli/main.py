"""The `nobackfill` command line.

The file of a command is imported when that command is run or its own help is printed, and commands
import torch inside their functions, so that `nobackfill --help` is fast.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, NoReturn, cast

import typer
from typer.core import TyperCommand, TyperGroup

from nobackfill import __version__
from nobackfill.cli.exit_codes import exit_code_of

# Mistakes on the command line: an exception of typer, or of click, which older ones import.
USAGE_ERROR = cast(type[Exception], typer.BadParameter.__base__)

# Function or group below nobackfill.cli, and the line of `nobackfill --help`.
COMMANDS = {
    "demo": (
        "demo:demo",
        "Train six small models on built-in data and see what an upgrade without backfill gains.",
    ),
    "train": (
        "train:train",
        "Train a recipe, or fine-tune a text model on pairs (--pairs), and evaluate the upgrade.",
    ),
    "assess": (
        "assess:assess",
        "Find out whether an upgrade is worth it, and how to make it, from two files of vectors.",
    ),
    "fit": (
        "fit:fit",
        "Fit a head that maps new vectors into the old space; requires only vectors.",
    ),
    "embed": (
        "embed:embed",
        "Embed a collection or texts with a model, or map vectors with a head, into a file.",
    ),
    "evaluate": (
        "evaluate.command:evaluate",
        "Compare old and new vectors of the same items: may the new model go live today?",
    ),
    "report": ("report:report", "Write a report on an upgrade, or a comparison of several."),
    "matrix": (
        "matrix:matrix",
        "Search every model's gallery with every model's queries: mAP, AC, AM and P-scores.",
    ),
    "methods": ("methods:methods", "List the methods and what each needs of the old model."),
    "datasets": (
        "datasets:datasets",
        "List the supported collections, or check a copy on disk (exit code 1 if it differs).",
    ),
    "doctor": (
        "doctor:doctor",
        "Print the installed packages and the devices, and whether they work.",
    ),
    "gallery": (
        "gallery.commands:gallery",
        "Inspect a gallery in a vector database, backfill it, switch models, and roll back.",
    ),
    "bench": ("bench:bench", "Benchmarks: retrieval quality of whole upgrades, and speed."),
}


class LazyCommand(TyperCommand):
    """Name and help of a command; its file is imported when the command is run.

    Args:
        name: Name on the command line.
        place: Module below `nobackfill.cli` and name of the function or `typer.Typer` in it.
        help: First line of its help.
    """

    def __init__(self, name: str, place: str, help: str):
        super().__init__(name, help=help)
        self.place = place

    def load(self) -> Any:
        """Imports the command or group, adds the option --quiet, and paths to its errors."""
        from nobackfill.cli.file_names import name_files
        from nobackfill.cli.outputs import release_outputs
        from nobackfill.cli.quiet import add_quiet

        module, _, attribute = self.place.partition(":")
        command = getattr(import_module(f"nobackfill.cli.{module}"), attribute)
        if not isinstance(command, typer.Typer):
            function, command = command, typer.Typer(add_completion=False)
            command.command(self.name)(function)
        return name_files(release_outputs(add_quiet(typer.main.get_command(command))))

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """Context of the imported command, which parses its own arguments."""
        return self.load().make_context(*arguments, **settings)


class Commands(TyperGroup):
    """The commands of `COMMANDS`."""

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        for name, (place, help) in COMMANDS.items():
            self.add_command(LazyCommand(name, place, help))

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """Parses the options before the command; an error is one line."""
        with errors_in_one_line():
            return super().make_context(*arguments, **settings)

    def invoke(self, context: Any) -> Any:
        """Parses and runs the command; an error is one line."""
        with errors_in_one_line():
            return super().invoke(context)

    def format_help(self, *arguments: Any) -> None:
        """Prints the commands and what each does."""
        import_help_pages()
        super().format_help(*arguments)


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Raises a `ConfigError` for a mistake on the command line."""
    try:
        yield
    except USAGE_ERROR as error:
        from nobackfill.cli.usage_errors import as_config_error

        raise as_config_error(error) from None


def import_help_pages() -> None:
    """Imports `typer.rich_utils` without two modules of rich, which take longer than all others.

    They render Markdown and tracebacks, which `nobackfill --help` contains none of. If a version of
    typer does not import this way, typer imports everything itself.
    """
    unused = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
    unused = {name: content for name, content in unused.items() if name not in sys.modules}
    for name, content in unused.items():
        sys.modules[name] = placeholder = ModuleType(name)
        setattr(placeholder, content, None)
    with suppress(Exception):
        import_module("typer.rich_utils")
    for name in unused:
        del sys.modules[name]


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
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


def main() -> NoReturn:
    """Runs the command line and exits with one of the codes of `nobackfill.cli.exit_codes`."""
    sys.exit(exit_code_of(lambda: app(prog_name="nobackfill")))
