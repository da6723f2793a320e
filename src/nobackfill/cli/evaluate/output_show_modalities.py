"""What `nobackfill evaluate --by-modality` prints."""

from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from nobackfill.cli.output import console, emit, interval_text

if TYPE_CHECKING:
    from nobackfill.evaluation.by_modality import ByModality

PAIRS = ("old_old", "new_old", "old_new", "new_new", "independent")
COLORS = {"compatible": "green", "not compatible": "red", "undecided": "yellow"}


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
    console.print(f"[{color}]{verdict}:[/] {escape(found.conclusion)}.", soft_wrap=True)


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
