"""`nobackfill gallery`: the commands that decide what is served, and what is removed."""

from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.exit_codes import UNDECIDED
from nobackfill.cli.gallery import options as opt
from nobackfill.cli.gallery import output as show
from nobackfill.cli.gallery.group import gallery
from nobackfill.cli.gallery.options import DryRun, Name, NewName, Uri, opened
from nobackfill.cli.options import Json


@gallery.command()
def switch(
    uri: Uri,
    model: Annotated[Path, typer.Option(help="New model: a run, a head, or its vectors.")],
    name: NewName = None,
    strict: opt.Strict = False,
    partial: opt.Partial = False,
    assume_space: opt.Assume = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Record that another model or other vectors are served from now on; logged."""
    from nobackfill.gallery.serving import serve

    if strict and partial:
        raise typer.BadParameter("--strict requires vectors of every item. Leave out --partial.")
    with opened(uri, name, read_only=dry_run) as (store, collection):
        route, standing = serve(
            store,
            collection,
            model,
            assumed=assume_space,
            strict=strict,
            partial=partial,
            dry_run=dry_run,
        )
        main = store.main
    show.print_doubt(standing)
    show.print_route(route, main, route.share, dry_run=dry_run, as_json=json)


@gallery.command()
def rollback(uri: Uri, dry_run: DryRun = False, json: Json = False) -> None:
    """Serve again what was served before the last switch; logged."""
    from nobackfill.gallery import routing
    from nobackfill.gallery.guard import declared_since
    from nobackfill.gallery.status import share_of

    with opened(uri, read_only=dry_run) as (store, main):
        route = routing.before(store) if dry_run else routing.rollback(store)
        share = share_of(store, route.collection)
        warning = declared_since(route, store.dim(route.collection))
    show.print_route_warning(warning)
    facts = {"not_compatible": warning}
    show.print_route(route, main, share, dry_run=dry_run, as_json=json, facts=facts)
    show.print_further(route, as_json=json)


@gallery.command()
def log(uri: Uri, json: Json = False) -> None:
    """Show who did what, and when."""
    from nobackfill.gallery.routing import entries

    with opened(uri) as (store, _):
        show.print_log(entries(store), as_json=json)


@gallery.command()
def clean(uri: Uri, name: Name = "new", dry_run: DryRun = False, json: Json = False) -> None:
    """Remove the new vectors that nobackfill wrote; the old ones stay."""
    from nobackfill.gallery.cleanup import remove_new

    with opened(uri, name, read_only=dry_run) as (store, collection):
        number = remove_new(store, collection, dry_run=dry_run)
    show.print_removed("removed", collection, number, dry_run=dry_run, as_json=json)


@gallery.command()
def repair(
    uri: Uri,
    name: NewName = None,
    model: Annotated[
        Path | None,
        typer.Option(help="With --name: the model that made these vectors, if the note is lost."),
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Repair damaged notes from what the log and the database still know; vectors stay.

    Exit codes: 0 all is known, 3 something is not.
    """
    from nobackfill.gallery.repair import Claim
    from nobackfill.gallery.repair import repair as repair_notes
    from nobackfill.vectors.records import space_of

    if (name is None) != (model is None):
        raise typer.BadParameter("--name and --model belong together: pass both, or neither.")
    with opened(uri, name, read_only=dry_run) as (store, collection):
        claim = None if model is None else Claim(collection, space_of(model))
        repairs = repair_notes(store, claim, dry_run=dry_run)
    show.print_repairs(repairs, dry_run=dry_run, as_json=json)
    if any(repair.unknown for repair in repairs):
        raise typer.Exit(UNDECIDED)


@gallery.command()
def retire(
    uri: Uri,
    name: Name = "new",
    confirm: Annotated[
        str | None, typer.Option(help="Name of the old collection, as a confirmation.")
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Remove the OLD vectors after a full migration. This cannot be undone; logged."""
    from nobackfill.gallery.cleanup import retire_old

    with opened(uri, name, read_only=dry_run) as (store, collection):
        number, main = retire_old(store, collection, confirm=confirm, dry_run=dry_run), store.main
    show.print_removed("retired", main, number, dry_run=dry_run, as_json=json)
