"""What numbers come to in words: the same on a page, in a terminal, and for each direction."""

from itertools import product

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.core.numbers import listed
from nobackfill.evaluation.by_modality import ByModality
from nobackfill.evaluation.declare import why_not
from nobackfill.evaluation.evaluate import Evaluation
from nobackfill.evaluation.verdict import (
    ADVICE,
    advice_on,
    again_gains,
    between,
    directions_of,
    directions_sentence,
    from_to,
    joint_verdict,
    over_directions,
    run_sentence,
    verdict_sentence,
    what_falls,
)

VERDICTS = ("compatible", "not compatible", "undecided")
MORE_LOSE = "more queries lose their first hit than gain one"


def summary(verdict="compatible", *, recall=(0.3, 0.4), ndcg=(0.2, 0.3), flips=(0.1, 0.2), **more):
    """Numbers before and after; by default all rise, and more queries gain than lose."""
    metrics = [
        {"recall_at_1": first, "ndcg_at_10": ten} for first, ten in zip(recall, ndcg, strict=True)
    ]
    return {
        "old_old": 0.2,
        "new_old": 0.3,
        "new_new": 0.4,
        "verdict": verdict,
        "metrics": dict(zip(("old_old", "new_old"), metrics, strict=True)),
        "flips": [
            {"k": 1, "negative": flips[0], "positive": flips[1]},
            {"k": 5, "negative": 0.9, "positive": 0.0},
        ],
        **more,
    }


def of_run(first="text_to_image", verdict="compatible", *, direction=None, **others):
    """The evaluation of a run of images and texts; the others by direction."""
    tests = {name: summary(one, new_old=0.25) for name, one in others.items()}
    return summary(verdict, direction=direction or first, tests=tests)


# What the first answers lose


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"recall": (0.303, 0.2417)}, ["Recall@1 falls from 30.30 to 24.17 %"]),
        ({"ndcg": (0.2392, 0.2104)}, ["nDCG@10 falls from 23.92 to 21.04 %"]),
        ({"flips": (0.16, 0.10)}, [MORE_LOSE]),
        (
            {"recall": (0.3, 0.2), "ndcg": (0.2, 0.1)},
            ["Recall@1 falls from 30.00 to 20.00 %", "and nDCG@10 falls from 20.00 to 10.00 %"],
        ),
        (
            {"recall": (0.3, 0.2), "ndcg": (0.2, 0.1), "flips": (0.2, 0.1)},
            [
                "Recall@1 falls from 30.00 to 20.00 %",
                "nDCG@10 falls from 20.00 to 10.00 %",
                f"and {MORE_LOSE}",
            ],
        ),
    ],
)
@pytest.mark.parametrize("verdict", VERDICTS)
def test_what_falls_is_told_in_one_sentence_whatever_the_verdict(numbers, said, verdict):
    wanted = f"The first answers get worse: {', '.join(said)}."
    assert what_falls(summary(verdict, **numbers)) == wanted


def test_where_nothing_falls_nothing_is_said():
    assert what_falls(summary()) == ""
    assert what_falls(summary(recall=(0.3, 0.3), ndcg=(0.2, 0.2), flips=(0.1, 0.1))) == ""


def test_a_fall_that_no_reader_could_see_is_none():
    assert what_falls(summary(recall=(0.30001, 0.29999))) == ""
    assert "30.00 to 29.99" in what_falls(summary(recall=(0.3, 0.2999)))


def test_numbers_are_compared_as_numbers():
    assert what_falls(summary(recall=(0.095, 0.1))) == ""  # as texts 9.50 comes behind 10.00
    assert "10.00 to 9.50" in what_falls(summary(recall=(0.1, 0.095)))


def test_a_direction_is_named_where_it_falls():
    said = what_falls(summary(flips=(0.2, 0.1)), where=from_to("text_to_image"))
    assert said.startswith("The first answers get worse from text to image: more queries")


def test_it_is_said_of_an_evaluation_whose_map_rises_while_first_hits_are_lost():
    """The old query finds one item of its class first, the new one eight, behind a stranger."""
    classes = 20
    asks_old, asks_new = [1.0, 0, 0], [0, 1.0, 0.3]
    own = [[1.0, 0, 0], *[[0, 1.0, 0]] * 8]
    strangers = [*[[0.5, 0, 0.9]] * 8, [0, 1.0, 0.1]]  # they lie here, but are of the next class
    places = np.repeat(np.arange(classes), 19)
    is_query = np.arange(len(places)) % 19 == 0
    labels = np.where(np.arange(len(places)) % 19 > 9, (places + 1) % classes, places)

    def file(asks):
        rows = torch.zeros(len(places), classes, 3)
        rows[torch.arange(len(places)), places] = torch.tensor([asks, *own, *strangers] * classes)
        columns = {"is_query": is_query, "is_gallery": ~is_query}
        return nb.Vectors(range(len(places)), rows.flatten(1), labels, columns=columns)

    found = nb.evaluate(file(asks_old), file(asks_new)).summary()
    assert found["verdict"] == "mixed"
    assert found["compatible"] is None
    assert found["new_old_above_old_old"] is True
    assert what_falls(found) == (
        f"The first answers get worse: Recall@1 falls from 100.00 to 0.00 %, and {MORE_LOSE}."
    )


# One verdict of several directions


class Decided(Evaluation):
    """An evaluation of which only the verdict is known."""

    def __init__(self, verdict):
        object.__setattr__(self, "said", verdict)

    @property
    def verdict(self):
        return self.said


@pytest.mark.parametrize("verdicts", list(product(VERDICTS, repeat=3)))
def test_the_verdict_of_several_is_that_of_evaluate_by_modality(verdicts):
    names = ("text_to_image", "image_to_text", "text_to_text")
    stubs = dict(zip(names, map(Decided, verdicts), strict=True))
    by_modality = ByModality(stubs, {}, ())
    run = of_run(verdict=verdicts[0], image_to_text=verdicts[1], text_to_text=verdicts[2])
    found = over_directions(run)
    assert found["verdict"] == by_modality.verdict
    assert found["compatible"] == by_modality.compatible
    assert found["verdicts"] == dict(zip(names, verdicts, strict=True))


def test_of_no_direction_at_all_nothing_is_decided():
    assert joint_verdict([]) == "undecided"
    alone = of_run("image_to_image", direction="image_to_image")
    assert over_directions(alone)["verdict"] == "undecided"


def test_the_verdict_of_images_alone_stays_as_it_is():
    for verdict in VERDICTS:
        run = summary(verdict, tests={"image_to_text": summary("not compatible")})
        assert over_directions(run) == run
    assert directions_of(summary()) == {}


def test_what_was_given_is_left_alone_and_twice_is_as_good_as_once():
    run = of_run(image_to_text="undecided")
    once = over_directions(run)
    assert run["verdict"] == "compatible"
    assert over_directions(once) == once
    assert directions_of(once)["text_to_image"]["verdict"] == "compatible"


def test_directions_are_those_of_the_first_test():
    run = of_run(
        image_to_text="compatible", more_text_to_image="undecided", text_to_text="undecided"
    )
    assert list(directions_of(run)) == ["text_to_image", "image_to_text", "text_to_text"]
    assert over_directions(run)["verdict"] == "compatible"


@pytest.mark.parametrize("test", ["more", "text_to", "image_to_image", "a_b"])
def test_a_test_may_have_any_name(test):
    others = {f"{test}_image_to_text": "undecided", "other_image_to_text": "not compatible"}
    run = of_run(direction=f"{test}_text_to_image", image_to_text="not compatible", **others)
    assert list(directions_of(run)) == ["text_to_image", "image_to_text"]
    assert over_directions(run)["verdict"] == "undecided"


def test_only_directions_between_modalities_count():
    names = ("text_to_image", "image_to_image", "image_to_text", "text_to_text")
    assert list(between(dict.fromkeys(names, {}))) == ["text_to_image", "image_to_text"]


# What a run came to


def test_of_images_alone_the_numbers_and_the_verdict_are_told():
    for verdict in VERDICTS:
        said = run_sentence(summary(verdict))
        assert said == f"mAP old/old 20.00, new/old 30.00, new/new 40.00: {verdict}."
    assert "new/new –:" in run_sentence(summary(new_new=None))


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("compatible", "compatible", "compatible from text to image and from image to text."),
        ("compatible", "undecided", "undecided from image to text."),
        ("undecided", "not compatible", "not compatible from image to text."),
        ("not compatible", "compatible", "not compatible from text to image."),
    ],
)
def test_of_images_and_texts_each_direction_is_told_and_which_decides(first, second, said):
    told = run_sentence(of_run(verdict=first, image_to_text=second, text_to_text="not compatible"))
    assert told == (
        "mAP from text to image old/old 20.00, new/old 30.00, new/new 40.00; "
        f"from image to text old/old 20.00, new/old 25.00, new/new 40.00: {said}"
    )
    again = over_directions(of_run(verdict=first, image_to_text=second))
    assert run_sentence(again) == told


def test_a_single_direction_is_named_and_that_it_is_the_only_one():
    told = run_sentence(of_run())
    assert told.endswith(
        ": compatible from text to image; no other direction between images and texts was measured."
    )


def test_parts_of_a_sentence():
    assert listed(["a"]) == listed(["a"], comma=True) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(["a", "b", "c"], comma=True) == "a, b, and c"


# Whether to embed the gallery again


def again(mean, low=None):
    """A summary in which new/new differs from old/old by so much."""
    return {"differences": {"new_new - old_old": {"mean": mean, "low": low}}}


UNMEASURED = {"differences": {}}


@pytest.mark.parametrize(
    ("summaries", "gains"),
    [
        ([again(0.1, 0.05)], True),
        ([again(0.1, -0.05)], False),  # may be chance
        ([again(-0.1, -0.2)], False),
        ([again(0.0, 0.0)], False),
        ([again(0.1)], True),  # no interval
        ([again(0.0)], False),
        ([UNMEASURED], None),
        ([], None),
        ([again(0.1, 0.05), again(0.2, 0.1)], True),
        ([again(0.1, 0.05), again(-0.2, -0.3)], False),
        ([again(0.1, 0.05), UNMEASURED], None),
        ([UNMEASURED, again(-0.2, -0.3)], False),
    ],
)
def test_embedding_again_gains_where_every_direction_does(summaries, gains):
    assert again_gains(summaries) is gains


@pytest.mark.parametrize("gains", [True, False, None])
def test_embedding_again_is_advised_only_where_it_gains(gains):
    advice = advice_on("not compatible", gains_again=gains)
    assert advice.startswith("keep the old model")
    assert ("or embed the gallery again" in advice) is (gains is True)
    assert ("not known to help" in advice) is (gains is False)
    assert ("measure new/new before" in advice) is (gains is None)
    for verdict, usual in ADVICE.items():
        assert advice_on(verdict, gains_again=gains) == usual
    assert advice in verdict_sentence("not compatible", "-1.2", gains_again=gains)
    joint = directions_sentence({"text_to_image": "not compatible"}, gains_again=gains)
    assert advice[1:] in joint


@pytest.mark.parametrize("noise", [0.4, 3.0])
def test_an_evaluation_knows_whether_embedding_again_gains(noise):
    draw = np.random.default_rng(0)
    labels = np.arange(240) % 40
    centres = draw.normal(size=(2, 40, 16))  # of two spaces

    def vectors(space, noise):
        rows = centres[space][labels] + noise * draw.normal(size=(240, 16))
        return nb.Vectors(np.arange(240), rows.astype(np.float32), labels)

    result = nb.evaluate(vectors(0, 1.0), vectors(1, noise))
    assert result.verdict == "not compatible"
    assert again_gains([result.summary()]) is (noise < 1)
    assert ("or embed the gallery again" in why_not(result)) is (noise < 1)
