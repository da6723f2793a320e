"""`nobackfill gallery`: the commands that inspect, search and backfill a gallery."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli import options as shared
from nobackfill.cli.exit_codes import code_of_search_check
from nobackfill.cli.gallery import options as opt
from nobackfill.cli.gallery import output as show
from nobackfill.cli.gallery.group import gallery
from nobackfill.cli.gallery.options import DryRun, Name, NewName, Uri, files_of_gallery, opened
from nobackfill.cli.options import (
    Device,
    DropInvalid,
    IdColumn,
    Json,
    NewFile,
    OldFile,
    Seed,
    VectorColumn,
    Workers,
)
from nobackfill.cli.output import print_object
from nobackfill.cli.outputs import claim
from nobackfill.cli.progress import counting_progress, doing


@gallery.command()
def status(uri: Uri, json: Json = False) -> None:
    """Show what is stored, which model made it, what is served, and how far a backfill is."""
    from nobackfill.gallery.status import status_of

    with opened(uri) as (store, _):
        show.print_status(status_of(store), as_json=json)


@gallery.command()
def pull(
    uri: Uri,
    output: Annotated[Path, typer.Option("-o", "--output", help="Output: a .parquet file.")],
    name: NewName = None,
    json: Json = False,
) -> None:
    """Copy ids, vectors and payload into a file; a second start continues the first."""
    from nobackfill.gallery.pull import pull as read

    claim(output, inputs=files_of_gallery(uri))
    with (
        opened(uri, name) as (store, collection),
        counting_progress("pulling", store.count(collection)) as progress,
    ):
        number = read(store, collection, output, progress=progress)
    print_object(
        {"output": str(output), "items": number}, as_json=json, text=f"{number:,} items in {output}"
    )


@gallery.command()
def check(
    uri: Uri,
    model: Annotated[Path, typer.Option(help="Run, head, or file of its vectors.")],
    name: NewName = None,
    assume_space: opt.Assume = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 if that was not measured.")
    ] = False,
    json: Json = False,
) -> None:
    """Check whether a model's queries may search these vectors, and whether that was measured.

    Exit codes: 0 yes, 1 declared not to be compatible, 2 not made for them.
    """
    from nobackfill.gallery.guard import measured_in_training, standing_of
    from nobackfill.gallery.status import share_of
    from nobackfill.vectors.records import space_of

    with opened(uri, name) as (store, collection):
        training = measured_in_training(model)
        standing = standing_of(store, collection, space_of(model), assume_space, training=training)
        share = share_of(store, collection)
    show.print_standing(standing, model, collection, share, as_json=json)
    may = standing.may_search
    raise typer.Exit(
        code_of_search_check(may_search=may, is_measured=standing.is_sure, strict=strict)
    )


@gallery.command()
def search(
    uri: Uri,
    queries: Annotated[Path, typer.Option(help="File of query vectors that declares its model.")],
    top: shared.Top = 10,
    id: IdColumn = None,
    vector: VectorColumn = None,
    name: NewName = None,
    assume_space: opt.Assume = None,
    json: Json = False,
) -> None:
    """Search with a file of query vectors, if its model may search the collection."""
    from nobackfill.gallery.guard import check_model
    from nobackfill.gallery.provenance import reading
    from nobackfill.gallery.searching import searched
    from nobackfill.vectors.records import space_of

    file = shared.read_vectors(queries, id=id, vector=vector)
    with (
        opened(uri, name) as (store, collection),
        doing("searching") as watch,
        reading(store, collection),
    ):
        check_model(store, collection, file.space or space_of(queries), assume_space)
        results = searched(store, collection, file.vectors.float().numpy(), top, watch=watch)
    show.print_results([str(id) for id in file.ids.tolist()], results, as_json=json)


@gallery.command()
def plan(
    uri: Uri,
    old: OldFile,
    new: NewFile,
    output: opt.PlanFile,
    query_for_old: shared.MappedQueries = None,
    id: IdColumn = None,
    vector: VectorColumn = None,
    label: opt.Label = None,
    drop_invalid: DropInvalid = False,
    traffic: opt.Traffic = None,
    order: opt.Order = "planned",
    rate: opt.Rate = None,
    cost: opt.Cost = None,
    compatible: opt.OneSpace = None,
    intersect: shared.Intersect = False,
    report: opt.PlanPage = None,
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Plan which items to embed again first, and measure the gain of each share."""
    from nobackfill.core.device import choose_device
    from nobackfill.gallery.backfill import check_rate
    from nobackfill.gallery.planning.plan import plan_backfill
    from nobackfill.gallery.planning.shared_space import stored_notes
    from nobackfill.gallery.status import check_items

    check_rate(rate)
    inputs = (old, new, query_for_old, *files_of_gallery(uri))
    claim(output, inputs=inputs, pages=(report,))  # before anything is done
    with doing() as watch:
        files = shared.read_all(
            {"old": old, "new": new, "query_for_old": query_for_old},
            id=id,
            vector=vector,
            label=label,
            drop_invalid=drop_invalid,
        )
        old_vectors = files["old"]
        backfill_plan = plan_backfill(
            old_vectors,
            files["new"],
            query_for_old=files.get("query_for_old"),
            group=label,
            traffic=traffic,
            order=order,
            seconds_per_item=1 / rate if rate else None,
            cost_per_item=cost,
            compatible=compatible,
            intersect=intersect,
            device=str(choose_device(device)),
            seed=seed,
            watch=watch,
        )
    with opened(uri) as (store, _):
        known = check_items(store, backfill_plan.first(1.0))
        notes = (*backfill_plan.notes, *stored_notes(store, old_vectors, backfill_plan.old_sketch))
    backfill_plan = replace(backfill_plan, notes=notes)
    backfill_plan.save(output)
    if report is not None:
        from nobackfill.report.build import report_backfill

        report_backfill(backfill_plan.summary()).save(report)
    show.print_plan(backfill_plan, output, known=known, as_json=json)


@gallery.command()
def backfill(
    uri: Uri,
    plan: Annotated[Path, typer.Option(help="Output of `gallery plan`.")],
    new: opt.NewVectors = None,
    id: IdColumn = None,
    vector: VectorColumn = None,
    drop_invalid: DropInvalid = False,
    model: Annotated[
        Path | None, typer.Option(help="Run whose model embeds the items, in place of a file.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="With --model: recipe or run whose \\[data] has the items.")
    ] = None,
    name: Name = "new",
    share: Annotated[float, typer.Option(help="Stop at this share of the plan.")] = 1.0,
    rate: Annotated[float | None, typer.Option(help="Maximal number of items per second.")] = None,
    workers: Workers = None,
    device: Device = "auto",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Write new vectors next to the old ones, in the planned order; safe to interrupt."""
    from nobackfill.core.device import choose_device
    from nobackfill.gallery.backfill import FromFile, Source, check_plan, foresee
    from nobackfill.gallery.backfill import backfill as write
    from nobackfill.gallery.backfill_from_model import FromModel
    from nobackfill.gallery.planning.plan_file import load_plan
    from nobackfill.training.decoding import choose_decoding

    source: Source
    if new is not None and model is None:
        source = FromFile(shared.read_vectors(new, id=id, vector=vector, drop_invalid=drop_invalid))
    elif new is None and model is not None:
        source = FromModel(
            model, data or model, device=choose_device(device), decoding=choose_decoding(workers)
        )
    else:
        raise typer.BadParameter("Pass new vectors from one place: --new or --model.")
    with opened(uri, name, read_only=dry_run) as (store, collection):
        whole = load_plan(plan)
        order = whole.first(share)
        if dry_run:
            notes = check_plan(store, order, source, whole)
            work = foresee(store, collection, order, source.dim, rate=rate)
            work = replace(work, notes=notes)
        else:
            with counting_progress("writing", len(order)) as progress:
                work = write(
                    store, collection, order, source, rate=rate, progress=progress, plan=whole
                )
    show.print_work(work, dry_run=dry_run, as_json=json)


@gallery.command()
def index(uri: Uri, name: Name = "new", dry_run: DryRun = False, json: Json = False) -> None:
    """Build the index of the old vectors on the new ones; safe to interrupt."""
    from nobackfill.gallery.indexing import index_new

    with opened(uri, name, read_only=dry_run) as (store, collection), doing() as watch:
        indexing = index_new(store, collection, dry_run=dry_run, watch=watch)
    show.print_indexing(indexing, dry_run=dry_run, as_json=json)


@gallery.command()
def shadow(
    uri: Uri,
    old_queries: Annotated[Path, typer.Option(help="Query vectors of the served model.")],
    queries: Annotated[Path, typer.Option(help="The same queries by the new model.")],
    top: shared.Top = 10,
    id: IdColumn = None,
    vector: VectorColumn = None,
    assume_space: opt.Assume = None,
    json: Json = False,
) -> None:
    """Compare the results of old and new queries, without labels; writes nothing."""
    from nobackfill.evaluation.file_columns import rows_of
    from nobackfill.gallery.guard import check_model
    from nobackfill.gallery.shadow import compare_queries
    from nobackfill.vectors.records import space_of

    files = shared.read_all({"old": old_queries, "new": queries}, id=id, vector=vector)
    old, new = files["old"], files["new"]
    with opened(uri) as (store, main), doing("searching") as watch:
        for path, file in ((old_queries, old), (queries, new)):
            check_model(store, main, file.space or space_of(path), assume_space)
        old_rows, new_rows = (rows_of(file, old.ids).float().numpy() for file in (old, new))
        comparison = compare_queries(store, main, old_rows, new_rows, top, watch=watch)
    show.print_shadow(comparison, as_json=json)


from nobackfill.cli.gallery import going_live  # noqa: E402, F401, after the commands above
