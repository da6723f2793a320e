"""What an evaluation concludes, and how sure it is of it."""

import json

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.evaluation.bootstrap import paired_interval
from nobackfill.evaluation.evaluate import evaluate

CLASSES, PER_CLASS, DIM = 30, 6, 16
LABELS = np.arange(CLASSES * PER_CLASS) % CLASSES


def vectors(seed, noise, *, space=0, labels=LABELS):
    centre = torch.randn(int(labels.max()) + 1, DIM, generator=torch.Generator().manual_seed(space))
    generator = torch.Generator().manual_seed(seed)
    values = centre[labels] + noise * torch.randn(len(labels), DIM, generator=generator)
    return nb.Vectors(range(len(labels)), values, labels)


OLD, BETTER, WORSE = vectors(1, 1.5), vectors(2, 0.5), vectors(3, 3.0)
EQUAL, CEILING = vectors(4, 1.5), vectors(5, 0.3, space=9)


@pytest.mark.parametrize(
    ("new", "verdict", "compatible"),
    [(BETTER, "compatible", True), (WORSE, "not compatible", False), (EQUAL, "undecided", None)],
)
def test_a_difference_that_may_be_chance_is_undecided(new, verdict, compatible):
    result = evaluate(OLD, new)
    assert result.verdict == verdict
    assert result.summary()["compatible"] is compatible
    assert result.summary()["verdict"] == verdict


def test_differences_are_paired_and_grouped_by_class():
    result = evaluate(OLD, BETTER, independent=CEILING, seed=7)
    one, other = result.new_old.average_precision, result.old_old.average_precision
    expected = paired_interval((one - other).numpy(), LABELS, seed=7)
    assert result.differences["new_old - old_old"] == expected
    assert set(result.differences) == {
        "new_old - old_old", "new_new - old_old", "new_new - new_old", "new_new - independent",
    }  # fmt: skip
    for name, interval in result.differences.items():
        first, second = name.split(" - ")
        means = {key: pair.mean_average_precision for key, pair in result.pairs.items()}
        assert interval.mean == pytest.approx(means[first] - means[second])
        assert interval.low < interval.mean < interval.high


def test_of_what_a_backfill_could_gain_so_much_comes_today():
    result = evaluate(OLD, BETTER, independent=CEILING)
    today, now, could = (
        getattr(result, name).mean_average_precision
        for name in ("old_old", "new_old", "independent")
    )
    assert result.gain_recovered == pytest.approx((now - today) / (could - today))
    assert evaluate(OLD, BETTER).gain_recovered is None
    assert evaluate(CEILING, CEILING, independent=OLD).gain_recovered is None


@pytest.mark.parametrize("k", [1, 5, 10])
def test_flips_by_hand(k):
    result = evaluate(OLD, WORSE)
    before = [0 < rank <= k for rank in result.old_old.first_hit.tolist()]
    after = [0 < rank <= k for rank in result.new_old.first_hit.tolist()]
    lost = sum(a and not b for a, b in zip(before, after, strict=True))
    won = sum(b and not a for a, b in zip(before, after, strict=True))
    flips = result.flips(k)
    assert (flips.k, flips.negative, flips.positive) == (k, lost / 180, won / 180)
    assert lost > 0


def test_queries_without_anything_to_find_do_not_thin_the_flips_out():
    alone = np.concatenate([LABELS, np.arange(100, 150)])  # fifty items, each of a class of its own
    more = [vectors(seed, noise, labels=alone) for seed, noise in ((1, 1.5), (3, 3.0))]
    result = evaluate(*more)
    lost = (result.old_old.found_by(1) & ~result.new_old.found_by(1)).sum()
    assert result.flips(1).negative == pytest.approx(int(lost) / 180)


def test_the_summary_is_json_and_the_same_twice():
    first, second = (
        json.dumps(evaluate(OLD, BETTER, independent=CEILING).summary(), allow_nan=False)
        for _ in range(2)
    )
    assert first == second
    metrics = json.loads(first)["metrics"]
    assert metrics["new_old"]["recall_at_5"] == evaluate(OLD, BETTER).new_old.recall(5)
    assert metrics["old_old"]["in_order"] == evaluate(OLD, BETTER).old_old.in_order


def test_few_classes_are_told():
    labels = LABELS % 5
    few = [vectors(seed, noise, labels=labels) for seed, noise in ((1, 1.5), (2, 0.5))]
    result = evaluate(*few)
    assert result.verdict == "undecided"
    assert any(
        "at least 8 independent groups, such as classes, and these are of 5" in note
        for note in result.notes
    )
    json.dumps(result.summary(), allow_nan=False)
