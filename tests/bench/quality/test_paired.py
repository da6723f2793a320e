from math import exp, gamma, inf, isnan, pi, sqrt

import pytest

from nobackfill_bench.quality.paired import (
    QUANTILES,
    Compared,
    gain,
    mean_of,
    seconds_per_epoch,
    value,
)

NEIGHBOR = {0: (0.4, 0.52, 0.62), 2: (0.3, 0.36, 0.7), 4: (0.3, 0.46, 0.8), 5: (0.2, 0.1, 0.9)}
BASELINE = {0: (0.4, 0.5, 0.6), 1: (0.5, 0.5, 0.7), 2: (0.3, 0.3, 0.7), 3: (0.1, 0.2, 0.3)}
CEILING = {4: (0.3, 0.1, 0.7), 2: (0.3, 0.1, 0.9), 1: (0.5, 0.1, 0.8), 0: (0.4, 0.1, 0.8)}


@pytest.fixture
def compared(lines_of):
    return Compared.of(
        [
            *lines_of("rm", {3: (0.1, 0.22, 0.4)}),
            *lines_of("ndpp", NEIGHBOR),
            *lines_of("prototype_alignment", BASELINE),
            *lines_of("independent", CEILING),
        ]
    )


def logistic(x):
    return 100 / (1 + exp(-x))


def test_p_scores_are_of_the_independent_model_and_the_old_model_of_the_same_seed(compared):
    ups = [(0.62 - 0.8) / 0.8, (0.7 - 0.9) / 0.9, (0.8 - 0.7) / 0.7]
    comps = [0.12 / 0.4, 0.06 / 0.6, 0.16 / 0.4]
    up, comp = [logistic(x) for x in ups], [logistic(x) for x in comps]
    one = [2 * a * b / (a + b) for a, b in zip(up, comp, strict=True)]
    for measure, values in ((compared.p_up, up), (compared.p_comp, comp), (compared.p_1, one)):
        mean = compared.mean("ndpp", measure)
        assert mean.seeds == 3  # seed 5 has no independent model
        assert mean.value == pytest.approx(sum(values) / 3)
        assert measure(compared.runs["ndpp"][5]) is None


def test_a_line_may_name_its_independent_model_itself(lines_of):
    numbers = {0: (0.4, 0.5, 0.6), 1: (0.4, 0.5, 0.6)}
    told = Compared.of(lines_of("ndpp", numbers, independent=0.7))
    assert told.ceilings == {0: 0.7, 1: 0.7}
    assert told.free(told.runs["ndpp"][0]) == pytest.approx(-10)
    assert Compared.of(lines_of("ndpp", numbers, independent=None)).ceilings == {}


def test_an_independent_model_that_gains_nothing_leaves_no_p_score(lines_of):
    compared = Compared.of(
        [*lines_of("ndpp", {0: (0.4, 0.5, 0.6)}), *lines_of("independent", {0: (0.4, 0.1, 0.4)})]
    )
    run = compared.runs["ndpp"][0]
    assert compared.p_1(run) is None
    assert compared.gain_recovered(run) is None
    assert compared.free(run) == pytest.approx(20)  # that can be told


def test_what_is_recovered_is_the_share_of_a_full_backfills_gain(compared):
    recovered = compared.mean("ndpp", compared.gain_recovered)
    assert recovered.value == pytest.approx(100 * (0.12 / 0.4 + 0.06 / 0.6 + 0.16 / 0.4) / 3)


def test_differences_are_taken_over_shared_seeds_alone(compared):
    found = compared.difference("ndpp", "prototype_alignment", value("new_old"))
    assert found.seeds == 2  # 0 and 2: +2 and +6, a deviation of √8
    assert found.value == pytest.approx(4)
    assert found.half == pytest.approx(12.706 * sqrt(8) / sqrt(2))
    other_way = compared.difference("prototype_alignment", "ndpp", value("new_old"))
    assert (other_way.value, other_way.half) == (pytest.approx(-4), pytest.approx(found.half))


def test_differences_of_what_is_known_of_one_alone_do_not_count(compared):
    assert compared.difference("rm", "prototype_alignment", value("new_new")).seeds == 1
    assert compared.difference("rm", "prototype_alignment", compared.p_1).seeds == 0
    assert compared.difference("rm", "ndpp", value("new_new")).seeds == 0
    assert isnan(compared.difference("rm", "nothing", value("new_new")).value)


def test_ways_are_sorted_by_p_1_and_those_without_by_new_old(lines_of):
    compared = Compared.of(
        [
            *lines_of("a", {9: (0.3, 0.4, 0.5)}),
            *lines_of("b", {9: (0.3, 0.9, 0.5)}),
            *lines_of("low", {0: (0.3, 0.2, 0.5)}),
            *lines_of("high", {0: (0.3, 0.4, 0.5)}),
            *lines_of("independent", {0: (0.3, 0.01, 0.7)}),
        ]
    )
    assert compared.ways == ["high", "low", "independent", "b", "a"]


def test_the_best_other_way_is_no_ceiling_and_has_a_p_1(lines_of):
    numbers = {"janus": 0.55, "ndpp": 0.5, "independent_contrastive": 0.9}
    compared = Compared.of(
        [
            *(line for way, one in numbers.items() for line in lines_of(way, {0: (0.3, one, 0.6)})),
            *lines_of("independent", {0: (0.3, 0.9, 0.7)}),
            *lines_of("rm", {9: (0.3, 0.9, 0.9)}),
        ]
    )
    assert compared.best_other("janus") == "ndpp"
    assert compared.best_other("ndpp") == "janus"
    assert compared.best_other("rm") == "janus"
    alone = Compared.of(lines_of("janus", {0: (0.3, 0.5, 0.6)}))
    assert alone.best_other("janus") is None


def test_the_later_of_two_lines_of_a_seed_counts(lines_of):
    numbers = [{0: (0.4, one, 0.6)} for one in (0.5, 0.55)]
    compared = Compared.of(line for one in numbers for line in lines_of("ndpp", one))
    assert compared.mean("ndpp", value("new_old")).value == pytest.approx(55)


def test_another_test_takes_the_place_of_the_first(lines_of):
    there = {"old_old": 0.1, "new_old": 0.2, "new_new": 0.3, "verdict": "compatible"}
    lines = lines_of(
        "ndpp", {0: (0.4, 0.5, 0.6)}, tests={"roxford": there}, independent=0.7, spread=0.1
    )
    lines += lines_of(
        "independent", {0: (0.4, 0.0, 0.7)}, tests={"roxford": there | {"new_new": 0.5}}
    )
    other = Compared.of(lines).on_test("roxford")
    run = other.runs["ndpp"][0]
    assert (run["old_old"], run["new_old"], run["new_new"]) == (0.1, 0.2, 0.3)
    assert (run["seed"], run["device"], run["verdict"]) == (0, "cpu", "compatible")
    assert "spread" not in run
    assert other.ceilings == {0: 0.5}  # of that test, not of the first


def test_numbers_of_a_line_come_in_percent(lines_of):
    (line,) = lines_of("ndpp", {0: (0.4, 0.52, 0.62)})
    assert value("new_old")(line) == 52
    assert value("raw_old")(line) is None
    assert value("raw_old")(line | {"raw_old": None}) is None
    assert value("raw_old")(line | {"raw_old": 0.0}) == 0
    assert gain(line) == pytest.approx(12)
    assert seconds_per_epoch(line) == 0.5
    for missing in ({"seconds": None}, {"epochs": None}):
        assert seconds_per_epoch(line | missing) is None


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
