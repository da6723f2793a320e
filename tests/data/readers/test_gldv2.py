"""Google Landmarks v2 as it is unpacked, in small; and the ways in which a copy can be broken."""

import shutil

import pytest

from nobackfill.data.listing import count_items
from nobackfill.data.readers.gldv2 import GLDV2, read_gldv2
from nobackfill.errors import ConfigError, DataError

TRAIN = ["6e158a47eb2ca3f6", "202cd79556f30760", "3ad87684c99c06e1", "e7f70e9c61e66af3"]
INDEX = ["0a0b0c0d0e0f0011", "1a0b0c0d0e0f0012", "2a0b0c0d0e0f0013"]
TEST = {
    "f000000000000001": f"{INDEX[2]} {INDEX[0]},Private",
    "f100000000000002": f"{INDEX[1]},Public",
    "f200000000000003": "None,Ignored",
    "f300000000000004": f"{INDEX[1]},Private",
}


def lines(*rows):
    return "\n".join(rows) + "\n"


CLEAN = lines("landmark_id,images", f"17,{TRAIN[0]} {TRAIN[1]}", f"203093,{TRAIN[3]}")
FULL = lines(
    "id,url,landmark_id",
    *(f'{name},"https://example.org/a,_b_{name}.jpg",{17 + row}' for row, name in enumerate(TRAIN)),
)
SOLUTION = lines("id,images,Usage", *(f"{query},{rest}" for query, rest in TEST.items()))
LISTS = {
    "train/train_clean.csv": CLEAN,
    "train/train.csv": FULL,
    "index/index.csv": lines("id", *INDEX),
    "test/retrieval_solution_v2.1.csv": SOLUTION,
}


@pytest.fixture
def root(tmp_path):
    """The lists, and folders without any image: reading looks for none."""
    for path, text in LISTS.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_cleaned_training_images_carry_their_landmarks(root):
    listing = read_gldv2(root, parts=["train"])
    assert dict(zip(listing.files, listing.classes.tolist(), strict=True)) == {
        "train/6/e/1/6e158a47eb2ca3f6.jpg": "17",
        "train/2/0/2/202cd79556f30760.jpg": "17",
        "train/e/7/f/e7f70e9c61e66af3.jpg": "203093",
    }
    assert set(listing.columns["split"]) == {"train"}
    assert not listing.ground_truth


def test_all_training_images_where_that_is_wanted(root):
    listing = read_gldv2(root, parts=["train"], clean=False)
    assert [file[12:28] for file in listing.files] == TRAIN
    assert listing.classes.tolist() == ["17", "18", "19", "20"]


def test_private_queries_search_the_whole_index(root):
    listing = read_gldv2(root, parts=["test"])
    queries = ["test/f/0/0/f000000000000001.jpg", "test/f/3/0/f300000000000004.jpg"]
    gallery = [f"index/{number}/a/0/{name}.jpg" for number, name in enumerate(INDEX)]
    assert listing.files == queries + gallery
    assert listing.columns["is_query"].tolist() == [True] * 2 + [False] * 3
    assert listing.columns["is_gallery"].tolist() == [False] * 2 + [True] * 3
    assert set(listing.columns["split"]) == {"validation"}
    assert set(listing.classes) == {""}
    truth = listing.ground_truth["private"]
    assert truth.relevant == {queries[0]: [gallery[2], gallery[0]], queries[1]: [gallery[1]]}
    assert not truth.ignored


def test_both_parts_are_read_by_default(root):
    assert count_items(read_gldv2(root)) == {
        "images": 8, "train_images": 3, "train_classes": 2, "queries": 2, "gallery": 3,
    }  # fmt: skip


def test_official_counts_add_up():
    counts = GLDV2.counts
    assert counts["images"] == 1_580_470 + 750 + 761_757
    assert (counts["train_images"], counts["train_classes"]) == (1_580_470, 81_313)
    assert (counts["queries"], counts["gallery"]) == (750, 761_757)


@pytest.mark.parametrize(("part", "others"), [("train", ["index", "test"]), ("test", ["train"])])
def test_who_has_one_part_can_read_it(root, part, others):
    whole = read_gldv2(root, parts=[part]).files
    for other in others:
        shutil.rmtree(root / other)
    assert read_gldv2(root, parts=[part]).files == read_gldv2(root, parts=part).files == whole
    with pytest.raises(DataError, match=f"({'|'.join(others)})"):
        read_gldv2(root)


def test_lists_may_lie_beside_the_folders(root):
    before = read_gldv2(root).files
    for path in LISTS:
        shutil.move(root / path, root)
    assert read_gldv2(root).files == before


def test_the_index_may_be_told_with_its_landmarks(root):
    before = read_gldv2(root).files
    (root / "index/index.csv").unlink()
    rows = [f"{name},{row}" for row, name in enumerate(INDEX)]
    (root / "index/index_image_to_landmark.csv").write_text(lines("id,landmark_id", *rows))
    assert read_gldv2(root).files == before


def test_a_landmark_of_very_many_images_is_read(root):
    many = [f"{number:016x}" for number in range(20_000)]  # the largest has about ten thousand
    (root / "train/train_clean.csv").write_text(CLEAN + f"5,{' '.join(many)}\n")
    listing = read_gldv2(root, parts=["train"])
    assert (listing.classes == "5").sum() == 20_000
    assert listing.classes[2] == "203093"


@pytest.mark.parametrize("path", LISTS)
def test_a_missing_list_is_named(root, path):
    (root / path).unlink()
    with pytest.raises(DataError, match=path.split("/")[1]):
        read_gldv2(root, clean="clean" in path)
    if path == "train/train.csv":
        read_gldv2(root)  # is not asked for


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        (
            "train/train_clean.csv",
            CLEAN.replace(",", ";"),
            "landmark_id, images, separated by commas",
        ),
        (
            "train/train_clean.csv",
            CLEAN.replace(f" {TRAIN[1]}", f"|{TRAIN[1]}"),
            "must have 16 letters",
        ),
        ("train/train_clean.csv", "", "landmark_id, images, separated by commas"),
        ("train/train_clean.csv", f"{CLEAN}18,{TRAIN[0]}\n", f"{TRAIN[0]}.jpg twice"),
        ("index/index.csv", lines("id", *INDEX, INDEX[0]), f"{INDEX[0]}.jpg twice"),
        ("index/index.csv", lines("id", *INDEX[:2]), f"lacks 1 relevant images of .*{INDEX[2]}"),
        ("index/index.csv", lines("id", *INDEX, "0a"), "must have 16 .* index is '0a'"),
        ("test/retrieval_solution_v2.1.csv", SOLUTION.replace(",", "\t"), "id, images, Usage"),
        ("test/retrieval_solution_v2.1.csv", SOLUTION.replace("Priv", "priv"), "0 lines of 0"),
        ("test/retrieval_solution_v2.1.csv", SOLUTION + SOLUTION[16:], "4 lines of 2"),
        ("test/retrieval_solution_v2.1.csv", SOLUTION + "f4,Private\n", "Expected 3 columns"),
    ],
)
def test_a_broken_list_is_told(root, path, text, says):
    (root / path).write_text(text)
    with pytest.raises(DataError, match=says):
        read_gldv2(root)


def test_an_unknown_part_is_told(root):
    with pytest.raises(ConfigError, match="unknown part `index`"):
        read_gldv2(root, parts=["index"])
