"""Lists the models that a recipe trains, in order: a model after its old one, or a sequence."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nobackfill.core.config import OldConfig, Recipe, read_sequence
from nobackfill.errors import ConfigError
from nobackfill.methods import METHODS
from nobackfill.training.resolve import resolve

SHARED = ("data.", "images.", "tests.")  # changes that apply to old models too


@dataclass(frozen=True)
class Job:
    """One model to train: display name, recipe as returned by `resolve`, and run folder."""

    name: str
    recipe: Recipe
    folder: Path
    is_requested: bool = True  # False if another model needs this one first


def plan_jobs(
    path: Path, output: Path, changes: Iterable[str] = (), *, above: tuple[Path, ...] = ()
) -> list[Job]:
    """Lists the models that a recipe requires, each after those that it needs.

    Args:
        path: Recipe file.
        output: Run folder; for a sequence, the folder of its runs `1`, `2`, ….
        changes: Changed settings, such as `train.epochs=3`. Those of [data], [images] and [tests]
            also apply to old models, and those that name an old model to the independent model.
        above: Recipes that need this one.
    """
    if path.resolve() in above:
        raise ConfigError(f"{path} names itself as an old model. Name another recipe in [old].")
    above = (*above, path.resolve())
    changes = list(changes)
    recipes = read_sequence(path, changes)
    shared = [change for change in changes if change.startswith(SHARED)]
    if len(recipes) > 1:
        return _plan_sequence(recipes, output, shared, above)
    recipe, first = recipes[0], list[Job]()
    old = recipe.old

    # Train the old model first.
    if old.recipe is not None:
        folder, first = _plan_first(old.recipe, output, shared, above)
        old = replace(old, recipe=None, run=str(folder))

    # Then the independent model, without training a common old model twice.
    if old.independent_recipe is not None:
        shared += [change for change in changes if change.startswith(("old.run=", "old.vectors="))]
        folder, jobs = _plan_first(old.independent_recipe, output, shared, above)
        if str(folder) == old.run:
            raise ConfigError(
                f"The old and the independent recipe of {path} would both be trained in {folder}. "
                f"Rename one of the files."
            )
        planned = {job.folder for job in first}
        first = [*first, *(job for job in jobs if job.folder not in planned)]
        old = replace(old, independent_recipe=None, independent=str(folder))
    return [*first, Job(recipe.method.name, resolve(replace(recipe, old=old)), output)]


def _plan_sequence(
    recipes: Sequence[Recipe], output: Path, shared: list[str], above: tuple[Path, ...]
) -> list[Job]:
    """Lists models that are each compatible with the previous one, after their independent ones."""
    jobs: list[Job] = []
    for number, recipe in enumerate(recipes, start=1):
        own = recipe.old
        if replace(own, independent=None, independent_recipe=None) != OldConfig() or (
            number == 1 and own != OldConfig()
        ):
            raise ConfigError(
                f"Model {number} of the sequence has an [old] table, but the old model of each is "
                f"the previous one. Remove the table; only `independent` and `independent_recipe` "
                f"of a later model are allowed."
            )
        if number > 1:
            old = OldConfig(run=str(output / str(number - 1)), independent=own.independent)
            if own.independent_recipe is not None:
                folder, first = _plan_first(own.independent_recipe, output, shared, above)
                jobs += first
                old = replace(old, independent=str(folder))
            recipe = replace(recipe, old=old)
        elif recipe.method.name in METHODS and METHODS[recipe.method.name].needs:
            raise ConfigError(
                f"The first model of [[sequence]] has no old model, but `{recipe.method.name}` "
                f'needs one. Begin with `method.name = "independent"`.'
            )
        name = f"{number} {recipe.method.name}"
        jobs.append(Job(name, resolve(recipe), output / str(number)))
    return jobs


def _plan_first(
    path: str, output: Path, changes: list[str], above: tuple[Path, ...]
) -> tuple[Path, list[Job]]:
    """Lists the jobs of a recipe that must be trained first; returns its run folder too."""
    folder = output.parent / Path(path).stem
    if folder == output:
        raise ConfigError(
            f"{Path(path).name} must be trained first, in the folder {folder}, but the new model "
            f"would use the same folder. Pass another folder with -o."
        )
    jobs = plan_jobs(Path(path), folder, changes, above=above)
    if len(jobs) > 1 and jobs[-1].folder != folder:
        raise ConfigError(
            f"{path} contains a sequence, but [old] requires the recipe of one model. Name the "
            f"recipe of one model, or set `run` to a finished run of the sequence."
        )
    *before, last = (replace(job, is_requested=False) for job in jobs)
    return folder, [*before, replace(last, name=folder.name)]
