"""`nobackfill assess` and its output."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from nobackfill.cli.exit_codes import DONE, NO, UNDECIDED, code_of_assessment
from nobackfill.cli.options import Device, Json, NewFile, OldFile, Pairs, Seed
from nobackfill.cli.output import console, emit, interval_text

if TYPE_CHECKING:
    from nobackfill.head.assess.assess import Verdict

COLORS = {DONE: "green", NO: "red", UNDECIDED: "yellow"}


def assess(
    old: OldFile,
    new: NewFile,
    group: Annotated[
        str, typer.Option("--group", "--label", help="Column of the classes.")
    ] = "label",
    pairs: Pairs = None,
    method: Annotated[
        list[str] | None, typer.Option(help="Method to fit heads with. Default: cross_supcon.")
    ] = None,
    top: Annotated[int, typer.Option(help="Number of hits that a second stage reranks.")] = 100,
    epochs: Annotated[int, typer.Option(help="Largest number of epochs of each head.")] = 30,
    report: Annotated[
        Path | None, typer.Option(help="Write a report here (.html), and .md and .json next to it.")
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Find out whether an upgrade is worth it, and how to make it, from two files of vectors."""
    from dataclasses import replace

    from nobackfill.cli.output import print_page
    from nobackfill.cli.progress import doing
    from nobackfill.core.device import choose_device
    from nobackfill.head.assess.assess import assess as run
    from nobackfill.head.inputs import read_for_fit
    from nobackfill.report.page import check_page, names_apart

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
        from nobackfill.report.build import Report
        from nobackfill.report.pages.assessment import assessment_page

        before, after = names_apart(old, new)
        title = f"Is {after} worth an upgrade from {before}?"
        Report(assessment_page(verdict, title=title), verdict.summary()).save(report)
    print_verdict(verdict, as_json=json)
    print_page(report, as_json=json)
    raise typer.Exit(code_of_assessment(verdict.verdict))


def print_verdict(verdict: "Verdict", *, as_json: bool) -> None:
    """Prints every way that was tried, then what to do."""
    if as_json:
        emit(verdict.summary())
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    for head in ("mAP", "gain (95 %)", "new model adds"):
        table.add_column(head, justify="right", no_wrap=True)
    for one in verdict.candidates:
        table.add_row(
            f"{one.name} *" if one.name == verdict.chosen else one.name,
            f"{100 * one.test:.2f}",
            interval_text(one.gain.summary()) if one.gain.mean else "",
            f"{100 * one.added.mean:+.2f}" if one.uses_new else "",
            style="bold" if one.name == verdict.chosen else "",
        )
    console.print(table)
    counts = verdict.counts
    console.print(
        f"On {counts['test_queries']:,} queries of {counts['test_classes']:,} test classes; * was "
        f"chosen on {counts['validation_classes']:,} others, after fitting on "
        f"{counts['fitted_classes']:,}. “new model adds”: what is gained beyond a head on the old "
        f"vectors alone. The best of queries could find about {100 * verdict.headroom:.1f} in the "
        f"stored vectors.",
        style="dim",
        soft_wrap=True,
    )
    for note in (*verdict.notes, verdict.advice):
        console.print(f"Note: {note}.", style="yellow", markup=False, soft_wrap=True)
    color = COLORS[code_of_assessment(verdict.verdict)]
    console.print(f"[{color}]{verdict.verdict.capitalize()}:[/] {verdict.reason}", soft_wrap=True)
