"""`nobackfill train --pairs`: fine-tuning of a text model on pairs, and its output."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nobackfill.cli.exit_codes import UNDECIDED
from nobackfill.cli.output import print_object

if TYPE_CHECKING:
    from nobackfill.integrations.text_folder import TextRunSettings


def check_options(
    recipe: Path | None,
    pairs: Path | None,
    of_pairs: Mapping[str, object],
    of_recipes: Mapping[str, object],
) -> None:
    """Raises unless there is a recipe or a file of pairs, with the options of that one.

    Args:
        recipe: Recipe, if one was passed.
        pairs: File of pairs, if one was passed.
        of_pairs: Values of the options that belong to pairs; None if not passed.
        of_recipes: Values of the options that belong to recipes.
    """
    from nobackfill.errors import ConfigError

    if recipe is None and pairs is None:
        raise ConfigError(
            "There is nothing to train on. Pass a recipe, or a file of pairs by --pairs."
        )
    if recipe is not None and pairs is not None:
        raise ConfigError(
            f"A recipe ({recipe}) and --pairs are two ways to train. Leave one of them out."
        )
    other, kind = (of_pairs, "--pairs") if pairs is None else (of_recipes, "recipes")
    if passed := [name for name, value in other.items() if value not in (None, False)]:
        raise ConfigError(f"{passed[0]} is an option of {kind}. Leave it out.")
    if pairs is not None and of_pairs["--old-model"] is None:
        raise ConfigError(
            "--old-model is missing. Pass the model of the stored vectors: a folder, or a name."
        )


def settings_of(pairs: Path, passed: Mapping[str, Any]) -> "TextRunSettings":
    """The settings of the options that were passed, and the defaults of the others."""
    from dataclasses import fields

    from nobackfill.integrations.text_folder import TextRunSettings
    from nobackfill.integrations.text_training import TextTraining

    given: dict[str, Any] = {
        name.removeprefix("--").replace("-", "_"): str(value) if isinstance(value, Path) else value
        for name, value in passed.items()
        if value is not None and name != "--seconds"
    }
    own = {entry.name for entry in fields(TextTraining)}
    training = TextTraining(**{name: given.pop(name) for name in list(given) if name in own})
    return TextRunSettings(str(pairs), training=training, **given)


def train_pairs(
    settings: "TextRunSettings",
    output: Path,
    *,
    resume: bool,
    seconds: float | None,
    device: str,
    as_json: bool,
) -> None:
    """Trains, and prints the result; exits with 3 if the time was over before."""
    from nobackfill.cli.progress import doing
    from nobackfill.core.device import choose_device
    from nobackfill.evaluation.verdict import run_sentence
    from nobackfill.integrations.text_folder import MODEL
    from nobackfill.integrations.text_run import train_on_pairs

    with doing("preparing") as show_step:
        result = train_on_pairs(
            settings,
            output,
            resume=resume,
            seconds=seconds,
            device=choose_device(device),
            watch=show_step,
        )
    if result is None:
        text = f"Stopped after {seconds:g} s. Run the same command with --resume to continue."
        print_object({"run": str(output), "evaluation": None}, as_json=as_json, text=text)
        raise typer.Exit(UNDECIDED)
    text = f"The model is in {output / MODEL}. {run_sentence(result)}"
    print_object({"run": str(output), "evaluation": result}, as_json=as_json, text=text)
