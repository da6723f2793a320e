from pathlib import Path

import pytest

from nobackfill.core.config import Choice, OldConfig
from nobackfill.errors import ConfigError
from nobackfill.training.jobs import plan_jobs

DATA = "[data]\nname = 'glyphs'\ntrain_classes = 10\nshares = [0.3, 1.0]\n"
DATA += "[model]\nname = 'small'\n"
NEW = DATA + "[method]\nname = 'bt2'\n"
BOTH = "[old]\nrecipe = 'old.toml'\nindependent_recipe = 'alone.toml'\n"
FILES = {
    "old.toml": DATA + "[train]\nstep = 0\nepochs = 7\n",
    "alone.toml": DATA
    + "[method]\nname = 'independent'\n[old]\nrecipe = 'old.toml'\n[train]\nepochs = 5\n",
    "new.toml": NEW + BOTH,
    "sequence.toml": DATA + "[method]\nname = 'ndpp'\n"
    "[[sequence]]\ntrain.step = 0\nmethod.name = 'independent'\n"
    "[[sequence]]\ntrain.step = 1\n[[sequence]]\ntrain.step = -1\n",
}
SEVERAL = "[data]\nname = 'glyphs'\n[[sequence]]\n[[sequence]]\n"


@pytest.fixture
def recipes(tmp_path):
    """A folder of recipes; runs go elsewhere."""
    folder = tmp_path / "recipes"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


def write(folder, name, text):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def test_a_recipe_without_an_old_one_is_one_job(recipes):
    (job,) = plan_jobs(recipes / "old.toml", Path("runs/first"), ["train.seed=3"])
    assert (job.name, job.folder, job.is_requested) == ("independent", Path("runs/first"), True)
    assert (job.recipe.train.epochs, job.recipe.train.seed) == (7, 3)
    assert job.recipe.model.options["width"] == 16  # every default is written out
    assert job.recipe.old == OldConfig()


def test_what_a_recipe_needs_is_trained_first_beside_it_and_once(recipes):
    """The independent model is compared with the old one, too, which is there already."""
    jobs = plan_jobs(recipes / "new.toml", Path("runs/new"))
    assert [(job.name, str(job.folder), job.is_requested) for job in jobs] == [
        ("old", "runs/old", False),
        ("alone", "runs/alone", False),
        ("bt2", "runs/new", True),
    ]
    old, alone, new = (job.recipe.old for job in jobs)
    assert old == OldConfig()
    assert alone == OldConfig(run="runs/old")
    assert new == OldConfig(run="runs/old", independent="runs/alone")
    assert [job.recipe.train.epochs for job in jobs] == [7, 5, 30]


def test_only_the_independent_model_may_have_a_recipe(recipes):
    text = NEW + "[old]\nrun = 'elsewhere'\nindependent_recipe = 'alone.toml'\n"
    jobs = plan_jobs(write(recipes, "half.toml", text), Path("runs/half"))
    assert [job.name for job in jobs] == ["old", "alone", "bt2"]
    assert jobs[-1].recipe.old == OldConfig(run="elsewhere", independent="runs/alone")


def test_old_recipes_are_found_from_the_recipe_that_names_them(recipes, tmp_path, monkeypatch):
    text = NEW + "[old]\nrecipe = '../recipes/old.toml'\n"
    above = write(tmp_path, "other/above.toml", text)
    below = write(tmp_path, "other/deep.toml", "extends = 'above.toml'\n")
    monkeypatch.chdir("/")
    for path in (above, below):
        assert [job.name for job in plan_jobs(path, tmp_path / "runs/x")] == ["old", "bt2"]


def test_an_old_model_may_have_an_old_model(recipes):
    write(recipes, "older.toml", DATA)
    write(recipes, "old.toml", DATA + "[old]\nrecipe = 'older.toml'\n")
    jobs = plan_jobs(recipes / "new.toml", Path("runs/new"))
    assert [job.name for job in jobs] == ["older", "old", "alone", "bt2"]
    assert [job.is_requested for job in jobs] == [False, False, False, True]


def test_changes_of_what_is_tested_reach_the_old_models_and_others_do_not(recipes):
    changes = ["data.train_classes=20", "train.epochs=2", "images.channels=1", "model.width=4"]
    jobs = plan_jobs(recipes / "new.toml", Path("runs/new"), iter(changes))
    assert [job.recipe.data.options["train_classes"] for job in jobs] == [20] * 3
    assert [job.recipe.images.channels for job in jobs] == [1] * 3
    assert [job.recipe.train.epochs for job in jobs] == [7, 5, 2]
    assert [job.recipe.model.options["width"] for job in jobs] == [16, 16, 4]


def test_another_test_reaches_the_old_models_too(recipes):
    write(recipes, "new.toml", NEW + BOTH + "[tests.more]\nname = 'glyphs'\nseed = 5\n")
    for name in ("old.toml", "alone.toml"):
        write(recipes, name, FILES[name] + "[tests.more]\nname = 'glyphs'\nseed = 5\n")
    change = 'tests.more={name = "glyphs", seed = 9}'
    jobs = plan_jobs(recipes / "new.toml", Path("runs/new"), [change])
    assert [job.recipe.tests["more"].options["seed"] for job in jobs] == [9] * 3


def test_a_sequence_is_a_chain(recipes):
    jobs = plan_jobs(recipes / "sequence.toml", Path("runs/s"), ["train.epochs=3"])
    assert [(job.name, str(job.folder), job.is_requested) for job in jobs] == [
        ("1 independent", "runs/s/1", True),
        ("2 ndpp", "runs/s/2", True),
        ("3 ndpp", "runs/s/3", True),
    ]
    assert [job.recipe.old.run for job in jobs] == [None, "runs/s/1", "runs/s/2"]
    assert [job.recipe.train.step for job in jobs] == [0, 1, -1]
    assert [job.recipe.train.epochs for job in jobs] == [3, 3, 3]
    assert jobs[1].recipe.method.options["neighbors"] > 0  # resolved


def test_a_sequence_may_begin_with_its_own_kind_if_that_needs_no_old_model(recipes):
    text = "[data]\nname='glyphs'\n[method]\nname='cores'\n[[sequence]]\n[[sequence]]\n"
    jobs = plan_jobs(write(recipes, "cores.toml", text), Path("runs/s"))
    assert [job.recipe.method.name for job in jobs] == ["cores", "cores"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SEVERAL + "[old]\nrun = 'x'\n", "Model 1 of the sequence has an .old. table"),
        (
            "[data]\nname = 'glyphs'\n[[sequence]]\n[[sequence]]\nold.run = 'x'\n",
            "Model 2 of the sequence has an .old. table",
        ),
        (SEVERAL + "[method]\nname = 'ndpp'\n", "`ndpp` needs one. Begin with `method.name"),
        (SEVERAL + "[method]\nname = 'nddp'\n", "unknown method `nddp`"),
        ("sequence = 3\n", "Write tables ..sequence.."),
        ("sequence = []\n", "Write tables ..sequence.."),
        (NEW + "[old]\nrecipe = 'nowhere.toml'\n", "No recipe at .*nowhere.toml"),
        (
            NEW + "[old]\nrecipe = 'sequence.toml'\n",
            "sequence.toml contains a sequence",
        ),
        (NEW + "[old]\nrecipe = 'bad.toml'\n", "the new model would use the same folder"),
        (NEW + "[old]\nrecipe = 'old.toml'\nrun = 'x'\n", "both `run` and `recipe`"),
        (NEW + "[old]\nindependent_recipe = 'old.toml'\nindependent = 'x'\n", "Remove one"),
    ],
)
def test_what_cannot_be_meant_is_refused(recipes, text, says):
    with pytest.raises(ConfigError, match=says):
        plan_jobs(write(recipes, "bad.toml", text), Path("runs/bad"))


def test_a_change_that_cannot_be_is_refused_before_anything_is_trained(recipes):
    with pytest.raises(ConfigError, match="unknown key `epoch` in .train."):
        plan_jobs(recipes / "new.toml", Path("runs/new"), ["train.epoch=3"])


def test_an_old_run_that_is_there_takes_the_place_of_a_recipe(recipes):
    jobs = plan_jobs(recipes / "new.toml", Path("runs/new"), ["old.run=mine"])
    assert jobs[-1].recipe.old.run == "mine"
    assert jobs[-1].recipe.old.recipe is None
    assert "old" not in [job.folder.name for job in jobs]


def test_an_old_run_beside_an_old_recipe_in_one_file_is_two_places(recipes):
    write(recipes, "both.toml", NEW + "[old]\nrecipe = 'old.toml'\nrun = 'mine'\n")
    with pytest.raises(ConfigError, match="both `run` and `recipe`"):
        plan_jobs(recipes / "both.toml", Path("runs/new"))


def test_two_recipes_of_one_name_are_not_taken_for_one(recipes):
    write(recipes, "small/model.toml", DATA + "[train]\nstep = 0\n")
    write(recipes, "large/model.toml", DATA + "[train]\nstep = 1\n")
    both = "[old]\nrecipe = 'small/model.toml'\nindependent_recipe = 'large/model.toml'\n"
    with pytest.raises(ConfigError, match="model"):
        plan_jobs(write(recipes, "new.toml", NEW + both), Path("runs/new"))


def test_recipes_that_need_each_other_are_refused(recipes):
    write(recipes, "one.toml", NEW + "[old]\nrecipe = 'other.toml'\n")
    write(recipes, "other.toml", NEW + "[old]\nrecipe = 'one.toml'\n")
    with pytest.raises(ConfigError, match="one.toml|other.toml"):
        plan_jobs(recipes / "one.toml", Path("runs/one"))


def test_the_old_model_of_a_job_is_told_what_its_own_recipe_says(recipes):
    jobs = plan_jobs(recipes / "new.toml", Path("runs/new"), ["method.name=ndpp"])
    assert [job.recipe.method.name for job in jobs] == ["independent", "independent", "ndpp"]
    assert jobs[0].recipe.model == Choice("small", jobs[2].recipe.model.options)
