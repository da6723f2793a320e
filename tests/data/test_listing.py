"""Listings: every image once, lists that are what they should be, and how much there is."""

import numpy as np
import pytest

from nobackfill.data.listing import Listing, count_items, read_table, read_text, require_folder
from nobackfill.errors import DataError


def listing(files, tmp_path, **more):
    classes = more.pop("classes", ["a"] * len(files))
    split = more.pop("split", ["train"] * len(files))
    columns = {"split": np.array(split), **more.pop("columns", {})}
    return Listing(root=tmp_path, files=files, classes=np.array(classes), columns=columns, **more)


def test_an_image_that_is_listed_twice_is_named(tmp_path):
    with pytest.raises(DataError, match=rf"lists in {tmp_path} name the image a\.jpg twice"):
        listing(["a.jpg", "b.jpg", "c.jpg", "b.jpg", "a.jpg"], tmp_path)


def test_every_column_tells_of_every_file(tmp_path):
    with pytest.raises(AssertionError, match="one id, class and value"):
        listing(["a.jpg", "b.jpg"], tmp_path, classes=["a"])
    with pytest.raises(AssertionError, match="one id, class and value"):
        listing(["a.jpg", "b.jpg"], tmp_path, columns={"camera": np.array([1, 2, 3])})
    with pytest.raises(AssertionError, match="one id, class and value"):
        listing(["a.jpg", "b.jpg"], tmp_path, split=["train"])


@pytest.mark.parametrize("ids", [["one", "one"], ["one"]])
def test_every_item_has_a_name_of_its_own(tmp_path, ids):
    with pytest.raises((DataError, AssertionError)):
        listing(["a.jpg", "b.jpg"], tmp_path, ids=ids)


FILES = [f"{row}.jpg" for row in range(9)]
SPLIT = ["train"] * 4 + ["validation"] * 4 + ["unused"]
CLASSES = ["a", "b", "a", "", "c", "a", "", "c", "d"]


def test_where_roles_are_not_told_apart_all_that_is_searched_has_both(tmp_path):
    assert count_items(listing(FILES, tmp_path, classes=CLASSES, split=SPLIT)) == {
        **{"images": 9, "train_images": 4, "train_classes": 2},  # "" is no class
        **{"queries": 4, "gallery": 4, "search_classes": 2},
    }


def test_roles_count_among_what_is_searched(tmp_path):
    is_query = np.array([1, 1, 1, 1, 1, 0, 0, 0, 1], dtype=bool)
    is_gallery = np.array([1, 0, 0, 0, 0, 1, 1, 1, 1], dtype=bool)
    columns = {"is_query": is_query, "is_gallery": is_gallery}
    counts = count_items(listing(FILES, tmp_path, split=SPLIT, columns=columns))
    assert (counts["queries"], counts["gallery"]) == (1, 3)


def test_what_is_not_there_is_not_counted(tmp_path):
    unlabelled = listing(FILES, tmp_path, classes=[""] * 9, split=SPLIT)
    counts = count_items(unlabelled)
    assert counts["train_classes"] == 0
    assert "search_classes" not in counts
    assert "captions" not in counts
    captions = [("one", "two"), (), ("three",)] + [()] * 6
    assert count_items(listing(FILES, tmp_path, captions=captions))["captions"] == 3
    assert count_items(listing(FILES, tmp_path, captions=[()] * 9))["captions"] == 0


def write(tmp_path, contents):
    path = tmp_path / "list.txt"
    path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    return path


def test_text_is_read_whoever_wrote_it(tmp_path):
    assert read_text(write(tmp_path, "é b\n"), "a list") == "é b\n"
    assert read_text(write(tmp_path, b"\xef\xbb\xbf" + "é b\n".encode()), "a list") == "é b\n"


def test_a_list_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DataError, match=rf"the list of cats at {tmp_path}/no\.txt: No such"):
        read_text(tmp_path / "no.txt", "the list of cats")
    with pytest.raises(DataError, match="the list of cats at .*Is a directory"):
        read_text(tmp_path, "the list of cats")
    with pytest.raises(DataError, match=r"list\.txt: the list of cats is not UTF-8 text"):
        read_text(write(tmp_path, b"\xff\xfe caf\xe9"), "the list of cats")


@pytest.mark.parametrize(
    ("text", "options", "rows"),
    [
        ("a 1\nb  2\n", {}, [["a", "1"], ["b", "2"]]),
        ("a 1\r\n\r\n   \r\n\tb\t2", {}, [["a", "1"], ["b", "2"]]),
        ("a b , 1 \nc,2\n", {"separator": ","}, [["a b", "1"], ["c", "2"]]),
        ("a,\n", {"separator": ","}, [["a", ""]]),
        ("2\nname class\na 1\n", {"skip": 2}, [["a", "1"]]),
        ("a 1 x\n", {"columns": 3}, [["a", "1", "x"]]),
    ],
)
def test_a_table_is_split_into_its_columns(tmp_path, text, options, rows):
    options = {"separator": None, "columns": 2, **options}
    assert read_table(write(tmp_path, text), "a list", **options) == rows


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("a 1\n\nb 2 3\n", {}, "line 3 must have 2 columns .* white space, but has 3: 'b 2 3'"),
        ("a 1\nb\n", {"skip": 1}, "line 2 must have .* but has 1: 'b'"),
        ("a 1\n", {"separator": ","}, "line 1 must have 2 columns separated by ',', but has 1"),
        ("", {}, "a list of cats is empty"),
        ("name class\n\n", {"skip": 1}, "is empty"),
        (f"{'x' * 500}\n", {}, f"but has 1: '{'x' * 80}'"),  # not all of it
    ],
)
def test_a_table_of_another_kind_is_told_of(tmp_path, text, options, says):
    options = {"separator": None, "columns": 2, **options}
    with pytest.raises(DataError, match=says):
        read_table(write(tmp_path, text), "a list of cats", **options)


def test_a_folder_must_be_there(tmp_path):
    assert require_folder(tmp_path, "images") == tmp_path
    for missing in (tmp_path / "jpg", write(tmp_path, "a file")):
        with pytest.raises(DataError, match=f"No images at {missing}: the folder does not"):
            require_folder(missing, "images")
