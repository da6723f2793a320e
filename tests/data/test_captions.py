from dataclasses import replace

import numpy as np
import pytest
import torch

from nobackfill.core.config import Choice
from nobackfill.data.captions import check_captions, collect_captions
from nobackfill.data.collection import Collection
from nobackfill.data.glyph_captions import describe
from nobackfill.data.registry import make_collection
from nobackfill.errors import ConfigError, DataError

TOLD = [("a0", "a1"), ("b0",), ("c0", "c1", "c2"), ("d0", "d1")]
IDS = ["a", "b", "c", "d"]
BELOW_ONE = torch.tensor(1.0).nextafter(torch.tensor(0.0)).item()
GLYPHS = Choice(
    "glyphs",
    {"train_classes": 8, "test_classes": 4, "images_per_class": 4, "side": 16, "captions": 3},
)


def captions():
    return collect_captions(TOLD, IDS)


def collection(told=TOLD):
    return Collection(
        ids=IDS,
        labels=torch.tensor([5, 6, 7, 8]),
        columns={"split": np.array(["train"] * 4)},
        class_counts=(9,),
        load=lambda rows, generator: rows[:, None, None, None],
        prepare=lambda pixels: pixels.float(),
        augment=lambda images, generator: images,
        preprocessing="none",
        captions=None if told is None else collect_captions(told, IDS),
    )


# What belongs to whom


def test_texts_stand_in_the_order_of_the_images_under_their_ids_and_numbers():
    found = captions()
    assert found.texts == ["a0", "a1", "b0", "c0", "c1", "c2", "d0", "d1"]
    assert found.ids == ["a#0", "a#1", "b#0", "c#0", "c#1", "c#2", "d#0", "d#1"]
    assert found.images.tolist() == [0, 0, 1, 2, 2, 2, 3, 3]


def test_there_must_be_an_id_for_each_image():
    with pytest.raises(ValueError, match="zip"):
        collect_captions(TOLD, IDS[:3])


@pytest.mark.parametrize("rows", [[2, 0], [0, 1, 2, 3], [3], [1, 1, 2], []])
def test_a_selection_holds_the_texts_of_its_images_in_their_order(rows):
    found = captions().select(torch.tensor(rows, dtype=torch.int64))
    assert found.texts == [text for row in rows for text in TOLD[row]]
    assert found.ids == [f"{IDS[row]}#{k}" for row in rows for k in range(len(TOLD[row]))]
    assert found.count.tolist() == [len(TOLD[row]) for row in rows]
    for place, row in enumerate(rows):  # and each image finds its own among them
        first, count = int(found.first[place]), int(found.count[place])
        assert tuple(found.texts[first : first + count]) == TOLD[row]


def test_a_selection_may_be_selected_from_again():
    twice = captions().select(torch.tensor([3, 2, 0])).select(torch.tensor([1, 2]))
    assert twice.texts == ["c0", "c1", "c2", "a0", "a1"]
    assert twice.images.tolist() == [0, 0, 0, 1, 1]


# Which one is drawn


@pytest.mark.parametrize("selection", [[0, 1, 2, 3], [2, 0, 3]])
def test_every_text_of_an_image_is_drawn_equally_often_and_never_that_of_another(selection):
    """Over chances that are spread evenly, and as many as a multiple of every count."""
    found = captions().select(torch.tensor(selection))
    chance = (torch.arange(600) + 0.5) / 600
    for place, row in enumerate(selection):
        drawn = found.drawn(torch.full((600,), place), chance)
        texts = [found.texts[one] for one in drawn.tolist()]
        assert {text: texts.count(text) for text in TOLD[row]} == {
            text: 600 // len(TOLD[row]) for text in TOLD[row]
        }


def test_each_image_of_a_batch_has_its_own_chance():
    drawn = captions().drawn(torch.tensor([2, 0, 2, 1]), torch.tensor([0.5, 0.9, 0.1, 0.7]))
    assert [captions().texts[one] for one in drawn.tolist()] == ["c1", "a1", "c0", "b0"]


@pytest.mark.parametrize("texts", [1, 2, 3, 7, 1000, 2**20 + 1])
def test_a_chance_just_below_one_draws_the_last_text_of_the_image(texts):
    found = collect_captions([["x"] * texts, ["of another"]], ["x", "y"])
    for chance, place in ((0.0, 0), (BELOW_ONE, texts - 1)):
        assert found.drawn(torch.tensor([0]), torch.tensor([chance])).tolist() == [place]


def test_moved_to_a_device_they_are_drawn_there():
    moved = captions().to("meta")
    assert (moved.first.device.type, moved.count.device.type) == ("meta", "meta")
    assert (moved.texts, moved.ids) == (captions().texts, captions().ids)


# What is refused


def test_an_image_that_nobody_describes_is_refused_by_its_id():
    told = [("a0",), (), ("c0",), ()]
    with pytest.raises(DataError, match="2 of 4 have none; the first is 'b'.*`unused`"):
        check_captions(collect_captions(told, IDS), IDS)


@pytest.mark.parametrize("blank", ["", "  ", "\n\t"])
def test_a_text_that_says_nothing_is_refused_by_its_id(blank):
    told = [("a0",), ("b0", blank), ("c0", blank), ("d0",)]
    with pytest.raises(DataError, match="2 of 6 texts are empty; the first is 'b#1'"):
        check_captions(collect_captions(told, IDS), IDS)


def test_only_the_images_that_are_asked_for_need_a_text():
    some = collection([("a0",), (), ("c0", " "), ("d0", "d1")])
    assert some.captions_of(torch.tensor([3, 0])).texts == ["d0", "d1", "a0"]
    with pytest.raises(DataError, match="1 of 2 have none; the first is 'b'"):
        some.captions_of(torch.tensor([3, 1]))
    with pytest.raises(DataError, match="1 of 3 texts are empty; the first is 'c#1'"):
        some.captions_of(torch.tensor([0, 2]))


@pytest.mark.parametrize("asked", [["captions_of"], ["ids_of", "text"], ["rows_of", "text"]])
def test_a_collection_without_texts_says_how_to_get_some(asked):
    name, *modality = asked
    with pytest.raises(DataError, match="the collection has none.*column `text`"):
        getattr(collection(None), name)(torch.tensor([0]), *modality)


# In a collection


def test_ids_and_rows_are_those_of_images_or_of_all_their_texts():
    some, rows = collection(), torch.tensor([2, 0])
    assert some.ids_of(rows) == ["c", "a"]
    assert some.ids_of(rows, "text") == ["c#0", "c#1", "c#2", "a#0", "a#1"]
    assert some.rows_of(rows).tolist() == [2, 0]
    assert some.rows_of(rows, "text").tolist() == [2, 2, 2, 0, 0]


def test_captions_of_glyphs_reach_the_collection():
    drawn = make_collection(GLYPHS)
    for row in (0, 17, len(drawn.ids) - 1):
        _, kind, number = drawn.ids[row].split("-")
        (told,) = describe(
            np.array([int(kind)]), np.array([int(number)]), captions=3, family_size=5, seed=0
        )
        found = drawn.captions_of(torch.tensor([row]))
        assert found.texts == list(told)
        assert found.ids == [f"{drawn.ids[row]}#{k}" for k in range(3)]
    assert len(drawn.captions.texts) == 3 * len(drawn.ids)


def test_glyphs_are_described_with_their_own_seed_and_families():
    other = replace(GLYPHS, options={**GLYPHS.options, "seed": 4, "family_size": 3})
    drawn = make_collection(other)
    classes, numbers = zip(*(map(int, one.split("-")[1:]) for one in drawn.ids), strict=True)
    told = describe(np.array(classes), np.array(numbers), captions=3, family_size=3, seed=4)
    assert drawn.captions.texts == [text for texts in told for text in texts]


def test_glyphs_have_texts_only_if_asked_and_are_otherwise_the_same():
    plain = make_collection(replace(GLYPHS, options={**GLYPHS.options, "captions": 0}))
    assert plain.captions is None
    told = make_collection(GLYPHS)
    assert (plain.ids, plain.preprocessing) == (told.ids, told.preprocessing)
    assert torch.equal(plain.view(torch.arange(40)), told.view(torch.arange(40)))


def test_more_captions_than_there_are_are_refused():
    with pytest.raises(ConfigError, match="`captions` must lie between 1 and 12"):
        make_collection(replace(GLYPHS, options={**GLYPHS.options, "captions": 13}))
