"""Recipes of the suites that train models."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import nobackfill
from nobackfill.core.config import (
    OldConfig,
    Recipe,
    build_recipe,
    change_tables,
    read_recipe,
    read_sequence,
)
from nobackfill.errors import DataError
from nobackfill.training.demo import demo_recipe
from nobackfill_bench.quality.features import OMNIGLOT
from nobackfill_bench.quality.suite import folder_of


def glyphs(
    name: str, old_run: Path, *, seed: int, data: Path | None, changes: Iterable[str] = ()
) -> Recipe:
    """Returns a recipe of the demo; each seed has its own glyphs."""
    return demo_recipe(name, old_run, seed=seed, changes=changes)


def omniglot_upgrade(share: float) -> Any:
    """Returns the recipes of Omniglot from a share of the characters to all of them."""

    def recipe(
        name: str, old_run: Path, *, seed: int, data: Path | None, changes: Iterable[str] = ()
    ) -> Recipe:
        return omniglot_recipe(
            name, old_run, seed=seed, data=data, shares=[share, 1.0],
            step=0 if name == "old" else 1, changes=changes,
        )  # fmt: skip

    return recipe


def omniglot_sequence(
    name: str,
    old_run: Path,
    *,
    seed: int,
    data: Path | None,
    step: int,
    changes: Iterable[str] = (),
) -> Recipe:
    """Returns a recipe of Omniglot with 10 %, 30 % and all of the characters."""
    return omniglot_recipe(
        name, old_run, seed=seed, data=data, shares=[0.1, 0.3, 1.0], step=step, changes=changes
    )


def omniglot_recipe(
    name: str,
    old_run: Path,
    *,
    seed: int,
    data: Path | None,
    shares: list[float],
    step: int,
    changes: Iterable[str],
) -> Recipe:
    """Returns a recipe of ResNet-18 from scratch; old models use smaller batches, more epochs."""
    is_old = name == "old"
    tables: dict[str, Mapping[str, Any]] = {
        "data": {
            "name": OMNIGLOT,
            "path": str(folder_of(data) / "omniglot"),
            "kept": str(folder_of(data) / "omniglot_35.npy"),
            "shares": shares,
            "seed": seed,
        },
        "model": {"name": "timm", "architecture": "resnet18", "channels": 1, "embedding_dim": 256},
        "method": {"name": "independent" if is_old else name},
        "old": {} if is_old else {"run": str(old_run)},
        "train": {
            "step": step,
            "epochs": 60 if is_old else 30,
            "batch_size": 64 if is_old else 256,
            "learning_rate": 0.1,
            "schedule": "cosine",
            "seed": seed,
        },
    }
    return build_recipe(change_tables(tables, changes))


def from_recipes(folder: str, *own: str, new: Sequence[str] = ()) -> Any:
    """Returns the recipes of a folder with any method.

    Args:
        folder: Folder below that of all recipes.
        own: Changes of a suite.
        new: Changes of the new models alone.
    """

    def recipe(
        name: str, old_run: Path, *, seed: int, data: Path | None, changes: Iterable[str] = ()
    ) -> Recipe:
        is_old = name == "old"
        path = recipes_folder() / folder / f"{'old' if is_old else 'independent'}.toml"
        settings = [
            *own,
            f"data.seed={seed}",
            f"train.seed={seed}",
            *([] if is_old else [*new, f"method.name={name}"]),
        ]
        recipe = read_recipe(path, [*settings, *changes])
        recipe = replace(recipe, data=below(recipe.data, data))
        recipe = replace(
            recipe, tests={key: below(config, data) for key, config in recipe.tests.items()}
        )
        run = recipe.old.run if recipe.old.run is not None else None if is_old else str(old_run)
        old = OldConfig(run=run, independent=recipe.old.independent)
        model, text = below(recipe.model, data, key="weights"), below(recipe.text, data)
        return replace(recipe, model=model, text=text, old=old)

    return recipe


def from_sequence(folder: str) -> Any:
    """Returns the recipes of a folder's sequence with any method."""

    def recipe(
        name: str,
        old_run: Path,
        *,
        seed: int,
        data: Path | None,
        step: int,
        changes: Iterable[str] = (),
    ) -> Recipe:
        is_old = name == "old"
        path = recipes_folder() / folder / "prototype_alignment.toml"
        settings = [f"data.seed={seed}", f"train.seed={seed}"]
        settings += [] if is_old else [f"method.name={name}"]
        recipe = read_sequence(path, [*settings, *changes])[step]
        old = OldConfig(run=None if is_old else str(old_run))
        return replace(recipe, data=below(recipe.data, data), old=old)

    return recipe


def below(choice: Any, data: Path | None, *, key: str = "path") -> Any:
    """Returns the choice with its relative path below the data folder."""
    named = None if choice is None else choice.options.get(key)
    if data is None or not named or Path(named).is_absolute():
        return choice
    return replace(choice, options={**choice.options, key: str(data / named)})


def recipes_folder() -> Path:
    """Returns the folder of the recipes: in the installed package or the repository."""
    package = Path(nobackfill.__file__).parent
    for folder in (package / "recipes", package.parents[1] / "recipes"):
        if folder.is_dir():
            return folder
    raise DataError(f"No recipes in {package / 'recipes'}. Install nobackfill again.")
