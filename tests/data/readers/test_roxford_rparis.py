"""The revisited buildings: who asks, what counts as found, and where the boxes are."""

import json
import pickle

import numpy as np
import pytest
from PIL import Image

from nobackfill.data.decode import open_image
from nobackfill.data.listing import count_items
from nobackfill.data.readers.roxford_rparis import read_roxford5k, read_rparis6k
from nobackfill.errors import DataError

TRUTH = {
    "imlist": ["oxford_2", "oxford_0", "oxford_1", "oxford_3", "oxford_4"],
    "qimlist": ["tower_1", "tower_0"],
    "gnd": [
        {"bbx": [10.5, 20, 100, 150.25], "easy": [1], "hard": [0, 4], "junk": [3]},
        {"bbx": [0, 0, 200, 160], "easy": [], "hard": [2], "junk": []},
    ],
}


def write(root, truth=TRUTH, name="gnd_roxford5k.pkl", size=(200, 160)):
    (root / "jpg").mkdir(exist_ok=True)
    for image in [*TRUTH["imlist"], *TRUTH["qimlist"]]:
        Image.new("RGB", size).save(root / "jpg" / f"{image}.jpg")
    (root / name).write_bytes(pickle.dumps(truth, protocol=3))
    return root


def names(*places):
    return [TRUTH["imlist"][place] + ".jpg" for place in places]


def test_the_gallery_comes_first_then_the_queries_in_the_order_of_the_lists(tmp_path):
    listing = read_roxford5k(write(tmp_path))
    assert listing.files == [*names(0, 1, 2, 3, 4), "tower_1.jpg", "tower_0.jpg"]
    assert listing.columns["is_query"].tolist() == [False] * 5 + [True] * 2
    assert listing.columns["is_gallery"].tolist() == [True] * 5 + [False] * 2
    assert set(listing.columns["split"]) == {"validation"}
    assert set(listing.classes) == {""}
    assert count_items(listing) == {
        **{"images": 7, "queries": 2, "gallery": 5},
        **{"train_images": 0, "train_classes": 0},
    }
    for file in listing.files:
        open_image(listing.root / file)


def test_what_counts_as_found_and_what_neither_way(tmp_path):
    truth = read_roxford5k(write(tmp_path)).ground_truth
    assert list(truth) == ["easy", "medium", "hard"]
    found = {
        name: (way.relevant["tower_1.jpg"], way.ignored["tower_1.jpg"])
        for name, way in truth.items()
    }
    for name, (relevant, ignored) in {
        "easy": (names(1), names(0, 3, 4)),
        "medium": (names(0, 1, 4), names(3)),
        "hard": (names(0, 4), names(1, 3)),
    }.items():
        assert sorted(found[name][0]) == sorted(relevant), name
        assert sorted(found[name][1]) == sorted(ignored), name
    assert truth["easy"].relevant["tower_0.jpg"] == []
    assert truth["easy"].ignored["tower_0.jpg"] == names(2)
    assert truth["hard"].relevant["tower_0.jpg"] == names(2)


def test_paris_is_read_from_its_own_ground_truth(tmp_path):
    listing = read_rparis6k(write(tmp_path, name="gnd_rparis6k.pkl"))
    assert len(listing.files) == 7
    with pytest.raises(DataError, match=r"gnd_roxford5k\.pkl"):
        read_roxford5k(tmp_path)


def test_a_ground_truth_with_arrays_in_it(tmp_path):
    as_arrays = [{key: np.array(value) for key, value in entry.items()} for entry in TRUTH["gnd"]]
    as_arrays[1]["easy"] = as_arrays[1]["easy"].astype(int)
    as_arrays[1]["junk"] = as_arrays[1]["junk"].astype(int)
    listing = read_roxford5k(write(tmp_path, {**TRUTH, "gnd": as_arrays}), queries="cropped")
    plain = read_roxford5k(write(tmp_path), queries="cropped")
    assert listing.ground_truth == plain.ground_truth
    assert listing.boxes == plain.boxes


# Boxes.


def test_queries_are_whole_unless_asked_otherwise(tmp_path):
    assert read_roxford5k(write(tmp_path)).boxes == {}


def test_boxes_are_those_of_the_queries(tmp_path):
    listing = read_roxford5k(write(tmp_path), queries="cropped")
    assert listing.boxes == {5: (10.5, 20.0, 100.0, 150.25), 6: (0.0, 0.0, 200.0, 160.0)}


def test_boxes_shrink_with_the_images(tmp_path):
    write(tmp_path, size=(100, 40))
    sizes = {f"{name}.jpg": [200, 160] for name in TRUTH["qimlist"]}
    (tmp_path / "original_sizes.json").write_text(json.dumps(sizes))
    listing = read_roxford5k(tmp_path, queries="cropped")
    assert listing.boxes[5] == pytest.approx((5.25, 5, 50, 37.5625))
    assert listing.boxes[6] == pytest.approx((0, 0, 100, 40))


@pytest.mark.parametrize(
    ("contents", "told"),
    [
        ("{}", "has no size of tower_1.jpg"),
        ("[1, 2]", "names to widths and heights"),
        ('{"tower_1.jpg": 7}', "names to widths and heights"),
        ('{"tower_1.jpg": [20', "names to widths and heights"),
    ],
)
def test_original_sizes_that_cannot_be_used(tmp_path, contents, told):
    (write(tmp_path) / "original_sizes.json").write_text(contents)
    with pytest.raises(DataError, match=told):
        read_roxford5k(tmp_path, queries="cropped")


def test_a_query_that_is_not_there_is_named_when_its_size_is_needed(tmp_path):
    sizes = {f"{name}.jpg": [200, 160] for name in TRUTH["qimlist"]}
    (write(tmp_path) / "original_sizes.json").write_text(json.dumps(sizes))
    (tmp_path / "jpg" / "tower_0.jpg").unlink()
    with pytest.raises(DataError, match=r"size of the image .*tower_0\.jpg"):
        read_roxford5k(tmp_path, queries="cropped")


# Folders as users have them.


def test_a_folder_without_images(tmp_path):
    write(tmp_path)
    (tmp_path / "jpg").rename(tmp_path / "images")
    with pytest.raises(DataError, match=r"No images at .*jpg: the folder does not exist"):
        read_roxford5k(tmp_path)


def test_more_images_than_the_lists_name_do_no_harm(tmp_path):
    write(tmp_path)
    Image.new("RGB", (8, 8)).save(tmp_path / "jpg" / "other.jpg")
    assert len(read_roxford5k(tmp_path).files) == 7


def changed(**entry):
    return {**TRUTH, "gnd": [{**TRUTH["gnd"][0], **entry}, TRUTH["gnd"][1]]}


@pytest.mark.parametrize(
    "truth",
    [
        [1, 2],
        {"imlist": ["a"]},
        {**TRUTH, "imlist": [1, 2, 3, 4, 5]},
        {**TRUTH, "gnd": TRUTH["gnd"][:1]},
        {**TRUTH, "qimlist": ["tower_1", "oxford_0"]},
        {**TRUTH, "gnd": [{"ok": [1], "junk": [], "bbx": [0, 0, 1, 1]}] * 2},  # before the revision
        changed(easy=[5]),
        changed(junk=[-1]),
        changed(easy=["oxford_0"]),
        changed(easy=None),
        changed(bbx=[1, 2, 3]),
    ],
)
def test_a_ground_truth_of_another_kind(tmp_path, truth):
    with pytest.raises(DataError, match=r"gnd_roxford5k\.pkl: it must contain .* Fetch"):
        read_roxford5k(write(tmp_path, truth), queries="cropped")


def test_an_image_that_is_listed_twice(tmp_path):
    truth = {**TRUTH, "imlist": ["oxford_2", "oxford_2", *TRUTH["imlist"][2:]]}
    with pytest.raises(DataError, match=r"oxford_2\.jpg twice"):
        read_roxford5k(write(tmp_path, truth))
