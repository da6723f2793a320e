"""Tables of images as users write them."""

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from pyarrow import csv

from nobackfill.core.config import ImagesConfig
from nobackfill.data.decode import open_image
from nobackfill.data.file_collection import collect_files
from nobackfill.data.listing import count_items
from nobackfill.data.readers.manifest import read_manifest
from nobackfill.errors import DataError

TABLE = {
    "path": ["a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg", "b/3.jpg"],
    "label": ["001", "1", "cat, black", "cat, black", "null"],
    "split": ["train", "train", "validation", "val", "test"],
    "is_query": [False, False, True, False, False],
    "is_gallery": [False, False, False, True, True],
    "camera": [1, 1, 2, 3, 3],
    "text": ["a bird", "", "a cat", "black\ncat", "nothing"],
    "price": [1.5, 2.0, 0.25, 1.0, 3.0],
    "shop": ["x", "", "ß", "y", "007"],
}

every_format = pytest.mark.parametrize("suffix", [".csv", ".parquet"])


def write(folder, suffix=".csv", **changes):
    """A manifest with some columns changed, or left out by None; and its images."""
    table = {name: column for name, column in {**TABLE, **changes}.items() if column is not None}
    for path in TABLE["path"]:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6)).save(folder / path)
    path = folder / f"manifest{suffix}"
    (csv.write_csv if suffix == ".csv" else pq.write_table)(pa.table(table), path)
    return path


def write_text(folder, text):
    path = write(folder)
    path.write_text(text, encoding="utf-8")
    return path


@every_format
def test_everything_is_kept(tmp_path, suffix):
    listing = read_manifest(write(tmp_path, suffix))
    assert listing.root == tmp_path
    assert listing.files == TABLE["path"]
    assert listing.classes.tolist() == TABLE["label"]
    assert listing.columns["split"].tolist() == ["train"] * 2 + ["validation"] * 3
    assert listing.captions == [("a bird",), (), ("a cat",), ("black\ncat",), ("nothing",)]
    assert set(listing.columns) == {"split", "is_query", "is_gallery", "camera", "price", "shop"}
    for name, kind in {"is_query": "b", "is_gallery": "b", "camera": "i", "price": "f"}.items():
        assert listing.columns[name].dtype.kind == kind, name
        np.testing.assert_array_equal(listing.columns[name], TABLE[name])
    assert listing.columns["shop"].tolist() == TABLE["shop"]
    assert count_items(listing) == {
        **{"images": 5, "train_images": 2, "train_classes": 2, "queries": 1, "gallery": 2},
        **{"search_classes": 2, "captions": 4},
    }
    for file in listing.files:
        open_image(listing.root / file)


@every_format
def test_two_columns_will_do(tmp_path, suffix):
    path = tmp_path / f"small{suffix}"
    write(tmp_path, suffix).rename(path)
    few = pa.table({"label": TABLE["label"], "path": TABLE["path"]})
    (csv.write_csv if suffix == ".csv" else pq.write_table)(few, path)
    listing = read_manifest(path)
    assert listing.captions is None
    assert list(listing.columns) == ["split"]
    assert set(listing.columns["split"]) == {"validation"}


@every_format
def test_without_a_split_what_is_not_searched_is_to_train_on(tmp_path, suffix):
    listing = read_manifest(write(tmp_path, suffix, split=None))
    assert listing.columns["split"].tolist() == ["train"] * 2 + ["validation"] * 3
    listing = read_manifest(write(tmp_path, suffix, split=None, is_query=None))
    assert listing.columns["split"].tolist() == ["train"] * 3 + ["validation"] * 2


def test_what_is_unused_stays_unused(tmp_path):
    splits = ["train", "unused", "val", "val", "unused"]
    counts = count_items(read_manifest(write(tmp_path, split=splits)))
    assert (counts["images"], counts["train_images"], counts["queries"]) == (5, 1, 1)


def test_whole_numbers_are_labels_too(tmp_path):
    listing = read_manifest(write(tmp_path, ".parquet", label=[1, 20, 300, 300, -4]))
    assert listing.classes.tolist() == ["1", "20", "300", "300", "-4"]


def test_labels_by_dictionary(tmp_path):
    coded = pa.array(TABLE["label"]).dictionary_encode()
    assert (
        read_manifest(write(tmp_path, ".parquet", label=coded)).classes.tolist() == TABLE["label"]
    )


@every_format
def test_flags_may_be_0_and_1(tmp_path, suffix):
    listing = read_manifest(write(tmp_path, suffix, is_query=[0, 0, 1, 1, 0]))
    assert listing.columns["is_query"].tolist() == [False, False, True, True, False]
    assert listing.columns["is_query"].dtype == bool


@every_format
def test_dates_and_empty_columns_are_carried_as_text(tmp_path, suffix):
    day, empty = [datetime.date(2024, 2, 29)] * 5, pa.array([None] * 5, pa.string())
    columns = read_manifest(write(tmp_path, suffix, day=day, empty=empty)).columns
    assert columns["day"].tolist() == ["2024-02-29"] * 5
    assert columns["empty"].tolist() == [""] * 5


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_items_are_named_by_their_id_where_they_have_one(tmp_path, suffix):
    listing = read_manifest(write(tmp_path, suffix, id=["007", "b", "c", "d", "e"]))
    assert listing.ids == ["007", "b", "c", "d", "e"]
    assert "id" not in listing.columns
    assert read_manifest(write(tmp_path, suffix)).ids is None
    with pytest.raises(DataError, match="`id` is empty in 1 rows"):
        read_manifest(write(tmp_path, suffix, id=["a", "b", "c", "d", ""]))


def test_vectors_are_not_carried_along(tmp_path):
    listing = read_manifest(write(tmp_path, ".parquet", vector=[[1.0, 2.0]] * 5))
    assert "vector" not in listing.columns


def test_a_mark_at_the_beginning_of_the_file_is_no_part_of_the_name(tmp_path):
    path = write_text(tmp_path, "\ufeffpath,label\r\na/1.jpg,ß\r\n")
    assert read_manifest(path).classes.tolist() == ["ß"]


# Several texts to an image.

SEVERAL = {
    "path": ["a/1.jpg", "b/1.jpg", "a/1.jpg", "b/1.jpg", "a/2.jpg"],
    "label": ["1", "2", "1", "2", "3"],
    "split": ["train", "val", "train", "test", "train"],
    "is_query": [False, True, False, True, False],
    "is_gallery": [False] * 5,
    "camera": [1, 2, 1, 2, 1],
    "text": ["a bird", "a cat", " \t", "a black cat", ""],
    "price": [1.5, None, 1.5, None, 2.0],
    "shop": ["x", "", "x", "", "y"],
}


@every_format
def test_rows_of_one_image_are_its_texts_in_their_order(tmp_path, suffix):
    listing = read_manifest(write(tmp_path, suffix, **SEVERAL))
    assert listing.files == ["a/1.jpg", "b/1.jpg", "a/2.jpg"]
    assert listing.captions == [("a bird",), ("a cat", "a black cat"), ()]
    assert listing.classes.tolist() == ["1", "2", "3"]
    assert listing.columns["split"].tolist() == ["train", "validation", "train"]
    assert listing.columns["is_query"].tolist() == [False, True, False]
    assert listing.columns["camera"].tolist() == [1, 2, 1]
    assert listing.columns["shop"].tolist() == ["x", "", "y"]
    np.testing.assert_array_equal(listing.columns["price"], [1.5, np.nan, 2.0])
    assert listing.ids is None
    assert count_items(listing)["captions"] == 3


def test_rows_of_one_image_have_one_id(tmp_path):
    ids = ["x", "y", "x", "y", "z"]
    assert read_manifest(write(tmp_path, **SEVERAL, id=ids)).ids == ["x", "y", "z"]
    with pytest.raises(
        DataError, match=r"`id` must be the same .* but a/1\.jpg has 'x' and then 'w'\. Make"
    ):
        read_manifest(write(tmp_path, **SEVERAL, id=["x", "y", "w", "y", "z"]))
    with pytest.raises(DataError, match="lists in .* name the item y twice"):
        read_manifest(write(tmp_path, **SEVERAL, id=["x", "y", "x", "y", "y"]))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"label": ["1", "2", "1", "20", "3"]}, r"`label` .* b/1\.jpg has '2' and then '20'\."),
        (
            {"split": ["train", "val", "unused", "val", "train"]},
            r"`split` .* a/1\.jpg has 'train' and then 'unused'\. Make them the same\.",
        ),
        (
            {"camera": [1, 2, 3, 2, 1]},
            r"`camera` .* a/1\.jpg has 1 and then 3\. Make them the same, or drop the column\.",
        ),
        ({"price": [1.5, None, 1.5, 0.0, 2.0]}, r"`price` .* b/1\.jpg has nan and then 0\.0"),
        ({"is_query": [False, True, True, True, False]}, r"`is_query` .* a/1\.jpg has False"),
    ],
)
def test_rows_of_one_image_that_do_not_agree(tmp_path, changes, told):
    with pytest.raises(DataError, match=told):
        read_manifest(write(tmp_path, **SEVERAL | changes))


@every_format
def test_a_text_without_an_image(tmp_path, suffix):
    paths = ["a/1.jpg", "a/2.jpg", "", " ", "b/3.jpg"]
    with pytest.raises(
        DataError,
        match=r"2 rows have a `text` and no `path`.*row 3 .*'a cat', a text without an im",
    ):
        read_manifest(write(tmp_path, suffix, path=paths))
    texts = ["a bird", "", "", " ", "nothing"]  # then it is only a path that is missing
    with pytest.raises(DataError, match="`path` is empty in 2 rows"):
        read_manifest(write(tmp_path, suffix, path=paths, text=texts))


def test_only_training_with_texts_asks_for_them(tmp_path):
    seen = ImagesConfig(size=(6, 8), crop=())
    collection = collect_files(read_manifest(write(tmp_path, **SEVERAL)), seen)
    assert collection.captions_of(torch.tensor([1, 0])).texts == ["a cat", "a black cat", "a bird"]
    assert collection.captions_of(torch.tensor([1])).ids == ["b/1.jpg#0", "b/1.jpg#1"]
    assert len(collection.training_rows(0)) == 2
    with pytest.raises(DataError, match=r"1 of 2 have none; the first is 'a/2\.jpg'"):
        collection.captions_of(collection.training_rows(0))


# Where the images are.


@every_format
def test_images_may_lie_elsewhere(tmp_path, suffix):
    path = write(tmp_path / "images", suffix).rename(tmp_path / f"manifest{suffix}")
    with pytest.raises(DataError, match=r"No image at .*a/1\.jpg, the first path in"):
        read_manifest(path)
    listing = read_manifest(path, images=str(tmp_path / "images"))
    assert listing.root == tmp_path / "images"
    assert listing.files == TABLE["path"]
    with pytest.raises(DataError, match="gone: the folder does not exist"):
        read_manifest(path, images=str(tmp_path / "gone"))


def test_a_named_file_that_is_missing_is_told_when_opened(tmp_path):
    listing = read_manifest(write(tmp_path))
    (tmp_path / "b" / "3.jpg").unlink()
    with pytest.raises(DataError, match=r"b/3\.jpg: the file does not exist"):
        open_image(listing.root / listing.files[4])


# Tables with something wrong.


@every_format
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"path": None}, "no column `path`; the columns are label, split"),
        ({"label": None}, "no column `label`; the columns are path, split"),
        ({"path": None, "label": None}, "no column `path` and no `label`"),
        ({"label": ["a", "b", "", " ", "c"]}, "`label` is empty in 2 rows.*row 3 below"),
        ({"path": ["a/1.jpg", "", *TABLE["path"][2:]]}, "`path` is empty in 1 rows.*row 2"),
        (
            {"path": ["a/1.jpg"] * 2 + TABLE["path"][2:], "text": None},
            r"name the image a/1\.jpg twice",
        ),
        (
            {"split": ["train", "dev", "test", "val", "train"]},
            "`split` must be one of train, validation.*has 'dev'",
        ),
        (
            {"split": ["train", "", "test", "val", "train"]},
            "`split` must be one of .*but a row has ''",
        ),
        ({"is_query": ["yes", "no", "no", "no", "no"]}, "`is_query` must be true or false"),
        ({"is_query": [0, 1, 2, 0, 0]}, "`is_query` must be true or false"),
        (
            {"is_gallery": [True, None, True, True, True]},
            "`is_gallery` must have a value",
        ),
        ({"camera": [1, None, 2, 3, 4]}, "`camera` must have a value"),
    ],
)
def test_columns_that_cannot_be_used(tmp_path, suffix, changes, told):
    with pytest.raises(DataError, match=told):
        read_manifest(write(tmp_path, suffix, **changes))


@pytest.mark.parametrize("separator", [";", "\t", "|", " "])
def test_a_wrong_separator(tmp_path, separator):
    text = f"path{separator}label\na/1.jpg{separator}cat\n"
    with pytest.raises(
        DataError, match="no column `path` and no `label`; the columns are path.label.*by commas"
    ):
        read_manifest(write_text(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("path,label\na/1.jpg,cat,black\n", "cannot be read .*[Ee]xpected 2 columns, got 3"),
        ("path,label\n", "it has no rows"),
        ("", "cannot be read .*[Ee]mpty CSV"),
        ("path,label,label\na/1.jpg,x,y\n", "several columns label"),
    ],
)
def test_text_that_is_no_table(tmp_path, text, told):
    with pytest.raises(DataError, match=told):
        read_manifest(write_text(tmp_path, text))


def test_text_in_another_encoding(tmp_path):
    path = write(tmp_path)
    path.write_bytes("path,label\na/1.jpg,Müller\n".encode("latin-1"))
    with pytest.raises(DataError, match="cannot be read .*UTF8"):
        read_manifest(path)


def test_a_label_that_is_a_fraction(tmp_path):
    with pytest.raises(DataError, match="`label` must be text or whole numbers"):
        read_manifest(write(tmp_path, ".parquet", label=[1.0, 2.0, 3.0, 4.0, 5.0]))


def test_a_label_that_is_missing(tmp_path):
    with pytest.raises(DataError, match="`label` is empty in 1 rows"):
        read_manifest(write(tmp_path, ".parquet", label=["a", None, "b", "c", "d"]))


def test_a_table_cut_short(tmp_path):
    path = write(tmp_path, ".parquet")
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match=r"manifest\.parquet: it cannot be read"):
        read_manifest(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"images at .*gone\.csv: the file does not exist"):
        read_manifest(tmp_path / "gone.csv")


def test_a_table_of_another_kind(tmp_path):
    with pytest.raises(DataError, match=r"\.csv or \.parquet file, not .*table\.xlsx"):
        read_manifest(tmp_path / "table.xlsx")
