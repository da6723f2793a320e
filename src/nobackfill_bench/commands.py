"""`nobackfill bench quality` and `nobackfill bench speed`."""

from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.options import Device, Json

bench = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Benchmarks: retrieval quality of whole upgrades, and speed.",
)


@bench.callback()
def _group() -> None:
    """Benchmarks: retrieval quality of whole upgrades, and speed."""


@bench.command()
def quality(
    suite: Annotated[
        list[str] | None, typer.Option(help="Suite of upgrades; `--list` prints all suites.")
    ] = None,
    study: Annotated[
        list[str] | None, typer.Option(help="Study of the paper; `--list` prints all studies.")
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            help="Methods, such as ndpp,janus or ndpp:neighbors=10. Default: the suite's methods."
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds. Default: the suite's number.")
    ] = None,
    first_seed: Annotated[int, typer.Option(help="First seed.")] = 0,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting of the recipes: train.epochs=3."),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for the results and RESULTS.md.")
    ] = Path("benchmarks"),
    work: Annotated[
        Path, typer.Option(help="Folder for models and features; later runs reuse them.")
    ] = Path("bench-work"),
    data: Annotated[
        Path | None, typer.Option(help="Folder that holds the datasets.", envvar="NOBACKFILL_DATA")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "--processes",
            min=1,
            help="Number of runs at the same time, each on one thread. Default: one per core; "
            "on a GPU one.",
        ),
    ] = None,
    render: Annotated[
        bool, typer.Option("--render", help="Only write RESULTS.md from the stored results.")
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="Only list suites and studies.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Compare methods on whole upgrades over several seeds; finished runs are skipped."""
    from nobackfill_bench.quality.output import RunOptions, print_suites, run_and_print

    if show:
        print_suites(as_json=json)
        return
    split = None if methods is None else [name for text in methods for name in _listed(text)]
    options = RunOptions(
        suites=tuple(suite or ()),
        studies=tuple(study or ()),
        ways=split,
        seeds=seeds,
        first_seed=first_seed,
        changes=tuple(changes or ()),
        output=output,
        work=work,
        data=data,
        jobs=jobs,
        device=device,
    )
    run_and_print(options, only_render=render, as_json=json)


@bench.command()
def speed(
    suite: Annotated[
        list[str] | None,
        typer.Option(help="Suite of cases; `--list` prints them. Default: all suites."),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(help="Text that a case has in its name or size, such as tf32 or 24,393."),
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, help="Number of timed turns of each implementation.")
    ] = 5,
    large: Annotated[
        bool,
        typer.Option(
            "--large", help="On a CPU, include cases that take minutes or a lot of memory."
        ),
    ] = False,
    limit: Annotated[
        float | None,
        typer.Option(help="Seconds per case after which no turn starts. Default: 60; on a GPU 5."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of CPU threads. Default: torch's choice.")
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for speed.jsonl and SPEED.md.")
    ] = Path("benchmarks"),
    render: Annotated[
        bool,
        typer.Option(
            "--render", "--only-render", help="Only write SPEED.md from the stored results."
        ),
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="Only list suites and cases.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure time and memory, each as a ratio to a reference implementation or a lower bound."""
    from nobackfill_bench.speed.output import SpeedOptions, measure_and_print, print_cases

    options = SpeedOptions(
        suites=tuple(suite or ()),
        only=tuple(case or ()),
        repeats=repeats,
        large=large,
        limit=limit,
        threads=threads,
        output=output,
        device=device,
    )
    if show:
        print_cases(options, as_json=json)
        return
    measure_and_print(options, only_render=render, as_json=json)


def _listed(text: str) -> list[str]:
    """Splits a list of methods at commas, but not at the commas between a method's options.

    Example:
        >>> _listed("bct,ndpp:neighbors=10,accumulate=false,odpp")
        ['bct', 'ndpp:neighbors=10,accumulate=false', 'odpp']
    """
    methods: list[str] = []
    for part in text.split(","):
        if "=" in part and ":" not in part and methods:
            methods[-1] += f",{part}"
        else:
            methods.append(part.strip())
    return methods
