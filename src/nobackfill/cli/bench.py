"""`nobackfill bench`: mounts the commands of `nobackfill_bench`, which is not part of the wheel."""

from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperGroup

from nobackfill.errors import ConfigError

HELP = "Benchmarks: retrieval quality of whole upgrades, and speed."
MISSING = (
    "`nobackfill bench` requires the package nobackfill_bench, which is part of the repository but "
    "not of the installed package. Clone the repository and run `pip install -e .` in it."
)


class BenchGroup(TyperGroup):
    """The commands of `nobackfill_bench`, imported when the command line names `bench`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the commands."""
        names: list[str] = _bench_commands().list_commands(ctx)
        return names

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Command of a name; None if there is none."""
        return _bench_commands().get_command(ctx, cmd_name)


def add_bench(app: typer.Typer) -> None:
    """Adds `bench` to the command line; without `nobackfill_bench` a command that exits with 2."""
    if find_spec("nobackfill_bench") is None:
        settings = {"ignore_unknown_options": True, "allow_extra_args": True}
        app.command("bench", help=HELP, context_settings=settings)(missing)
    else:
        app.add_typer(typer.Typer(cls=BenchGroup, no_args_is_help=True, help=HELP), name="bench")


def missing() -> None:
    """Explains how to get the benchmarks."""
    raise ConfigError(MISSING)


def _bench_commands() -> Any:
    from nobackfill_bench.commands import bench

    return typer.main.get_command(bench)
