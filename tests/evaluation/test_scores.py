import json
from pathlib import Path

import numpy as np
import pytest
import torch

from nobackfill.errors import DataError
from nobackfill.evaluation.scores import compatibility, p_scores

# Every distinct row of Zhou et al., 2025, that prints P-scores, with the mAPs they are made of.
# Five contradict themselves in print (swapped or mistyped mAPs).
PAPER = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "paper_rows.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize(
    "row", PAPER, ids=lambda row: f"{row['table']} {row['setting']} {row['method']}"
)
def test_every_row_of_the_paper(row):
    scores = p_scores(row["new_new"], row["new_old"], row["old_old"], row["independent"])
    printed = pytest.approx(row["printed"], abs=0.011)
    assert ([scores.up, scores.comp, scores.one] == printed) is row["reproduces"]


def test_fifty_of_the_papers_fifty_five_rows_reproduce():
    assert [sum(row["reproduces"] for row in PAPER), len(PAPER)] == [50, 55]


def test_golden_row_of_in_shop():
    scores = p_scores(65.30, 54.36, 53.26, 71.24)
    assert (scores.up, scores.comp, scores.one) == pytest.approx((47.92, 51.53, 49.66), abs=0.011)


def test_several_test_sets_give_the_mean_of_each_score():
    """GLDv2 9 % to 30 %, NDPP: RParis, ROxford, GLDv2-test as the paper prints them."""
    old, star = (67.31, 41.82, 7.30), (75.08, 55.77, 12.08)
    bct = p_scores((71.52, 51.16, 10.38), (68.37, 44.75, 8.72), old, star)
    assert (bct.up, bct.comp, bct.one) == pytest.approx((47.75, 55.34, 51.23), abs=0.011)


def test_fifty_is_neutral():
    scores = p_scores(0.7, 0.5, 0.5, 0.7)
    assert (scores.up, scores.comp, scores.one) == (50, 50, 50)
    assert p_scores(0.71, 0.5, 0.5, 0.7).up > 50 > p_scores(0.69, 0.5, 0.5, 0.7).up
    assert p_scores(0.7, 0.51, 0.5, 0.7).comp > 50 > p_scores(0.7, 0.49, 0.5, 0.7).comp


def test_fractions_and_percent_give_the_same():
    assert p_scores(0.653, 0.5436, 0.5326, 0.7124).one == pytest.approx(
        p_scores(65.3, 54.36, 53.26, 71.24).one
    )


def test_a_tiny_gain_does_not_overflow():
    assert p_scores(0.5, 0.1, 0.5, 0.5003).comp == pytest.approx(0)
    assert p_scores(0.5, 0.9, 0.5, 0.5003).comp == pytest.approx(100)


def test_takes_numbers_of_any_make():
    expected = p_scores([0.6], [0.5], [0.4], [0.7])
    for make in (np.float32, torch.tensor, lambda x: np.array([x])):
        got = p_scores(*(make(x) for x in (0.6, 0.5, 0.4, 0.7)))
        assert got.one == pytest.approx(expected.one, rel=1e-6)
    with pytest.raises(DataError, match="need four numbers"):
        p_scores(float("nan"), 0.5, 0.4, 0.7)


def test_without_a_gain_there_is_no_score():
    with pytest.raises(DataError, match="no gain"):
        p_scores(0.7, 0.5, 0.7, 0.7)
    with pytest.raises(DataError, match="one value per test set"):
        p_scores((0.7, 0.8), 0.5, 0.5, 0.7)


@pytest.mark.parametrize(
    ("method", "ac", "am"),
    [("BCT", 1, 0.437), ("AdvBCT", 1, 0.445), ("NDPP", 2 / 3, 0.456), ("ODPP", 1, 0.458)],
)
def test_ac_and_am_of_the_papers_sequence_of_upgrades(method, ac, am):
    """GLDv2 9 % to 30 % to 100 %: the mean mAP of RParis, ROxford and GLDv2-test in each entry."""
    rows = {row["setting"]: row for row in PAPER if row["method"] == method}

    def mean(values):
        return sum(values) / len(values) / 100

    first = rows["phi_1→phi_3"]
    second = rows.get("phi_1→phi_2", rows["Data-Extension (9%->30%)"])
    matrix = [
        [mean(first["old_old"])],
        [mean(second["new_old"]), mean(second["new_new"])],
        [mean(first["new_old"]), mean(rows["phi_2→phi_3"]["new_old"]), mean(first["new_new"])],
    ]
    result = compatibility(matrix)
    assert result.ac == pytest.approx(ac)
    assert result.am == pytest.approx(am, abs=5e-4)


@pytest.mark.parametrize(
    ("matrix", "ac", "am"),
    [
        ([[0.5], [0.6, 0.7]], 1.0, 0.6),
        ([[0.5], [0.5, 0.7]], 0.0, 1.7 / 3),  # a tie is not compatible
        ([[0.5], [0.6, 0.7], [0.6, 0.7, 0.8]], 2 / 3, 3.9 / 6),
        ([[0.0, 9.0], [0.1, 0.2]], 1.0, 0.1),  # what stands above the diagonal is not read
    ],
)
def test_ac_and_am(matrix, ac, am):
    result = compatibility(matrix)
    assert (result.ac, result.am) == pytest.approx((ac, am))


def test_ac_and_am_want_a_triangle():
    for matrix in ([], [[0.5]], [[0.5], [0.6]], [[0.5], [0.6, float("nan")]]):
        with pytest.raises(DataError):
            compatibility(matrix)
