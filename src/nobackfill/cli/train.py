"""`nobackfill train`."""

from pathlib import Path
from typing import Annotated

import typer

from nobackfill.cli.options import Device, Json, Keep, Workers


def train(
    recipe: Annotated[Path, typer.Argument(help="A TOML file; see recipes/.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The run folder to write.")],
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: --set train.epochs=3")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same as --set train.seed=…")] = None,
    resume: Annotated[bool, typer.Option(help="Go on where a stopped run ended.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, and stop.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write losses for TensorBoard, too.")
    ] = False,
    workers: Workers = None,
    keep: Keep = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Train a model from a recipe, after the old one that it names; or a sequence of them."""
    from nobackfill.cli.output import print_run
    from nobackfill.cli.progress import TrainingProgress, training_progress
    from nobackfill.cli.train_show_plan import print_plan, print_sequence
    from nobackfill.core import distributed
    from nobackfill.core.device import choose_device
    from nobackfill.training.dry_run import plan_job
    from nobackfill.training.jobs import plan_jobs
    from nobackfill.training.pipeline import decode_with, train_run
    from nobackfill.training.run import Run
    from nobackfill.training.sequence import summarize_sequence
    from nobackfill.training.tensorboard import with_tensorboard

    changes = [*(change or []), *([] if seed is None else [f"train.seed={seed}"])]
    jobs = plan_jobs(recipe, output, changes)
    decoding = decode_with(workers, keep=keep)
    if dry_run:
        print_plan([(job, plan_job(job, decoding=decoding)) for job in jobs], as_json=json)
        return
    where = choose_device(distributed.start(device))
    with training_progress(quiet=not distributed.is_main()) as progress:
        for job in jobs:
            bar = TrainingProgress(progress, job.name, job.recipe.train.epochs)
            epochs = train_run(
                job.recipe,
                job.folder,
                device=where,
                resume=resume or not job.is_asked_for,
                decoding=decoding,
                watch=bar.watch,
            )
            bar.follow(with_tensorboard(epochs, job.folder) if tensorboard else epochs)
    if not distributed.is_main():
        return
    if len(asked := [job for job in jobs if job.is_asked_for]) == 1:
        print_run(output, as_json=json)
        return
    runs = [Run.open(job.folder) for job in asked]
    with distributed.alone():
        print_sequence(
            output,
            summarize_sequence(output, runs, device=where, decoding=decoding),
            as_json=json,
        )
