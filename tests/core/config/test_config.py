from pathlib import Path

import pytest

from nobackfill.core.config import (
    Choice,
    ImagesConfig,
    OldConfig,
    PairsConfig,
    TrainConfig,
    build_recipe,
    merge_tables,
    read_recipe,
    read_sequence,
    resolve_options,
    to_toml,
)
from nobackfill.errors import ConfigError
from nobackfill.training.resolve import resolve

RECIPES = sorted((Path(__file__).parents[3] / "recipes").rglob("*.toml"))


def recipe_file(folder, text):
    path = folder / "recipe.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[train]\nlearning_rat = 0.1", "unknown key `learning_rat` in .train.. Did you mean"),
        ("[trian]\nepochs = 1", "unknown table .trian. in the recipe. Did you mean `train`"),
        ("[train]\nepochs = 'ten'", "`epochs` in .train. must be int, not 'ten'"),
        ("[train]\nepochs = true", "must be int, not True"),
        ("[train]\nepochs = 0", "`epochs` in .train. must be from 1 to 1000000, not 0"),
        ("[train]\nschedule = 'linear'", "one of cosine, steps, linear_steps, not 'linear'"),
        ("[train]\nmilestones = [1, 'two']", "must be int, not 'two'"),
        ("[train]\nbatch_size = 1", "`batch_size` in .train. must be from 2"),
        ("[train]\nlearning_rate = nan", "`learning_rate` in .train. must be from 0.0"),
        ("[train]\nseed = -1", "`seed` in .train. must be from 0"),
        ("[method]\nweight = 1.0", ".method. has no `name`"),
        ("[old]\nrun = 'a'\nvectors = 'b'", "both `run` and `vectors`"),
        ("train = 3", "must be a table .train."),
        ("[train\nepochs = 1", "is not valid TOML"),
        ("[train]\nseed = " + "9" * 5000, "is not valid TOML"),
        ("[train]\nseed = " + "[" * 9000, "is not valid TOML"),
        ("[train]\nlearning_rate = 1" + "0" * 400, "`learning_rate` in .train. is too large"),
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
        ("[method]\nname = 'ndpp'\nneighbors = 3.5", "must be int, not 3.5"),
        ("[data]\nname = 'glyph'", "unknown collection `glyph`. Did you mean `glyphs`"),
        ("[data]\nname = 'glyphs'\ncrowdin = 1", "Did you mean `crowding`"),
        ("[data]\nname = 'glyphs'\nshares = 'abc'", "`shares` in .data. must be list"),
        ("[data]\nname = 'glyphs'\nshares = ['a']", "`shares` in .data. must be"),
        ("[method]\nname = 'bct'\ndim = 8", "dim = 8 differs from"),
        ("[model]\nname = 'smal'", "unknown model `smal`. Did you mean `small`"),
        (
            "[model]\nname = 'small'\nembedding_dim = 0",
            "`embedding_dim` in .model. must be a positive int",
        ),
    ],
)
def test_a_misspelt_name_or_option_is_an_error_before_any_work(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says):
        resolve(read_recipe(recipe_file(tmp_path, text)))


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(ConfigError, match="No recipe at .*does not exist"):
        read_recipe(tmp_path / "nowhere.toml")


def test_changes_come_on_top(tmp_path):
    path = recipe_file(tmp_path, "[train]\nepochs = 3\n")
    changed = read_recipe(path, ["train.epochs=5", "old.run=runs/old", "method.name=bct"])
    assert changed.train.epochs == 5
    assert changed.old == OldConfig(run="runs/old")
    assert changed.method == Choice("bct")
    with pytest.raises(ConfigError, match="Write it as `train.epochs=3`"):
        read_recipe(path, ["epochs=5"])
    with pytest.raises(ConfigError, match="must be a table .train."):
        read_recipe(recipe_file(tmp_path, "train = 3"), ["train.epochs=5"])


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_can_be_read_and_written_out_and_read_again(path, tmp_path):
    for recipe in map(resolve, read_sequence(path)):
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


# Files that extend others


def files(folder, **texts):
    """Recipes by name, in a folder; returns the path of the first."""
    folder.mkdir(exist_ok=True, parents=True)
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(text)
    return folder / f"{next(iter(texts))}.toml"


def test_a_recipe_says_only_what_differs_from_the_one_it_extends(tmp_path):
    path = files(
        tmp_path / "a" / "b",
        new="extends = '../setting.toml'\n[train]\nseed = 3\n[method]\nneighbors = 7",
    )
    files(
        tmp_path / "a",
        setting="extends = 'below/frame.toml'\n[train]\nepochs = 5\nseed = 2\n"
        "[method]\nname = 'ndpp'\nneighbors = 6",
    )
    files(
        tmp_path / "a" / "below",
        frame="[train]\nepochs = 4\nseed = 1\nbatch_size = 8\n[data]\nname = 'folder'",
    )
    recipe = read_recipe(path, ["train.momentum=0.5"])
    assert recipe.train == TrainConfig(epochs=5, seed=3, batch_size=8, momentum=0.5)
    assert recipe.method == Choice("ndpp", {"neighbors": 7})
    assert recipe.data == Choice("folder")
    assert read_recipe(tmp_path / "a" / "setting.toml").train.seed == 2  # and stays as it is


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({"a": "extends = 'a.toml'"}, "a.toml extends itself"),
        ({"a": "extends = 'b.toml'", "b": "extends = 'a.toml'"}, "extends itself"),
        (
            {"a": "extends = 'b.toml'", "b": "extends = 'c.toml'", "c": "extends = './b.toml'"},
            "b.toml extends itself",
        ),
        ({"a": "extends = '../x/a.toml'"}, "extends itself"),
        ({"a": "extends = 3"}, "`extends` in .*a.toml must be a path, not 3"),
        ({"a": "extends = 'b.toml'"}, "No recipe at .*b.toml: the file does not exist"),
        ({"a": "extends = 'b.toml'", "b": "[train"}, "The recipe .*b.toml is not valid TOML"),
        ({"a": "extends = 'b.toml'", "b": "[train]\nepoch = 3"}, "unknown key `epoch`"),
    ],
)
def test_what_is_extended_must_be_there_and_come_to_an_end(tmp_path, texts, says):
    with pytest.raises(ConfigError, match=says):
        read_recipe(files(tmp_path / "x", **texts))


def test_two_files_may_extend_the_same(tmp_path):
    path = files(tmp_path, a="extends = 'b.toml'", b="extends = 'c.toml'", c="[train]\nepochs = 3")
    assert read_recipe(path).train.epochs == read_recipe(tmp_path / "b.toml").train.epochs == 3


def test_a_table_that_names_something_else_replaces_the_one_below(tmp_path):
    frame = "[method]\nname = 'ndpp'\nneighbors = 5\n[model]\nname = 'small'\nwidth = 8"
    path = files(
        tmp_path,
        other="extends = 'frame.toml'\n[method]\nname = 'bct'\n[model]\nwidth = 4",
        same="extends = 'frame.toml'\n[method]\nname = 'ndpp'\nold_strength = 0.1",
        frame=frame,
    )
    assert read_recipe(path).method == Choice("bct")
    assert read_recipe(path).model == Choice("small", {"width": 4})
    same = read_recipe(tmp_path / "same.toml")
    assert same.method == Choice("ndpp", {"neighbors": 5, "old_strength": 0.1})


def test_of_the_other_tests_one_may_be_replaced(tmp_path):
    path = files(
        tmp_path,
        new="extends = 'frame.toml'\n[tests.paris]\nname = 'folder'\n[tests.oxford]\nseed = 3",
        frame="[tests.paris]\nname = 'rparis6k'\nqueries = 'cropped'\n"
        "[tests.oxford]\nname = 'roxford5k'\nqueries = 'cropped'",
    )
    assert read_recipe(path).tests == {
        "paris": Choice("folder"),
        "oxford": Choice("roxford5k", {"queries": "cropped", "seed": 3}),
    }


def test_merging_leaves_both_as_they_were():
    below = {"train": {"epochs": 30}, "data": {"name": "folder", "shares": [0.5, 1.0]}}
    above = {"train": {"seed": 1}, "data": {"shares": [1.0]}}
    merged = merge_tables(below, above)
    assert merged == {
        "train": {"epochs": 30, "seed": 1},
        "data": {"name": "folder", "shares": [1.0]},  # a list is one value
    }
    merged["train"]["epochs"] = 1
    assert below == {"train": {"epochs": 30}, "data": {"name": "folder", "shares": [0.5, 1.0]}}
    assert above == {"train": {"seed": 1}, "data": {"shares": [1.0]}}
    assert merge_tables({"train": 3}, {"train": {"seed": 1}}) == {"train": {"seed": 1}}


def test_options_below_a_first_name_are_kept(tmp_path):
    path = files(
        tmp_path,
        new="extends = 'frame.toml'\n[model]\nname = 'small'",
        frame="[model]\nembedding_dim = 32",
    )
    assert read_recipe(path).model == Choice("small", {"embedding_dim": 32})


@pytest.mark.parametrize("key", ["recipe", "independent_recipe"])
def test_the_recipe_of_an_old_model_lies_beside_the_one_that_names_it(tmp_path, monkeypatch, key):
    path = files(
        tmp_path / "a" / "b",
        new="extends = '../frame.toml'\n[train]\nseed = 1",
        own=f"extends = '../frame.toml'\n[old]\n{key} = 'older.toml'",
    )
    files(tmp_path / "a", frame=f"[old]\n{key} = 'past/old.toml'")

    def named(path, *changes):
        return getattr(read_recipe(path, changes).old, key)

    assert named(path) == str(tmp_path / "a" / "b" / ".." / "past" / "old.toml")
    assert named(path.with_name("own.toml")) == str(tmp_path / "a" / "b" / "older.toml")
    assert named(path, f"old.{key}=here.toml") == "here.toml"  # a change names it from here
    away = files(tmp_path / "c", far=f"[old]\n{key} = '{tmp_path}/x.toml'")
    assert named(away) == str(tmp_path / "x.toml")
    monkeypatch.chdir(tmp_path)
    assert named(away.relative_to(tmp_path).with_name("far.toml")) == str(tmp_path / "x.toml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[old]\nrun = 'a'\nrecipe = 'b'", "both `run` and `recipe`"),
        ("[old]\nvectors = 'a'\nrecipe = 'b'", "both `vectors` and `recipe`"),
        (
            "[old]\nindependent = 'a'\nindependent_recipe = 'b'",
            "both `independent` and",
        ),
        ("[old]\nrecipe = 3", "`recipe` in .old. must be str, not 3"),
        ("old = 3", "must be a table .old."),
    ],
)
def test_an_old_model_is_known_from_one_place(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says):
        read_recipe(recipe_file(tmp_path, text))


# Sequences

SEQUENCE = """
[data]
name = "folder"
shares = [0.3, 1.0]
[method]
name = "ndpp"
neighbors = 5
[train]
epochs = 7
[[sequence]]
train.step = 0
method.name = "independent"
[[sequence]]
train.step = 1
train.epochs = 9
[[sequence]]
method.neighbors = 6
data.shares = [1.0]
"""


def test_each_model_of_a_sequence_changes_the_rest_of_the_file(tmp_path):
    first, second, third = read_sequence(recipe_file(tmp_path, SEQUENCE))
    assert first.method == Choice("independent")
    assert first.train == TrainConfig(step=0, epochs=7)
    assert second.method == Choice("ndpp", {"neighbors": 5})
    assert second.train == TrainConfig(step=1, epochs=9)
    assert third.method == Choice("ndpp", {"neighbors": 6})
    assert third.train == TrainConfig(epochs=7)  # nothing of the one before
    assert first.data == second.data == Choice("folder", {"shares": [0.3, 1.0]})
    assert third.data == Choice("folder", {"shares": [1.0]})


def test_changes_are_on_top_of_what_any_model_says(tmp_path):
    path = recipe_file(tmp_path, SEQUENCE)
    recipes = read_sequence(path, ["train.epochs=1", "train.seed=4"])
    assert [recipe.train.epochs for recipe in recipes] == [1, 1, 1]
    assert [recipe.train.seed for recipe in recipes] == [4, 4, 4]


def test_a_sequence_may_be_extended(tmp_path):
    path = files(
        tmp_path,
        new="extends = 'frame.toml'\n[method]\nname = 'bct'",
        short="extends = 'frame.toml'\n[[sequence]]\ntrain.seed = 8",
        frame=SEQUENCE,
    )
    recipes = read_sequence(path)
    assert [recipe.method.name for recipe in recipes[:2]] == ["independent", "bct"]
    (alone,) = read_sequence(tmp_path / "short.toml")  # its own takes the place of the other
    assert alone.train == TrainConfig(epochs=7, seed=8)


def test_one_model_is_a_sequence_of_one(tmp_path):
    path = recipe_file(tmp_path, "[train]\nepochs = 3")
    assert read_sequence(path) == (read_recipe(path),)
    one = recipe_file(tmp_path, "[[sequence]]\ntrain.epochs = 3")
    assert read_recipe(one).train.epochs == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sequence = 3", "has sequence = 3. Write tables ..sequence.."),
        ("sequence = []", "Write tables ..sequence.."),
        ("sequence = [1, 2]", "Write tables ..sequence.."),
        ("[sequence]\nstep = 1", "Write tables ..sequence.."),
        ("[[sequence]]\ntrain.stp = 1", "unknown key `stp` in .train."),
        ("[[sequence]]\ntrian.step = 1", "unknown table .trian."),
    ],
)
def test_what_is_no_sequence_is_told_of(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says):
        read_sequence(recipe_file(tmp_path, text))


def test_one_model_is_not_taken_out_of_a_sequence(tmp_path):
    with pytest.raises(ConfigError, match="is a sequence of 3 models, not the recipe of one model"):
        read_recipe(recipe_file(tmp_path, SEQUENCE))


# Images, other tests, what is expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("size = []", "one or two numbers as `size`"),
        ("size = [1, 2, 3]", "one or two numbers as `size`"),
        ("crop = [224]", "two or none as `crop`"),
        ("crop = []", "would differ in shape. Add `crop"),
        ("size = [0, 4]\ncrop = []", "that fits into"),
        ("size = [256]\ncrop = [0, 224]", "that fits into"),
        ("size = [200]", r"size = .200. and crop = .224, 224.. .* that fits into"),
        ("size = [256, 223]", "that fits into"),
        ("size = [223, 256]", "that fits into"),
        ("size = [256]\ncrop = [224, 257]", "that fits into"),
        ("channels = 2", "`channels` in .images. must be 1 or 3, not 2"),
        ("flip = 1.1", "`flip` in .images. must be a share from 0 to 1, not 1.1"),
        ("flip = nan", "`flip` in .images. must be a share"),
        ("erase = -0.1", "`erase` in .images. must be a share"),
        ("pad = -1", "`pad` in .images. must be 0 or more, not -1"),
        ("interpolation = 'nearest'", "one of bicubic, bilinear, not 'nearest'"),
        ("normalize = 'none'", "one of imagenet, half, rstpreid, not 'none'"),
        ("size = 256", "`size` in .images. must be list, not 256"),
        ("siz = [256]", "unknown key `siz` in .images.. Did you mean `size`"),
    ],
)
def test_images_that_cannot_be_made_are_told_of(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says):
        read_recipe(recipe_file(tmp_path, f"[images]\n{text}"))


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("", (224, 224)),
        ("size = [224]", (224, 224)),
        ("size = [256]\ncrop = [256, 100]", (256, 100)),
        ("size = [256, 128]\ncrop = []", (256, 128)),
        ("size = [300, 128]\ncrop = [288, 128]", (288, 128)),
        ("flip = 1\nerase = 0\npad = 10\nchannels = 1", (224, 224)),
    ],
)
def test_the_shape_that_a_model_sees(tmp_path, text, shape):
    images = read_recipe(recipe_file(tmp_path, f"[images]\n{text}")).images
    assert images.shape == shape
    assert isinstance(images.flip, float)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tests.paris]\nseed = 3", r"\[tests.paris\] has no `name`; its keys are: seed"),
        ("[tests]\nparis = 'rparis6k'", "contains paris = .* tables such as .tests.paris.,"),
        ("[tests.'a b']\nname = 'folder'", "letters, digits and _"),
        ("[tests.'../up']\nname = 'folder'", "letters, digits and _"),
        ("[tests.'']\nname = 'folder'", "letters, digits and _"),
        ("[tests.data]\nname = 'folder'", "not `data`"),
        ("tests = 3", "must be a table .tests."),
    ],
)
def test_other_tests_are_tables_with_plain_names(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says):
        read_recipe(recipe_file(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = 'rparis'", "unknown collection `rparis`. Did you mean `rparis6k`"),
        ("name = 'rparis6k'\nquery = 'whole'", r"unknown key `query` in \[tests.paris_2\]"),
    ],
)
def test_other_tests_are_checked_before_any_work(tmp_path, text, says):
    recipe = read_recipe(recipe_file(tmp_path, f"[tests.paris_2]\n{text}"))
    with pytest.raises(ConfigError, match=says):
        resolve(recipe)


def test_a_change_may_reach_one_of_the_other_tests(tmp_path):
    path = recipe_file(tmp_path, "[tests.paris]\nname = 'rparis6k'\nqueries = 'cropped'")
    recipe = read_recipe(path, ["tests.paris.path=there", "tests.more.name=folder"])
    assert recipe.tests["paris"] == Choice("rparis6k", {"queries": "cropped", "path": "there"})
    assert recipe.tests["more"] == Choice("folder")


EXPECTED = {
    "source": 'the paper, "table 2"; 30 % \\ é 🙂\n',
    "mAP": 0.1 + 0.2,
    "tiny": 1e-17,
    "seeds": 3,
    "compatible": True,
    "matrix": [[38.81], [39.84, 46.63], []],
    "new/old mAP@100": {"value": 12.5, "within": 0.5, "the rest": {"a-b": [1, 2.5, "x", False]}},
    "": "no key",
    "none": {},
}


def test_what_is_expected_is_written_out_and_read_again(tmp_path):
    recipe = resolve(build_recipe({"expected": EXPECTED}))
    again = read_recipe(recipe_file(tmp_path, to_toml(recipe)))
    assert again.expected == EXPECTED
    assert list(again.expected) == list(EXPECTED)
    assert resolve(again) == recipe
    assert "[expected]" not in to_toml(build_recipe({}))


def test_images_and_other_tests_are_written_out_and_read_again(tmp_path):
    tables = {
        "images": {"size": [256, 128], "crop": [], "erase": 0.5, "normalize": "half"},
        "tests": {"paris_2": {"name": "rparis6k", "path": 'a "b"'}, "2": {"name": "glyphs"}},
        "train": {"items_per_class": 4, "precision": "bfloat16", "compile": True},
    }
    recipe = resolve(build_recipe(tables))
    assert resolve(read_recipe(recipe_file(tmp_path, to_toml(recipe)))) == recipe
    assert recipe.images == ImagesConfig(size=(256, 128), crop=(), erase=0.5, normalize="half")


def test_a_test_may_be_named_in_any_letters_or_not_at_all(tmp_path):
    text = "[tests.'münchen']\nname = 'glyphs'"
    try:
        recipe = read_recipe(recipe_file(tmp_path, text))
    except ConfigError:
        return
    assert read_recipe(recipe_file(tmp_path, to_toml(recipe))) == recipe


def test_a_date_may_be_expected(tmp_path):
    recipe = read_recipe(recipe_file(tmp_path, "[expected]\nmeasured = 2026-01-31"))
    assert read_recipe(recipe_file(tmp_path, to_toml(recipe))) == recipe


# How to train


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("epochs = 0", "`epochs` in .train. must be from 1 to 1000000, not 0"),
        ("epochs = 1_000_001", "not 1000001"),
        ("batch_size = 1", "`batch_size` in .train. must be from 2 to 1000000"),
        ("batch_size = 1_000_001", "not 1000001"),
        ("learning_rate = -0.1", "`learning_rate` in .train. must be from 0.0"),
        ("momentum = 1.1", "`momentum` in .train. must be from 0.0 to 1.0"),
        ("weight_decay = 1.1", "`weight_decay` in .train. must be from 0.0 to 1.0"),
        ("seed = -1", "`seed` in .train. must be from 0"),
        ("warmup_steps = -1", "`warmup_steps` in .train. must be from 0 to"),
        ("warmup_factor = 1.5", "`warmup_factor` in .train. must be from 0.0 to 1.0, not 1.5"),
        ("warmup_factor = -0.1", "`warmup_factor` in .train. must be from 0.0"),
        ("accumulate = 0", "`accumulate` in .train. must be from 1"),
        ("smoothing = 1.1", "`smoothing` in .train. must be from 0.0 to 1.0"),
        ("smoothing = nan", "`smoothing` in .train. must be from 0.0"),
        (
            "items_per_class = 1",
            "`items_per_class` in .train. must be from 2 to half of",
        ),
        ("items_per_class = 129", "from 2 to half of batch_size = 256, .* not 129"),
        ("items_per_class = 3\nbatch_size = 5", "half of batch_size = 5"),
        ("items_per_class = 'two'", "`items_per_class` in .train. must be int"),
        ("optimizer = 'lamb'", "one of sgd, adam, adamw, not 'lamb'"),
        ("precision = 'half'", "one of float32, tf32, bfloat16, float16, not 'half'"),
        ("new_prototypes = 'none'", "one of pass, running"),
        ("old_view = 'none'", "one of test, same"),
        ("compile = 1", "`compile` in .train. must be bool, not 1"),
    ],
)
def test_training_has_limits(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says):
        read_recipe(recipe_file(tmp_path, f"[train]\n{text}"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("epochs", 1), ("epochs", 10**6), ("batch_size", 2), ("batch_size", 10**6)),
        *(("learning_rate", 0.0), ("momentum", 0.0), ("momentum", 1.0), ("seed", 0)),
        *(("weight_decay", 0.0), ("weight_decay", 1.0), ("seed", 2**40)),
        *(("warmup_steps", 0), ("warmup_factor", 0.0), ("warmup_factor", 1.0), ("accumulate", 1)),
        *(("smoothing", 0.0), ("smoothing", 1.0), ("items_per_class", 2), ("items_per_class", 128)),
        *(("optimizer", "adam"), ("optimizer", "adamw"), ("precision", "tf32")),
        *(("new_prototypes", "running"), ("old_view", "same"), ("compile", True)),
    ],
)
def test_the_limits_themselves_are_allowed(tmp_path, name, value):
    written = str(value).lower() if isinstance(value, bool) else repr(value)
    recipe = read_recipe(recipe_file(tmp_path, f"[train]\n{name} = {written}"))
    assert getattr(recipe.train, name) == value


def test_blanks_around_a_change_are_no_part_of_it(tmp_path):
    recipe = read_recipe(recipe_file(tmp_path, ""), ["old.run = runs/x", "train.epochs = 4"])
    assert (recipe.old.run, recipe.train.epochs) == ("runs/x", 4)


@pytest.mark.parametrize("old", [{"run": "runs/old"}, {"vectors": "old.parquet"}])
def test_a_recipe_with_an_old_model_and_no_method_is_trained_by_our_default(old):
    assert build_recipe({"old": old}).method == Choice("member_contrast")
    assert build_recipe({"old": old, "method": {"name": "bct"}}).method == Choice("bct")


@pytest.mark.parametrize("tables", [{}, {"old": {}}])
def test_a_recipe_without_an_old_model_is_trained_freely(tables):
    assert build_recipe(tables).method == Choice("independent")


# Images and texts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[pairs]\nweight = 1.0", "has .pairs. but no .text.. Add .*, or"),
        ("[pairs]", "but no .text."),
        ("[text]\nwidth = 8", ".text. has no `name`; its keys are: width"),
        ("text = 'words'", "must be a table .text., not text = 'words'"),
    ],
)
def test_pairs_need_an_encoder_of_texts_that_has_a_name(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says):
        read_recipe(recipe_file(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("compatible = 'images'", "one of image, text, both, not 'images'"),
        ("towards = 'text'", "one of own, image, other, not 'text'"),
        ("temperature = 0", "temperature = 0.0 .* above 0 and at most 10"),
        ("temperature = 10.1", "above 0 and at most 10"),
        ("temperature = nan", "above 0 and at most 10"),
        ("weight = -0.1", "0.07 and weight = -0.1.* `weight` 0 or more"),
        ("weight = inf", "`weight` 0 or more"),
        ("weight = nan", "`weight` 0 or more"),
        ("classification = 1", "`classification` in .pairs. must be bool, not 1"),
        ("toward = 'own'", "unknown key `toward` in .pairs.. Did you mean `towards`"),
    ],
)
def test_pairs_have_limits(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says):
        read_recipe(recipe_file(tmp_path, f"[text]\nname = 'words'\n[pairs]\n{text}"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", 10.0), ("temperature", 1e-3), ("weight", 0.0), ("weight", 1e3)),
        *(("compatible", "text"), ("towards", "other"), ("classification", True)),
    ],
)
def test_the_limits_of_pairs_are_allowed(tmp_path, name, value):
    written = str(value).lower() if isinstance(value, bool) else repr(value)
    text = f"[text]\nname = 'words'\n[pairs]\n{name} = {written}"
    pairs = read_recipe(recipe_file(tmp_path, text)).pairs
    assert pairs == PairsConfig(**{name: value})
    assert pairs != PairsConfig()


def test_a_method_sees_the_images_alone_unless_told_otherwise():
    assert PairsConfig().modalities == ("image",)
    assert PairsConfig(compatible="text").modalities == ("text",)
    assert PairsConfig(compatible="both").modalities == ("image", "text")


PAIRED = {
    "text": {"name": "words", "width": 8, "head": "none"},
    "pairs": {"compatible": "both", "towards": "other", "weight": 2, "classification": True},
}


def test_texts_and_pairs_are_written_out_and_read_again(tmp_path):
    recipe = resolve(build_recipe(PAIRED))
    assert resolve(read_recipe(recipe_file(tmp_path, to_toml(recipe)))) == recipe
    assert recipe.text.options == {"head": "none", "buckets": 4096, "width": 8, "longest": 64}
    assert recipe.pairs == PairsConfig("both", "other", weight=2.0, classification=True)
    assert "temperature = 0.07" in to_toml(recipe)  # a default too
    plain = resolve(build_recipe({"text": {"name": "words"}}))
    assert plain.pairs == PairsConfig()
    assert resolve(read_recipe(recipe_file(tmp_path, to_toml(plain)))) == plain


def test_a_recipe_of_images_alone_says_nothing_of_texts():
    recipe = build_recipe({"method": {"name": "odpp"}})
    assert recipe.text is None
    for written in (to_toml(recipe), to_toml(resolve(recipe))):
        assert "[text]" not in written
        assert "[pairs]" not in written


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = 'word'", "unknown text encoder `word` in .text.. Did you mean `words`"),
        ("name = 'words'\nbucket = 8", "unknown key `bucket` in .text."),
        (
            "name = 'words'\nhead = 'mlp'",
            "`head` in .text. must be one of linear, affine, no_norm, none",
        ),
    ],
)
def test_a_text_encoder_is_checked_before_any_work(tmp_path, text, says):
    recipe = read_recipe(recipe_file(tmp_path, f"[text]\n{text}"))
    with pytest.raises(ConfigError, match=says):
        resolve(recipe)


def test_a_text_encoder_of_another_name_replaces_the_one_below(tmp_path):
    path = files(
        tmp_path,
        new="extends = 'frame.toml'\n[text]\nname = 'words'\n[pairs]\ntowards = 'image'",
        frame="[text]\nname = 'vectors'\npath = 'x.npz'\n[pairs]\ncompatible = 'both'",
    )
    recipe = read_recipe(path, ["text.width=4"])
    assert recipe.text == Choice("words", {"width": 4})
    assert recipe.pairs == PairsConfig("both", "image")
