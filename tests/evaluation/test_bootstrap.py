import math

import numpy as np
import pytest
from scipy.stats import t as student

from nobackfill.errors import DataError
from nobackfill.evaluation import bootstrap
from nobackfill.evaluation.bootstrap import (
    FEWEST_GROUPS,
    draw_means,
    expanded_tail,
    means_and_errors,
    paired_interval,
    student_quantile,
)


def queries(generator, classes, *, effect=0.05, within=0.3, between=0.2):
    """Differences of classes of one to seven queries, which rise and fall together."""
    sizes = generator.integers(1, 8, classes)
    group = np.repeat(np.arange(classes), sizes)
    shared = generator.normal(0, between, classes)
    return effect + shared[group] + generator.normal(0, within, len(group)), group


@pytest.mark.parametrize("classes", [8, 12, 40])
def test_the_truth_lies_within_as_often_as_is_said(classes):
    generator = np.random.default_rng(classes)
    turns, covered = 400, 0
    for turn in range(turns):
        found = paired_interval(*queries(generator, classes), samples=400, seed=turn)
        covered += found.low <= 0.05 <= found.high
    spread = 3 * math.sqrt(0.95 * 0.05 / turns)
    assert 0.95 - spread < covered / turns < 0.98 + spread


@pytest.mark.parametrize("classes", [8, 20])
def test_few_classes_that_lose_much_hide_less_often(classes):
    """Most classes gain a little, a few lose much, and on average nothing changes."""
    generator = np.random.default_rng(0)
    turns, rises, rises_by_percentiles = 400, 0, 0
    for _ in range(turns):
        values = np.repeat(1 - generator.exponential(size=classes), 3)
        found = paired_interval(values, np.arange(3 * classes) // 3, samples=400)
        drawn, _ = draw_means(3 * values[::3], np.full(classes, 3.0), 400, 0)
        rises += found.low > 0
        rises_by_percentiles += np.quantile(drawn, 0.025) > 0
    assert rises / turns < 0.08
    assert rises < 0.75 * rises_by_percentiles


def test_the_error_of_a_mean_is_that_of_its_groups():
    random = np.random.default_rng(0)
    values = random.normal(size=30)
    means, errors = means_and_errors(values, np.ones(30), np.ones((1, 30)))
    assert means == pytest.approx(values.mean())
    assert errors == pytest.approx(values.std(ddof=1) / math.sqrt(30))
    # a group that is drawn twice counts as two groups with the same queries
    weights = random.integers(0, 3, size=(1, 30))
    drawn = np.repeat(values, weights[0])
    means, errors = means_and_errors(values, np.ones(30), weights)
    assert means == pytest.approx(drawn.mean())
    assert errors == pytest.approx(drawn.std() * math.sqrt(30 / 29 / len(drawn)))


def test_an_interval_of_few_classes_is_at_least_that_of_student():
    values = np.random.default_rng(0).normal(size=8)
    found = paired_interval(values, np.arange(8))
    half = student.ppf(0.975, 7) * values.std(ddof=1) / math.sqrt(8)
    assert found.low <= values.mean() - half * 0.999
    assert found.high >= values.mean() + half * 0.999


def test_an_interval_stays_finite_where_most_classes_agree():
    found = paired_interval(np.array([0.1] * 7 + [-0.2]), np.arange(8))
    assert -1 < found.low < 0 < found.high < 1


def test_queries_of_one_class_are_no_independent_witnesses():
    generator = np.random.default_rng(0)
    values, group = queries(generator, 20, within=0.01)
    together = paired_interval(values, group)
    alone = paired_interval(values, np.arange(len(values)))
    assert together.high - together.low > 1.5 * (alone.high - alone.low)
    assert together.mean == alone.mean == pytest.approx(values.mean())


def test_the_mean_is_over_queries_not_over_classes():
    sums, sizes = np.array([3.0, 1.0]), np.array([3.0, 1.0])
    assert np.allclose(draw_means(sums, sizes, 50, 0)[0], 1.0)
    values = np.array([1.0] * 9 + [0.0] * 9)
    found = paired_interval(values, np.array([0] * 9 + list(range(1, 10))))
    assert found.mean == 0.5
    assert found.groups == 10


def test_the_drawing_is_a_multinomial_however_large_the_blocks(monkeypatch):
    sums, sizes = np.arange(10.0), np.ones(10)
    whole, _ = draw_means(sums, sizes, 2000, 0)
    monkeypatch.setattr("nobackfill.evaluation.bootstrap.BLOCK", 70)
    parts, _ = draw_means(sums, sizes, 2000, 0)
    assert np.array_equal(whole, parts)
    assert whole.std() == pytest.approx(np.arange(10).std() / math.sqrt(10), rel=0.1)


def test_draws_that_were_kept_are_those_drawn_afresh(monkeypatch):
    sums, sizes = np.random.default_rng(0).normal(size=(2, 300)) ** 2
    kept = [draw_means(sums, sizes, 500, seed) for seed in (1, 2, 1)]
    monkeypatch.setattr("nobackfill.evaluation.bootstrap.KEPT", 0)
    fresh = [draw_means(sums, sizes, 500, seed) for seed in (1, 2, 1)]
    assert all(np.array_equal(one, other) for one, other in zip(kept, fresh, strict=True))
    assert not np.array_equal(kept[0], kept[1])


def test_draws_of_the_same_queries_are_made_once(monkeypatch):
    made = []
    fresh_draws = bootstrap.fresh_draws
    monkeypatch.setattr(
        bootstrap, "fresh_draws", lambda *rest: made.append(rest) or fresh_draws(*rest)
    )
    bootstrap.kept_draws.cache_clear()
    values = np.random.default_rng(0).normal(size=(3, 90))
    for one in values:
        paired_interval(one, np.arange(90), seed=5)
    assert made == [(90, 4000, 5)]


def test_a_query_without_anything_to_find_is_left_out():
    values = np.concatenate([np.full(8, 0.5), [np.nan] * 4])
    found = paired_interval(values, np.arange(12))
    assert (found.mean, found.low, found.high, found.groups) == (0.5, 0.5, 0.5, 8)
    with pytest.raises(DataError, match="no query has anything to find"):
        paired_interval(np.array([np.nan]), np.array([0]))
    with pytest.raises(DataError, match="one group per difference"):
        paired_interval(np.zeros(3), np.arange(2))


def excludes_zero(interval):
    return interval.low > 0 or interval.high < 0


def test_few_classes_decide_nothing():
    found = paired_interval(np.ones(50), np.arange(50) % (FEWEST_GROUPS - 1))
    assert not excludes_zero(found)
    assert found.summary()["low"] is None
    enough = paired_interval(np.ones(50), np.arange(50) % FEWEST_GROUPS)
    assert excludes_zero(enough)
    assert enough.summary()["low"] == 1.0


def test_an_interval_around_zero_decides_nothing():
    values = np.array([1.0, -1.0] * 20)
    assert not excludes_zero(paired_interval(values, np.arange(40)))
    assert excludes_zero(paired_interval(values + 2, np.arange(40)))
    assert excludes_zero(paired_interval(values - 2, np.arange(40)))


def test_the_same_seed_gives_the_same_interval():
    values, group = queries(np.random.default_rng(1), 30)
    assert paired_interval(values, group, seed=3) == paired_interval(values, group, seed=3)
    assert paired_interval(values, group, seed=3) != paired_interval(values, group, seed=4)


@pytest.mark.parametrize("freedom", [7, 9, 30, 1000])
@pytest.mark.parametrize("tail", [0.005, 0.025, 0.05])
def test_students_quantile(freedom, tail):
    assert student_quantile(tail, freedom) == pytest.approx(student.ppf(tail, freedom), rel=1e-3)
    assert expanded_tail(tail, freedom + 1) < tail
