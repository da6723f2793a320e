"""Output of `nobackfill bench speed`: cases, progress, path of the page."""

import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nobackfill.cli.output import console, emit, print_object
from nobackfill.cli.quiet import is_quiet
from nobackfill.core.device import choose_device
from nobackfill.core.numbers import duration
from nobackfill.errors import RunsFailed
from nobackfill_bench.speed import SPEED_SUITES, Case, Finding
from nobackfill_bench.speed.case import in_words
from nobackfill_bench.speed.page import finding, render_page, targets_of, time
from nobackfill_bench.speed.runner import LINES, Measured, kind_of, measure_all, plan_cases


@dataclass(frozen=True)
class AskedSpeed:
    """Options of the command."""

    suites: tuple[str, ...]
    only: tuple[str, ...]
    repeats: int
    large: bool
    limit: float | None
    threads: int | None
    output: Path
    device: str

    def cases(self, kind: Any) -> list[tuple[str, Case | Finding]]:
        """Returns the cases to measure on a kind of device."""
        return plan_cases(SPEED_SUITES, self.suites, kind, only=self.only, large=self.large)


def print_cases(asked: AskedSpeed, *, as_json: bool) -> None:
    """Prints all cases that would be measured on the device."""
    planned = asked.cases(kind_of(choose_device(asked.device)))
    if as_json:
        emit(
            {
                "cases": [
                    {"suite": suite, "case": case.name, "size": dict(case.size)}
                    for suite, case in planned
                ]
            }
        )
        return
    table = Table(box=None, header_style="bold")
    for head in ("suite", "case", "size", "compared with"):
        table.add_column(head)
    for suite, case in planned:
        peer = case.peer if isinstance(case, Case) else case.says
        table.add_row(suite, case.name, in_words(case.size), peer)
    console.print(table)


def measure_and_print(asked: AskedSpeed, *, only_render: bool, as_json: bool) -> None:
    """Measures the cases, prints each result and renders the page."""
    made, failed = list[Measured](), list[Measured]()
    if not only_render:
        import torch

        if asked.threads is not None:
            torch.set_num_threads(asked.threads)
        device = choose_device(asked.device)
        planned = asked.cases(kind_of(device))
        progress = Console(stderr=True, highlight=False, soft_wrap=True, quiet=is_quiet())
        began = monotonic()
        figures = measure_all(
            planned, device, asked.output / LINES, repeats=asked.repeats, limit=asked.limit
        )
        for number, figure in enumerate(figures, start=1):
            left = duration(round((monotonic() - began) / number * (len(planned) - number)))
            progress.print(f"{number}/{len(planned)}  {in_one_line(figure)}  [dim]{left} left[/]")
            made += [figure] if figure.line is not None else []
            failed += [figure] if figure.error else []
    page = render_page(asked.output)
    for figure in failed:
        print(f"{figure.suite}, {figure.case.name}\n{figure.error}", file=sys.stderr)
    if failed:
        raise RunsFailed(
            f"{len(failed)} of {len(made) + len(failed)} cases failed; the others are in "
            f"{asked.output / LINES}. Fix the errors above and run the same command again."
        )
    print_object(
        {"figures": [figure.line for figure in made], "results": str(page)},
        as_json=as_json,
        text=f"{len(made)} figures measured; all are in {page}",
    )


def in_one_line(one: Measured) -> str:
    """Describes a measurement in one line."""
    said = escape(f"{one.suite}  {one.case.name}  {in_words(one.case.size)}")
    if one.error:
        return f"{said}  [red]failed[/]: {escape(one.error.strip().splitlines()[-1])}"
    if one.line is None:
        return f"{said}  [dim]skipped: {escape(one.skipped)}[/]"
    line = one.line
    if "found" in line:
        return f"{said}  {finding(line['found'])}"
    targets = [f"{text} {'met' if met else 'missed'}" for text, met in targets_of(line)]
    return (
        f"{said}  {line['counts']} [bold]{line['ratio']:.3g}[/] "
        f"({line['lowest']:.3g} to {line['highest']:.3g}), {time(line['ours_s'])} and "
        f"{time(line['peer_s'])}, {line['held_mb'] + line['added_mb']:,.0f} MB"
        + (f"  [dim]{', '.join(targets)}[/]" if targets else "")
    )
