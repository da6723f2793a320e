"""What `nobackfill gallery` prints."""

import sys
import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.table import Table

from nobackfill.cli.output import console, emit
from nobackfill.gallery.status import in_percent

if TYPE_CHECKING:
    from pathlib import Path

    from nobackfill.gallery.backfill import Work
    from nobackfill.gallery.guard import Standing
    from nobackfill.gallery.indexing import Indexing
    from nobackfill.gallery.planning.plan import BackfillPlan
    from nobackfill.gallery.routing import Route
    from nobackfill.gallery.shadow import Shadow
    from nobackfill.gallery.status import Status
    from nobackfill.gallery.stores.base import Found

INDENT = "    "  # of what belongs to the line above
KEPT = "\N{NO-BREAK SPACE}"  # where no line may end


def print_status(status: "Status", *, as_json: bool) -> None:
    """A row for each collection, and what is served."""
    if as_json:
        emit(status.summary())
        return
    table = _table("collection", "items", "dimensions", "covers", "made by")
    for one in status.collections:
        space, covers = one.space or "undeclared", in_percent(one.share)
        table.add_row(one.name, f"{one.items:,}", f"{one.dim:,}", covers, space)
    console.print(table)
    for one in status.collections:
        index = f"index {one.index}" if one.index else "no index, each vector is looked at"
        console.print(f"{one.name}: {index}.", markup=False, soft_wrap=True)
    main = status.collections[0].name
    shares = {one.name: one.share for one in status.collections}
    served = _served(status.route, main, shares.get(status.route.collection, 0.0))
    console.print(f"Served: {served}", markup=False, soft_wrap=True)


def print_found(queries: Sequence[str], found: "Found", *, as_json: bool) -> None:
    """What each query found, the best first."""
    if as_json:
        rows = zip(queries, found.ids, found.cosines, strict=True)
        emit({"found": [{"query": q, "ids": ids, "cosines": c} for q, ids, c in rows]})
        return
    table = _table("query", "found", "cosine", right=("cosine",))
    for query, ids, cosines in zip(queries, found.ids, found.cosines, strict=True):
        for place, (name, cosine) in enumerate(zip(ids, cosines, strict=True)):
            table.add_row("" if place else query, name, f"{cosine:.4f}")
    console.print(table)


def print_plan(plan: "BackfillPlan", output: "Path", *, known: int, as_json: bool) -> None:
    """What each share of new vectors brings, in each order, and where to stop."""
    summary = plan.summary()
    if as_json:
        emit({**summary, "items": len(plan.ids), "known": known, "output": str(output)})
        return
    table = _table("embedded again", *plan.curves, right=tuple(plan.curves))
    shares = next(iter(plan.curves.values())).shares
    for place, share in enumerate(shares):
        values = [f"{100 * curve.values[place]:.2f}" for curve in plan.curves.values()]
        table.add_row(f"{share:.0%}", *values)
    console.print(table)
    console.print("mAP in percent, of queries on the mixed gallery.", style="dim")
    for note in plan.notes:
        console.print(f"Note: {note}.", style="yellow", markup=False, soft_wrap=True)
    if known < len(plan.ids):
        missing = len(plan.ids) - known
        console.print(f"Note: the gallery lacks {missing:,} items of the plan.", style="yellow")
    effort = plan.effort(plan.stop or 1.0)
    time = "" if effort["seconds"] is None else f" That takes {_duration(effort['seconds'])}."
    cost = "" if effort["cost"] is None else f" It costs {effort['cost']:,.2f}."
    advice = plan.advice[0].upper() + plan.advice[1:]
    console.print(f"{advice}{time}{cost}", markup=False, soft_wrap=True)
    console.print(f"The plan is in {output}.", markup=False, soft_wrap=True)


def print_work(work: "Work", *, dry_run: bool, as_json: bool) -> None:
    """What a backfill would do, or has done."""
    if as_json:
        emit({**work.summary(), "dry_run": dry_run})
        return
    gone = f" Their owner has removed {work.gone:,}." if work.gone else ""
    if dry_run:
        size = 4 * work.numbers / 2**20
        time = "" if work.seconds is None else f", which takes {_duration(work.seconds)}"
        text = (
            f"Nothing was written. Of {work.planned:,} planned items {work.done:,} have a new "
            f"vector; {work.left:,} would be written into `{work.collection}` ({size:,.1f} MiB)"
            f"{time}.{gone}"
        )
    else:
        text = f"{work.done:,} of {work.planned:,} planned items have a new vector in " + (
            f"`{work.collection}`; it took {_duration(work.seconds or 0.0)}.{gone}"
        )
    console.print(text, markup=False, soft_wrap=True)


def print_indexing(done: "Indexing", *, dry_run: bool, as_json: bool) -> None:
    """What was built on new vectors, or would be, or why nothing has to be."""
    if as_json:
        emit({**done.summary(), "dry_run": dry_run})
        return
    if done.by_itself and done.kind is None:
        text = (
            f"Nothing has to be built: each of the {done.vectors:,} vectors in "
            f"`{done.collection}` is looked at, and search is exact."
        )
    elif done.by_itself:
        text = f"Nothing has to be built: the database indexes `{done.collection}` by itself."
    elif not done.to_do:
        text = f"Nothing to do: `{done.collection}` has {done.kind} over {done.vectors:,} vectors."
    elif dry_run:
        text = (
            f"Nothing was built. {done.kind} would be, on `{done.collection}`, over "
            f"{done.to_do:,} vectors."
        )
    else:
        text = f"`{done.collection}` has {done.kind} now; it took in {done.to_do:,} vectors."
    console.print(text, markup=False, soft_wrap=True)


def print_shadow(found: "Shadow", *, as_json: bool) -> None:
    """What would change for people who ask."""
    if as_json:
        emit(found.summary())
        return
    console.print(
        f"{found.queries:,} queries: of the first {found.k}, {found.overlap:.1%} stay; the first "
        f"answer changes for {found.first_changed:.1%}; its cosine moves by "
        f"{found.score_shift:+.4f}. Of what an exact search finds, the database finds "
        f"{found.old_recall:.1%} with old queries and {found.new_recall:.1%} with new ones.",
        markup=False,
        soft_wrap=True,
    )


def print_standing(standing: "Standing", model: "Path", collection: str, *, as_json: bool) -> None:
    """Whether a model may search a collection, and how that is known."""
    may = standing.may_ask
    if as_json:
        told = {"verdict": standing.verdict, "reason": standing.reason}
        emit({"collection": collection, "may_search": may, **told})
        return
    should = may and standing.verdict != "not compatible"
    asks = f"{model} {'may' if should else 'should not'} search `{collection}`"
    text = f"{asks}: {standing.reason}."
    if standing.verdict != "itself":
        text = f"{asks} ({standing.in_words}): {standing.reason}."
    if standing.verdict in ("never measured", "undecided"):
        text += " `nobackfill evaluate --declare` measures it."
    console.print(text, markup=False, soft_wrap=True)


def print_doubt(standing: "Standing") -> None:
    """Says on stderr that nothing measured what is served, or that it was measured to be worse."""
    if not standing.is_sure:
        print(
            f"nobackfill: the model is served as it is: {standing.in_words} ({standing.reason}). "
            f"`nobackfill evaluate --declare` measures it.",
            file=sys.stderr,
        )


def print_route(route: "Route", main: str, share: float, *, dry_run: bool, as_json: bool) -> None:
    """What is served from now on, or would be, and how much of the gallery that holds.

    Args:
        route: What is served.
        main: The owner's collection.
        share: How much of that the served collection holds now.
        dry_run: Whether nothing was changed.
        as_json: Whether a program reads it.
    """
    if as_json:
        keys = ("collection", "query_space", "share")
        emit({**{key: getattr(route, key) for key in keys}, "dry_run": dry_run})
        return
    when = "Would be served" if dry_run else "Served from now on"
    console.print(f"{when}: {_served(route, main, share)}", markup=False, soft_wrap=True)


def print_further(route: "Route", *, as_json: bool) -> None:
    """What one more rollback would bring back."""
    if as_json:
        return
    if route.before is None:
        text = "That is what was served at first: there is nothing further to go back to."
    else:
        asks = _asked_by(route.before["query_space"])
        text = f"Another rollback would serve {route.before['collection']}{asks}."
    console.print(text, markup=False, soft_wrap=True)


def _served(route: "Route", main: str, share: float) -> str:
    """Which collection is served to whom, and how much of the gallery it holds."""
    also = "" if share >= 1 else f": search `{main}` too (MixedGallery)"
    asks = _asked_by(route.query_space)
    return f"{route.collection}{asks}. It holds {in_percent(share)} of the items{also}."


def _asked_by(query_space: str | None) -> str:
    """Who asks, where that is known.

    Example:
        >>> _asked_by("5e8f"), _asked_by(None)
        (', asked by 5e8f', '')
    """
    return f", asked by {query_space}" if query_space else ""


def print_log(entries: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """Who did what, the earliest first: a line for each, and below it with what."""
    if as_json:
        emit({"log": list(entries)})
        return
    if not entries:
        console.print("Nothing has been done so far.")
    for one in entries:
        head = f"{_moment(one['time'])}  {one['action']} by {one['by']}"
        console.print(head, markup=False, soft_wrap=True)
        for line in _log_lines(one, console.width):
            console.print(line, markup=False, soft_wrap=True)


def _log_lines(entry: Mapping[str, Any], width: int) -> list[str]:
    """What an entry of the log tells beside who and when; a name stays with its value.

    Example:
        >>> entry = {"action": "backfill", "collection": "photos", "written": 90, "there": 10}
        >>> _log_lines(entry, 80)
        ['    photos: written 90, there 10']
        >>> _log_lines(entry, 24)
        ['    photos: written 90,', '    there 10']
    """
    facts = {
        name: value
        for name, value in entry.items()
        if name not in ("time", "by", "action", "collection") and value is not None
    }
    told = ", ".join(f"{name}{KEPT}{value}" for name, value in facts.items())
    wrapped = textwrap.wrap(
        ": ".join(part for part in (entry.get("collection"), told) if part),
        width,
        initial_indent=INDENT,
        subsequent_indent=INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(KEPT, " ") for line in wrapped]


def _moment(time: str) -> str:
    """A time of the log, for people.

    Example:
        >>> _moment("2026-01-31T09:30:00.250+00:00"), _moment("2026-01-31T09:30:00.250+02:00")
        ('2026-01-31 09:30:00.250 UTC', '2026-01-31 07:30:00.250 UTC')
    """
    moment = datetime.fromisoformat(time).astimezone(UTC)
    return f"{moment.replace(tzinfo=None).isoformat(sep=' ', timespec='milliseconds')} UTC"


def _table(*columns: str, right: Sequence[str] = ("items", "dimensions", "covers")) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=True)
    return table


def _duration(seconds: float) -> str:
    """For people.

    Example:
        >>> _duration(4.2), _duration(4000.0)
        ('4.2 s', '1 h 7 min')
    """
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
