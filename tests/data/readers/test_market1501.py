"""Market-1501 as it is unpacked, in small; and the ways in which a copy can be broken."""

import numpy as np
import pytest
from PIL import Image

from nobackfill.data.listing import count_items
from nobackfill.data.readers.market1501 import MARKET1501, read_market1501
from nobackfill.errors import DataError

FILES = """
    bounding_box_train/0002_c1s1_000451_03.jpg bounding_box_train/0002_c2s1_000776_01.jpg
    bounding_box_train/0007_c3s3_077419_03.jpg
    query/0001_c1s1_001051_00.jpg query/0003_c6s4_001902_00.jpg
    bounding_box_test/-1_c1s1_000401_03.jpg bounding_box_test/-1_c5s2_000701_02.jpg
    bounding_box_test/0000_c4s6_000151_01.jpg
    bounding_box_test/0001_c2s1_000301_00.jpg bounding_box_test/0003_c5s1_010101_00.jpg
""".split()


def add(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 8)).save(path, format="JPEG")


@pytest.fixture
def root(tmp_path):
    for file in FILES:
        add(tmp_path / file)
    (tmp_path / "bounding_box_test" / "Thumbs.db").write_bytes(b"left by the authors")
    return tmp_path


def rows(listing, **wanted):
    """The files for which all these columns have these values."""
    columns = {"class": listing.classes, **listing.columns}
    keep = np.all([columns[key] == value for key, value in wanted.items()], axis=0)
    return [file for file, kept in zip(listing.files, keep, strict=True) if kept]


def test_folders_tell_what_is_trained_on_asked_and_searched(root):
    listing = read_market1501(root)
    assert rows(listing, split="train") == [f for f in FILES if "train" in f]
    assert rows(listing, split="validation", is_query=True) == [f for f in FILES if "query" in f]
    assert rows(listing, split="validation", is_gallery=True) == FILES[7:]
    assert not rows(listing, is_query=True, is_gallery=True)
    assert not rows(listing, split="train", is_gallery=True)


def test_names_tell_person_and_camera(root):
    listing = read_market1501(root)
    assert rows(listing, **{"class": "0002"}) == FILES[:2]
    assert rows(listing, camera=6) == ["query/0003_c6s4_001902_00.jpg"]
    assert listing.columns["camera"].dtype == np.int64


def test_junk_is_left_out_and_told_and_distractors_stay(root):
    listing = read_market1501(root)
    assert not [file for file in listing.files if "/-1_" in file]
    assert listing.notes == ("2 junk images (person -1) in bounding_box_test are left out",)
    assert rows(listing, **{"class": "0000", "is_gallery": True}) == [FILES[7]]


def test_a_doubled_ending_does_no_harm(root):
    add(root / "query" / "0003_c1s4_001902_00.jpg.jpg")
    listing = read_market1501(root)
    assert rows(listing, **{"class": "0003", "camera": 1}) == ["query/0003_c1s4_001902_00.jpg.jpg"]


def test_counts_of_the_small_copy(root):
    assert count_items(read_market1501(root)) == {
        "images": 8, "train_images": 3, "train_classes": 2,
        "queries": 2, "gallery": 3, "search_classes": 3,
    }  # fmt: skip


def test_official_counts_add_up():
    counts = MARKET1501.counts
    assert counts["gallery"] == 19_732 - 3_819
    assert counts["images"] == 12_936 + 3_368 + counts["gallery"]
    assert (counts["train_classes"], counts["queries"]) == (751, 3_368)


def test_other_files_are_passed_over(root):
    for name in ("readme.txt", "._0002_c1s1_000451_03.jpg", "0002_c1s1_000451_03.jpg.mat"):
        (root / "bounding_box_train" / name).write_bytes(b"")
    assert count_items(read_market1501(root))["train_images"] == 3


@pytest.mark.parametrize("folder", ["bounding_box_train", "bounding_box_test", "query"])
def test_a_missing_folder_is_named(root, folder):
    (root / folder).rename(root / "elsewhere")
    with pytest.raises(DataError, match=folder):
        read_market1501(root)


def test_an_empty_folder_is_named(root):
    for path in (root / "query").iterdir():
        path.unlink()
    with pytest.raises(DataError, match=r"query contains no \.jpg"):
        read_market1501(root)


@pytest.mark.parametrize(
    "name",
    [
        "0002-c1s1-000451-03.jpg",
        "0002.jpg",
        "2_c1s1_000451_03.jpg",
        "0002_c1s1_0_1 (1).jpg",
        "0002_c1s1_000451_03.jpg-old.jpg",
    ],
)
def test_a_name_of_another_kind_is_told(root, name):
    add(root / "bounding_box_train" / name)
    with pytest.raises(DataError) as error:
        read_market1501(root)
    assert name in str(error.value)
    assert "0002_c1s1_000451_03.jpg" in str(error.value)
