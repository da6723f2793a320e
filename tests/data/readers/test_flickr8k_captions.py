"""Captions as texts: one asks for the others of its photograph."""

import pytest

from nobackfill.data.readers.flickr8k_captions import FLICKR8K_CAPTIONS, read_flickr8k_captions
from nobackfill.errors import DataError

LISTS = {
    "Flickr_8k.trainImages.txt": ["a.jpg", "b.jpg"],
    "Flickr_8k.devImages.txt": ["c.jpg"],
    "Flickr_8k.testImages.txt": ["d.jpg"],
}
CAPTIONS = "".join(
    f"{name}.jpg#{number}\t{name} {number}\n" for name in "abcde" for number in (1, 0, 2)
)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "Flickr8k_text"
    folder.mkdir()
    for name, names in LISTS.items():
        (folder / name).write_text("\n".join(names) + "\n")
    (folder / "Flickr8k.token.txt").write_text(CAPTIONS)
    return tmp_path


def test_the_first_caption_asks_for_the_others(root):
    texts = read_flickr8k_captions(root)
    assert [(p.query, p.document, p.group) for p in texts.pairs("train")] == [
        ("a 0", "a 1", "a.jpg"),
        ("a 0", "a 2", "a.jpg"),
        ("b 0", "b 1", "b.jpg"),
        ("b 0", "b 2", "b.jpg"),
    ]
    assert [p.query_id for p in texts.pairs("validation")] == ["d.jpg#0", "d.jpg#0"]


def test_captions_of_a_photograph_are_in_one_split(root):
    texts = read_flickr8k_captions(root)
    splits = dict(zip(texts.groups.tolist(), texts.columns["split"].tolist(), strict=True))
    assert splits == {
        "a.jpg": "train", "b.jpg": "train", "c.jpg": "unused", "d.jpg": "validation",
        "e.jpg": "unused",
    }  # fmt: skip
    assert len(texts.ids) == 15


def test_the_folder_of_the_texts_may_be_passed_itself(root):
    assert read_flickr8k_captions(root / "Flickr8k_text").ids == read_flickr8k_captions(root).ids


def test_counts_of_the_small_copy(root):
    assert read_flickr8k_captions(root).counts() == {
        "texts": 15, "groups": 5, "train_pairs": 4, "queries": 1, "documents": 2,
    }  # fmt: skip
    assert set(FLICKR8K_CAPTIONS.counts) == set(read_flickr8k_captions(root).counts())


def test_an_empty_caption_is_named(root):
    file = root / "Flickr8k_text" / "Flickr8k.token.txt"
    file.write_text(CAPTIONS.replace("a.jpg#2\ta 2", "a.jpg#2\t "))
    with pytest.raises(DataError, match=r"a\.jpg#2"):
        read_flickr8k_captions(root)


def test_a_photograph_in_two_lists_is_named(root):
    (root / "Flickr8k_text" / "Flickr_8k.testImages.txt").write_text("d.jpg\na.jpg\n")
    with pytest.raises(DataError, match=r"the lists name a\.jpg twice"):
        read_flickr8k_captions(root)
