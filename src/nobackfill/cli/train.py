"""`nobackfill train` and its output."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from nobackfill.cli.options import Device, Json, Keep, Workers, names_in
from nobackfill.cli.output import console, emit, print_line, print_object, print_page, print_table
from nobackfill.core.console import visible

PAIRS = "Pairs of texts"  # heading of their options in the help

if TYPE_CHECKING:
    from nobackfill.core.config import Recipe
    from nobackfill.training.dry_run import Plan
    from nobackfill.training.jobs import Job
    from nobackfill.training.sequence import SequenceSummary


def train(
    recipe: Annotated[
        Path | None, typer.Argument(help="Recipe (a TOML file); see recipes/. Or pass --pairs.")
    ] = None,
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="Run folder to write.")],
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: --set train.epochs=3")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Random seed; the same as --set train.seed=…")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Continue a stopped run.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be trained, and stop.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write the losses for TensorBoard.")
    ] = False,
    pairs: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=PAIRS,
            help="Fine-tune a text model on this file of pairs (.jsonl, .csv, .tsv, .parquet): "
            "query and document, and perhaps negatives.",
        ),
    ] = None,
    old_model: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=PAIRS, help="Model of the stored vectors: folder, or name on the hub."
        ),
    ] = None,
    new_model: Annotated[
        str | None,
        typer.Option(rich_help_panel=PAIRS, help="Model to fine-tune. Default: the old model."),
    ] = None,
    old_vectors: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=PAIRS,
            help="Old vectors of the documents by id. Default: the old model embeds.",
        ),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(rich_help_panel=PAIRS, help="File of id and text, if the pairs are ids."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=PAIRS,
            help="contrast (default), ndpp, odpp, frozen_documents or distillation.",
            autocompletion=names_in("methods.pairs:PAIR_METHODS"),
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(rich_help_panel=PAIRS, help="Epochs, by default 1.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(rich_help_panel=PAIRS, help="Pairs of a batch, by default 64.")
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(rich_help_panel=PAIRS, help="Highest rate of AdamW, by default 4e-5."),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(rich_help_panel=PAIRS, help="Tokens at which texts are cut.")
    ] = None,
    held_out: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=PAIRS, help="Share of the pairs kept for the verdict, by default 0.1."
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=PAIRS, help="Stop training after this time; --resume continues."
        ),
    ] = None,
    workers: Workers = None,
    keep: Keep = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Train a recipe, or fine-tune a text model on pairs (--pairs), and evaluate the upgrade."""
    from nobackfill.cli.train_pairs import check_options, settings_of, train_pairs

    of_pairs = {
        "--old-model": old_model,
        "--new-model": new_model,
        "--old-vectors": old_vectors,
        "--texts": texts,
        "--method": method,
        "--epochs": epochs,
        "--batch-size": batch_size,
        "--learning-rate": learning_rate,
        "--max-tokens": max_tokens,
        "--held-out": held_out,
        "--seconds": seconds,
    }
    of_recipes = {
        "--set": change,
        "--dry-run": dry_run,
        "--tensorboard": tensorboard,
        "--workers": workers,
        "--keep-images": keep,
    }
    check_options(recipe, pairs, of_pairs, of_recipes)
    if pairs is not None:
        settings = settings_of(pairs, {**of_pairs, "--seed": seed})
        train_pairs(settings, output, resume=resume, seconds=seconds, device=device, as_json=json)
        return
    assert recipe is not None  # checked above
    train_recipe(
        recipe,
        output,
        [*(change or []), *([] if seed is None else [f"train.seed={seed}"])],
        resume=resume,
        dry_run=dry_run,
        tensorboard=tensorboard,
        workers=workers,
        keep=keep,
        device=device,
        as_json=json,
    )


def train_recipe(
    recipe: Path,
    output: Path,
    changes: list[str],
    *,
    resume: bool,
    dry_run: bool,
    tensorboard: bool,
    workers: int | None,
    keep: bool,
    device: str,
    as_json: bool,
) -> None:
    """Trains the models of a recipe, and prints the result."""
    from nobackfill.cli.progress import TrainingProgress, doing, training_progress
    from nobackfill.core import distributed
    from nobackfill.core.device import choose_device
    from nobackfill.training.decoding import choose_decoding
    from nobackfill.training.dry_run import plan_job
    from nobackfill.training.jobs import plan_jobs
    from nobackfill.training.pipeline import train_run
    from nobackfill.training.run import Run
    from nobackfill.training.sequence import summarize_sequence
    from nobackfill.training.tensorboard import with_tensorboard

    # List the models to train.
    jobs = plan_jobs(recipe, output, changes)
    decoding = choose_decoding(workers, keep=keep)
    if dry_run:
        print_plan([(job, plan_job(job, decoding=decoding)) for job in jobs], as_json=as_json)
        return

    # Train them, each after those that it needs.
    where = choose_device(distributed.start(device))
    with training_progress(is_main=distributed.is_main()) as progress:
        for job in jobs:
            bar = TrainingProgress(progress, job.name, job.recipe.train.epochs)
            epochs = train_run(
                job.recipe,
                job.folder,
                device=where,
                resume=resume or not job.is_requested,
                decoding=decoding,
                watch=bar.watch,
            )
            bar.follow(with_tensorboard(epochs, job.folder) if tensorboard else epochs)

    # Print the result of the model, or of the sequence.
    if not distributed.is_main():
        return
    if len(requested := [job for job in jobs if job.is_requested]) == 1:
        print_run(output, as_json=as_json)
        return
    runs = [Run.open(job.folder) for job in requested]
    with distributed.single_process(), doing("evaluating the sequence"):
        summary = summarize_sequence(output, runs, device=where, decoding=decoding)
    print_sequence(output, summary, as_json=as_json)


def print_run(folder: Path, *, as_json: bool) -> None:
    """Prints the result of a training run."""
    from nobackfill.evaluation.summary_file import read_summary
    from nobackfill.evaluation.verdict import over_directions, run_sentence
    from nobackfill.report.pages.expected import expected_table

    path = folder / "evaluation.json"
    result = over_directions(read_summary(path)) if path.exists() else None
    text = f"The model is in {folder}."
    if result and "verdict" in result:
        text += f" {run_sentence(result)}"
    print_object({"run": str(folder), "evaluation": result}, as_json=as_json, text=text)
    if result and "expected" in result and not as_json:
        print_line(f"Expected ({result['expected']['source']}) and measured:")
        print_table(expected_table(result["expected"]["rows"]))


def print_sequence(folder: Path, summary: "SequenceSummary", *, as_json: bool) -> None:
    """Prints the compatibility matrix of a sequence."""
    from nobackfill.report.pages.sequence import sequence_page

    page = sequence_page(summary, title=folder.name)
    print_page(page, {"run": str(folder), **summary.to_json()}, as_json=as_json)
    if not as_json:
        print_line(f"The models are in {folder}; the matrix is in {folder / 'sequence.json'}.")


def print_plan(plans: Sequence[tuple["Job", "Plan"]], *, as_json: bool) -> None:
    """Prints the data, model, steps and memory of each training."""
    from nobackfill.core.config import to_toml

    if as_json:
        jobs = [{**plan.summary(), "recipe": to_toml(job.recipe)} for job, plan in plans]
        emit({"jobs": jobs})
        return
    for job, plan in plans:
        title = Text(f"\n{visible(plan.name)}", "bold")
        title.append(visible(f" → {plan.folder}"), "not bold")
        if plan.is_there:
            title.append(" (finished)", "not bold green")
        console.print(title, soft_wrap=True)
        facts = Table(box=None, padding=(0, 2, 0, 2), show_header=False)
        facts.add_column(style="dim", no_wrap=True)
        facts.add_column()
        for name, text, style in _facts(job.recipe, plan):
            facts.add_row(name, Text(visible(text), style))
        console.print(facts)


def _facts(recipe: "Recipe", plan: "Plan") -> Iterator[tuple[str, str, str]]:
    """Yields the name, text and style of each line of a plan."""
    yield "data", _data(recipe.data.name, plan), ""
    for difference in plan.differences:
        yield "", difference, "yellow"
    if plan.problem:
        yield "", plan.problem, "red"
    options = recipe.model.options
    architecture = options.get("architecture") or options.get("target")
    model = f"{recipe.model.name} {architecture}" if architecture else recipe.model.name
    yield "model", f"{model}, {plan.parameters:,} parameters", ""
    yield "method", recipe.method.name, ""
    if plan.steps:
        steps = (
            f"{plan.steps['in_all']:,}: {recipe.train.epochs} epochs of "
            f"{plan.steps['each_epoch']:,}, {recipe.train.batch_size} images each"
        )
        yield "steps", steps, ""
    if plan.highest_rate is not None:
        of = f" of {plan.learning_rate:g}" if plan.highest_rate < plan.learning_rate else ""
        yield "highest rate", f"{plan.highest_rate:.3g}{of}", ""
    if plan.rate_warning:
        yield "", plan.rate_warning, "yellow"
    sizes = ", ".join(f"{_bytes(size)} {use}" for use, size in plan.memory.items() if size)
    yield "memory", f"about {_bytes(sum(plan.memory.values()))}: {sizes}", ""
    for part in plan.old:
        yield "old model", part, ""
    if source := recipe.expected.get("source"):
        skipped = ("source", "train_images", "train_classes", "train_texts")
        results = [f"{key} {value}" for key, value in recipe.expected.items() if key not in skipped]
        yield "expected", f"{source}: {', '.join(results)}", ""


def _data(name: str, plan: "Plan") -> str:
    """Returns one line about the training and test data."""
    if not plan.counts:
        expected = ", ".join(f"{count:,} {key}" for key, count in plan.expected.items())
        return f"{name}: not counted{f' (expected: {expected})' if expected else ''}"
    searched = [
        f"{count:,} searched{key.removeprefix('searched').replace('_', ' in ')}"
        for key, count in plan.counts.items()
        if key.startswith("searched") and count
    ]
    counted = f"{plan.counts['train_images']:,} images of {plan.counts['train_classes']:,} classes"
    if "train_texts" in plan.counts:
        counted += f" with {plan.counts['train_texts']:,} texts"
    agrees = " as expected" if plan.expected and not plan.differences else ""
    return f"{name}: {counted}{agrees}; {', '.join(searched) or 'nothing searched'}"


def _bytes(size: float | int) -> str:
    """Formats a number of bytes.

    Example:
        >>> [_bytes(size) for size in (999, 1000, 2.54e6, 1e9)]
        ['999 B', '1 kB', '3 MB', '1.0 GB']
    """
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
