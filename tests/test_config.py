from pathlib import Path

import pytest

from nobackfill.config import (
    Choice,
    OldConfig,
    TrainConfig,
    build_recipe,
    read_recipe,
    resolve_options,
    to_toml,
)
from nobackfill.errors import ConfigError
from nobackfill.train.run import resolve

RECIPES = sorted((Path(__file__).parents[1] / "recipes").rglob("*.toml"))


def recipe_file(folder, text):
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[train]\nlearning_rat = 0.1", "unknown key `learning_rat` in .train.. Did you mean"),
        ("[trian]\nepochs = 1", "unknown table .trian. in the recipe. Did you mean `train`"),
        ("[train]\nepochs = 'ten'", "wanted `epochs` in .train. to be int, but got 'ten'"),
        ("[train]\nepochs = true", "to be int, but got True"),
        ("[train]\nepochs = 0", "`epochs` in .train. from 1 to 1000000, but got 0"),
        ("[train]\nschedule = 'linear'", "one of cosine, steps, but got 'linear'"),
        ("[train]\nmilestones = [1, 'two']", "to be int, but got 'two'"),
        ("[train]\nbatch_size = 1", "`batch_size` in .train. from 2"),
        ("[train]\nlearning_rate = nan", "`learning_rate` in .train. from 0.0"),
        ("[train]\nseed = -1", "`seed` in .train. from 0"),
        ("[method]\nweight = 1.0", "wanted a `name` in .method."),
        ("[old]\nrun = 'a'\nvectors = 'b'", "both `run` and `vectors`"),
        ("train = 3", "wanted a table .train."),
        ("[train\nepochs = 1", "wanted a recipe in TOML"),
    ],
)
def test_says_what_is_wrong(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says):
        read_recipe(recipe_file(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[method]\nname = 'nddp'", "unknown method `nddp`. Did you mean `ndpp`"),
        ("[method]\nname = 'ndpp'\nneighbours = 3", "`neighbours` in .method.. Did you mean `neig"),
        ("[method]\nname = 'ndpp'\nneighbors = 3.5", "to be int, but got 3.5"),
        ("[data]\nname = 'glyph'", "unknown collection `glyph`. Did you mean `glyphs`"),
        ("[data]\nname = 'glyphs'\ncrowdin = 1", "Did you mean `crowding`"),
        ("[data]\nname = 'glyphs'\nshares = 'abc'", "`shares` in .data. to be list"),
        ("[data]\nname = 'glyphs'\nshares = ['a']", "`shares` in .data. to be"),
        ("[method]\nname = 'bct'\ndim = 8", "one dimension of the new embedding"),
        ("[model]\nname = 'smal'", "unknown model `smal`. Did you mean `small`"),
        ("[model]\nname = 'small'\nembedding_dim = 0", "wanted `embedding_dim`"),
    ],
)
def test_a_misspelt_name_or_option_is_an_error_before_any_work(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says):
        resolve(read_recipe(recipe_file(tmp_path, text)))


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(ConfigError, match="wanted a recipe at .*No such file"):
        read_recipe(tmp_path / "nowhere.toml")


def test_changes_come_on_top(tmp_path):
    path = recipe_file(tmp_path, "[train]\nepochs = 3\n")
    changed = read_recipe(path, ["train.epochs=5", "old.run=runs/old", "method.name=bct"])
    assert changed.train.epochs == 5
    assert changed.old == OldConfig(run="runs/old")
    assert changed.method == Choice("bct")
    with pytest.raises(ConfigError, match="such as `train.epochs=3`"):
        read_recipe(path, ["epochs=5"])
    with pytest.raises(ConfigError, match="wanted a table .train."):
        read_recipe(recipe_file(tmp_path, "train = 3"), ["train.epochs=5"])


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_can_be_read_and_written_out_and_read_again(path, tmp_path):
    recipe = resolve(read_recipe(path))
    again = recipe_file(tmp_path, to_toml(recipe))
    assert resolve(read_recipe(again)) == recipe
    assert resolve(recipe) == recipe


def test_every_default_is_written_out():
    text = to_toml(resolve(build_recipe({"method": {"name": "odpp"}})))
    for setting in ("old_threshold = 0.6", "momentum = 0.9", "crowding = 0.5", "width = 16"):
        assert setting in text


def test_options_are_those_of_the_function():
    def function(positional, *, share: float = 0.5, names: tuple[str, ...] = ()):
        pass

    assert resolve_options(function, {"share": 1}, where="x") == {"share": 1.0, "names": ()}
    with pytest.raises(ConfigError, match="unknown key `positional`"):
        resolve_options(function, {"positional": 1}, where="x")


def test_settings_cannot_be_changed_behind_ones_back():
    with pytest.raises(AttributeError):
        TrainConfig().epochs = 4
