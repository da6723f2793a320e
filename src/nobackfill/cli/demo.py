"""`nobackfill demo` and its output."""

from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.options import Device, Json, Seed


def demo(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for the runs and the report.")
    ] = Path("demo"),
    device: Device = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train six small models on built-in data and see what an upgrade without backfill gains."""
    from dataclasses import replace

    from nobackfill.cli.output import print_page
    from nobackfill.cli.progress import TrainingProgress, doing, training_progress
    from nobackfill.core.device import choose_device
    from nobackfill.report.pages.demo import write_report
    from nobackfill.training.demo import run_demo

    where = choose_device(device)
    with training_progress() as progress:
        result = run_demo(
            output,
            device=where,
            seed=seed,
            show=lambda name, epochs: TrainingProgress(progress, name, epochs),
        )
    with doing("writing the report"):
        page = write_report(result, device=where)
    numbers = replace(page, sections=page.sections[:1])
    print_page(numbers, result.summary(), as_json=json, report=result.report)
