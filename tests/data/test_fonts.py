from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch

from nobackfill.core.config import Choice
from nobackfill.data.fonts import code_points, fonts, unpack
from nobackfill.data.han import HAN, HAN_FACES, han
from nobackfill.data.registry import make_collection, resolve_collection
from nobackfill.errors import ConfigError, DataError

FOLDER = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf")
OPTIONS = {
    "files": ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "STIXGeneral.ttf"),
    "query_files": ("DejaVuSerif.ttf",),
    # letters without I and l, which are one drawing in some faces
    "characters": ("0041-0048", "004A-005A", "0061-006B", "006D-007A"),
    "folder": FOLDER,
    "counts": (6, 20),
    "side": 24,
}


def letters(**changes):
    return fonts(**{**OPTIONS, **changes})


@pytest.fixture(scope="module")
def collection():
    return letters()


def characters(collection, *, split):
    chosen = collection.columns["split"] == split
    return set(collection.columns["text"][chosen].tolist())


def test_a_class_is_a_character_and_an_image_a_face(collection):
    assert collection.class_counts == (6, 20)
    train = collection.training_rows(-1)
    assert collection.labels[train].unique().tolist() == list(range(20))
    assert len(train) == 20 * 4
    by_class = {
        label: {collection.columns["text"][row] for row in train if collection.labels[row] == label}
        for label in range(20)
    }
    assert all(len(texts) == 1 for texts in by_class.values())
    ids = [collection.ids[row] for row in train]
    assert len(set(ids)) == len(ids)
    text = collection.columns["text"][int(train[0])]
    assert f"U+{ord(text):04X}-DejaVuSans" in ids


def test_queries_and_gallery_come_from_different_families(collection):
    rows = collection.validation_rows().numpy()
    is_query = collection.columns["is_query"][rows]
    is_gallery = collection.columns["is_gallery"][rows]
    families = collection.columns["family"][rows]
    assert (is_query ^ is_gallery).all()
    assert not set(families[is_query]) & set(families[is_gallery])
    assert is_query.sum() == 10
    assert is_gallery.sum() == 30


def test_searched_characters_are_the_same_for_all_seeds_and_trained_by_none():
    test, validation = characters(letters(), split="validation"), set()
    for seed in range(3):
        for searched in ("test", "validation"):
            collection = letters(seed=seed, searched=searched)
            found = characters(collection, split="validation")
            if searched == "test":
                assert found == test
            else:
                validation |= found
            assert not characters(collection, split="train") & (test | found)
    assert len(test) == 10
    assert len(validation) == 5
    assert not test & validation


def test_other_seeds_train_on_other_characters_in_another_order():
    first, second = (
        dict(zip(each.columns["text"], each.labels.tolist(), strict=True))
        for each in (letters(), letters(seed=1))
    )
    assert first != second


def test_an_earlier_model_knows_the_first_classes(collection):
    old = collection.training_rows(0)
    assert collection.labels[old].unique().tolist() == list(range(6))
    assert set(old.tolist()) < set(collection.training_rows(1).tolist())


@pytest.mark.parametrize("limit", [1, 3])
def test_a_limit_of_drawings_holds_for_training_characters_alone(limit):
    limited = letters(images_per_class=limit)
    counts = torch.bincount(limited.labels)
    assert counts[:20].tolist() == [limit] * 20
    assert counts[20:].tolist() == [4] * 10


def test_searched_images_are_distorted_once_and_training_images_in_each_epoch(collection):
    rows = collection.validation_rows()
    plain = letters(distortion=0)
    once = collection.view(rows)
    assert torch.equal(once, letters(seed=5).view(letters(seed=5).validation_rows()))
    assert not torch.equal(once, plain.view(rows))
    assert plain.view(rows).unique().tolist() == [0, 1]
    train = collection.training_rows(-1)
    images = collection.view(train)
    assert torch.equal(images, plain.view(train))
    generator = torch.Generator().manual_seed(0)
    one, two = (collection.augment(images.clone(), generator) for _ in range(2))
    assert not torch.equal(one, two)


def test_a_batch_of_both_kinds_equals_its_parts(collection):
    rows = torch.cat([collection.validation_rows()[:2], collection.training_rows(0)[:2]])
    apart = torch.cat([collection.view(rows[:2]), collection.view(rows[2:])])
    assert torch.equal(collection.view(rows), apart)


def test_bits_are_unpacked_as_numpy_does():
    random = np.random.default_rng(0).integers(0, 256, (3, 1, 16, 2), dtype=np.uint8)
    assert np.array_equal(unpack(torch.from_numpy(random)).numpy(), np.unpackbits(random, axis=3))


def test_drawings_are_kept_and_read_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = letters(path="letters.npz")
    file = tmp_path / "nobackfill" / "letters.npz"
    assert file.exists()
    again = letters(path="letters.npz", folder=str(tmp_path))  # without any font
    assert again.ids == first.ids
    assert again.preprocessing == first.preprocessing
    with pytest.raises(DataError, match="24 pixels, not 32"):
        letters(path="letters.npz", side=32)


def test_missing_fonts_are_named_with_their_packages(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DataError, match=r"Install .*fonts-hanazono.*fonts-noto-cjk"):
        han(folder=str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"counts": (6, 6)}, "must ascend"),
        ({"counts": (1, 6)}, "at least 2"),
        ({"counts": (6, 60)}, "too few for 60"),
        ({"searched": "train"}, '"test" or "validation"'),
        ({"characters": ("A-Z-",)}, "hexadecimal ranges"),
        ({"side": 20}, "multiple of 8"),
        ({"files": ()}, "requires `files` and `query_files`"),
        ({"files": ("DejaVuSans.ttf#x",)}, "number of a face"),
        ({"test_classes": 0}, "at least 1"),
    ],
)
def test_wrong_options_are_refused(changes, says):
    with pytest.raises((ConfigError, DataError), match=says):
        letters(**changes)


def test_recipes_name_both_collections():
    options = {**OPTIONS, "counts": [2, 5]}
    collection = make_collection(Choice("fonts", options))
    assert collection.class_counts == (2, 5)
    assert resolve_collection(Choice("han")).options["counts"] == (1199, 3997)
    with pytest.raises(ConfigError, match="counts"):
        resolve_collection(Choice("han", {"count": [2, 5]}))


def test_the_faces_of_han_are_distinct_and_its_characters_27484():
    assert len(code_points(HAN)) == 27_484
    assert len({face.name for face in HAN_FACES}) == len(HAN_FACES) == 16
    queries = {face.family for face in HAN_FACES if face.is_query}
    assert not queries & {face.family for face in HAN_FACES if not face.is_query}
    assert all(face.package for face in HAN_FACES)
