"""`nobackfill evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.options import Device, Json, NewFile, OldFile, Seed


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
    protocol: Annotated[
        str | None,
        typer.Option(help="plain (default), leave-one-out, market1501, gldv2 or roxford_rparis."),
    ] = None,
    ground_truth: Annotated[
        Path | None,
        typer.Option(help="What queries shall find: lines of JSON, or an official gnd_….pkl."),
    ] = None,
    level: Annotated[
        str | None, typer.Option(help="Of an official gnd_….pkl: easy, medium (default) or hard.")
    ] = None,
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
    from nobackfill.cli import show_comparison as shown
    from nobackfill.cli.show import print_evaluation
    from nobackfill.comparison import compare
    from nobackfill.data.ground_truth import read_ground_truth
    from nobackfill.evaluation import evaluate as run
    from nobackfill.upgrade import choose_device
    from nobackfill.vectors import load_vectors

    result = run(
        load_vectors(old),
        load_vectors(new),
        query_for_old=load_vectors(query_for_old) if query_for_old else None,
        independent=load_vectors(independent) if independent else None,
        protocol=protocol,
        ground_truth=read_ground_truth(ground_truth, level=level) if ground_truth else None,
        seed=seed,
        intersect=intersect,
        device=choose_device(device),
    )
    comparison = compare(result)
    if save_queries is not None:
        comparison.save_queries(save_queries)
    more = {}
    if json:
        more = shown.compare_as_asked(
            comparison,
            slices=slices or [],
            smallest=smallest,
            flips=flips,
            false_accept=false_accept,
        )
    else:
        for column in slices or []:
            shown.print_slices(column, comparison.slices(column, smallest=smallest))
        if flips is not None:
            shown.print_flips(flips, comparison.flipped(flips), comparison.won(flips))
        if false_accept is not None:
            shown.print_thresholds(comparison.thresholds(false_accept))
    print_evaluation(result, as_json=json, more=more)
    if require_compatible:
        raise typer.Exit({"compatible": 0, "not compatible": 1, "undecided": 3}[result.verdict])
