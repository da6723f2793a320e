"""`nobackfill evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.options import (
    Device,
    GroundTruth,
    Json,
    Level,
    NewFile,
    OldFile,
    Protocol,
    Seed,
)


def evaluate(
    old: OldFile,
    new: NewFile,
    independent: Annotated[
        Path | None, typer.Option(help="Vectors of a new model trained without constraint.")
    ] = None,
    query_for_old: Annotated[
        Path | None,
        typer.Option(help="New queries as a map made them for the old gallery (`embed --side`)."),
    ] = None,
    protocol: Protocol = None,
    ground_truth: GroundTruth = None,
    level: Level = None,
    slices: Annotated[
        list[str] | None, typer.Option("--slice", help="Tell the worst values of a column.")
    ] = None,
    smallest: Annotated[int, typer.Option(help="How many queries a slice must have.")] = 10,
    flips: Annotated[
        int | None, typer.Option(help="List queries that lose their hit in the top so many.")
    ] = None,
    false_accept: Annotated[
        float | None, typer.Option(help="Thresholds at which this share of strangers passes.")
    ] = None,
    save_queries: Annotated[
        Path | None, typer.Option(help="Write a row per query to this .parquet file.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Write a page with all of it here; .md, .json and .parquet beside it."),
    ] = None,
    intersect: Annotated[
        bool, typer.Option("--intersect", help="Leave out items that only one file has.")
    ] = False,
    require_compatible: Annotated[
        bool,
        typer.Option(
            "--require-compatible", help="Exit with 1 if new/old is not better, 3 if undecided."
        ),
    ] = False,
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Compare old and new vectors of the same items: may the new model be deployed today?"""
    from nobackfill.cli.progress import searching_progress
    from nobackfill.cli.show import print_evaluation
    from nobackfill.cli.show_comparison import Asked, in_json, print_asked
    from nobackfill.comparison import compare
    from nobackfill.data.ground_truth import check_level, read_ground_truth
    from nobackfill.evaluation import evaluate as run
    from nobackfill.reporting import check_page, report_vectors
    from nobackfill.upgrade import choose_device
    from nobackfill.vectors import load_vectors

    check_level(level, ground_truth)
    if report is not None:
        check_page(report)  # before anything is done
    files = [load_vectors(old), load_vectors(new)]
    with searching_progress() as progress:
        result = run(
            *files,
            query_for_old=load_vectors(query_for_old) if query_for_old else None,
            independent=load_vectors(independent) if independent else None,
            protocol=protocol,
            ground_truth=read_ground_truth(ground_truth, level=level) if ground_truth else None,
            seed=seed,
            intersect=intersect,
            device=choose_device(device),
            progress=progress,
        )
    comparison = compare(result)
    asked = Asked(slices or [], smallest, flips, false_accept)
    more = in_json(comparison, asked) if json else {}
    if not json:
        print_asked(comparison, asked)
    if save_queries is not None:
        comparison.save_queries(save_queries)
    if report is not None:
        title = f"May {new.stem} go live on the vectors of {old.stem}?"
        report_vectors(result, files, title=title).save(report)
    print_evaluation(result, as_json=json, more=more)
    if require_compatible:
        raise typer.Exit({"compatible": 0, "not compatible": 1, "undecided": 3}[result.verdict])
