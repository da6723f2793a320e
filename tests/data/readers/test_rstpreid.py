"""RSTPReid as it is unpacked, in small; and the ways in which a copy can be broken."""

import json
import shutil

import pytest
import torch
from PIL import Image

from nobackfill.core.config import ImagesConfig
from nobackfill.data.file_collection import collect_files
from nobackfill.data.listing import count_items
from nobackfill.data.readers.rstpreid import RSTPREID, read_rstpreid
from nobackfill.errors import DataError


def entry(person, camera, split):
    path = f"{person:04d}_c{camera}_0031.jpg"
    texts = [f"Person {person} in red, seen by {camera}.", f"A bag, seen by {camera}."]
    return {"id": person, "img_path": path, "captions": texts, "split": split}


ENTRIES = [
    entry(0, 14, "train"), entry(0, 1, "train"), entry(1, 7, "train"),
    entry(3701, 2, "val"),
    entry(3901, 3, "test"), entry(3901, 5, "test"), entry(3902, 3, "test"),
]  # fmt: skip


@pytest.fixture
def root(tmp_path):
    (tmp_path / "imgs").mkdir()
    for one in ENTRIES:
        Image.new("RGB", (4, 8)).save(tmp_path / "imgs" / one["img_path"])
    write(tmp_path, ENTRIES)
    return tmp_path


def write(root, entries):
    (root / "data_captions.json").write_text(json.dumps(entries))


def test_people_are_classes_and_the_test_images_are_searched(root):
    listing = read_rstpreid(root)
    assert listing.files[0] == "imgs/0000_c14_0031.jpg"
    assert all((listing.root / file).exists() for file in listing.files)
    assert listing.classes.tolist() == ["0", "0", "1", "3701", "3901", "3901", "3902"]
    split = listing.columns["split"].tolist()
    assert split == ["train"] * 3 + ["unused"] + ["validation"] * 3
    assert listing.columns["is_gallery"].tolist() == [False] * 4 + [True] * 3


def test_queries_are_texts(root):
    listing = read_rstpreid(root)
    assert not listing.columns["is_query"].any()
    assert listing.captions[1] == ("Person 0 in red, seen by 1.", "A bag, seen by 1.")
    assert len(listing.captions) == len(listing.files)
    assert any("texts" in note for note in listing.notes)


def test_counts_of_the_small_copy(root):
    assert count_items(read_rstpreid(root)) == {
        "images": 7, "train_images": 3, "train_classes": 2,
        "queries": 0, "gallery": 3, "search_classes": 2, "captions": 14,
    }  # fmt: skip


def test_official_counts_add_up():
    counts = RSTPREID.counts
    assert counts["images"] == 5 * (3_701 + 200 + 200)
    assert counts["train_images"] == 5 * counts["train_classes"]
    assert counts["captions"] == 2 * counts["images"]
    assert (counts["gallery"], counts["search_classes"]) == (1_000, 200)
    assert "queries" not in counts


def test_a_missing_list_or_folder_is_named(root):
    shutil.rmtree(root / "imgs")
    with pytest.raises(DataError, match=r"No images of RSTPReid at .*imgs"):
        read_rstpreid(root)
    (root / "data_captions.json").unlink()
    with pytest.raises(DataError, match=r"data_captions\.json.*No such file"):
        read_rstpreid(root)


def test_lines_of_json_are_no_list(root):
    path = root / "data_captions.json"
    path.write_text("\n".join(json.dumps(one) for one in ENTRIES))
    with pytest.raises(DataError, match=r"data_captions\.json: line 2 is not valid JSON"):
        read_rstpreid(root)


@pytest.mark.parametrize("text", ["", "not found", '[{"id": 0,'])
def test_what_is_no_json_is_told(root, text):
    (root / "data_captions.json").write_text(text)
    with pytest.raises(DataError, match=r"json: line 1 is not valid JSON: .*Unpack the file"):
        read_rstpreid(root)


@pytest.mark.parametrize("text", ["[]", '{"train": []}', '"a"'])
def test_no_entries_are_told(root, text):
    (root / "data_captions.json").write_text(text)
    with pytest.raises(DataError, match="it must be a list of entries"):
        read_rstpreid(root)


@pytest.mark.parametrize(
    "change",
    [
        {"split": "dev"},
        {"captions": "one text"},
        {"captions": None},
        {"captions": [1]},
        {"img_path": None},
        {"img_path": ""},
        {"id": ""},
    ],
)
def test_an_entry_of_another_kind_is_told(root, change):
    write(root, [*ENTRIES[:2], ENTRIES[2] | change])
    with pytest.raises(DataError, match=r"`captions` \(a list of texts\) .* entry 2 is .*Unpack"):
        read_rstpreid(root)


def test_an_entry_without_a_key_is_told(root):
    write(root, [{key: value for key, value in ENTRIES[0].items() if key != "captions"}])
    with pytest.raises(DataError, match="entry 0 is"):
        read_rstpreid(root)


def test_an_image_named_twice_is_told(root):
    write(root, [*ENTRIES, ENTRIES[3]])
    with pytest.raises(DataError, match=r"imgs/3701_c2_0031\.jpg twice"):
        read_rstpreid(root)


# What is wrong with captions or images is told by who uses them.


def collection_of(root, *, changed=None, **change):
    """The small copy as it is trained on, with one entry changed."""
    if changed is not None:
        write(root, [one | change if n == changed else one for n, one in enumerate(ENTRIES)])
    return collect_files(read_rstpreid(root), ImagesConfig(size=(8, 4), crop=()))


NONE, BLANK = [], ["Red.", " "]  # what may be wrong with two captions


@pytest.mark.parametrize(
    ("captions", "told"),
    [
        (NONE, "must have a text, but 1 of 3 have none; the first is '{0}'. Describe"),
        (BLANK, "1 of 6 texts are empty; the first is '{0}#1'. Write or"),
    ],
    ids=["none", "blank"],
)
@pytest.mark.parametrize("changed", [1, 5], ids=["train", "test"])
def test_captions_that_say_nothing_are_told_where_they_are_used(root, changed, captions, told):
    collection = collection_of(root, changed=changed, captions=captions)
    train, searched = collection.training_rows(0), collection.validation_rows()
    bad, good = (train, searched) if changed == 1 else (searched, train)
    assert len(collection.captions_of(good).texts) == 6
    with pytest.raises(DataError, match=told.format(f"imgs/{ENTRIES[changed]['img_path']}")):
        collection.captions_of(bad)


@pytest.mark.parametrize("captions", [NONE, BLANK], ids=["none", "blank"])
def test_captions_of_the_unused_split_are_not_asked_for(root, captions):
    collection = collection_of(root, changed=3, captions=captions)
    for rows in (collection.training_rows(0), collection.validation_rows()):
        collection.captions_of(rows)


def test_captions_of_classes_that_the_old_model_did_not_know_are_not_asked_for(root):
    write(root, [*ENTRIES, entry(2, 7, "train") | {"captions": []}])
    seen = ImagesConfig(size=(8, 4), crop=())
    collection = collect_files(read_rstpreid(root), seen, counts=(2, 3), order="first")
    collection.captions_of(collection.training_rows(0))
    with pytest.raises(DataError, match=r"1 of 4 have none; the first is 'imgs/0002_c7_0031"):
        collection.captions_of(collection.training_rows(1))


def test_an_image_that_is_not_there_is_named_when_it_is_opened(root):
    (root / "imgs" / ENTRIES[4]["img_path"]).unlink()
    collection = collection_of(root)
    collection.load(torch.tensor([0, 5]), None)
    with pytest.raises(DataError, match=r"imgs/3901_c3_0031\.jpg: the file does not exist\. Unp"):
        collection.load(torch.tensor([0, 4]), None)
