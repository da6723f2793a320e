"""What `nobackfill evaluate` prints query by query."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from nobackfill.cli.output import console, interval_text

if TYPE_CHECKING:
    from nobackfill.evaluation.query_changes import Comparison, Flipped, Slice, Threshold

SHOWN = 20


@dataclass(frozen=True)
class Asked:
    """What a user wants to know beside the means.

    Attributes:
        slices: Columns whose worst values to tell.
        smallest: How many queries a slice must have.
        flips: List the queries that lose their hit in the top so many.
        false_accept: Thresholds at which this share of strangers passes.
    """

    slices: Sequence[str]
    smallest: int
    flips: int | None
    false_accept: float | None


def in_json(comparison: "Comparison", asked: Asked) -> dict[str, Any]:
    """What was asked for, as it goes into JSON."""
    found: dict[str, Any] = {}
    if asked.slices:
        found["slices"] = {
            column: [
                {**asdict(one), "difference": one.difference.summary()}
                for one in comparison.slices(column, smallest=asked.smallest)
            ]
            for column in asked.slices
        }
    if asked.flips is not None:
        found["flipped"] = [asdict(one) for one in comparison.flipped(asked.flips)]
        found["won"] = [asdict(one) for one in comparison.won(asked.flips)]
    if asked.false_accept is not None:
        found["thresholds"] = [asdict(one) for one in comparison.thresholds(asked.false_accept)]
    return found


def print_asked(comparison: "Comparison", asked: Asked) -> None:
    """Prints what was asked for."""
    for column in asked.slices:
        print_slices(column, comparison.slices(column, smallest=asked.smallest))
    if asked.flips is not None:
        k = asked.flips
        print_flips(k, comparison.flipped(k), comparison.won(k))
    if asked.false_accept is not None:
        print_thresholds(comparison.thresholds(asked.false_accept))


def print_slices(column: str, slices: "Sequence[Slice]") -> None:
    """Prints the worst values of a column."""
    console.print(f"\n{column}, the worst first:", markup=False)
    table = _table(column, "queries", "old/old", "new/old", "Δ (95 %)", "lost")
    for one in slices[:SHOWN]:
        table.add_row(
            escape(str(one.value)),
            f"{one.queries:,}",
            f"{100 * one.old_old:.1f}",
            f"{100 * one.new_old:.1f}",
            interval_text(one.difference.summary(), digits=1),
            f"{100 * one.lost:.0f} %",
        )
    console.print(table)
    if len(slices) > SHOWN:
        console.print(f"and {len(slices) - SHOWN} more; --json has all", style="dim")


def print_flips(k: int, flipped: "Sequence[Flipped]", won: "Sequence[Flipped]") -> None:
    """Prints the queries that lose most, with what they find."""
    console.print(
        f"\n{len(flipped):,} queries lose their hit in the top {k}, {len(won):,} win one."
    )
    for one in flipped[:SHOWN]:
        console.print(
            f"{one.query}: first hit {one.rank_before} → {one.rank_after or '–'}; "
            f"{', '.join(map(str, one.top_before))} → {', '.join(map(str, one.top_after))}",
            markup=False,
            soft_wrap=True,
        )
    if len(flipped) > SHOWN:
        console.print(f"and {len(flipped) - SHOWN} more; --json has all", style="dim")


def print_thresholds(thresholds: "Sequence[Threshold]") -> None:
    """Prints where the same share of strangers passes."""
    table = _table("query/gallery", "threshold", "strangers pass", "own class passes")
    for one in thresholds:
        table.add_row(
            one.pair.replace("_", "/"),
            f"{one.value:.4f}",
            f"{100 * one.false_accept:.3f} %",
            f"{100 * one.true_accept:.1f} %",
        )
    console.print()
    console.print(table)


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column(escape(first))
    for head in numbers:
        table.add_column(head, justify="right", no_wrap=True)
    return table
