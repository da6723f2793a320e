"""Output of `nobackfill gallery`."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from nobackfill.cli.output import (
    console,
    emit,
    print_line,
    print_notes,
    print_object,
    print_table,
    print_warning,
)
from nobackfill.core.numbers import duration
from nobackfill.core.page import Table

if TYPE_CHECKING:
    from pathlib import Path

    from nobackfill.gallery.backfill import Work
    from nobackfill.gallery.guard import Standing
    from nobackfill.gallery.indexing import Indexing
    from nobackfill.gallery.planning.plan_file import BackfillPlan
    from nobackfill.gallery.repair import Repair
    from nobackfill.gallery.routing import Route
    from nobackfill.gallery.shadow import Shadow
    from nobackfill.gallery.status import Status
    from nobackfill.gallery.stores.base import SearchResults

NUMBERS = frozenset(("items", "dimensions", "covers", "cosine"))  # aligned right
INDENT = "    "  # of lines that belong to the line above
KEPT = "\N{NO-BREAK SPACE}"  # where lines are not wrapped


def print_status(status: "Status", *, as_json: bool) -> None:
    """Prints a row for each collection, and what is served."""
    if as_json:
        emit(asdict(status))
        return
    from nobackfill.gallery.status import in_percent

    columns = ("collection", "items", "dimensions", "covers", "made by")
    rows = [
        [
            held.name,
            f"{held.items:,}",
            f"{held.dim:,}",
            in_percent(held.share),
            held.space or "undeclared",
        ]
        for held in status.collections
    ]
    print_table(Table(columns, rows, NUMBERS))
    for held in status.collections:
        index = f"index {held.index}" if held.index else "no index, every vector is compared"
        print_line(f"{held.name}: {index}.")
    shares = {held.name: held.share for held in status.collections}
    share = shares.get(status.route.collection, 0.0)
    print_line(f"Served: {_served(status.route, status.collections[0].name, share)}")
    for problem in (status.problem, *(held.problem for held in status.collections)):
        if problem is not None:
            print_warning(problem)


def print_results(queries: Sequence[str], results: "SearchResults", *, as_json: bool) -> None:
    """Prints the results of each query, best first."""
    if as_json:
        found = zip(queries, results.ids, results.cosines, strict=True)
        emit({"found": [{"query": q, "ids": ids, "cosines": c} for q, ids, c in found]})
        return
    rows = [
        ("" if place else query, id, f"{cosine:.4f}")
        for query, pairs in zip(queries, results.pairs(), strict=True)
        for place, (id, cosine) in enumerate(pairs)
    ]
    print_table(Table(("query", "found", "cosine"), rows, NUMBERS))


def print_plan(plan: "BackfillPlan", output: "Path", *, known: int, as_json: bool) -> None:
    """Prints the mAP of each share in each order, and where to stop."""
    if as_json:
        emit({**plan.summary(), "items": len(plan.ids), "known": known, "output": str(output)})
        return
    # The curves.
    names = list(plan.curves)
    shares = plan.curves[names[0]].shares
    rows = [
        [f"{share:.0%}", *(f"{100 * curve.values[place]:.2f}" for curve in plan.curves.values())]
        for place, share in enumerate(shares)
    ]
    print_table(Table(["embedded again", *names], rows, frozenset(names)))
    print_line("mAP in percent, of queries on the mixed gallery.", style="dim")

    # Notes and advice.
    missing = len(plan.ids) - known
    lacking = [f"the gallery lacks {missing:,} items of the plan"] if missing else []
    print_notes([*plan.notes, *lacking])
    effort = plan.effort(plan.stop or 1.0)
    time = "" if effort["seconds"] is None else f" That takes {duration(effort['seconds'])}."
    cost = "" if effort["cost"] is None else f" It costs {effort['cost']:,.2f}."
    print_line(f"{plan.advice[0].upper()}{plan.advice[1:]}{time}{cost}")
    print_line(f"The plan is in {output}.")


def print_work(work: "Work", *, dry_run: bool, as_json: bool) -> None:
    """Prints what a backfill would do, or has done."""
    gone = f" The owner has removed {work.gone:,}." if work.gone else ""
    if dry_run:
        size = 4 * work.numbers / 2**20
        time = "" if work.seconds is None else f", which takes {duration(work.seconds)}"
        text = (
            f"Nothing was written. Of {work.planned:,} planned items {work.done:,} have a new "
            f"vector; {work.left:,} would be written into `{work.collection}` ({size:,.1f} MiB)"
            f"{time}.{gone}"
        )
    else:
        text = (
            f"{work.done:,} of {work.planned:,} planned items have a new vector in "
            f"`{work.collection}`; it took {duration(work.seconds or 0.0)}.{gone}"
        )
    print_object({**asdict(work), "dry_run": dry_run}, as_json=as_json, text=text)
    if not as_json:
        print_notes(work.notes)


def print_indexing(indexing: "Indexing", *, dry_run: bool, as_json: bool) -> None:
    """Prints which index was built or would be, or why there is none to build."""
    kind, collection = indexing.kind, indexing.collection
    if indexing.by_itself and kind is None:
        text = (
            f"There is no index to build: each of the {indexing.vectors:,} vectors in "
            f"`{collection}` is compared, and search is exact."
        )
    elif indexing.by_itself:
        text = f"There is no index to build: the database indexes `{collection}` automatically."
    elif not indexing.to_do:
        text = f"Nothing to do: `{collection}` has {kind} over {indexing.vectors:,} vectors."
    elif dry_run:
        text = (
            f"Nothing was built. {kind} would be built on `{collection}`, over "
            f"{indexing.to_do:,} vectors."
        )
    else:
        text = f"`{collection}` has {kind} now; {indexing.to_do:,} vectors were added."
    print_object({**asdict(indexing), "dry_run": dry_run}, as_json=as_json, text=text)


def print_shadow(shadow: "Shadow", *, as_json: bool) -> None:
    """Prints how results would change."""
    text = (
        f"{shadow.queries:,} queries: of the first {shadow.k}, {shadow.overlap:.1%} stay; the "
        f"first result changes for {shadow.first_changed:.1%}; its cosine moves by "
        f"{shadow.score_shift:+.4f}. The database finds {shadow.old_recall:.1%} of the exact "
        f"results with old queries and {shadow.new_recall:.1%} with new ones."
    )
    print_object(asdict(shadow), as_json=as_json, text=text)


def print_standing(
    standing: "Standing", model: "Path", collection: str, share: float, *, as_json: bool
) -> None:
    """Prints whether a model may search a collection, how that is known, and what it lacks."""
    from nobackfill.gallery.status import in_percent

    may = standing.may_search and standing.verdict != "not compatible"
    text = f"{model} {'may' if may else 'should not'} search `{collection}`"
    text += (
        f": {standing.reason}."
        if standing.verdict == "itself"
        else (f" ({standing.in_words}): {standing.reason}.")
    )
    if standing.verdict in ("never measured", "undecided"):
        text += " Measure it with `nobackfill evaluate --declare`."
    if share < 1:
        text += f" It has {in_percent(share)} of the items only."
    facts = {"collection": collection, "may_search": standing.may_search}
    facts |= {"verdict": standing.verdict, "reason": standing.reason, "share": share}
    print_object(facts, as_json=as_json, text=text)


def print_doubt(standing: "Standing") -> None:
    """Warns on stderr that the served model was not measured to be compatible."""
    if not standing.is_sure:
        print_warning(
            f"the served model is not known to be compatible: {standing.in_words} "
            f"({standing.reason}). Measure it with `nobackfill evaluate --declare`."
        )


def print_route_warning(reason: str | None) -> None:
    """Warns on stderr that a rollback leads to a model that is declared not compatible by now."""
    if reason is not None:
        print_warning(
            f"this goes back to a model that is declared not to be compatible with "
            f"these vectors by now: {reason}. Another rollback or `nobackfill gallery switch` "
            f"serves something else."
        )


def print_route(
    route: "Route",
    main: str,
    share: float,
    *,
    dry_run: bool,
    as_json: bool,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Prints what is served now, or would be, and its share of the owner's collection `main`.

    `facts` are further ones for JSON.
    """
    names = ("collection", "query_space", "share")
    facts = {**{name: getattr(route, name) for name in names}, **(facts or {})}
    when = "Would be served" if dry_run else "Served from now on"
    text = f"{when}: {_served(route, main, share)}"
    print_object({**facts, "dry_run": dry_run}, as_json=as_json, text=text)


def print_further(route: "Route", *, as_json: bool) -> None:
    """Prints what one more rollback would serve."""
    if as_json:
        return
    if route.before is None:
        print_line("This was served at first: there is nothing further to go back to.")
    else:
        by = _queried_by(route.before.query_space)
        print_line(f"Another rollback would serve {route.before.collection}{by}.")


def _served(route: "Route", main: str, share: float) -> str:
    """Which collection is served to which model, and its share of the gallery."""
    from nobackfill.gallery.status import in_percent

    also = "" if share >= 1 else f": search `{main}` too (MixedGallery)"
    by = _queried_by(route.query_space)
    return f"{route.collection}{by}. It has {in_percent(share)} of the items{also}."


def _queried_by(query_space: str | None) -> str:
    return f", queried by {query_space}" if query_space else ""


def print_removed(key: str, collection: str, number: int, *, dry_run: bool, as_json: bool) -> None:
    """Prints how many vectors were removed, or would be; `key` is "removed" or "retired"."""
    kind, end = ("old", " for good") if key == "retired" else ("new", "")
    would = "would be" if dry_run else "are"
    text = f"{number:,} {kind} vectors of `{collection}` {would} removed{end}."
    facts = {"collection": collection, key: number, "dry_run": dry_run}
    print_object(facts, as_json=as_json, text=text)


def print_repairs(repairs: Sequence["Repair"], *, dry_run: bool, as_json: bool) -> None:
    """Prints each damaged note, what was done about it, and what remains unknown."""
    if as_json:
        emit({"repairs": [asdict(repair) for repair in repairs], "dry_run": dry_run})
        return
    if not repairs:
        print_line("Every note can be read: there is nothing to repair.")
    elif dry_run:
        print_line("Nothing was written. A repair would do this:")
    for repair in repairs:
        print_line(f"{repair.note}: {repair.problem}. Remedy: {repair.remedy}.")
    print_notes([f"unknown: {repair.unknown}" for repair in repairs if repair.unknown])


def print_log(entries: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """Prints who did what, earliest first: a line for each, with indented details."""
    if as_json:
        emit({"log": list(entries)})
        return
    if not entries:
        print_line("The log is empty.")
    for entry in entries:
        print_line(f"{_moment(entry['time'])}  {entry['action']} by {entry['by']}")
        for line in _log_lines(entry, console.width):
            print_line(line)


def _log_lines(entry: Mapping[str, Any], width: int) -> list[str]:
    """Details of a log entry; a name and its value stay on one line.

    Example:
        >>> entry = {"action": "backfill", "collection": "photos", "written": 90, "there": 10}
        >>> _log_lines(entry, 24)
        ['    photos: written 90,', '    there 10']
    """
    details = ", ".join(
        f"{name}{KEPT}{value}"
        for name, value in entry.items()
        if name not in ("time", "by", "action", "collection") and value is not None
    )
    wrapped = textwrap.wrap(
        ": ".join(str(part) for part in (entry.get("collection"), details) if part),
        width,
        initial_indent=INDENT,
        subsequent_indent=INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(KEPT, " ") for line in wrapped]


def _moment(time: str) -> str:
    """Formats a time of the log.

    Example:
        >>> _moment("2026-01-31T09:30:00.250+02:00")
        '2026-01-31 07:30:00.250 UTC'
    """
    moment = datetime.fromisoformat(time).astimezone(UTC)
    return f"{moment.replace(tzinfo=None).isoformat(sep=' ', timespec='milliseconds')} UTC"
