"""`nobackfill bench`: the commands of `nobackfill_bench`, which is not part of the wheel."""

from importlib.util import find_spec

import typer

from nobackfill.errors import ConfigError

MISSING = (
    "`nobackfill bench` requires the package nobackfill_bench, which is part of the repository but "
    "not of the installed package. Clone the repository and run `pip install -e .` in it."
)


def bench_commands() -> typer.Typer:
    """Returns the commands of `nobackfill_bench`; without it a command that exits with 2."""
    if find_spec("nobackfill_bench") is not None:
        from nobackfill_bench.commands import bench as commands

        return commands
    only = typer.Typer(add_completion=False)
    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    only.command("bench", context_settings=settings)(missing)
    return only


def missing() -> None:
    """Benchmarks: retrieval quality of whole upgrades, and speed."""
    raise ConfigError(MISSING)


bench = bench_commands()
