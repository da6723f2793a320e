"""In-shop as it is unpacked, in small; and the ways in which a copy can be broken."""

import shutil

import pytest
from PIL import Image

from nobackfill.data.listing import count_items
from nobackfill.data.readers.inshop import INSHOP, read_inshop
from nobackfill.errors import DataError

ROWS = [
    ("img/WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", "train"),
    ("img/WOMEN/Dresses/id_00000002/02_2_side.jpg", "id_00000002", "train"),
    ("img/MEN/Denim/id_00000080/01_1_front.jpg", "id_00000080", "train"),
    ("img/WOMEN/Blouses/id_00000001/02_1_front.jpg", "id_00000001", "query"),
    ("img/WOMEN/Blouses/id_00000001/02_3_back.jpg", "id_00000001", "gallery"),
    ("img/WOMEN/Blouses/id_00000001/02_4_full.jpg", "id_00000001", "gallery"),
]


def write_list(path, rows=ROWS, *, count=None, gap="    "):
    path.parent.mkdir(exist_ok=True)
    lines = [str(len(rows) if count is None else count), "image_name item_id evaluation_status"]
    path.write_text("\n".join([*lines, *(gap.join(row) + " " for row in rows)]) + "\n")


@pytest.fixture
def root(tmp_path):
    for file, _, _ in ROWS:
        path = tmp_path / "Img" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(path)
    write_list(tmp_path / "Eval" / "list_eval_partition.txt")
    return tmp_path


def test_the_partition_tells_what_is_trained_on_asked_and_searched(root):
    listing = read_inshop(root)
    assert listing.files == [file for file, _, _ in ROWS]
    assert listing.classes.tolist() == [item for _, item, _ in ROWS]
    assert listing.columns["split"].tolist() == ["train"] * 3 + ["validation"] * 3
    assert listing.columns["is_query"].tolist() == [False] * 3 + [True, False, False]
    assert listing.columns["is_gallery"].tolist() == [False] * 4 + [True, True]


def test_counts_of_the_small_copy(root):
    assert count_items(read_inshop(root)) == {
        "images": 6, "train_images": 3, "train_classes": 2,
        "queries": 1, "gallery": 2, "search_classes": 1,
    }  # fmt: skip


def test_official_counts_add_up():
    counts = INSHOP.counts
    assert counts["images"] == 25_882 + 14_218 + 12_612 == 52_712
    assert (counts["train_classes"], counts["search_classes"]) == (3_997, 3_985)


def test_files_are_found_in_either_place_under_the_same_ids(root):
    before = read_inshop(root)
    (root / "Img" / "img").rename(root / "img")
    shutil.move(root / "Eval" / "list_eval_partition.txt", root)
    after = read_inshop(root)
    assert before.files == after.files
    for listing, place in ((before, "Img"), (after, ".")):
        assert listing.root == root / place
    assert all((after.root / file).exists() for file in after.files)


def test_a_missing_list_is_named(root):
    (root / "Eval" / "list_eval_partition.txt").unlink()
    with pytest.raises(DataError, match=r"list_eval_partition.txt.*No such file"):
        read_inshop(root)


def test_missing_images_name_both_places(root):
    shutil.rmtree(root / "Img")
    with pytest.raises(DataError, match="Img/img") as error:
        read_inshop(root)
    assert str(root / "img") in str(error.value)


def test_a_wrong_separator_is_told(root):
    write_list(root / "Eval" / "list_eval_partition.txt", gap=",")
    with pytest.raises(DataError, match=r"line 3 must have 3 columns .* but has 1"):
        read_inshop(root)


def test_a_list_cut_short_is_told(root):
    write_list(root / "Eval" / "list_eval_partition.txt", ROWS[:4], count=6)
    with pytest.raises(DataError, match=r"first line .* is '6', and 4 images follow"):
        read_inshop(root)


def test_a_list_without_its_head_is_told_instead_of_losing_two_images(root):
    path = root / "Eval" / "list_eval_partition.txt"
    path.write_text("\n".join(" ".join(row) for row in ROWS))
    with pytest.raises(DataError, match="first line must be the number of images"):
        read_inshop(root)


def test_an_image_named_twice_is_told(root):
    write_list(root / "Eval" / "list_eval_partition.txt", [*ROWS, ROWS[1]])
    with pytest.raises(DataError, match=r"id_00000002/02_2_side\.jpg twice"):
        read_inshop(root)


def test_an_unknown_role_is_told(root):
    write_list(root / "Eval" / "list_eval_partition.txt", [*ROWS[:-1], (*ROWS[-1][:2], "test")])
    with pytest.raises(DataError, match=r"02_4_full\.jpg has 'test'"):
        read_inshop(root)
