"""`nobackfill demo`."""

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
    from nobackfill.cli.output import print_demo
    from nobackfill.cli.progress import TrainingProgress, training_progress
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
    write_report(result, device=where)
    print_demo(result, as_json=json)
