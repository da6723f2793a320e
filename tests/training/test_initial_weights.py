"""Models of one upgrade start from different weights, in every recipe and in trained runs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from nobackfill.core.config import Choice, Recipe, TrainConfig
from nobackfill.training.demo import demo_recipe
from nobackfill.training.jobs import plan_jobs
from nobackfill.training.old_model import fits_old, initial_seed
from nobackfill.training.pipeline import train_run
from nobackfill.training.run import Run

RECIPES = Path(__file__).parents[2] / "recipes"
SETTINGS = {"frame.toml", "setting.toml"}  # parts of recipes


def jobs_of(path, folder):
    """The models of a recipe in order, with those that it only names by their run folder."""
    jobs = plan_jobs(path, folder)
    planned = {str(job.folder) for job in jobs}
    named = {run for job in jobs for run in (job.recipe.old.run, job.recipe.old.independent) if run}
    for run in sorted(named - planned, key=lambda run: "independent" in run):
        (job,) = plan_jobs(path.parent / f"{Path(run).name}.toml", Path(run))
        jobs = [*jobs[:-1], job, jobs[-1]]
    return jobs


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(RECIPES.rglob("*.toml")) if path.name not in SETTINGS],
    ids=lambda path: str(path.relative_to(RECIPES)),
)
def test_the_models_of_a_recipe_start_from_different_weights(path, tmp_path):
    jobs, seeds = jobs_of(path, tmp_path / "run"), {}
    for job in jobs:
        old = job.recipe.old
        parent = seeds[old.run] if old.run else None
        seeds[str(job.folder)] = initial_seed(job.recipe, parent)
        if fits_old(job.recipe) and old.run and not old.independent:  # the ceiling, not named
            independent = replace(job.recipe, method=Choice("independent"))
            seeds[f"{job.folder}, independent"] = initial_seed(independent, parent)
    assert len(set(seeds.values())) == len(seeds)
    assert len(seeds) >= 2 or not jobs[-1].recipe.old.run


def recipe(name="independent", **settings):
    return Recipe(method=Choice(name), train=TrainConfig(seed=3, **settings))


def test_old_independent_and_new_models_of_one_step_differ():
    old = initial_seed(recipe(), None)
    new = initial_seed(recipe("ndpp"), old)
    seeds = [
        old,
        new,
        initial_seed(recipe("ndpp"), new),
        initial_seed(recipe("ndpp"), "vectors"),
        initial_seed(recipe(), old),
        initial_seed(recipe(step=0), None),
    ]
    assert len(set(seeds)) == len(seeds)


def test_methods_are_compared_from_the_same_weights():
    assert initial_seed(recipe("ndpp"), 5) == initial_seed(recipe("bct"), 5)


def test_a_seed_that_is_set_is_used():
    assert initial_seed(recipe(weights_seed=5), 7) == 5


def test_trained_models_keep_their_seed(tmp_path):
    weights = {}
    for name in ("old", "independent", "prototype_alignment"):
        changes = (
            "train.epochs=1",
            "train.learning_rate=0.0",
            "train.step=0",
            "train.momentum=0.0",
        )
        recipe = demo_recipe(name, tmp_path / "old", changes=changes)
        for _ in train_run(recipe, tmp_path / name, device=torch.device("cpu")):
            pass
        run = Run.open(tmp_path / name)
        weights[name] = next(run.model(torch.device("cpu")).parameters())
    assert Run.open(tmp_path / "old").lineage().weights_seed is not None
    first, *others = weights.values()
    assert not any(torch.equal(first, other) for other in others)
    assert not torch.equal(*others)
