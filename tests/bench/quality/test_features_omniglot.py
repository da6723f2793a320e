"""Omniglot in memory: small images, and classes in the order that seeds give them."""

import numpy as np
import pytest
import torch
from PIL import Image

from nobackfill.core.config import Choice
from nobackfill.data.registry import make_collection
from nobackfill_bench.quality.features_omniglot import in_blocks, omniglot_in_memory

CHARACTERS = {"images_background/Greek": 20, "images_evaluation/Angelic": 3}


@pytest.fixture
def root(tmp_path):
    """23 characters of two drawings; each drawing has ink in a row of its own."""
    row = 0
    for part, number in CHARACTERS.items():
        for character in range(number):
            for drawing in (1, 2):
                name = f"{part}/character{character + 1:02}/{character:04}_{drawing:02}.png"
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                white = np.ones((105, 105), dtype=bool)
                white[row] = False
                Image.fromarray(white).save(tmp_path / name)
                row += 1
    return tmp_path


@pytest.fixture
def make(root):
    return lambda **more: omniglot_in_memory(
        path=str(root), kept=str(root / "kept" / "small.npy"), **more
    )


def test_a_block_counts_the_ink_of_nine_pixels(tmp_path):
    ink = np.random.default_rng(0).random((105, 105)) < 0.3
    Image.fromarray(~ink).save(tmp_path / "one.png")
    blocks = in_blocks(tmp_path / "one.png")
    assert (blocks.shape, blocks.dtype) == ((1, 35, 35), np.uint8)
    for i, j in ((0, 0), (0, 34), (17, 3), (34, 34)):
        assert blocks[0, i, j] == ink[3 * i : 3 * i + 3, 3 * j : 3 * j + 3].sum()


def test_every_image_comes_with_its_own_drawing(make):
    collection = make()
    pixels = collection.load(torch.tensor([4, 0]), None)
    assert pixels.shape == (2, 1, 35, 35)
    for image, row in zip(pixels, (4, 0), strict=True):
        assert image.sum() == 105  # a line of ink
        assert image[0, row // 3].tolist() == [3] * 35


def test_ink_becomes_one_and_paper_minus_one(make):
    prepared = make().prepare(torch.tensor([[[[0, 9]]]], dtype=torch.uint8))
    assert prepared.flatten().tolist() == [-1, 1]


def test_earlier_models_know_the_first_labels_and_searched_classes_have_the_last(make):
    collection = make(shares=(0.3, 1.0))
    training = collection.columns["split"] == "train"
    labels = collection.labels.numpy()
    assert collection.class_counts == (6, 20)
    assert sorted(set(labels[training])) == list(range(20))
    assert sorted(set(labels[~training])) == [20, 21, 22]
    pairs = labels.reshape(-1, 2)
    assert (pairs[:, 0] == pairs[:, 1]).all()  # the two drawings of a character
    assert len(set(pairs[:, 0])) == 23


def test_another_seed_is_another_order(make):
    one, same, other = make(seed=1), make(seed=1), make(seed=2)
    assert torch.equal(one.labels, same.labels)
    assert not torch.equal(one.labels, other.labels)


def test_small_images_are_made_once_and_kept(make, root):
    make()
    kept = root / "kept" / "small.npy"
    assert np.load(kept).shape == (46, 1, 35, 35)
    when = kept.stat().st_mtime_ns
    make(seed=5)
    assert kept.stat().st_mtime_ns == when
    assert [path.name for path in kept.parent.iterdir()] == ["small.npy"]


def test_recipes_know_it_by_name(root):
    options = {"path": str(root), "kept": str(root / "small.npy"), "shares": [0.2, 1.0]}
    collection = make_collection(Choice("omniglot_in_memory", options))
    assert collection.class_counts == (4, 20)
