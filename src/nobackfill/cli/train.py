"""`nobackfill train`."""

from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.options import Device, Json


def train(
    recipe: Annotated[Path, typer.Argument(help="A TOML file; see recipes/.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The run folder to write.")],
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: --set train.epochs=3")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same as --set train.seed=…")] = None,
    resume: Annotated[bool, typer.Option(help="Go on where a stopped run ended.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the recipe with every default, and stop.")
    ] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Train a model from a recipe; against an old one if the recipe names it."""
    from dataclasses import asdict

    from nobackfill.cli.progress import TrainingProgress, training_progress
    from nobackfill.cli.show import print_object, print_run
    from nobackfill.config import read_recipe, to_toml
    from nobackfill.train.run import resolve
    from nobackfill.upgrade import choose_device, train_run

    changes = [*(change or []), *([] if seed is None else [f"train.seed={seed}"])]
    settings = resolve(read_recipe(recipe, changes))
    if dry_run:
        print_object(asdict(settings), as_json=json, text=to_toml(settings))
        return
    with training_progress() as progress:
        bar = TrainingProgress(progress, settings.method.name, settings.train.epochs)
        where = choose_device(device)
        bar.follow(train_run(settings, output, device=where, resume=resume, watch=bar.watch))
    print_run(output, as_json=json)
