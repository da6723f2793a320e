"""Inputs of the suites: stored vectors, and Omniglot in memory."""

import numpy as np
import pytest
import torch
from PIL import Image

from nobackfill.core.config import Choice
from nobackfill.data.registry import make_collection
from nobackfill.errors import DataError
from nobackfill_bench.quality.features import (
    backbone_features,
    caption_vectors,
    in_blocks,
    omniglot_in_memory,
    omniglot_vectors,
    parts,
    with_vectors,
)

CHARACTERS = {"images_background/Greek": 20, "images_evaluation/Angelic": 3}


def test_backbone_features_have_the_items_of_the_manifest(data):
    old, new = backbone_features("cub200")(data, 0)
    with np.load(data / "cub200" / "features.npz") as stored:
        for side, name in ((old, "mobilenet_v2"), (new, "resnet50")):
            np.testing.assert_array_equal(side.vectors.numpy(), stored[name].astype(np.float32))
    for side in (old, new):
        assert side.ids[:2].tolist() == ["0.jpg", "1.jpg"]
        assert side.labels.tolist() == [str(i % 20) for i in range(120)]
        assert side.columns["split"].tolist()[11:13] == ["train", "validation"]
        for name in ("is_query", "is_gallery"):
            assert side.columns[name].dtype == bool
            assert side.columns[name].tolist()[11:13] == [False, True]


def test_the_two_parts_are_of_different_classes(data):
    fit, searched = parts(backbone_features("cub200")(data, 0)[0])
    assert (len(fit), len(searched)) == (72, 48)
    assert set(fit.columns["split"]) == {"train"}
    assert not set(fit.labels) & set(searched.labels)


def test_other_vectors_of_the_same_items(data):
    old, _ = backbone_features("cub200")(data, 0)
    other = with_vectors(old, torch.ones(120, 3))
    assert other.vectors.shape == (120, 3)
    assert other.ids.tolist() == old.ids.tolist()
    assert other.labels.tolist() == old.labels.tolist()
    assert set(other.columns) == set(old.columns)


def test_omniglot_has_other_networks_for_each_seed(tmp_path):
    (tmp_path / "omniglot_heads").mkdir()
    for seed in (0, 1):
        np.savez(
            tmp_path / "omniglot_heads" / f"omniglot_{seed}.npz",
            old=np.full((3, 2), seed + 1, dtype=np.float16),
            new=np.ones((3, 4), dtype=np.float16),
            labels=np.array([5, 5, 7], dtype=np.int16),
            is_train=np.array([True, True, False]),
        )
    old, new = omniglot_vectors(tmp_path, 1)
    assert old.vectors.dtype == torch.float32
    assert old.vectors.tolist() == [[2, 2]] * 3
    assert new.vectors.shape == (3, 4)
    assert old.labels.tolist() == new.labels.tolist() == [5, 5, 7]
    assert old.columns["split"].tolist() == ["train", "train", "validation"]
    with pytest.raises(DataError, match=r"omniglot_2\.npz"):
        omniglot_vectors(tmp_path, 2)


def test_old_captions_are_new_ones_cut_and_both_of_unit_length(tmp_path):
    (tmp_path / "flickr8k_heads").mkdir()
    vectors = np.random.default_rng(0).normal(size=(5, 384)).astype(np.float16)
    np.savez(
        tmp_path / "flickr8k_heads" / "flickr8k.npz",
        vectors=vectors,
        image=np.array(["a.jpg", "a.jpg", "b.jpg", "c.jpg", "c.jpg"]),
        caption=np.array([0, 1, 0, 0, 1], dtype=np.int8),
        split=np.array(["train", "train", "unused", "validation", "validation"]),
    )
    old, new = caption_vectors(tmp_path, 0)
    assert new.ids.tolist() == ["a.jpg#0", "a.jpg#1", "c.jpg#0", "c.jpg#1"]
    assert old.ids.tolist() == new.ids.tolist()
    assert new.labels.tolist() == ["a.jpg", "a.jpg", "c.jpg", "c.jpg"]
    assert (old.vectors.shape, new.vectors.shape) == ((4, 128), (4, 384))
    for side in (old, new):
        torch.testing.assert_close(side.vectors.norm(dim=1), torch.ones(4))
    cosine = torch.nn.functional.cosine_similarity(old.vectors, new.vectors[:, :128])
    torch.testing.assert_close(cosine, torch.ones(4))
    kept = torch.from_numpy(vectors[[0, 1, 3, 4]]).float()
    torch.testing.assert_close(
        torch.nn.functional.cosine_similarity(new.vectors, kept), torch.ones(4)
    )


@pytest.mark.parametrize("load", [backbone_features("cub200"), omniglot_vectors, caption_vectors])
def test_a_file_that_is_not_there_is_told_with_what_to_do(load, tmp_path):
    with pytest.raises(DataError, match=r"No .* in .*NOBACKFILL_DATA or --data"):
        load(tmp_path, 0)


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
