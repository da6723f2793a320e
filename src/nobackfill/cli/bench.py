"""`nobackfill bench`."""

from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.options import Device, Json

bench = typer.Typer(no_args_is_help=True, help="Measure: methods on whole upgrades, and speed.")


@bench.callback()
def _verbs() -> None:
    """Measure: methods on whole upgrades, and speed."""


@bench.command()
def quality(
    suite: Annotated[
        list[str] | None, typer.Option(help="Which upgrades; `--list` shows all.")
    ] = None,
    study: Annotated[list[str] | None, typer.Option(help="Which of the paper's studies.")] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(help="Such as ndpp,janus or ndpp:neighbors=10; those of the suite if none."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many; the suite's own number if none.")] = (
        None
    ),
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 0,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change recipes: train.epochs=3.")
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The folder of results and RESULTS.md.")
    ] = Path("benchmarks"),
    work: Annotated[
        Path, typer.Option(help="The folder of models and features, kept to go on with.")
    ] = Path("bench-work"),
    data: Annotated[
        Path | None, typer.Option(help="The folder of collections.", envvar="NOBACKFILL_DATA")
    ] = None,
    processes: Annotated[int, typer.Option(help="How many runs side by side.")] = 1,
    render: Annotated[bool, typer.Option("--render", help="Only make RESULTS.md anew.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Only list suites and studies.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Put methods to whole upgrades over seeds; runs that are done are not made again."""
    from nobackfill_bench.quality.output import Asked, print_suites, run_and_print

    if show:
        print_suites(as_json=json)
        return
    split = None if methods is None else [one for text in methods for one in _listed(text)]
    asked = Asked(
        suites=tuple(suite or ()),
        studies=tuple(study or ()),
        ways=split,
        seeds=seeds,
        first_seed=first_seed,
        changes=tuple(changes or ()),
        output=output,
        work=work,
        data=data,
        processes=processes,
        device=device,
    )
    run_and_print(asked, only_render=render, as_json=json)


@bench.command()
def speed(
    suite: Annotated[
        list[str] | None, typer.Option(help="Which suites; all if none. `--list` shows them.")
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(help="Only cases with this in their name or size, such as tf32 or 24,393."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of ours and of its peer.")] = 5,
    large: Annotated[
        bool, typer.Option("--large", help="On a CPU, also what takes minutes or much memory.")
    ] = False,
    limit: Annotated[
        float | None,
        typer.Option(help="Seconds a case, after which no turn begins; 60, on a GPU 5."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of the CPU; as many as torch takes if not given.")
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The folder of speed.jsonl and SPEED.md.")
    ] = Path("benchmarks"),
    render: Annotated[
        bool, typer.Option("--render", "--only-render", help="Only make SPEED.md anew.")
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="Only list suites and cases.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure speed and memory, each figure beside its peer or its floor, as a ratio."""
    from nobackfill_bench.speed.output import AskedSpeed, measure_and_print, print_cases

    asked = AskedSpeed(
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
        print_cases(asked, as_json=json)
        return
    measure_and_print(asked, only_render=render, as_json=json)


def _listed(text: str) -> list[str]:
    """Ways out of a list with commas, which options of a way have too.

    Example:
        >>> _listed("bct,ndpp:neighbors=10,accumulate=false,odpp")
        ['bct', 'ndpp:neighbors=10,accumulate=false', 'odpp']
    """
    found: list[str] = []
    for part in text.split(","):
        if "=" in part and ":" not in part and found:
            found[-1] += f",{part}"
        else:
            found.append(part.strip())
    return found
