"""`nobackfill evaluate`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

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
    by_modality: Annotated[
        bool,
        typer.Option(
            "--by-modality", help="Tell text to image, image to text … apart (column `modality`)."
        ),
    ] = False,
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
    declare: Annotated[
        Path | None,
        typer.Option(
            help="If compatible, write so into the space.json of this run, head or file of new "
            "vectors: `gallery check` then lets it ask. Else exit as --require-compatible does."
        ),
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Compare old and new vectors of the same items: may the new model be deployed today?"""
    from nobackfill.cli.progress import searching_progress
    from nobackfill.cli.show import print_declared, print_evaluation
    from nobackfill.cli.show_comparison import Asked, in_json, print_asked
    from nobackfill.cli.show_modalities import print_modalities
    from nobackfill.comparison import compare
    from nobackfill.data.ground_truth import check_level, read_ground_truth
    from nobackfill.declaration import check_declarable, declare_compatible
    from nobackfill.evaluation import evaluate as run
    from nobackfill.modalities import evaluate_modalities
    from nobackfill.reporting import check_page, report_modalities, report_vectors
    from nobackfill.upgrade import choose_device
    from nobackfill.vectors import load_vectors

    if by_modality:
        check_alone(slices, flips, false_accept, save_queries, ground_truth, declare)
    check_level(level, ground_truth)
    if report is not None:
        check_page(report)  # before anything is done
    files = [load_vectors(old), load_vectors(new)]
    mapped = load_vectors(query_for_old) if query_for_old else None
    if declare is not None:
        check_declarable(declare, files[0].space, (files[1] if mapped is None else mapped).space)
    title = f"May {new.stem} go live on the vectors of {old.stem}?"
    with searching_progress() as progress:
        given: dict[str, Any] = {
            "query_for_old": mapped,
            "independent": load_vectors(independent) if independent else None,
            "protocol": protocol,
            "seed": seed,
            "intersect": intersect,
            "device": choose_device(device),
            "progress": progress,
        }
        if by_modality:
            found = evaluate_modalities(*files, **given)
        else:
            truth = read_ground_truth(ground_truth, level=level) if ground_truth else None
            result = run(*files, ground_truth=truth, **given)
    if by_modality:
        if report is not None:
            report_modalities(found, files, title=title).save(report)
        print_modalities(found, as_json=json)
        exit_by(found.verdict, asked=require_compatible)
        return
    comparison = compare(result)
    asked = Asked(slices or [], smallest, flips, false_accept)
    more = in_json(comparison, asked) if json else {}
    if not json:
        print_asked(comparison, asked)
    if save_queries is not None:
        comparison.save_queries(save_queries)
    if report is not None:
        report_vectors(result, files, title=title).save(report)
    measured = None
    if declare is not None and result.verdict == "compatible":
        measured = declare_compatible(declare, result)
    if declare is not None:
        more["declared"] = asdict(measured) if measured else None
    print_evaluation(result, as_json=json, more=more)
    if declare is not None:
        print_declared(declare, result, measured, as_json=json)
    exit_by(result.verdict, asked=require_compatible or declare is not None)


def exit_by(verdict: str, *, asked: bool) -> None:
    """Ends with 1 where the verdict is no, and with 3 where there is none, if asked to."""
    if asked:
        raise typer.Exit({"compatible": 0, "not compatible": 1, "undecided": 3}[verdict])


def check_alone(
    slices: list[str] | None,
    flips: int | None,
    false_accept: float | None,
    save_queries: Path | None,
    ground_truth: Path | None,
    declare: Path | None,
) -> None:
    """Refuses what cannot be told direction by direction."""
    from nobackfill.errors import ConfigError

    options = {
        "--slice": slices,
        "--flips": flips,
        "--false-accept": false_accept,
        "--save-queries": save_queries,
        "--ground-truth": ground_truth,
        "--declare": declare,
    }
    if also := [name for name, value in options.items() if value not in (None, [])]:
        raise ConfigError(
            f"--by-modality searches in several directions, but {', '.join(also)} "
            f"{'is' if len(also) == 1 else 'are'} of one search. Leave out the one or the other; "
            f"--protocol text_to_image or image_to_text chooses a direction."
        )
