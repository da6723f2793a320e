"""`nobackfill evaluate`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nobackfill.cli.exit_codes import code_of_verdict
from nobackfill.cli.file_names import FILES
from nobackfill.cli.options import (
    Device,
    DropInvalid,
    IdColumn,
    Intersect,
    Json,
    Label,
    Level,
    MappedQueries,
    NewFile,
    OldFile,
    Pairs,
    Protocol,
    Seed,
    VectorColumn,
    names_in,
    read_all,
    read_truth,
)
from nobackfill.cli.outputs import claim

if TYPE_CHECKING:
    from nobackfill.data.listing import GroundTruth as Truth
    from nobackfill.evaluation.gate import Gate
    from nobackfill.report.pages.evaluation import Details
    from nobackfill.vectors import Vectors


def evaluate(
    old: OldFile,
    new: NewFile,
    independent: Annotated[
        Path | None, typer.Option(help="Vectors of a new model trained without constraint.")
    ] = None,
    query_for_old: MappedQueries = None,
    protocol: Protocol = None,
    id: IdColumn = None,
    vector: VectorColumn = None,
    label: Label = "label",
    drop_invalid: DropInvalid = False,
    pairs: Pairs = None,
    level: Level = None,
    by_modality: Annotated[
        bool,
        typer.Option(
            "--by-modality",
            help="Evaluate text to image, image to text … separately (column `modality`).",
        ),
    ] = False,
    slices: Annotated[
        list[str] | None, typer.Option("--slice", help="Print the worst values of a column.")
    ] = None,
    smallest: Annotated[int, typer.Option(help="Smallest number of queries of a slice.")] = 10,
    flips: Annotated[
        int | None, typer.Option(help="List queries that lose their hit in the top N.")
    ] = None,
    false_accept: Annotated[
        float | None,
        typer.Option(help="Print thresholds at which this share of other classes passes."),
    ] = None,
    save_queries: Annotated[
        Path | None, typer.Option(help="Write a row per query to this .parquet file.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Write a report here (.html), and .md, .json and .parquet next to it."),
    ] = None,
    intersect: Intersect = False,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="Metric that decides; the first must rise, further ones may not fall. By default "
            "map, recall_at_1 and ndcg_at_10.",
            autocompletion=names_in("evaluation.gate:METRICS"),
        ),
    ] = None,
    min_gain: Annotated[
        float, typer.Option(help="Gain that the first metric must exceed; 0.01 is one point.")
    ] = 0.0,
    max_negative_flips: Annotated[
        float | None,
        typer.Option(help="Largest share of queries that may lose their first hit."),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            "--group-leak",
            help="Column of the photograph or session of each item: items of one session do not "
            "find each other.",
        ),
    ] = None,
    require_compatible: Annotated[
        bool,
        typer.Option(
            "--require-compatible",
            help="Exit with 1 if new/old is not better, 3 if mixed or undecided.",
        ),
    ] = False,
    declare: Annotated[
        Path | None,
        typer.Option(
            help="Write the verdict, unless undecided, into the space.json of this run, head or "
            "file of new vectors, which `gallery check` reads. Exits like --require-compatible."
        ),
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Compare old and new vectors of the same items: may the new model go live today?"""
    from nobackfill.cli.evaluate.checks import check_alone, check_one_kind
    from nobackfill.core.device import choose_device
    from nobackfill.evaluation.file_columns import check_agreement, have_labels

    # Check the options and the outputs before anything is read.
    check_one_kind(label, pairs)
    details = {
        "--slice": slices,
        "--flips": flips,
        "--false-accept": false_accept,
        "--save-queries": save_queries,
        "--declare": declare,
    }
    if by_modality:
        check_alone({**details, "--pairs": pairs})
    inputs = (old, new, query_for_old, independent, pairs)
    claim(save_queries, inputs=inputs, pages=(report,))

    # Read the files.
    truth = read_truth(pairs, level)
    read = read_all(
        {"old": old, "new": new, "query_for_old": query_for_old, "independent": independent},
        id=id,
        vector=vector,
        label=label,
        drop_invalid=drop_invalid,
    )
    files, mapped = [read["old"], read["new"]], read.get("query_for_old")
    if label != "label":
        check_agreement(label, {FILES[name]: file for name, file in read.items() if name in FILES})
    if declare is not None:
        from nobackfill.evaluation.declare import check_declarable

        check_declarable(declare, files[0].space, (files[1] if mapped is None else mapped).space)
    search = Search(
        files,
        {
            "query_for_old": mapped,
            "independent": read.get("independent"),
            "protocol": protocol,
            "gate": gate_of(metric, min_gain, max_negative_flips),
            "sessions": session,
            "seed": seed,
            "intersect": intersect,
            "device": choose_device(device),
        },
        old=old,
        new=new,
        report=report,
        as_json=json,
    )

    # Evaluate by labels or pairs; without them, compare rankings or count judgements.
    is_judged = truth is not None and bool(truth.judgements)
    if is_judged or (truth is None and not have_labels([*files, mapped])):
        from nobackfill.cli.evaluate.unlabelled import run_without_labels

        options_of_labels = {
            "--independent": independent,
            "--by-modality": by_modality,
            "--metric": None if is_judged else metric,
            "--min-gain": min_gain,
            "--max-negative-flips": max_negative_flips,
            **details,
        }
        verdict = run_without_labels(search, truth, options_of_labels)
        require_compatible |= truth is None  # nothing was measured, which is no success
    elif by_modality:
        verdict = run_directions(search)
    else:
        verdict = run_upgrade(
            search,
            details_of(slices or [], smallest, flips, false_accept),
            truth=truth,
            save_queries=save_queries,
            declare=declare,
        )
    if require_compatible or declare is not None:
        raise typer.Exit(code_of_verdict(verdict))


def gate_of(metrics: list[str] | None, min_gain: float, max_negative_flips: float | None) -> "Gate":
    """Requirements on new/old for the verdict "compatible"."""
    from nobackfill.evaluation.gate import WEIGHED, Gate

    return Gate(tuple(metrics or WEIGHED), min_gain, max_negative_flips)


def details_of(
    slices: list[str], smallest: int, flips: int | None, false_accept: float | None
) -> "Details | None":
    """Results to print beside the means; None if no option requests any."""
    if not slices and flips is None and false_accept is None:
        return None
    from nobackfill.report.pages.evaluation import Details

    return Details(slices, smallest, flips, false_accept)


@dataclass(frozen=True)
class Search:
    """Inputs and outputs of an evaluation.

    Attributes:
        files: Old and new vectors.
        options: Other arguments of `evaluate` and `evaluate_modalities`.
        old: Path of the old vectors.
        new: Path of the new vectors.
        report: Path of the report; None for no report.
        as_json: Whether to print JSON.
    """

    files: "Sequence[Vectors]"
    options: Mapping[str, Any]
    old: Path
    new: Path
    report: Path | None
    as_json: bool

    @property
    def title(self) -> str:
        """Title of the report."""
        from nobackfill.report.titles import upgrade_title

        return upgrade_title(self.old, self.new)


def run_directions(search: Search) -> str:
    """Evaluates each direction between modalities, prints the result, returns the verdict."""
    from nobackfill.cli.output import print_page
    from nobackfill.cli.progress import doing, searching_progress
    from nobackfill.evaluation.by_modality import evaluate_modalities
    from nobackfill.report.pages.by_modality import modalities_page

    with searching_progress() as progress:
        result = evaluate_modalities(*search.files, **search.options, progress=progress)
    if search.report is not None:
        with doing() as show_step:
            from nobackfill.report.build import report_modalities

            show_step("writing the page")
            report_modalities(result, search.files, title=search.title).save(search.report)
    page = modalities_page(result, title=search.title)
    print_page(page, result.summary(), as_json=search.as_json, report=search.report)
    return result.verdict


def run_upgrade(
    search: Search,
    details: "Details | None",
    *,
    truth: "Truth | None",
    save_queries: Path | None,
    declare: Path | None,
) -> str:
    """Evaluates old and new vectors, prints the result, returns the verdict.

    Args:
        search: Inputs and outputs of the evaluation.
        details: Options on single queries, slices and thresholds, if any is set.
        truth: Relevant items of each query; None to use labels.
        save_queries: Path of a file with a row per query.
        declare: Model whose record receives the verdict.
    """
    from nobackfill.cli.output import print_page
    from nobackfill.cli.progress import doing, searching_progress
    from nobackfill.evaluation.evaluate import evaluate as run
    from nobackfill.evaluation.overview import evaluation_page
    from nobackfill.evaluation.query_changes import compare

    # search, and compute everything that may fail before anything is written
    with searching_progress() as progress:
        result = run(*search.files, ground_truth=truth, **search.options, progress=progress)
    comparison = compare(result)
    facts: dict[str, Any] = result.summary()
    sections = []
    if details is not None and search.as_json:
        facts |= details.in_json(comparison)
    elif details is not None:
        sections = details.as_sections(comparison)

    # write files
    if save_queries is not None:
        comparison.save_queries(save_queries)
    if search.report is not None:
        with doing() as show_step:
            from nobackfill.report.build import report_vectors

            report = report_vectors(result, search.files, title=search.title, watch=show_step)
            report.save(search.report)
    measured = None
    if declare is not None:
        from nobackfill.evaluation.declare import declare_measured

        measured = declare_measured(declare, result)
        facts["declared"] = asdict(measured) if measured else None

    # print
    page = evaluation_page(result, sections=sections)
    print_page(page, facts, as_json=search.as_json, report=search.report)
    if declare is not None:
        from nobackfill.cli.evaluate.declared import print_declared

        print_declared(declare, result, measured, as_json=search.as_json)
    return result.verdict
