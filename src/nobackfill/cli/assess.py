"""`nobackfill assess`."""

from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.options import Device, Json, NewFile, OldFile, Pairs, Seed


def assess(
    old: OldFile,
    new: NewFile,
    group: Annotated[
        str, typer.Option("--group", "--label", help="The column that says what belongs together.")
    ] = "label",
    pairs: Pairs = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Fit heads by these; cross_supcon by default.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many hits a second stage looks at again.")] = 100,
    epochs: Annotated[int, typer.Option(help="Of each head, at most.")] = 30,
    report: Annotated[
        Path | None, typer.Option(help="Write a page here; .md and .json lie beside it.")
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Say whether an upgrade is worth making, and how: from two files of vectors."""
    from dataclasses import replace

    from nobackfill.cli.assess_show_assessment import print_verdict
    from nobackfill.cli.output_show_page import print_page
    from nobackfill.cli.progress import doing
    from nobackfill.core.device import choose_device
    from nobackfill.head.assess.assess import assess as run
    from nobackfill.head.read_files import read_for_fit
    from nobackfill.report.build import Report, check_page, names_apart
    from nobackfill.report.pages.assessment import assessment_page

    if report is not None:
        check_page(report)  # before anything is done
    given = read_for_fit(old, new, label=group, pairs=pairs, only_training=False)
    with doing() as watch:
        verdict = run(
            given.old,
            given.new,
            labels=given.labels,
            pairs=given.pairs,
            methods=tuple(method or ["cross_supcon"]),
            k=top,
            epochs=epochs,
            seed=seed,
            device=str(choose_device(device)),
            watch=watch,
        )
    verdict = replace(verdict, notes=[*given.notes, *verdict.notes])
    if report is not None:
        before, after = names_apart(old, new)
        title = f"Is {after} worth an upgrade from {before}?"
        Report(assessment_page(verdict, title=title), verdict.summary()).save(report)
    print_verdict(verdict, as_json=json)
    print_page(report, as_json=json)
    raise typer.Exit(verdict.exit_code)
