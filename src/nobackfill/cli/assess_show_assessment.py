"""What `nobackfill assess` prints."""

from typing import TYPE_CHECKING

from rich.table import Table

from nobackfill.cli.output import console, emit, interval_text

if TYPE_CHECKING:
    from nobackfill.head.assess.assess import Verdict

COLORS = {0: "green", 1: "red", 3: "yellow"}


def print_verdict(verdict: "Verdict", *, as_json: bool) -> None:
    """Prints every way that was tried, then what to do."""
    if as_json:
        emit(verdict.summary())
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    for head in ("mAP", "gain (95 %)", "new model adds"):
        table.add_column(head, justify="right", no_wrap=True)
    for one in verdict.candidates:
        table.add_row(
            f"{one.name} *" if one.name == verdict.chosen else one.name,
            f"{100 * one.test:.2f}",
            interval_text(one.gain.summary()) if one.gain.mean else "",
            f"{100 * one.added.mean:+.2f}" if one.uses_new else "",
            style="bold" if one.name == verdict.chosen else "",
        )
    console.print(table)
    counts = verdict.counts
    console.print(
        f"On {counts['test_queries']:,} queries of {counts['test_classes']:,} test classes; * was "
        f"chosen on {counts['validation_classes']:,} others, after fitting on "
        f"{counts['fitted_classes']:,}. “new model adds”: what is gained beyond a head on the old "
        f"vectors alone. The best of queries could find about {100 * verdict.headroom:.1f} in the "
        f"stored vectors.",
        style="dim",
        soft_wrap=True,
    )
    for note in (*verdict.notes, verdict.advice):
        console.print(f"Note: {note}.", style="yellow", markup=False, soft_wrap=True)
    color = COLORS[verdict.exit_code]
    console.print(f"[{color}]{verdict.verdict.capitalize()}:[/] {verdict.reason}", soft_wrap=True)
