from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from nobackfill.core.atomic_files import find_path
from nobackfill.core.config import Choice, ImagesConfig
from nobackfill.data.registry import COLLECTIONS, DATASETS, make_collection, resolve_collection
from nobackfill.errors import ConfigError, DataError

SMALL = Choice(
    "glyphs", {"train_classes": 10, "test_classes": 5, "images_per_class": 7, "side": 16}
)
SEEN = ImagesConfig(size=(8, 6), crop=())


def test_a_shifted_glyph_is_still_ink_on_paper():
    collection = make_collection(SMALL)
    blank = torch.full((4, 1, 16, 16), collection.view(torch.arange(9)).min().item())
    assert torch.equal(collection.augment(blank, torch.Generator().manual_seed(0)), blank)


def draw(root, classes=10):
    """A folder of class folders, named by numbers, with two images each."""
    for number in range(classes):
        (root / str(number)).mkdir(parents=True)
        for name in "ab":
            Image.new("RGB", (6, 8), (number, 0, 0)).save(root / str(number) / f"{name}.png")
    return root


def test_no_collection_has_two_meanings():
    assert not COLLECTIONS.keys() & DATASETS.keys()


@pytest.mark.parametrize("name", [*COLLECTIONS, *DATASETS])
def test_defaults_are_written_out_and_then_stay(name):
    resolved = resolve_collection(Choice(name))
    assert resolved.name == name
    assert resolve_collection(resolved) == resolved
    if name in DATASETS:
        written = {"shares": (1.0,), "counts": (), "order": "random", "seed": 0, "path": name}
        assert resolved.options.items() >= written.items()
        ours = {"protocol", "workers", "keep", "listing"}  # not for [data] to say
        assert not resolved.options.keys() & ours


def test_options_of_files_and_of_their_reader_stand_in_one_table():
    given = {"path": "there", "shares": [0.3, 1], "order": "numpy", "validation": 1}
    resolved = resolve_collection(Choice("folder", given))
    assert resolved.options == {
        **{"path": "there", "shares": (0.3, 1.0), "order": "numpy", "validation": 1.0},
        **{"counts": (), "seed": 0},
    }
    paris = resolve_collection(Choice("rparis6k", {"queries": "cropped"}))
    assert paris.options["queries"] == "cropped"


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("foldr", {}, "unknown collection `foldr`. Did you mean `folder`"),
        ("folder", {"share": [1.0]}, "unknown key `share` in .data.. Did you mean `shares`"),
        ("folder", {"queries": "whole"}, "unknown key `queries` in .data."),  # of another reader
        ("folder", {"keep": True}, "unknown key `keep` in .data."),
        ("folder", {"protocol": "gldv2"}, "unknown key `protocol` in .data."),
        ("folder", {"workers": 3}, "unknown key `workers` in .data."),
        ("folder", {"root": "there"}, "unknown key `root` in .data."),
        ("folder", {"path": 3}, "`path` in .data. must be text, not 3"),
        ("folder", {"shares": 0.3}, "`shares` in .data. must be list"),
        ("folder", {"shares": ["a"]}, "`shares` in .data. must be float, not 'a'"),
        ("folder", {"counts": [0.5]}, "`counts` in .data. must be int, not 0.5"),
        ("folder", {"order": "last"}, "one of random, first, numpy, not 'last'"),
        ("folder", {"seed": "x"}, "`seed` in .data. must be int"),
        ("folder", {"validation": "some"}, "`validation` in .data. must be"),
        ("rparis6k", {"queries": "half"}, "one of whole, cropped, not 'half'"),
        ("glyphs", {"path": "there"}, "unknown key `path` in .data."),
    ],
)
def test_wrong_options_are_an_error_before_any_file_is_looked_for(name, options, says):
    with pytest.raises(ConfigError, match=says):
        resolve_collection(Choice(name, options))
    with pytest.raises(ConfigError, match=says):
        make_collection(Choice(name, options))


def test_an_error_names_the_table_it_is_about():
    for options in ({"share": [1.0]}, {"keep": True}, {"order": "last"}, {"validation": "x"}):
        with pytest.raises(ConfigError, match=r"in \[tests.paris\]"):
            resolve_collection(Choice("folder", options), where="tests.paris")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [("validaton", "Did you mean `validation`"), ("protocl", "^(?!.*(protocol`|workers|keep)).*$")],
)
def test_what_is_suggested_may_be_written(wrong, says):
    with pytest.raises(ConfigError, match=says):
        resolve_collection(Choice("folder", {wrong: 1}))


def test_a_folder_becomes_a_collection(tmp_path):
    options = {"path": str(draw(tmp_path)), "validation": 0.2, "order": "first"}
    collection = make_collection(
        Choice("folder", {**options, "shares": [0.5, 1.0]}), SEEN, workers=2, keep=True
    )
    assert collection.class_counts == (4, 8)
    assert collection.protocol == "plain"
    assert collection.workers == 2
    assert collection.ready is not None
    assert collection.images == SEEN
    colours = collection.load(torch.arange(20), None)[:, 0, 0, 0].tolist()
    assert colours == [int(file.split("/")[0]) for file in collection.ids]
    trained = sorted({colours[row] for row in collection.training_rows(-1).tolist()})
    known = {colours[row] for row in collection.training_rows(0).tolist()}
    assert len(trained) == 8
    assert known == set(trained[:4])
    plain = make_collection(Choice("folder", options))
    assert (plain.images, plain.workers, plain.ready) == (ImagesConfig(), 0, None)
    assert plain.class_counts == (8,)


def test_counts_and_the_seed_reach_the_files(tmp_path):
    def known(**options):
        choice = Choice("folder", {"path": str(tmp_path), "validation": 0, **options})
        collection = make_collection(choice, SEEN)
        assert collection.class_counts == (4, 9)
        return frozenset(
            collection.ids[row].split("/")[0] for row in collection.training_rows(0).tolist()
        )

    draw(tmp_path)
    drawn = {known(counts=[4, 9], order="numpy", seed=seed) for seed in range(5)}
    assert len(drawn) > 1
    expected = np.random.RandomState(3).permutation(10)[:4]
    assert known(counts=[4, 9], order="numpy", seed=3) == {str(place) for place in expected}


def test_the_way_to_search_comes_with_the_collection(tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS, "folder", replace(DATASETS["folder"], protocol="gldv2"))
    choice = Choice("folder", {"path": str(draw(tmp_path, 4)), "validation": 0})
    assert make_collection(choice, SEEN).protocol == "gldv2"
    assert DATASETS["rparis6k"].protocol == "roxford_rparis"
    assert DATASETS["gldv2"].protocol == "gldv2"
    assert DATASETS["market1501"].protocol == "market1501"


def test_a_relative_path_is_looked_for_here_and_then_below_a_folder_of_data(tmp_path, monkeypatch):
    here, data = tmp_path / "here", tmp_path / "data"
    draw(data / "birds", 4)
    here.mkdir()
    monkeypatch.chdir(here)
    birds = Choice("folder", {"path": "birds", "validation": 0})
    monkeypatch.delenv("NOBACKFILL_DATA", raising=False)
    with pytest.raises(DataError, match="No collection at birds: .* NOBACKFILL_DATA"):
        make_collection(birds, SEEN)
    monkeypatch.setenv("NOBACKFILL_DATA", str(data))
    assert len(make_collection(birds, SEEN).ids) == 8
    assert resolve_collection(birds).options["path"] == "birds"  # a recipe names no machine's place
    draw(here / "birds", 3)
    assert len(make_collection(birds, SEEN).ids) == 6  # what lies here comes first
    with pytest.raises(DataError, match=f"at cats, nor below {data}"):
        make_collection(Choice("folder", {"path": "cats"}), SEEN)


def test_the_name_of_a_collection_is_its_folder_where_none_is_told(tmp_path, monkeypatch):
    draw(tmp_path / "folder", 4)
    monkeypatch.setenv("NOBACKFILL_DATA", str(tmp_path))
    assert len(make_collection(Choice("folder", {"validation": 0}), SEEN).ids) == 8


def test_home_and_whole_paths_are_found(tmp_path, monkeypatch):
    (tmp_path / "birds").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NOBACKFILL_DATA", str(tmp_path / "elsewhere"))
    assert find_path("~/birds", "collection") == tmp_path / "birds"
    assert find_path(tmp_path / "birds", "collection") == tmp_path / "birds"
    monkeypatch.setenv("NOBACKFILL_DATA", "")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="No weights at cats: the path does not exist. Correct"):
        find_path("cats", "weights")
