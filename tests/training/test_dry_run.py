import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from nobackfill.core.config import Choice, ImagesConfig, OldConfig, PairsConfig, Recipe, TrainConfig
from nobackfill.data.registry import make_collection
from nobackfill.errors import ConfigError
from nobackfill.methods import METHODS
from nobackfill.methods.old_space import OldSpace
from nobackfill.models import make_model
from nobackfill.training.dry_run import plan_job, saved_for_backward
from nobackfill.training.jobs import Job
from nobackfill.training.loop import train
from nobackfill.training.pipeline import train_run
from nobackfill.training.resolve import resolve
from nobackfill.training.schedule import make_optimizer

CPU = torch.device("cpu")
DATA = Choice("glyphs", {"train_classes": 10, "test_classes": 5, "images_per_class": 6, "side": 16})
RECIPE = Recipe(
    data=DATA,
    model=Choice("small", {"width": 4, "embedding_dim": 8}),
    train=TrainConfig(epochs=3, batch_size=16),
)
NOWHERE = Choice("market1501", {"path": "nowhere/market1501"})


def plan(recipe, folder="runs/x", **train):
    recipe = replace(recipe, train=replace(recipe.train, **train))
    return plan_job(Job("x", resolve(recipe), Path(folder)))


def test_what_is_trained_on_and_searched_is_counted():
    tests = {"more": Choice("glyphs", {**DATA.options, "test_classes": 7})}
    counted = plan(replace(RECIPE, tests=tests)).counts
    searched = {
        name: int((make_collection(choice).columns["split"] == "validation").sum())
        for name, choice in {"searched": DATA, "searched_more": tests["more"]}.items()
    }
    assert searched["searched"] != searched["searched_more"]
    assert counted == {"train_images": 60, "train_classes": 10, **searched}
    old = plan(RECIPE, step=0).counts
    assert (old["train_images"], old["train_classes"]) == (3 * 6, 3)


@pytest.mark.parametrize(("texts", "shown"), [("one", 60), ("each", 180)])
def test_an_epoch_with_each_text_has_as_many_steps(texts, shown):
    told = replace(
        RECIPE,
        data=Choice("glyphs", {**DATA.options, "captions": 3}),
        text=Choice("words", {"buckets": 64, "width": 8}),
        pairs=PairsConfig(texts=texts),
    )
    assert plan(told).steps["each_epoch"] == -(-shown // told.train.batch_size)


def steps_made(config):
    """How often an optimiser really steps: in each epoch."""
    collection = make_collection(DATA)
    model = make_model(RECIPE.model, seed=0)
    method = METHODS["independent"](OldSpace(), 10, dim=8)
    optimizer, counts = make_optimizer(model, method, config), [0]
    optimizer.register_step_post_hook(lambda *_: counts.append(counts.pop() + 1))
    rows = collection.training_rows(config.step)
    for _ in train(model, method, collection, rows, config, optimizer=optimizer):
        counts.append(0)
    return counts[:-1]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_size": 7},
        {"batch_size": 1000},
        {"accumulate": 2},
        {"accumulate": 3},
        {"accumulate": 100},
        {"batch_size": 14, "items_per_class": 2},
        {"batch_size": 14, "items_per_class": 2, "accumulate": 3},
        {"batch_size": 4, "items_per_class": 2, "step": 0, "accumulate": 2},
    ],
)
def test_the_steps_are_those_that_training_makes(settings):
    made = steps_made(replace(RECIPE.train, **settings))
    assert plan(RECIPE, **settings).steps == {"each_epoch": made[0], "in_all": sum(made)}


@pytest.mark.parametrize("name", ["independent", "ndpp", "bct"])
def test_the_parameters_are_those_that_are_trained(name):
    model = make_model(RECIPE.model, seed=0)
    old = OldSpace(prototypes=torch.randn(10, 8), classifier=torch.randn(3, 8))
    recipe = replace(RECIPE, method=Choice(name), old=OldConfig(run="runs/old"))
    method = METHODS[name](old, 10, **resolve(recipe).method.options)
    trained = [*model.parameters(), *method.parameters()]
    real = sum(parameter.numel() for parameter in trained if parameter.requires_grad)
    assert plan(recipe).parameters == real


@pytest.mark.parametrize(("optimizer", "copies"), [("sgd", 3), ("adam", 4)])
def test_weights_have_gradients_and_what_the_optimiser_remembers(optimizer, copies):
    told = plan(RECIPE, optimizer=optimizer)
    assert told.memory["weights, gradients, optimiser"] == 4 * copies * told.parameters


def test_activations_are_what_a_hand_counts_for_two_layers():
    """Of each image: its 12 pixels, and the 5 numbers between; what comes out is not kept."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2))
    assert saved_for_backward(net, (3, 2, 2)) == 4 * (12 + 5)
    deeper = nn.Sequential(net, nn.ReLU(), nn.Linear(2, 7), nn.ReLU())
    assert saved_for_backward(deeper, (3, 2, 2)) == 4 * (12 + 5 + 2 + 7)


def test_what_is_kept_twice_is_counted_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Linear(4, 3, bias=False), nn.Linear(4, 3, bias=False)
            self.one, self.other = self.layers

        def forward(self, images):
            flat = images.flatten(1)
            return self.one(flat) + self.other(flat)

    assert saved_for_backward(Twice(), (1, 2, 2)) == 4 * 4


def test_activations_grow_with_the_batch_and_shrink_with_precision():
    one = plan(RECIPE, batch_size=8).memory["activations"]
    shape = make_collection(DATA).view(torch.arange(1)).shape[1:]
    assert one == 8 * saved_for_backward(make_model(RECIPE.model, seed=0), tuple(shape))
    assert plan(RECIPE, batch_size=16).memory["activations"] == 2 * one
    for precision, share in (("float16", 2), ("bfloat16", 2), ("tf32", 1)):
        told = plan(RECIPE, batch_size=8, precision=precision)
        assert told.memory["activations"] == one // share


def test_of_the_old_model_only_what_the_method_needs_is_told():
    def of_the_old(name):
        recipe = replace(
            RECIPE, method=Choice(name), old=OldConfig(run="runs/old", independent="runs/alone")
        )
        told = plan(recipe)
        return told.memory.get("of the old model"), [line.split(":")[0] for line in told.old]

    assert of_the_old("independent") == (None, [])
    assert of_the_old("ndpp") == (4 * 8 * 10, ["prototypes"])
    bytes_of, needs = of_the_old("bt2")
    assert set(needs) == {"prototypes", "embeddings", "independent"}
    assert bytes_of == 4 * 8 * (2 * 60 + 10)


def test_what_differs_from_what_is_expected_is_told():
    expected = {"train_images": 60, "train_classes": 11, "new_new": 0.5, "source": "a paper"}
    told = plan(replace(RECIPE, expected=expected))
    assert told.expected == {"train_images": 60, "train_classes": 11}
    assert told.differences == ["train classes: 10 found, 11 expected"]
    assert plan(RECIPE).differences == []
    many = {"train_images": 1_234_567}
    (line,) = plan(replace(RECIPE, expected=many)).differences
    assert line == "train images: 60 found, 1,234,567 expected"


def test_data_that_are_missing_are_a_problem_and_no_crash():
    told = plan(replace(RECIPE, data=NOWHERE, images=ImagesConfig(channels=1, crop=(32, 32))))
    assert "No collection at nowhere/market1501" in told.problem
    assert (told.counts, told.steps, told.differences) == ({}, {}, [])
    assert told.memory["activations"] > 0  # of the shape that [images] says
    assert plan(RECIPE).problem == ""


def test_images_that_the_model_does_not_take_are_a_sentence():
    grey = replace(RECIPE, model=Choice("small", {"width": 4, "channels": 3}))
    with pytest.raises(ConfigError, match="cannot process images of 1 channels and 16 x 16 pixels"):
        plan(grey)


def test_a_missing_test_is_a_problem_too_and_the_rest_is_told():
    told = plan(replace(RECIPE, tests={"more": NOWHERE}))
    assert "nowhere/market1501" in told.problem
    assert told.counts["train_images"] == 60
    assert told.steps == plan(RECIPE).steps


def missing(**train):
    expected = {"train_images": 60, "train_classes": 10}
    images = ImagesConfig(channels=1, crop=(16, 16))
    return plan(replace(RECIPE, data=NOWHERE, images=images, expected=expected), **train)


def test_without_data_the_steps_are_those_of_what_is_expected():
    told = missing()
    assert told.problem
    assert told.steps == plan(RECIPE).steps == {"each_epoch": 4, "in_all": 12}
    assert told.parameters == plan(RECIPE).parameters


@pytest.mark.parametrize("settings", [{"accumulate": 2}, {"batch_size": 14, "items_per_class": 2}])
def test_without_data_the_steps_are_those_that_training_would_make(settings):
    assert missing(**settings).steps == plan(RECIPE, **settings).steps


def test_a_wrong_step_is_an_error_and_no_problem_of_the_data():
    with pytest.raises(ConfigError, match="`step` in .train. must be below 2"):
        plan(RECIPE, step=5)


def test_a_run_that_is_there_is_told(tmp_path):
    assert not plan(RECIPE, tmp_path / "run").is_there
    next(train_run(RECIPE, tmp_path / "run", device=CPU))
    assert not plan(RECIPE, tmp_path / "run").is_there  # not finished
    list(train_run(RECIPE, tmp_path / "run", device=CPU, resume=True))
    assert plan(RECIPE, tmp_path / "run").is_there


def test_a_plan_can_be_written_as_json():
    told = plan(replace(RECIPE, expected={"train_classes": 11}))
    summary = json.loads(json.dumps(told.summary()))
    assert summary["differences"] == told.differences
    assert (summary["name"], summary["folder"], summary["steps"]) == ("x", "runs/x", told.steps)


def test_nothing_is_drawn_from_the_global_generator():
    before = torch.get_rng_state()
    plan(RECIPE)
    assert torch.equal(torch.get_rng_state(), before)
