"""Output of `nobackfill evaluate` beside its main table: queries, slices, modalities."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from nobackfill.cli.output import console, emit, interval_text

if TYPE_CHECKING:
    from nobackfill.evaluation.by_modality import ByModality
    from nobackfill.evaluation.query_changes import Comparison, Flipped, Slice, Threshold

PAIRS = ("old_old", "new_old", "old_new", "new_new", "independent")
COLORS = {"compatible": "green", "not compatible": "red", "undecided": "yellow"}


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


def print_modalities(found: "ByModality", *, as_json: bool) -> None:
    """Prints a row for each direction, the verdicts, the gap, and what to conclude."""
    summary = found.summary()
    if as_json:
        emit(summary)
        return
    directions = summary["directions"]
    for metrics in (
        {"map": "mAP", "recall_at_1": "R@1"},
        {"recall_at_5": "R@5", "recall_at_10": "R@10"},
    ):
        console.print(_numbers(directions, metrics))
        console.print()
    console.print(_verdicts(directions))
    console.print()
    for pair in found.gap_pairs:
        console.print(pair.sentence, markup=False, soft_wrap=True)
    for note in summary["notes"]:
        console.print(f"Note: {note}.", style="yellow", markup=False, soft_wrap=True)
    color, verdict = COLORS[found.verdict], found.verdict.capitalize()
    console.print(f"[{color}]{verdict}:[/] {escape(found.conclusion)}", soft_wrap=True)


def _numbers(directions: dict[str, Any], metrics: dict[str, str]) -> Table:
    """Two numbers of every pair, in percent."""
    measured = [
        pair
        for pair in PAIRS
        if pair != "independent" or any(pair in one["metrics"] for one in directions.values())
    ]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("direction", no_wrap=True)
    for pair in measured:
        name = pair if pair == "independent" else pair.replace("_", "/")
        heads = " ".join(f"{head:>5}" for head in metrics.values())
        table.add_column(f"{name}\n{heads}", justify="right", no_wrap=True)
    for name, one in directions.items():
        cells = [
            " ".join(f"{100 * one['metrics'][pair][key]:5.1f}" for key in metrics)
            if pair in one["metrics"]
            else "–"
            for pair in measured
        ]
        table.add_row(escape(name.replace("_", " ")), *cells)
    return table


def _verdicts(directions: dict[str, Any]) -> Table:
    """What the day of the upgrade brings in each direction."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("new/old − old/old", no_wrap=True)
    table.add_column("mAP (95 %)", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("queries", justify="right", no_wrap=True)
    table.add_column("gallery", justify="right", no_wrap=True)
    for name, one in directions.items():
        table.add_row(
            escape(name.replace("_", " ")),
            interval_text(one["differences"]["new_old - old_old"]),
            f"[{COLORS[one['verdict']]}]{one['verdict']}",
            f"{one['num_queries']:,}",
            f"{one['num_gallery']:,}",
        )
    return table
