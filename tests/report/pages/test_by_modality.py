"""The page of several directions says where the first answers get worse, of those that count."""

import numpy as np
import pytest

import nobackfill as nb
from nobackfill.evaluation.by_modality import evaluate_modalities
from nobackfill.evaluation.verdict import from_to, what_falls
from nobackfill.report.pages.by_modality import modalities_page

COUNT, CLASSES, DIM = 120, 12, 6
LABELS, KINDS = np.arange(COUNT) % CLASSES, np.where(np.arange(COUNT) % 24 < 12, "image", "text")


def vectors(seed, noise):
    """Items around their class: images of one noise, texts of another."""
    random, centre = np.random.default_rng(seed), np.random.default_rng(9).normal(size=(CLASSES, 6))
    spread = np.where(KINDS == "image", *noise)[:, None]
    values = centre[LABELS] + spread * random.normal(size=(COUNT, DIM))
    return nb.Vectors(np.arange(COUNT), values, LABELS, columns={"modality": KINDS})


@pytest.fixture(scope="module", params=[(0.4, 3.0), (3.0, 0.4), (0.1, 0.1)])
def found(request):
    return evaluate_modalities(vectors(1, (0.9, 0.9)), vectors(2, request.param))


def test_the_page_tells_of_each_direction_between_modalities_what_falls(found):
    told = [said for said in modalities_page(found, title="T").summary if "first answers" in said]
    wanted = [
        what_falls(one.summary(), where=from_to(name))
        for name, one in found.directions.items()
        if name in ("text_to_image", "image_to_text")
    ]
    assert told == [said for said in wanted if said]


def test_there_is_something_to_tell_of_a_model_that_is_worse():
    worse = evaluate_modalities(vectors(1, (0.4, 0.4)), vectors(2, (0.4, 3.0)))
    assert what_falls(worse.directions["text_to_text"].summary())
    summary = modalities_page(worse, title="T").summary
    assert any("get worse from text to image: Recall@1 falls" in said for said in summary)
    assert not any("from text to text: " in said for said in summary)
