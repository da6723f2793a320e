"""What a recipe asks to be trained, and in which order: a model, its old one, a sequence."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nobackfill.core.config import OldConfig, Recipe, read_sequence
from nobackfill.errors import ConfigError
from nobackfill.methods import METHODS
from nobackfill.training.resolve import resolve

SHARED = ("data.", "images.", "tests.")  # changes that old models are told too


@dataclass(frozen=True)
class Job:
    """One model to be trained.

    Attributes:
        name: For people.
        recipe: What it is told, with every default written out.
        folder: Where its run lives.
        is_asked_for: Whether it is what the user asked for, and not what that one needs first.
    """

    name: str
    recipe: Recipe
    folder: Path
    is_asked_for: bool = True


def plan_jobs(
    path: Path, output: Path, changes: Iterable[str] = (), *, above: tuple[Path, ...] = ()
) -> list[Job]:
    """The models that a recipe asks for, each after those that it needs.

    Args:
        path: Of the recipe.
        output: The run folder; of a sequence, the folder of its runs, `1`, `2`, ….
        changes: Such as `train.epochs=3`. Those of [data], [images] and [tests] are for old models
            too, which must be tested alike; those that name another old model, for the independent
            one.
        above: The recipes that need this one.
    """
    if path.resolve() in above:
        raise ConfigError(f"wanted an old model to begin with, but {path} needs itself.")
    above = (*above, path.resolve())
    changes = list(changes)
    recipes = read_sequence(path, changes)
    if len(recipes) > 1:
        return in_sequence(recipes, output)
    shared = [change for change in changes if change.startswith(SHARED)]
    recipe, first = recipes[0], list[Job]()
    old = recipe.old
    if old.recipe is not None:
        beside, needed = _needed(old.recipe, output, shared, above)
        first, old = needed, replace(old, recipe=None, run=str(beside))
    if old.independent_recipe is not None:
        told = [change for change in changes if change.startswith(("old.run=", "old.vectors="))]
        beside, needed = _needed(old.independent_recipe, output, [*shared, *told], above)
        there = {job.folder for job in first}
        if str(beside) == old.run:
            raise ConfigError(
                f"wanted an old and an independent model, but both recipes of {path} would be "
                f"trained in {beside}. Give the files other names."
            )
        first = [*first, *(job for job in needed if job.folder not in there)]
        old = replace(old, independent_recipe=None, independent=str(beside))
    return [*first, Job(recipe.method.name, resolve(replace(recipe, old=old)), output)]


def in_sequence(recipes: Sequence[Recipe], output: Path) -> list[Job]:
    """Models of which each is compatible with the one before."""
    jobs: list[Job] = []
    for number, recipe in enumerate(recipes, start=1):
        if recipe.old != OldConfig():
            raise ConfigError(
                f"wanted a sequence in which each model follows the one before, but model {number} "
                f"names an [old] of its own. Remove that."
            )
        if number > 1:
            recipe = replace(recipe, old=OldConfig(run=str(output / str(number - 1))))
        elif METHODS[recipe.method.name].needs if recipe.method.name in METHODS else False:
            raise ConfigError(
                f"wanted a first model that needs no old one, but [[sequence]] begins with "
                f'`{recipe.method.name}`. Begin with `method.name = "independent"`.'
            )
        name = f"{number} {recipe.method.name}"
        jobs.append(Job(name, resolve(recipe), output / str(number)))
    return jobs


def _needed(
    path: str, output: Path, changes: list[str], above: tuple[Path, ...]
) -> tuple[Path, list[Job]]:
    """What must be trained before, beside `output` and under its recipe's name; and where it is."""
    folder = output.parent / Path(path).stem
    if folder == output:
        raise ConfigError(
            f"wanted to train {Path(path).name} beside {output}, but that is the place of the new "
            f"model itself. Choose another name for this one."
        )
    jobs = plan_jobs(Path(path), folder, changes, above=above)
    if len(jobs) > 1 and jobs[-1].folder != folder:
        raise ConfigError(f"wanted the recipe of one old model, but {path} holds a sequence.")
    name = folder.name
    *before, last = (replace(job, is_asked_for=False) for job in jobs)
    return folder, [*before, replace(last, name=name)]
