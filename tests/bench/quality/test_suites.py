"""The table of suites, and what all of them have in common."""

from pathlib import Path

import pytest

from nobackfill.data.registry import COLLECTIONS
from nobackfill.errors import ConfigError, DataError
from nobackfill.methods import METHODS
from nobackfill.training.old_model import initial_seed
from nobackfill.training.resolve import resolve
from nobackfill_bench import SUITES
from nobackfill_bench.quality.frozen_features import ScratchSuite
from nobackfill_bench.quality.heads import FittedSuite
from nobackfill_bench.quality.suite import read_way
from nobackfill_bench.quality.trained import TrainedSuite

TRAINED = [name for name, one in SUITES.items() if isinstance(one, TrainedSuite)]


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_takes_its_own_ways_and_has_words(name):
    suite = SUITES[name]
    suite.check(suite.ways)
    assert len(set(suite.ways)) == len(suite.ways) > 4
    assert suite.default in suite.ways
    assert suite.title
    assert suite.text


@pytest.mark.parametrize("name", SUITES)
def test_every_way_is_run_once_and_after_what_it_starts_from(name):
    suite = SUITES[name]
    stages = suite.stages(suite.ways)
    all_of_them = [way for stage in stages for way in stage]
    assert len(set(all_of_them)) == len(all_of_them)
    assert set(suite.ways) <= set(all_of_them)


@pytest.mark.parametrize("name", SUITES)
def test_an_unknown_method_is_refused_with_a_suggestion(name):
    with pytest.raises(ConfigError, match=r"unknown method `jnus`"):
        SUITES[name].check(["janus", "jnus:share=0"])
    with pytest.raises(ConfigError, match=r"Did you mean `prototype_alignment`"):
        SUITES[name].check(["prototype_alignmnt"])


def test_what_a_suite_cannot_compare_is_refused():
    for name, suite in SUITES.items():
        if isinstance(suite, ScratchSuite):
            with pytest.raises(ConfigError, match="256 dimensions, but `cores` sets its own"):
                suite.check(["ndpp", "cores"])
        if isinstance(suite, FittedSuite):
            with pytest.raises(
                ConfigError, match="cannot be fitted by `bct`: it needs more than old vectors"
            ):
                suite.check(["ridge", "bct"])
        if name == "glyphs":
            suite.check(["cores", "bct"])


def test_a_way_may_have_options():
    assert read_way("ndpp:neighbors=10") == ("ndpp", ["method.neighbors=10"])
    assert read_way("odpp:pairs=sampled,pairs_per_epoch=32") == (
        "odpp", ["method.pairs=sampled", "method.pairs_per_epoch=32"],
    )  # fmt: skip
    for suite in SUITES.values():
        suite.check(["prototype_alignment:temperature=0.1"])


@pytest.mark.parametrize("name", TRAINED)
def test_the_sizes_that_two_methods_ask_for_are_those_of_the_recipe(name):
    suite = SUITES[name]
    recipe = suite.recipe("ndpp", Path("runs/old"), seed=3, data=Path("/data"))
    assert resolve(recipe).model.options["embedding_dim"] == suite.embedding_dim
    if name == "glyphs":
        assert resolve(recipe).data.options["train_classes"] == suite.train_classes


@pytest.mark.parametrize("name", TRAINED)
def test_the_old_model_starts_from_other_weights_on_the_same_split(name):
    suite = SUITES[name]
    old, new = (
        suite.recipe(one, Path("runs/old"), seed=3, data=Path("/data")) for one in ("old", "ndpp")
    )
    assert (old.train.seed, new.train.seed) == (3, 3)
    weights_of_old = initial_seed(old, None)
    assert initial_seed(new, weights_of_old) != weights_of_old
    assert old.data.options["seed"] == new.data.options["seed"] == 3
    assert (old.method.name, new.method.name) == ("independent", "ndpp")
    assert (old.old.run, new.old.run) == (None, "runs/old")
    assert old.train.step == 0
    assert new.train.step in (1, -1)  # -1 is the last


@pytest.mark.parametrize("name", TRAINED)
def test_changes_come_last(name):
    recipe = SUITES[name].recipe(
        "ndpp", Path("old"), seed=3, data=Path("/data"),
        changes=["train.epochs=77", "train.seed=5", "method.neighbors=2"],
    )  # fmt: skip
    assert (recipe.train.epochs, recipe.train.seed) == (77, 5)
    assert recipe.method.options["neighbors"] == 2


@pytest.mark.parametrize("name", ["cub-finetune", "landmarks-roxford"])
def test_files_of_recipes_are_looked_for_in_the_folder_of_the_data(name):
    recipe = SUITES[name].recipe("ndpp", Path("old"), seed=0, data=Path("/data"))
    named = [recipe.data.options["path"], recipe.model.options["weights"]]
    named += [one.options["path"] for one in recipe.tests.values()]
    assert all(path.startswith("/data/") for path in named)
    assert bool(recipe.tests) == (name == "landmarks-roxford")
    as_it_is = SUITES[name].recipe("ndpp", Path("old"), seed=0, data=None)
    assert not Path(as_it_is.data.options["path"]).is_absolute()
    assert f"/data/{as_it_is.data.options['path']}" == recipe.data.options["path"]


def test_without_weights_none_are_looked_for():
    recipe = SUITES["cub-finetune"].recipe(
        "ndpp", Path("old"), seed=0, data=Path("/data"), changes=["model.weights="]
    )
    assert recipe.model.options["weights"] == ""


def test_omniglot_is_told_its_shares_and_wants_a_folder():
    for name, shares in (("omniglot", [0.1, 1.0]), ("omniglot-30", [0.3, 1.0])):
        recipe = SUITES[name].recipe("ndpp", Path("old"), seed=0, data=Path("/data"))
        assert recipe.data.options["shares"] == shares
        assert recipe.data.options["path"] == "/data/omniglot"
        assert recipe.data.name in COLLECTIONS
    for step, name in enumerate(("old", "ndpp", "ndpp")):
        recipe = SUITES["omniglot-sequence"].recipe(
            name, Path("old"), seed=0, data=Path("/data"), step=step
        )
        assert recipe.data.options["shares"] == [0.1, 0.3, 1.0]
        assert recipe.train.step == step
    with pytest.raises(DataError, match="NOBACKFILL_DATA"):
        SUITES["omniglot"].recipe("ndpp", Path("old"), seed=0, data=None)


def test_a_sequence_of_han_characters_has_three_steps_and_any_method():
    suite = SUITES["han-sequence"]
    for step, name in enumerate(("old", "ndpp", "ndpp")):
        recipe = suite.recipe(
            name, Path("runs/old"), seed=3, data=None, step=step, changes=["train.epochs=77"]
        )
        assert recipe.data.options["counts"] == [1199, 3997, 13323]
        assert (recipe.data.options["seed"], recipe.train.seed, recipe.train.epochs) == (3, 3, 77)
        assert recipe.train.step == step
        assert recipe.method.name == ("ndpp" if step else "independent")
        assert recipe.old.run == ("runs/old" if step else None)


def test_options_are_chosen_on_validation_characters_by_short_trainings():
    suite, whole = SUITES["han-4k-short"], SUITES["han-4k"]
    old, new = (suite.recipe(one, Path("old"), seed=3, data=None) for one in ("old", "ndpp"))
    for recipe in (old, new):
        assert recipe.data.options["searched"] == "validation"
        (test,) = recipe.tests.values()
        assert "searched" not in test.options  # by default the test characters
        assert test.options["distortion"] == recipe.data.options["distortion"]
    assert old.train == whole.recipe("old", Path("old"), seed=3, data=None).train
    assert (new.train.epochs, new.data.options["images_per_class"]) == (4, 7)
    assert "images_per_class" not in old.data.options


def test_glyphs_compares_all_methods_and_needs_nothing():
    assert set(SUITES["glyphs"].ways) == set(METHODS)
    assert SUITES["glyphs"].requires == ()
