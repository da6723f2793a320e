from dataclasses import replace
from xml.etree import ElementTree

import pytest

from nobackfill.core.config import build_recipe, change_tables, resolve_options
from nobackfill.methods import METHODS
from nobackfill_bench import SUITES
from nobackfill_bench.quality.greedy_search import Search
from nobackfill_bench.quality.studies import STUDIES, Study, grid, render_studies
from nobackfill_bench.quality.studies import one_study as section_of
from nobackfill_bench.quality.suite import read_way

BASELINE = "prototype_alignment"
SMALL = Study(
    "glyphs",
    "Small",
    "Does it pay?",
    ("independent", BASELINE, "ndpp:neighbors=1"),
    {"few": ("data.train_classes=50",), "many": ("data.train_classes=90",)},
    seeds=2,
)


@pytest.fixture
def one_study(tmp_path):
    return lambda name, study, lines: section_of(name, study, lines, tmp_path)


def numbers(new_old, seeds=2):
    return {seed: (0.4, new_old + 0.01 * seed, 0.7) for seed in range(seeds)}


@pytest.fixture
def lines(lines_of):
    """Of both settings all ways on three seeds."""
    found = []
    for number, changes in enumerate(SMALL.settings.values()):
        found += lines_of("independent", numbers(0.1, 3), changes=changes)
        found += lines_of(BASELINE, numbers(0.5, 3), changes=changes, spread=0.0123)
        found += lines_of("ndpp:neighbors=1", numbers(0.5 + 0.1 * number, 3), changes=changes)
    return found


def rows(section):
    table = [line[2:-2].split(" | ") for line in section if line.startswith("|")]
    return [table[0], *table[2:]]


def test_a_study_has_a_row_for_each_way_under_each_setting(lines, one_study):
    head, *body = rows(one_study("small", SMALL, lines))
    assert head[:4] == ["setting", "way", "seeds", "old/old"]
    assert [row[:3] for row in body] == [
        [words, f"`{way}`", "2"] for words in SMALL.settings for way in SMALL.ways
    ]  # on as many seeds as it has, not on all that were run


def test_ways_are_compared_with_the_baseline_of_the_same_setting(lines, one_study):
    head, *body = rows(one_study("small", SMALL, lines))
    place = head.index("Δ new/old to Baseline")
    shown = {(row[0], row[1]): row[place] for row in body}
    assert shown["few", "`ndpp:neighbors=1`"] == "+0.00 ± 0.00"
    assert shown["many", "`ndpp:neighbors=1`"] == "+10.00 ± 0.00"
    assert shown["many", f"`{BASELINE}`"] == "–"


def test_values_stand_beside_the_spread_and_what_is_not_known_is_a_dash(lines, one_study):
    _, _, baseline, ndpp, *_ = rows(one_study("small", SMALL, lines))
    assert baseline[3:6] == ["40.00", "50.50", "70.00"]
    assert baseline[-1] == "0.0123"
    assert ndpp[-1] == "–"
    assert float(baseline[6]) > 50  # P_1 of its own setting's independent model


def test_a_study_that_was_not_run_is_left_out(lines, one_study):
    assert one_study("small", SMALL, []) == []
    assert one_study("small", SMALL, lines[:6]) == []  # no more than two ways of one setting
    assert one_study("small", SMALL, lines[:9])[0] == "## Small"
    others = [line | {"changes": ["data.train_classes=70"]} for line in lines]
    assert one_study("small", SMALL, others) == []


def test_one_setting_has_no_column(lines_of, one_study):
    study = Study("glyphs", "Plain", "?", (BASELINE, "ndpp"))
    found = lines_of(BASELINE, numbers(0.5)) + lines_of("ndpp", numbers(0.5))
    section = one_study("plain", study, found)
    assert rows(section)[0][0] == "way"
    assert "    nobackfill bench quality --study plain" in section


def test_studies_come_below_one_heading(lines_of, tmp_path):
    found = [line for way in STUDIES["variants"].ways for line in lines_of(way, numbers(0.5))]
    page = render_studies({"glyphs": found}, tmp_path)
    assert [line for line in page if line.startswith("#")] == [
        "# Studies", f"## {STUDIES['variants'].title}",
    ]  # fmt: skip
    assert render_studies({"omniglot": found}, tmp_path) == render_studies({}, tmp_path) == []


def test_a_study_has_p_1_where_the_suite_has_an_independent_model(lines_of, one_study):
    study = STUDIES["variants"]
    found = [line for way in study.ways for line in lines_of(way, numbers(0.5))]
    head, *body = rows(one_study("variants", study, found + lines_of("independent", numbers(0.1))))
    assert "–" not in [row[head.index("P_1")] for row in body]


def test_a_grid_is_one_option_at_several_values():
    assert grid("odpp", "new_weight", (0, 0.1, 10)) == (
        "odpp:new_weight=0", "odpp:new_weight=0.1", "odpp:new_weight=10",
    )  # fmt: skip


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_can_be_run(name):
    study = STUDIES[name]
    suite = SUITES[study.suite]
    suite.check(study.ways)
    for way in study.ways:
        method, changes = read_way(way)
        options = build_recipe(change_tables({"method": {"name": method}}, changes)).method.options
        assert len(options) == len(changes)
        resolve_options(METHODS[method], options, where="method")  # raises where it knows none
    assert len(set(study.settings.values())) == len(study.settings)


GREEDY = Study(
    "glyphs",
    "Greedy",
    "Which is best?",
    ("independent", BASELINE),
    seeds=2,
    search=Search("ndpp", {"old_strength": (0.1,), "neighbors": (5,)}),
)
FOUND = {
    "independent": 0.1,
    BASELINE: 0.5,
    "ndpp": 0.49,
    "ndpp:old_strength=0.1": 0.52,
    "ndpp:old_strength=0.1,neighbors=5": 0.51,
}


def test_a_search_finds_its_ways_as_it_goes(lines_of):
    lines, asked = [], []
    while missing := [way for way in GREEDY.ways_after(lines) if way not in asked]:
        asked += missing
        for way in missing:
            lines += lines_of(way, numbers(FOUND[way]))
    assert asked == list(FOUND)


def test_a_search_shows_each_step_what_was_kept_and_what_it_found(lines_of, one_study, tmp_path):
    lines = [line for way, one in FOUND.items() for line in lines_of(way, numbers(one))]
    section = one_study("greedy", GREEDY, lines)
    head, *body = rows(section)
    assert head[:2] == ["decided", "way"]
    assert [row[0] for row in body] == [
        "", "", "old_strength = 0.01", "**old_strength = 0.1**", "neighbors = 5",
        "**neighbors = 100**",
    ]  # fmt: skip
    (found,) = (line for line in section if line.startswith("Result:"))
    assert found.startswith(
        "Result: `ndpp:old_strength=0.1`; its P_1 differs from that of the Baseline by +"
    )
    words = "".join(ElementTree.fromstring((tmp_path / "greedy.svg").read_text()).itertext())
    assert "old_strength" in words
    assert "neighbors" in words


def test_a_search_that_is_not_at_its_end_is_left_out(lines_of, one_study, tmp_path):
    lines = [line for way, one in FOUND.items() for line in lines_of(way, numbers(one))]
    assert one_study("greedy", GREEDY, [one for one in lines if "=5" not in one["way"]]) == []
    assert one_study("greedy", GREEDY, [one for one in lines if one["way"] != BASELINE]) == []
    assert not (tmp_path / "greedy.svg").exists()


def test_a_search_says_by_which_score_it_decided(lines_of, one_study):
    study = replace(GREEDY, ways=(BASELINE,), search=replace(GREEDY.search, by="both"))
    ways = {way: one for way, one in FOUND.items() if way != "independent"}
    section = one_study(
        "greedy", study, [line for way, one in ways.items() for line in lines_of(way, numbers(one))]
    )
    (found,) = (line for line in section if line.startswith("Result:"))
    assert found == (
        "Result: `ndpp:old_strength=0.1`; its mean of new/old and new/new differs from that of the "
        "Baseline by +1.00 ± 0.00."
    )
