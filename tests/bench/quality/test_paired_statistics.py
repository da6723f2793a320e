from math import gamma, inf, isnan, pi, sqrt

import pytest

from nobackfill_bench.quality.paired_statistics import QUANTILES, mean_of


def share_below(quantile, freedom, steps=4000):
    """How much of Student's t lies below, by Simpson's rule over its density."""
    factor = gamma((freedom + 1) / 2) / (sqrt(freedom * pi) * gamma(freedom / 2))
    width, total = quantile / steps, 0.0
    for step in range(steps + 1):
        weight = 1 if step in (0, steps) else 4 if step % 2 else 2
        total += weight * factor * (1 + (step * width) ** 2 / freedom) ** (-(freedom + 1) / 2)
    return 0.5 + total * width / 3


@pytest.mark.parametrize("freedom", range(1, 31))
def test_the_quantiles_are_those_of_students_t(freedom):
    assert len(QUANTILES) == 30
    quantile = QUANTILES[freedom - 1]
    assert share_below(quantile - 0.0006, freedom) < 0.975 < share_below(quantile + 0.0006, freedom)


@pytest.mark.parametrize(
    ("values", "value", "half"),
    [
        ([5.0, 7.0], 6.0, 12.706),  # a deviation of √2 over √2
        ([1.0, 2.0, 3.0], 2.0, 4.303 / sqrt(3)),
        ([1.0, 1.0, 3.0, 3.0], 2.0, 3.182 * sqrt(4 / 3) / 2),
        ([-2.0, -2.0, -2.0], -2.0, 0.0),
    ],
)
def test_the_interval_is_its_formula_by_hand(values, value, half):
    mean = mean_of(values)
    assert (mean.value, mean.half, mean.seeds) == (
        pytest.approx(value), pytest.approx(half), len(values),
    )  # fmt: skip
    assert (mean.low, mean.high) == (pytest.approx(value - half), pytest.approx(value + half))


@pytest.mark.parametrize("number", [31, 32, 100])
def test_more_seeds_than_the_table_knows_are_given_its_last_quantile(number):
    values = [float(one % 2) for one in range(number)]
    mean = sum(values) / number
    deviation = sqrt(sum((one - mean) ** 2 for one in values) / (number - 1))
    assert mean_of(values).half == pytest.approx(2.042 * deviation / sqrt(number))


def test_one_seed_is_sure_of_nothing():
    mean = mean_of([3.0])
    assert (mean.value, mean.half, mean.seeds) == (3.0, inf, 1)
    assert (mean.low, mean.high) == (-inf, inf)


def test_no_seed_is_no_number():
    mean = mean_of([])
    assert mean.seeds == 0
    assert isnan(mean.value)
    assert not mean.low > 0
