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
class SpeedOptions:
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


def print_cases(options: SpeedOptions, *, as_json: bool) -> None:
    """Prints all cases that would be measured on the device."""
    planned = options.cases(kind_of(choose_device(options.device)))
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
        peer = case.peer if isinstance(case, Case) else case.description
        table.add_row(suite, case.name, in_words(case.size), peer)
    console.print(table)


def measure_and_print(options: SpeedOptions, *, only_render: bool, as_json: bool) -> None:
    """Measures the cases, prints each result and renders the page."""
    made, failed = list[Measured](), list[Measured]()
    if not only_render:
        import torch

        if options.threads is not None:
            torch.set_num_threads(options.threads)
        device = choose_device(options.device)
        planned = options.cases(kind_of(device))
        progress = Console(stderr=True, highlight=False, soft_wrap=True, quiet=is_quiet())
        began = monotonic()
        figures = measure_all(
            planned, device, options.output / LINES, repeats=options.repeats, limit=options.limit
        )
        for number, figure in enumerate(figures, start=1):
            left = duration(round((monotonic() - began) / number * (len(planned) - number)))
            progress.print(f"{number}/{len(planned)}  {in_one_line(figure)}  [dim]{left} left[/]")
            made += [figure] if figure.line is not None else []
            failed += [figure] if figure.error else []
    page = render_page(options.output)
    for figure in failed:
        print(f"{figure.suite}, {figure.case.name}\n{figure.error}", file=sys.stderr)
    if failed:
        raise RunsFailed(
            f"{len(failed)} of {len(made) + len(failed)} cases failed; the others are in "
            f"{options.output / LINES}. Fix the errors above and run the same command again."
        )
    print_object(
        {"figures": [figure.line for figure in made], "results": str(page)},
        as_json=as_json,
        text=f"{len(made)} figures measured; all are in {page}",
    )


def in_one_line(measured: Measured) -> str:
    """Describes a measurement in one line."""
    case, line = measured.case, measured.line
    name = escape(f"{measured.suite}  {case.name}  {in_words(case.size)}")
    if measured.error:
        return f"{name}  [red]failed[/]: {escape(measured.error.strip().splitlines()[-1])}"
    if line is None:
        return f"{name}  [dim]skipped: {escape(measured.skipped)}[/]"
    if "found" in line:
        return f"{name}  {finding(line['found'])}"
    targets = [f"{text} {'met' if met else 'missed'}" for text, met in targets_of(line)]
    return (
        f"{name}  {line['counts']} [bold]{line['ratio']:.3g}[/] "
        f"({line['lowest']:.3g} to {line['highest']:.3g}), {time(line['ours_s'])} and "
        f"{time(line['peer_s'])}, {line['held_mb'] + line['added_mb']:,.0f} MB"
        + (f"  [dim]{', '.join(targets)}[/]" if targets else "")
    )
