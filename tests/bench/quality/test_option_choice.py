"""Options of every method are chosen by one rule, on classes that no table has."""

import inspect
from pathlib import Path

import pytest

from nobackfill.core.config import resolve_options
from nobackfill.data.registry import make_collection
from nobackfill.methods import METHODS
from nobackfill_bench import SUITES
from nobackfill_bench.quality.option_choice import TRIALS, OptionChoice, options_in
from nobackfill_bench.quality.page import main_runs
from nobackfill_bench.quality.studies import STUDIES, one_study
from nobackfill_bench.quality.suite import options_of, read_way

STUDY = STUDIES["options"]
HELD = ("data.held_out_classes=40",)
SMALL = OptionChoice(
    "glyphs",
    "Small",
    "Which options?",
    (),
    seeds=3,
    trials={"bct": ("weight=3",), "ract": ("temperature=0.07",)},
    held_out=HELD,
    trial_seeds=range(200, 202),
)
NO_OPTIONS = {"independent", "independent_contrastive", "mimic", "cores"}


def trials(lines_of, way, new_old, *, seeds=(200, 201), changes=HELD):
    return lines_of(way, {seed: (0.4, new_old, 0.7) for seed in seeds}, changes=changes)


@pytest.fixture
def lines(lines_of):
    """Trials in which RACT gains by another temperature, and BCT by no other weight."""
    return [
        *trials(lines_of, "independent", 0.1),
        *trials(lines_of, "bct", 0.5),
        *trials(lines_of, "bct:weight=3", 0.45),
        *trials(lines_of, "ract", 0.4),
        *trials(lines_of, "ract:temperature=0.07", 0.45),
    ]


def test_every_compared_method_has_as_many_trials():
    assert set(TRIALS) | NO_OPTIONS == set(METHODS)
    assert {len(options) for options in TRIALS.values()} == {3}
    for method in TRIALS:
        assert len(set(STUDY.tried(method))) == 4
        assert STUDY.tried(method)[0] == method


@pytest.mark.parametrize("method", TRIALS)
def test_every_trial_changes_an_option_of_its_method(method):
    defaults = inspect.signature(METHODS[method]).parameters
    for way in STUDY.tried(method)[1:]:
        options = options_of(*read_way(way))
        resolve_options(METHODS[method], options, where="method")  # of the right type
        assert options
        assert all(value != defaults[name].default for name, value in options.items())


def test_trials_share_neither_seeds_nor_classes_with_the_table():
    first = STUDY.first()
    assert not set(first.seeds) & set(range(max(STUDY.seeds, SUITES["glyphs"].seeds)))
    assert first.changes == HELD

    def classes(changes):
        recipe = SUITES["glyphs"].recipe(
            "old", Path("runs/old"), seed=200, data=None, changes=changes
        )
        whole = make_collection(recipe.data)
        rows = whole.validation_rows()
        return {whole.ids[row].split("-")[1] for row in rows.tolist()}

    assert len(classes(HELD)) == 40
    assert not classes(HELD) & classes(())


def test_the_best_on_held_out_classes_is_chosen(lines):
    assert SMALL.chosen(lines) == {"bct": "bct", "ract": "ract:temperature=0.07"}
    assert SMALL.chosen_variants(lines) == ("ract:temperature=0.07",)


def test_results_on_the_tables_classes_decide_nothing(lines, lines_of):
    table = [
        *trials(lines_of, "bct:weight=3", 0.69, seeds=range(5), changes=()),
        *trials(lines_of, "bct:weight=3", 0.69, seeds=range(5)),  # nor other seeds
    ]
    assert SMALL.chosen([*lines, *table])["bct"] == "bct"


def test_equal_trials_leave_the_published_options(lines, lines_of):
    same = trials(lines_of, "bct:weight=3", 0.5)
    others = [line for line in lines if line["way"] != "bct:weight=3"]
    assert SMALL.chosen([*others, *same])["bct"] == "bct"


def test_a_method_is_decided_when_it_has_all_trials_on_all_seeds(lines):
    lacking = [line for line in lines if (line["way"], line["seed"]) != ("ract", 201)]
    assert SMALL.chosen(lacking) == {"bct": "bct"}
    first, last = SMALL.requests(lacking)
    assert first.ways == ("independent", "bct", "bct:weight=3", "ract", "ract:temperature=0.07")
    assert (first.seeds, first.changes) == (range(200, 202), HELD)
    assert last.ways == ("independent", "bct")
    assert (last.seeds, last.changes) == (range(3), ())


def test_the_chosen_and_the_published_options_are_run_on_the_table(lines):
    last = SMALL.requests(lines)[-1]
    assert set(last.ways) == {"independent", "bct", "ract", "ract:temperature=0.07"}
    assert SMALL.requests([]) == [SMALL.first()]


def test_the_section_shows_every_trial_and_both_results(lines, lines_of, tmp_path):
    table = {"independent": 0.1, "bct": 0.5, "ract": 0.4, "ract:temperature=0.07": 0.48}
    for way, new_old in table.items():
        lines += trials(lines_of, way, new_old, seeds=range(3), changes=())
    section = one_study("options", SMALL, lines, tmp_path)
    assert "    nobackfill bench quality --study options" in section
    head, _, *rows = [line[2:-2].split(" | ") for line in section if line.startswith("|")]
    by_method = {row[0]: dict(zip(head[1:], row[1:], strict=False)) for row in rows}
    assert list(by_method) == ["`bct`", "`ract`"]  # by the chosen P_1
    ract = rows[1]
    assert ract[1].startswith("as published 50.00, **temperature=0.07** 5")
    assert ract[2:4] == ["40.00", "48.00"]
    assert rows[0][-1] == "–"
    assert ract[-1].startswith("+")


def test_there_is_no_section_before_every_method_is_decided(lines, tmp_path):
    assert one_study("options", SMALL, lines[:-1], tmp_path) == []


def test_the_suites_table_has_the_chosen_options_and_no_other_trial(monkeypatch, lines, lines_of):
    monkeypatch.setitem(STUDIES, "options", SMALL)
    for way in ("independent", "ract", "ract:temperature=0.07", "bct:weight=3"):
        lines += trials(lines_of, way, 0.4, seeds=range(3), changes=())
    assert set(main_runs("glyphs", lines).runs) == {"independent", "ract", "ract:temperature=0.07"}


def test_options_in_words():
    assert options_in("ndpp:old_strength=0.4,neighbors=10") == "old_strength=0.4, neighbors=10"
