"""`nobackfill bench`: mounts the commands of `nobackfill_bench`, which is not part of the wheel."""

from importlib.util import find_spec

import typer

from nobackfill.errors import ConfigError

HELP = "Benchmarks: retrieval quality of whole upgrades, and speed."
MISSING = (
    "`nobackfill bench` requires the package nobackfill_bench, which is part of the repository but "
    "not of the installed package. Clone the repository and run `pip install -e .` in it."
)


def add_bench(app: typer.Typer) -> None:
    """Adds `bench` to the command line; without `nobackfill_bench` a command that exits with 2."""
    if find_spec("nobackfill_bench") is None:
        settings = {"ignore_unknown_options": True, "allow_extra_args": True}
        app.command("bench", help=HELP, context_settings=settings)(missing)
    else:
        from nobackfill_bench.commands import bench

        app.add_typer(bench, name="bench")


def missing() -> None:
    """Explains how to get the benchmarks."""
    raise ConfigError(MISSING)
