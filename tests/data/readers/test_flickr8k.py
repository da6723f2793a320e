"""Flickr8k as it is unpacked, in small; and the ways in which a copy can be broken."""

import shutil

import pytest
import torch
from PIL import Image

from nobackfill.core.config import ImagesConfig
from nobackfill.data.file_collection import collect_files
from nobackfill.data.listing import count_items
from nobackfill.data.readers.flickr8k import FLICKR8K, read_flickr8k
from nobackfill.errors import DataError

LISTS = {
    "Flickr_8k.trainImages.txt": ["2513260012_03d33305cf.jpg", "2903617548_d3e38d7f88.jpg"],
    "Flickr_8k.devImages.txt": ["2090545563_a4e66ec76b.jpg"],
    "Flickr_8k.testImages.txt": ["3385593926_d3e9c21170.jpg"],
}
LISTED = [name for names in LISTS.values() for name in names]
UNLISTED = "1000000000_0000000000.jpg"
NEVER_GIVEN_OUT = "2258277193_586949ec62.jpg.1"


def captions_of(name):
    return [f"{name[:4]} described , {number}" for number in range(5)]


def caption_lines(gap="\t"):
    names = sorted([*LISTED, UNLISTED, NEVER_GIVEN_OUT])
    return [
        f"{name}#{number}{gap}{text}"
        for name in names
        for number, text in enumerate(captions_of(name))
    ]


@pytest.fixture
def root(tmp_path):
    texts, images = tmp_path / "Flickr8k_text", tmp_path / "Flicker8k_Dataset"
    texts.mkdir()
    images.mkdir()
    for name, names in LISTS.items():
        (texts / name).write_text("\n".join(names) + "\n")
    (texts / "Flickr8k.token.txt").write_text("\n".join(caption_lines()) + "\n")
    for name in [*LISTED, UNLISTED]:
        Image.new("RGB", (8, 8)).save(images / name)
    return tmp_path


def test_lists_tell_what_is_trained_on_and_searched(root):
    listing = read_flickr8k(root)
    assert listing.files == [*LISTED, UNLISTED]
    assert listing.columns["split"].tolist() == [
        "train", "train", "unused", "validation", "unused",
    ]  # fmt: skip
    assert listing.columns["is_gallery"].tolist() == [False, False, False, True, False]
    assert listing.classes.tolist() == listing.files
    assert all((listing.root / file).exists() for file in listing.files)


def test_queries_are_the_five_texts_of_each_image(root):
    listing = read_flickr8k(root)
    assert not listing.columns["is_query"].any()
    assert listing.captions == [tuple(captions_of(name)) for name in listing.files]


def test_captions_of_a_file_that_was_never_given_out_are_left_out_and_told(root):
    listing = read_flickr8k(root)
    assert NEVER_GIVEN_OUT not in listing.files
    assert any(NEVER_GIVEN_OUT in note and note.startswith("5 ") for note in listing.notes)


def test_counts_of_the_small_copy(root):
    assert count_items(read_flickr8k(root)) == {
        "images": 5, "train_images": 2, "train_classes": 2,
        "queries": 0, "gallery": 1, "search_classes": 1, "captions": 25,
    }  # fmt: skip


def test_official_counts_add_up():
    counts = FLICKR8K.counts
    assert counts["images"] == 6_000 + 1_000 + 1_000 + 91
    assert counts["captions"] == 5 * counts["images"]
    assert (counts["train_images"], counts["gallery"]) == (6_000, 1_000)


def test_files_are_found_in_either_place_under_the_same_ids(root):
    before = read_flickr8k(root)
    (root / "Flicker8k_Dataset").rename(root / "Images")
    for path in list((root / "Flickr8k_text").iterdir()):
        shutil.move(path, root)
    (root / "Flickr8k_text").rmdir()
    after = read_flickr8k(root)
    assert before.files == after.files
    assert (before.root, after.root) == (root / "Flicker8k_Dataset", root / "Images")


@pytest.mark.parametrize("name", ["Flickr8k.token.txt", *LISTS])
def test_a_missing_list_is_named(root, name):
    (root / "Flickr8k_text" / name).unlink()
    with pytest.raises(DataError, match=rf"{name}.*No such file"):
        read_flickr8k(root)


def test_missing_images_name_both_places(root):
    shutil.rmtree(root / "Flicker8k_Dataset")
    with pytest.raises(DataError, match=r"Images/.* at .*Flicker8k_Dataset"):
        read_flickr8k(root)


def test_a_wrong_separator_is_told(root):
    path = root / "Flickr8k_text" / "Flickr8k.token.txt"
    path.write_text("\n".join(caption_lines(gap=",")))
    with pytest.raises(
        DataError, match=r"line 1 must have 2 columns separated by '\\t', but has 1"
    ):
        read_flickr8k(root)


def test_captions_without_numbers_are_told(root):
    path = root / "Flickr8k_text" / "Flickr8k.token.txt"
    path.write_text("\n".join(line.replace("#", " ") for line in caption_lines()))
    with pytest.raises(DataError, match="keyed by image and number"):
        read_flickr8k(root)


def test_a_caption_given_twice_is_told(root):
    path = root / "Flickr8k_text" / "Flickr8k.token.txt"
    path.write_text("\n".join([*caption_lines(), caption_lines()[7]]))
    key = caption_lines()[7].split("\t")[0]
    with pytest.raises(DataError, match=f"has {key} twice"):
        read_flickr8k(root)


def test_an_image_in_two_lists_is_told(root):
    with (root / "Flickr8k_text" / "Flickr_8k.testImages.txt").open("a") as file:
        file.write(LISTED[0] + "\n")
    with pytest.raises(DataError, match=f"{LISTED[0]} twice"):
        read_flickr8k(root)


def test_an_image_without_captions_is_told(root):
    with (root / "Flickr8k_text" / "Flickr_8k.devImages.txt").open("a") as file:
        file.write("5_f.jpg\n")
    with pytest.raises(DataError, match=r"no caption of 5_f\.jpg, an image of .*devImages\.txt"):
        read_flickr8k(root)


def test_one_caption_without_a_number_is_told_by_its_key(root):
    path = root / "Flickr8k_text" / "Flickr8k.token.txt"
    path.write_text("\n".join([*caption_lines(), "5_f.jpg\ta dog"]))
    with pytest.raises(DataError, match=r"such as .*\.jpg#0, but .* has the key '5_f\.jpg'\. Unp"):
        read_flickr8k(root)


def collection_of(root):
    return collect_files(read_flickr8k(root), ImagesConfig(size=(8, 8), crop=()))


def test_a_listed_image_that_is_not_there_is_named_when_it_is_opened(root):
    (root / "Flicker8k_Dataset" / LISTED[1]).unlink()
    collection = collection_of(root)
    collection.load(torch.tensor([0, 2, 3]), None)
    with pytest.raises(DataError, match=f"{LISTED[1]}: the file does not exist. Unpack the coll"):
        collection.load(torch.tensor([0, 1]), None)


def test_an_empty_caption_is_told_where_it_is_used(root):
    path = root / "Flickr8k_text" / "Flickr8k.token.txt"
    empty = f"{LISTED[1]}#2"  # of a training image
    lines = [f"{empty}\t " if line.startswith(empty) else line for line in caption_lines()]
    path.write_text("\n".join(lines))
    collection = collection_of(root)
    collection.captions_of(collection.validation_rows())
    with pytest.raises(
        DataError, match=f"1 of 10 texts are empty; the first is '{empty}'. Write or"
    ):
        collection.captions_of(collection.training_rows(0))
