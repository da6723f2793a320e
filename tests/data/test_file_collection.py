"""Collections of image files: whose classes carry which labels, and which pixels come out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from nobackfill.core.config import ImagesConfig
from nobackfill.data.file_collection import collect_files, order_names
from nobackfill.data.listing import GroundTruth, Listing
from nobackfill.data.registry import glyph_collection
from nobackfill.errors import ConfigError, DataError

SEEN = ImagesConfig(size=(6, 4), crop=(), normalize="half", flip=0.0)
ALPHABET = [f"class {letter}" for letter in "abcdefghij"]


def listed(tmp_path, train, validation=(), **more):
    """A listing of classes, in the order given; nothing is written."""
    classes = [*train, *validation]
    return Listing(
        root=tmp_path,
        files=[f"{row}.png" for row in range(len(classes))],
        classes=np.array(classes),
        columns={"split": np.array(["train"] * len(train) + ["validation"] * len(validation))},
        **more,
    )


def label_of(collection, listing):
    """The label of each class; items of one class carry the same."""
    labels = {}
    for name, label in zip(listing.classes.tolist(), collection.labels.tolist(), strict=True):
        assert labels.setdefault(name, label) == label
    return labels


def permuted(order, seed, number):
    """The order of the classes whose names ascend, as the docstring says it is drawn."""
    if order == "first":
        return list(range(number))
    if order == "numpy":
        return np.random.RandomState(seed).permutation(number).tolist()
    return torch.randperm(number, generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("order", ["random", "first", "numpy"])
@pytest.mark.parametrize("seed", [0, 666])
def test_labels_follow_the_model_that_first_knows_a_class_and_then_the_name(tmp_path, order, seed):
    train = [ALPHABET[place] for place in (7, 2, 9, 0, 4, 2, 7, 1, 3, 5, 6, 8, 8, 0)]
    listing = listed(tmp_path, train)
    collection = collect_files(listing, SEEN, shares=(0.3, 0.75, 1.0), order=order, seed=seed)
    assert collection.class_counts == (3, 7, 10)
    places = permuted(order, seed, 10)
    by_step = [sorted(places[:3]), sorted(places[3:7]), sorted(places[7:])]
    expected = [ALPHABET[place] for step in by_step for place in step]
    assert label_of(collection, listing) == {name: label for label, name in enumerate(expected)}


def test_the_orders_and_the_seeds_differ(tmp_path):
    listing = listed(tmp_path, ALPHABET)

    def labels(**options):
        return tuple(collect_files(listing, SEEN, shares=(0.5, 1.0), **options).labels.tolist())

    drawn = {labels(order=order, seed=seed) for order in ("random", "numpy") for seed in range(5)}
    assert len(drawn) == 10
    assert labels(order="first", seed=3) == labels(order="first") == tuple(range(10))
    assert labels() == labels(order="random", seed=0)


def test_the_order_of_the_lists_plays_no_part(tmp_path):
    names = [name for name in ALPHABET for _ in range(2)]
    one, other = listed(tmp_path, names), listed(tmp_path, names[::-1])
    for order in ("random", "first", "numpy"):
        ours, theirs = (
            label_of(collect_files(listing, SEEN, shares=(0.5, 1.0), order=order), listing)
            for listing in (one, other)
        )
        assert ours == theirs


def test_an_earlier_model_trains_on_its_classes_only(tmp_path):
    listing = listed(tmp_path, ALPHABET * 2, ["class a"])
    collection = collect_files(listing, SEEN, shares=(0.3, 1.0), order="numpy", seed=1)
    known = {ALPHABET[place] for place in permuted("numpy", 1, 10)[:3]}
    rows = collection.training_rows(0).tolist()
    assert rows == [row for row in range(20) if listing.classes[row] in known]
    assert collection.training_rows(-1).tolist() == list(range(20))
    assert collection.validation_rows().tolist() == [20]


def test_counts_are_exact_and_take_the_place_of_shares(tmp_path):
    listing = listed(tmp_path, ALPHABET)
    collection = collect_files(listing, SEEN, shares=(0.9, 1.0), counts=(3, 7), order="first")
    assert collection.class_counts == (3, 7)
    assert collection.training_rows(-1).tolist() == list(range(7))  # the last three are in no model
    assert len(set(collection.labels.tolist())) == 10
    for total in (751, 1623, 3997, 81_313):
        for count in range(2, total, max(total // 50, 1)):
            steps = (count, count + 1)
            ordered = order_names(total, (1.0,), counts=steps, order="first", seed=0)
            assert ordered.counts == steps


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"counts": (3, 11)}, "`counts` .* has 11, but there are only 10 training classes"),
        ({"counts": (7, 3)}, "must ascend"),
        ({"counts": (1, 3)}, "at least two classes"),
        ({"shares": (0.5, 0.2)}, "must ascend"),
        ({"shares": ()}, "must ascend"),
        ({"shares": (0.5, 0.51)}, "every share must add classes"),
    ],
)
def test_wrong_shares_are_told_of(tmp_path, options, says):
    with pytest.raises(ConfigError, match=says):
        collect_files(listed(tmp_path, ALPHABET), SEEN, **options)


def test_classes_that_are_only_searched_come_after_those_that_are_trained(tmp_path):
    listing = listed(tmp_path, ["m", "k", "z"], ["b", "z", "a", "x", "a"])
    collection = collect_files(listing, SEEN, shares=(1.0,))
    assert collection.class_counts == (3,)
    assert label_of(collection, listing) == {"k": 0, "m": 1, "z": 2, "a": 3, "b": 4, "x": 5}


def test_names_that_are_numbers_are_counted_not_spelt(tmp_path):
    listing = listed(tmp_path, ["10", "9", "100", "2"], ["11", "1", "9"])
    collection = collect_files(listing, SEEN, shares=(0.5, 1.0), order="first")
    assert label_of(collection, listing) == {
        **{"2": 0, "9": 1, "10": 2, "100": 3},
        **{"1": 4, "11": 5},
    }
    padded = listed(tmp_path, ["0010", "0009", "9"])
    assert label_of(collect_files(padded, SEEN, order="first"), padded) == {
        **{"0009": 0, "9": 1, "0010": 2},
    }
    spelt = listed(tmp_path, ["10", "9", "x"])  # one is no number
    assert label_of(collect_files(spelt, SEEN, order="first"), spelt) == {"10": 0, "9": 1, "x": 2}


def test_without_anything_to_train_on_it_can_still_be_searched(tmp_path):
    collection = collect_files(listed(tmp_path, [], ["", "", ""]), SEEN, shares=(0.3, 1.0))
    assert collection.class_counts == ()
    assert collection.labels.tolist() == [0, 0, 0]
    assert len(collection.validation_rows()) == 3
    with pytest.raises(ConfigError):
        collection.training_rows(-1)


def test_a_listing_is_passed_on(tmp_path):
    truth = {
        level: GroundTruth({"2.png": [file]})
        for level, file in (("easy", "0.png"), ("medium", "1.png"), ("hard", "2.png"))
    }
    listing = listed(tmp_path, ["a", "b"], ["c"], ground_truth=truth)
    collection = collect_files(listing, SEEN, protocol="roxford_rparis", workers=2)
    assert collection.ids == listing.files
    named = replace(listing, ids=["one", "two", "three"])
    assert collect_files(named, SEEN).ids == ["one", "two", "three"]
    assert collection.columns["split"].tolist() == ["train", "train", "validation"]
    assert collection.protocol == "roxford_rparis"
    assert collection.workers == 2
    assert collection.truth() is truth["medium"]  # what papers report
    assert collection.truth("hard") is truth["hard"]
    with pytest.raises(ConfigError, match="unknown level `esay`. Did you mean `easy`"):
        collection.truth("esay")
    other = {"strict": truth["easy"], "loose": truth["hard"]}
    assert collect_files(replace(listing, ground_truth=other), SEEN).truth() is truth["easy"]
    assert collect_files(listed(tmp_path, ["a", "b"]), SEEN).truth() is None


# Pixels


def drawn(tmp_path, number=5, size=(4, 6), suffix="png", **more):
    """A listing whose images are written, in noise of their own."""
    generator = np.random.default_rng(0)
    listing = listed(tmp_path, ALPHABET[:number], **more)
    listing = replace(listing, files=[f"{row}.{suffix}" for row in range(number)])
    for file in listing.files:
        pixels = generator.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / file)
    return listing


def stored(tmp_path, row):
    return torch.from_numpy(np.array(Image.open(tmp_path / f"{row}.png"))).permute(2, 0, 1)


def test_rows_in_pixels_out(tmp_path):
    collection = collect_files(drawn(tmp_path), SEEN)
    pixels = collection.load(torch.tensor([3, 0, 3]), None)
    assert pixels.dtype == torch.uint8
    for one, row in zip(pixels, (3, 0, 3), strict=True):
        assert torch.equal(one, stored(tmp_path, row))
    torch.testing.assert_close(
        collection.view(torch.tensor([1]))[0], stored(tmp_path, 1) / 127.5 - 1
    )


def test_only_the_box_is_seen(tmp_path):
    boxes = {1: (1.0, 2.0, 3.0, 6.0), 4: (0.0, 0.0, 4.0, 6.0)}
    listing = drawn(tmp_path, boxes=boxes)
    small = replace(SEEN, size=(4, 2))
    pixels = collect_files(listing, small).load(torch.arange(5), None)
    assert torch.equal(pixels[1], stored(tmp_path, 1)[:, 2:6, 1:3])
    whole = collect_files(replace(listing, boxes={}), small).load(torch.arange(5), None)
    for row in (0, 2, 3, 4):
        assert torch.equal(pixels[row], whole[row])


def test_boxes_are_in_the_pixels_of_the_whole_image(tmp_path):
    """A JPEG may be opened smaller than it is, but not where a part of it is cut out."""
    pixels = np.zeros((128, 128, 3), dtype=np.uint8)
    pixels[64:, 96:] = 255
    Image.fromarray(pixels).save(tmp_path / "0.jpg", quality=95)
    boxes = {0: (96.0, 64.0, 128.0, 128.0)}
    listing = replace(listed(tmp_path, [], ["a"], boxes=boxes), files=["0.jpg"])
    seen = collect_files(listing, replace(SEEN, size=(8, 8))).load(torch.tensor([0]), None)
    assert seen.float().mean() > 250


def test_a_large_jpeg_opened_small_looks_the_same(tmp_path):
    x, y = np.meshgrid(np.arange(160.0), np.linspace(0, 255, 96))
    waves = 128 + 90 * np.sin(x / 2)  # fine enough to be lost where it is opened too small
    image = Image.fromarray(np.stack([waves, y, waves], axis=-1).astype(np.uint8))
    image.save(tmp_path / "0.jpg", quality=95)
    listing = replace(listed(tmp_path, [], ["a"]), files=["0.jpg"])
    for size in ((12, 10), (10, 90)):  # neither side may be enlarged again
        config = replace(SEEN, size=size)
        seen = collect_files(listing, config).load(torch.tensor([0]), None)[0].float()
        expected = np.array(image.resize((size[1], size[0]), Image.Resampling.BICUBIC))
        difference = seen - torch.from_numpy(expected).permute(2, 0, 1)
        assert difference.abs().max() < 12  # of waves 180 high


@pytest.mark.parametrize("box", [(1.0, 1.0, 1.0, 3.0), (1.0, 1.0, 1.2, 1.2)])
def test_an_empty_box_is_told_of(tmp_path, box):
    collection = collect_files(drawn(tmp_path, boxes={2: box}), SEEN)
    with pytest.raises(DataError, match=r"crop .* of the image .*2\.png is empty"):
        collection.load(torch.tensor([2]), None)


def test_a_file_that_is_not_there_is_named(tmp_path):
    collection = collect_files(listed(tmp_path, ["a", "b"]), SEEN)
    with pytest.raises(DataError, match=r"1\.png: the file does not exist"):
        collection.load(torch.tensor([1]), None)


def test_kept_pixels_are_those_of_the_files(tmp_path):
    config = replace(SEEN, size=(6, 4), crop=(3, 2))
    listing = drawn(tmp_path)
    fresh, kept = (collect_files(listing, config, keep=keep, workers=2) for keep in (False, True))
    assert fresh.ready is None
    rows = torch.tensor([4, 1, 2])

    def load(collection):
        cut_anywhere = torch.Generator().manual_seed(0)
        return [collection.load(rows, None), collection.load(rows, cut_anywhere)]

    before = load(fresh)
    kept.ready(rows)
    (tmp_path / "1.png").write_bytes(b"no image any more")
    for one, other in zip(before, load(kept), strict=True):  # each cut out anew
        assert torch.equal(one, other)
    with pytest.raises(DataError):
        load(fresh)
    kept.ready(rows)  # what is there is not read again
    (tmp_path / "0.png").unlink()
    with pytest.raises(DataError, match=r"0\.png"):
        kept.ready(torch.tensor([0]))


# Other models see other images


def test_the_same_collection_seen_in_another_way(tmp_path):
    listing = drawn(tmp_path, boxes={0: (0.0, 0.0, 2.0, 2.0)})
    options = {
        **{"shares": (0.5, 1.0), "order": "numpy", "seed": 3},
        **{"protocol": "gldv2", "workers": 2, "keep": True},
    }
    collection = collect_files(listing, SEEN, **options)
    grey = replace(SEEN, channels=1, size=(3, 5))
    other = collection.seen_as(grey)
    expected = collect_files(listing, grey, **options)
    assert other.images == grey
    assert collection.images == SEEN
    assert torch.equal(other.view(torch.arange(5)), expected.view(torch.arange(5)))
    assert other.view(torch.arange(5)).shape == (5, 1, 3, 5)
    assert torch.equal(other.labels, collection.labels)
    assert other.ids == collection.ids
    same = ("class_counts", "protocol", "workers", "ground_truth")
    assert all(getattr(other, name) == getattr(collection, name) for name in same)
    assert other.ready is not None
    assert other.preprocessing != collection.preprocessing
    collection.ready(torch.arange(5))  # what one keeps is not the other's
    assert torch.equal(other.view(torch.arange(5)), expected.view(torch.arange(5)))


def test_counts_are_kept_when_seen_in_another_way(tmp_path):
    collection = collect_files(listed(tmp_path, ALPHABET), SEEN, counts=(3, 7))
    assert collection.seen_as(replace(SEEN, channels=1)).class_counts == (3, 7)


def test_seen_in_the_same_way_it_is_the_same(tmp_path):
    collection = collect_files(listed(tmp_path, ALPHABET), SEEN)
    assert collection.seen_as(replace(SEEN)) is collection
    drawn_by_us = glyph_collection(train_classes=8, test_classes=2, images_per_class=3, side=16)
    assert drawn_by_us.seen_as(SEEN) is drawn_by_us  # no files, so there is only one way


def test_training_views_are_as_told(tmp_path):
    collection = collect_files(drawn(tmp_path), replace(SEEN, flip=1.0))
    images = collection.view(torch.arange(5))
    mirrored = collection.augment(images, torch.Generator().manual_seed(0))
    assert torch.equal(mirrored, images.flip(-1))
