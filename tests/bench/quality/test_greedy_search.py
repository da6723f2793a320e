import inspect
from dataclasses import replace

import pytest

from nobackfill.methods import METHODS
from nobackfill_bench.quality.greedy_search import Search, default_of, search_steps, way_of
from nobackfill_bench.quality.paired import Compared, both
from nobackfill_bench.quality.studies import STUDIES
from nobackfill_bench.quality.suite import options_of, read_way

SEARCH = Search("ndpp", {"old_strength": (0, 0.1), "neighbors": (5,)})


def seeds(new_old, number=2):
    return {seed: (0.4, new_old + 0.01 * seed, 0.6) for seed in range(number)}


@pytest.fixture
def runs(lines_of):
    """Makes runs out of new/old by way, beside an independent model that P_1 needs."""

    def make(new_old, number=2):
        lines = lines_of("independent", seeds(0.1))
        for way, one in new_old.items():
            lines += lines_of(way, seeds(one, number))
        return Compared.of(lines)

    return make


FIRST = {"ndpp:old_strength=0": 0.5, "ndpp": 0.4, "ndpp:old_strength=0.1": 0.45}


def test_the_first_step_waits_for_runs_of_all_values(runs):
    (step,) = search_steps(SEARCH, runs({}), seeds=2)
    assert step.best is None
    assert dict(step.ways) == {
        0: "ndpp:old_strength=0", 0.01: "ndpp", 0.1: "ndpp:old_strength=0.1",
    }  # fmt: skip
    one_less = {way: new_old for way, new_old in FIRST.items() if way != "ndpp"}
    assert search_steps(SEARCH, runs(one_less), seeds=2) == [step]


def test_what_is_best_is_kept_in_the_next_step(runs):
    first, second = search_steps(SEARCH, runs(FIRST), seeds=2)
    assert first.best == 0
    assert second.best is None
    assert dict(second.ways) == {
        5: "ndpp:old_strength=0,neighbors=5", 100: "ndpp:old_strength=0",
    }  # fmt: skip


def test_a_search_ends_with_its_last_option(runs):
    steps = search_steps(SEARCH, runs(FIRST | {"ndpp:old_strength=0,neighbors=5": 0.3}), seeds=2)
    assert [(step.option, step.best) for step in steps] == [("old_strength", 0), ("neighbors", 100)]


def test_too_few_seeds_decide_nothing(runs):
    (step,) = search_steps(SEARCH, runs(FIRST, number=1), seeds=2)
    assert step.best is None
    assert len(search_steps(SEARCH, runs(FIRST, number=1), seeds=1)) == 2


def test_without_an_independent_model_there_is_no_p_1_to_decide_by(lines_of):
    lines = [line for way, one in FIRST.items() for line in lines_of(way, seeds(one))]
    (step,) = search_steps(SEARCH, Compared.of(lines), seeds=2)
    assert step.best is None


def test_the_best_way_is_not_the_one_with_the_best_new_old_alone(lines_of):
    lines = lines_of("independent", {0: (0.4, 0.1, 0.6)})
    lines += lines_of("ndpp:old_strength=0", {0: (0.4, 0.41, 0.2)})  # compatible, and ruined
    lines += lines_of("ndpp", {0: (0.4, 0.40, 0.6)})
    lines += lines_of("ndpp:old_strength=0.1", {0: (0.4, 0.1, 0.6)})
    assert search_steps(SEARCH, Compared.of(lines), seeds=1)[0].best == 0.01


def test_what_a_way_says_is_what_the_method_is_given():
    way = way_of("odpp", {"old_threshold": 0.2, "new_threshold": 0.6, "new_weight": 10})
    assert way == "odpp:old_threshold=0.2,new_weight=10"
    assert options_of(*read_way(way)) == {"old_threshold": 0.2, "new_weight": 10}


@pytest.mark.parametrize("name", [name for name, one in STUDIES.items() if one.search])
def test_the_searches_ask_for_options_that_there_are(name):
    search = STUDIES[name].search
    known = inspect.signature(METHODS[search.method]).parameters
    for option, values in search.options.items():
        assert default_of(search.method, option) == known[option].default
        for value in values:
            options_of(*read_way(way_of(search.method, {option: value})))


def test_a_search_may_go_by_both_maps_where_no_independent_model_is_better_than_the_old_one(
    lines_of,
):
    lines = lines_of("ndpp:old_strength=0", {0: (0.4, 0.41, 0.2)})
    lines += lines_of("ndpp", {0: (0.4, 0.40, 0.6)})
    lines += lines_of("ndpp:old_strength=0.1", {0: (0.4, 0.5, 0.45)})
    search = replace(SEARCH, by="both")  # 0.305, 0.5 and 0.475
    assert search_steps(search, Compared.of(lines), seeds=1)[0].best == 0.01
    assert both(lines[-1]) == pytest.approx(47.5)
