"""`nobackfill gallery`: what lives in a vector database."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.exit_codes import code_of_search_check
from nobackfill.cli.options import Device, Json, NewFile, OldFile, Seed, Workers

gallery = typer.Typer(
    no_args_is_help=True,
    help="A gallery in a vector database: look, fill it again beside the old, switch, go back.",
)

Uri = Annotated[
    str,
    typer.Argument(
        help="Where it is: flat://FILE, faiss://FILE, usearch://FILE, lancedb://FOLDER/TABLE, "
        "qdrant:FOLDER, qdrant://HOST/COLLECTION, pgvector://HOST/DATABASE/TABLE, milvus:FILE."
    ),
]
Name = Annotated[str, typer.Option(help="Of the new vectors, beside the old ones.")]
Assume = Annotated[
    str | None,
    typer.Option(
        help="What made the old vectors, where nothing declares it: a space.json, a run, a file of "
        "its vectors, or a fingerprint."
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be written, and write nothing.")
]

# of `gallery plan`
PlanFile = Annotated[Path, typer.Option("-o", "--output", help="A .parquet file: the plan.")]
PlanPage = Annotated[
    Path | None,
    typer.Option(help="Write a page with the curves here; .md and .json beside."),
]
MappedQueries = Annotated[
    Path | None,
    typer.Option(help="New queries as a map made them for the old gallery (`embed --side`)."),
]
Group = Annotated[
    str | None, typer.Option(help="A column of what belongs together, in place of labels.")
]
Traffic = Annotated[
    str | None, typer.Option(help="A column that says how often each item is asked for.")
]
Order = Annotated[
    str, typer.Option(help="planned, informed (by new vectors, too), uncertainty or random.")
]
Rate = Annotated[
    float | None, typer.Option(help="Items that are embedded in a second, as you measured.")
]
Cost = Annotated[float | None, typer.Option(help="Of embedding one item.")]
OneSpace = Annotated[
    bool | None,
    typer.Option(help="Whether old and new vectors are of one space; as the files say if none."),
]
Intersect = Annotated[
    bool, typer.Option("--intersect", help="Leave out items that only one file has.")
]


@gallery.command()
def status(uri: Uri, json: Json = False) -> None:
    """Tell what is stored, what made it, what is served, and how far a backfill is."""
    from nobackfill.cli.gallery.output import print_status
    from nobackfill.gallery.status import status_of
    from nobackfill.gallery.stores import open_store

    with open_store(uri, read_only=True) as store:
        print_status(status_of(store), as_json=json)


@gallery.command()
def pull(
    uri: Uri,
    output: Annotated[Path, typer.Option("-o", "--output", help="A .parquet file.")],
    name: Annotated[str | None, typer.Option(help="New vectors in place of the old ones.")] = None,
    json: Json = False,
) -> None:
    """Read ids, vectors and payload into a file; a second start goes on where it was stopped."""
    from nobackfill.cli.output import print_object
    from nobackfill.cli.progress import counting_progress
    from nobackfill.gallery.pull import pull as read
    from nobackfill.gallery.stores import open_store
    from nobackfill.gallery.stores.base import ours

    with open_store(uri, read_only=True) as store:
        collection = store.main if name is None else ours(store.main, name)
        with counting_progress("pulling", store.count(collection)) as progress:
            number = read(store, collection, output, progress=progress)
    print_object(
        {"output": str(output), "items": number}, as_json=json, text=f"{number:,} items in {output}"
    )


@gallery.command()
def check(
    uri: Uri,
    model: Annotated[Path, typer.Option(help="A run, a head, or a file of its vectors.")],
    name: Annotated[str | None, typer.Option(help="New vectors in place of the old ones.")] = None,
    assume_space: Assume = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 where that was not measured.")
    ] = False,
    json: Json = False,
) -> None:
    """May this model's queries search these vectors, and was that measured?

    Exit codes: 0 yes, 1 declared not to be compatible, 2 not made for them.
    """
    from nobackfill.cli.gallery.output import print_standing
    from nobackfill.gallery.guard import measured_in_training, standing_of
    from nobackfill.gallery.stores import open_store
    from nobackfill.gallery.stores.base import ours
    from nobackfill.vectors.records import space_of

    with open_store(uri, read_only=True) as store:
        collection = store.main if name is None else ours(store.main, name)
        training = measured_in_training(model)
        found = standing_of(store, collection, space_of(model), assume_space, training=training)
    print_standing(found, model, collection, as_json=json)
    code = code_of_search_check(may_search=found.may_ask, is_measured=found.is_sure, strict=strict)
    raise typer.Exit(code)


@gallery.command()
def search(
    uri: Uri,
    queries: Annotated[Path, typer.Option(help="A file of query vectors that says what made it.")],
    k: Annotated[int, typer.Option("-k", help="How many to find.")] = 10,
    name: Annotated[str | None, typer.Option(help="New vectors in place of the old ones.")] = None,
    assume_space: Assume = None,
    json: Json = False,
) -> None:
    """Search with a file of query vectors, if these may ask."""
    from nobackfill.cli.gallery.output import print_found
    from nobackfill.gallery.guard import check_model
    from nobackfill.gallery.stores import open_store
    from nobackfill.gallery.stores.base import ours
    from nobackfill.vectors import load_vectors
    from nobackfill.vectors.records import space_of

    asked = load_vectors(queries)
    with open_store(uri, read_only=True) as store:
        collection = store.main if name is None else ours(store.main, name)
        check_model(store, collection, asked.space or space_of(queries), assume_space)
        found = store.search(collection, asked.vectors.float().numpy(), k)
    print_found([str(one) for one in asked.ids.tolist()], found, as_json=json)


@gallery.command()
def plan(
    uri: Uri,
    old: OldFile,
    new: NewFile,
    output: PlanFile,
    query_for_old: MappedQueries = None,
    group: Group = None,
    traffic: Traffic = None,
    order: Order = "planned",
    rate: Rate = None,
    cost: Cost = None,
    compatible: OneSpace = None,
    intersect: Intersect = False,
    report: PlanPage = None,
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Which items to embed again first, what each share of them brings, and where to stop."""
    from nobackfill.cli.gallery.output import print_plan
    from nobackfill.cli.progress import doing
    from nobackfill.core.device import choose_device
    from nobackfill.gallery.planning.notes_plan_space import stored_notes
    from nobackfill.gallery.planning.plan import plan_backfill
    from nobackfill.gallery.status import check_items
    from nobackfill.gallery.stores import open_store
    from nobackfill.report.page import check_page
    from nobackfill.vectors import load_vectors

    if report is not None:
        check_page(report)  # before anything is done
    with doing() as watch:
        in_service = load_vectors(old)
        found = plan_backfill(
            in_service,
            load_vectors(new),
            query_for_old=load_vectors(query_for_old) if query_for_old else None,
            group=group,
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
    with open_store(uri, read_only=True) as store:
        known = check_items(store, found.first(1.0))
        found = replace(found, notes=(*found.notes, *stored_notes(store, in_service)))
    found.save(output)
    if report is not None:
        from nobackfill.report.build import report_backfill

        report_backfill(found.summary()).save(report)
    print_plan(found, output, known=known, as_json=json)


@gallery.command()
def backfill(
    uri: Uri,
    plan: Annotated[Path, typer.Option(help="What `gallery plan` wrote: which items come first.")],
    vectors: Annotated[
        Path | None, typer.Option(help="A file of new vectors of these items.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="A run whose model embeds them, in place of a file.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="With --model: a recipe or a run, whose \\[data] has them.")
    ] = None,
    name: Name = "new",
    share: Annotated[float, typer.Option(help="Stop at this share of the plan.")] = 1.0,
    rate: Annotated[float | None, typer.Option(help="At most so many items in a second.")] = None,
    workers: Workers = None,
    device: Device = "auto",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Write new vectors beside the old ones, in the planned order; can be stopped anywhere."""
    from nobackfill.cli.gallery.output import print_work
    from nobackfill.cli.progress import counting_progress
    from nobackfill.core.device import choose_device
    from nobackfill.gallery.backfill import FromFile, Source, foresee
    from nobackfill.gallery.backfill import backfill as write
    from nobackfill.gallery.backfill_from_model import FromModel
    from nobackfill.gallery.planning.plan import load_plan
    from nobackfill.gallery.stores import open_store
    from nobackfill.gallery.stores.base import ours
    from nobackfill.training.decoding import choose_decoding
    from nobackfill.vectors import load_vectors

    source: Source
    if vectors is not None and model is None:
        source = FromFile(load_vectors(vectors))
    elif vectors is None and model is not None:
        source = FromModel(
            model, data or model, device=choose_device(device), decoding=choose_decoding(workers)
        )
    else:
        raise typer.BadParameter("wanted new vectors from one place: --vectors, or --model.")
    with open_store(uri, read_only=dry_run) as store:
        order = load_plan(plan).first(share)
        collection = ours(store.main, name)
        if dry_run:
            work = foresee(store, collection, order, source.dim, rate=rate)
        else:
            with counting_progress("writing", len(order)) as progress:
                work = write(store, collection, order, source, rate=rate, progress=progress)
    print_work(work, dry_run=dry_run, as_json=json)


@gallery.command()
def index(uri: Uri, name: Name = "new", dry_run: DryRun = False, json: Json = False) -> None:
    """Build on the new vectors the index that the old ones have; can be stopped anywhere."""
    from nobackfill.cli.gallery.output import print_indexing
    from nobackfill.cli.progress import doing
    from nobackfill.gallery.indexing import index_new
    from nobackfill.gallery.stores import open_store
    from nobackfill.gallery.stores.base import ours

    with open_store(uri, read_only=dry_run) as store, doing() as watch:
        done = index_new(store, ours(store.main, name), dry_run=dry_run, watch=watch)
    print_indexing(done, dry_run=dry_run, as_json=json)


@gallery.command()
def shadow(
    uri: Uri,
    old_queries: Annotated[Path, typer.Option(help="Query vectors by the model that is served.")],
    queries: Annotated[Path, typer.Option(help="The same queries by the one that may be.")],
    k: Annotated[int, typer.Option("-k", help="How many to find.")] = 10,
    assume_space: Assume = None,
    json: Json = False,
) -> None:
    """Old and new side by side on queries without labels; nothing is written."""
    from nobackfill.cli.gallery.output import print_shadow
    from nobackfill.evaluation.file_columns import rows_of
    from nobackfill.gallery.guard import check_model
    from nobackfill.gallery.shadow import compare_queries
    from nobackfill.gallery.stores import open_store
    from nobackfill.vectors import load_vectors
    from nobackfill.vectors.records import space_of

    old, new = load_vectors(old_queries), load_vectors(queries)
    with open_store(uri, read_only=True) as store:
        for file, one in ((old_queries, old), (queries, new)):
            check_model(store, store.main, one.space or space_of(file), assume_space)
        asking = [rows_of(one, old.ids).float().numpy() for one in (old, new)]
        found = compare_queries(store, store.main, asking[0], asking[1], k)
    print_shadow(found, as_json=json)


@gallery.command()
def switch(
    uri: Uri,
    model: Annotated[Path, typer.Option(help="What will ask: a run, a head, or its vectors.")],
    name: Annotated[str | None, typer.Option(help="Serve new vectors in place of old ones.")] = (
        None
    ),
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Only a model measured to be compatible, and vectors of every item."
        ),
    ] = False,
    assume_space: Assume = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Record that another model asks, or other vectors are served, from now on; audited."""
    from nobackfill.cli.gallery.output import print_doubt, print_route
    from nobackfill.gallery import routing as route
    from nobackfill.gallery.guard import check_standing, measured_in_training, standing_of
    from nobackfill.gallery.status import check_share
    from nobackfill.gallery.stores import open_store
    from nobackfill.gallery.stores.base import ours
    from nobackfill.vectors.records import space_of
    from nobackfill.vectors.space import with_dim

    with open_store(uri, read_only=dry_run) as store:
        collection = store.main if name is None else ours(store.main, name)
        space = space_of(model)
        training = measured_in_training(model)
        standing = standing_of(store, collection, space, assume_space, training=training)
        check_standing(standing, collection, strict=strict)
        share = check_share(store, collection, strict=strict)
        asks = with_dim(space, store.dim(collection)).fingerprint
        if dry_run:
            found = route.Route(collection, asks, share)
        else:
            found = route.switch(
                store, collection, query_space=asks, share=share, standing=standing.in_words
            )
        main = store.main
    print_doubt(standing)
    print_route(found, main, share, dry_run=dry_run, as_json=json)


@gallery.command()
def rollback(uri: Uri, dry_run: DryRun = False, json: Json = False) -> None:
    """Serve again what was served before the last switch; audited."""
    from nobackfill.cli.gallery.output import print_further, print_route
    from nobackfill.gallery import routing as route
    from nobackfill.gallery.status import check_share
    from nobackfill.gallery.stores import open_store

    with open_store(uri, read_only=dry_run) as store:
        found = route.before(store) if dry_run else route.rollback(store)
        share, main = check_share(store, found.collection), store.main
    print_route(found, main, share, dry_run=dry_run, as_json=json)
    print_further(found, as_json=json)


@gallery.command()
def log(uri: Uri, json: Json = False) -> None:
    """Who did what, and when."""
    from nobackfill.cli.gallery.output import print_log
    from nobackfill.gallery.routing import entries
    from nobackfill.gallery.stores import open_store

    with open_store(uri, read_only=True) as store:
        print_log(entries(store), as_json=json)


@gallery.command()
def clean(uri: Uri, name: Name = "new", dry_run: DryRun = False, json: Json = False) -> None:
    """Remove the new vectors that we wrote; the old ones are not touched."""
    from nobackfill.cli.output import print_object
    from nobackfill.gallery.cleanup import remove_new
    from nobackfill.gallery.stores import open_store
    from nobackfill.gallery.stores.base import ours

    with open_store(uri, read_only=dry_run) as store:
        collection = ours(store.main, name)
        number = remove_new(store, collection, dry_run=dry_run)
    would = "would be" if dry_run else "are"
    print_object(
        {"collection": collection, "removed": number, "dry_run": dry_run},
        as_json=json,
        text=f"{number:,} new vectors of `{collection}` {would} removed.",
    )


@gallery.command()
def retire(
    uri: Uri,
    name: Name = "new",
    confirm: Annotated[
        str | None, typer.Option(help="The name of the old collection, to say that you mean it.")
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Remove the OLD vectors after a full migration. There is no way back; audited."""
    from nobackfill.cli.output import print_object
    from nobackfill.gallery.cleanup import retire_old
    from nobackfill.gallery.stores import open_store
    from nobackfill.gallery.stores.base import ours

    with open_store(uri, read_only=dry_run) as store:
        number = retire_old(store, ours(store.main, name), confirm=confirm, dry_run=dry_run)
        main = store.main
    would = "would be" if dry_run else "are"
    print_object(
        {"collection": main, "retired": number, "dry_run": dry_run},
        as_json=json,
        text=f"{number:,} old vectors of `{main}` {would} removed for good.",
    )
