"""`nobackfill assess`."""

from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.exit_codes import code_of_assessment
from nobackfill.cli.options import (
    Device,
    DropInvalid,
    IdColumn,
    Json,
    Label,
    NewFile,
    OldFile,
    Pairs,
    Seed,
    VectorColumn,
    names_in,
    read_truth,
)
from nobackfill.core.config.defaults import DEFAULT_HEAD_METHOD


def assess(
    old: OldFile,
    new: NewFile,
    id: IdColumn = None,
    vector: VectorColumn = None,
    label: Label = "label",
    drop_invalid: DropInvalid = False,
    pairs: Pairs = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Method to fit heads with. Default: {DEFAULT_HEAD_METHOD}.",
            autocompletion=names_in("methods:METHODS"),
        ),
    ] = None,
    top: Annotated[
        int, typer.Option("--top", "-k", help="Number of results that a second stage reranks.")
    ] = 100,
    epochs: Annotated[int, typer.Option(help="Largest number of epochs of each head.")] = 30,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Time limit in seconds of all fits. The result then depends on the speed of the "
            "machine."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a report here (.html), and .md and .json next to it.")
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Find out whether an upgrade is worth it, and how to make it, from two files of vectors."""
    from dataclasses import replace

    from nobackfill.cli.assess_unlabelled import Unlabelled, check_methods
    from nobackfill.cli.output import print_page, print_remarks
    from nobackfill.cli.outputs import claim
    from nobackfill.cli.progress import doing
    from nobackfill.core.device import choose_device
    from nobackfill.evaluation.file_columns import check_one_label
    from nobackfill.head.assess.assess import assess as run
    from nobackfill.head.inputs import read_for_fit
    from nobackfill.report.pages.assessment import assessment_page
    from nobackfill.report.titles import names_apart

    claim(inputs=(old, new, pairs), pages=(report,))  # before anything is done
    data = read_for_fit(
        old,
        new,
        label=label,
        pairs=pairs,
        only_training=False,
        id=id,
        vector=vector,
        drop_invalid=drop_invalid,
    )
    print_remarks(data.remarks)
    before, after = names_apart(old, new)
    title = f"Is {after} worth an upgrade from {before}?"
    truth = read_truth(pairs, None)
    if data.labels is None and (truth is None or truth.judgements):
        check_methods(method)
        check_one_label([] if truth else [data.old, data.new])
        unlabelled = Unlabelled(data, title, report, json, top, seed, choose_device(device))
        raise typer.Exit(unlabelled.compare() if truth is None else unlabelled.judge(truth))
    with doing() as watch:
        verdict = run(
            data.old,
            data.new,
            labels=data.labels,
            pairs=data.pairs,
            methods=tuple(method or [DEFAULT_HEAD_METHOD]),
            k=top,
            epochs=epochs,
            seconds=seconds,
            seed=seed,
            device=str(choose_device(device)),
            watch=watch,
        )
    verdict = replace(verdict, notes=[*data.notes, *verdict.notes])
    page = assessment_page(verdict, title=title)
    if report is not None:
        from nobackfill.report.build import Report

        Report(page, verdict.summary()).save(report)
    print_page(page, verdict.summary(), as_json=json, report=report)
    raise typer.Exit(code_of_assessment(verdict.verdict))
