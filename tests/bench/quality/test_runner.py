"""What is run, in which order, and what is not run again."""

import os
from concurrent.futures import ProcessPoolExecutor

import pytest

from nobackfill.errors import ConfigError, DataError, RunsFailed
from nobackfill_bench import SUITES, Place, Task
from nobackfill_bench.quality.runner import (
    lines_path,
    one_run,
    plan_suite,
    result_of,
    run_stages,
    side_by_side,
)
from nobackfill_bench.results_log import append, read_lines


def asked(toy):
    """Way and seed of each run that was made."""
    return [(task.way, task.seed) for task in toy.made]


@pytest.fixture
def plan(tmp_path, toy):
    def make(ways=None, *, name="toy", seeds=None, **more):
        place = Place(tmp_path / "work", None, "cpu")
        return plan_suite(
            name, ways=ways, seeds=seeds, place=place, folder=tmp_path / "quality", **more
        )

    return make


@pytest.fixture
def run(tmp_path):
    return lambda stages: list(run_stages(stages, folder=tmp_path / "quality", processes=2))


@pytest.fixture
def lines(tmp_path):
    """What is in the file, in its order."""
    path = lines_path(tmp_path / "quality", "toy")
    return lambda: [(one["way"], one["seed"], *one["changes"]) for one in read_lines(path)]


def names(stages):
    return [[(task.way, task.seed) for task in stage] for stage in stages]


def test_a_suite_has_its_own_ways_and_seeds_unless_it_is_told(plan):
    assert names(plan()) == [
        [("old", 0), ("old", 1)],
        [("independent", 0), ("rm", 0), ("independent", 1), ("rm", 1)],
    ]
    assert names(plan(["ndpp"], seeds=1, first_seed=7)) == [[("old", 7)], [("ndpp", 7)]]
    assert names(plan(seeds=0)) == []


def test_tasks_carry_the_changes_and_the_place(plan, tmp_path):
    ((task,), _) = plan(["ndpp"], seeds=1, changes=["train.epochs=3"])
    place = Place(tmp_path / "work", None, "cpu")
    assert task == Task("toy", "old", 0, ("train.epochs=3",), place)


def test_what_others_start_from_comes_before_them(plan):
    assert names(plan(["bt2", "ndpp"], seeds=1)) == [
        [("old", 0)], [("independent", 0), ("ndpp", 0)], [("bt2", 0)],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "ways", "says"),
    [
        ("toyy", None, "unknown suite `toyy`. Did you mean `toy`"),
        ("toy", ["ndp"], "unknown method `ndp`. Did you mean `ndpp`"),
        ("toy", ["ndp:neighbors=3"], "unknown method `ndp`"),
        ("toy", ["old"], "unknown method `old`"),
    ],
)
def test_unknown_names_are_told_with_a_suggestion_before_anything_is_run(plan, name, ways, says):
    with pytest.raises(ConfigError, match=says):
        plan(ways, name=name)


def test_every_run_leaves_its_line_and_what_prepares_others_leaves_none(plan, run, lines, toy):
    done = run(plan())
    assert sorted(lines()) == [("independent", 0), ("independent", 1), ("rm", 0), ("rm", 1)]
    assert [one.line is None for one in done] == [True, True, False, False, False, False]
    assert not any(one.error for one in done)
    assert asked(toy)[:2] == [("old", 0), ("old", 1)]


def test_a_line_says_what_its_run_was_and_came_to(plan, run, tmp_path):
    run(plan(["ndpp:neighbors=3"], seeds=1, first_seed=4, changes=["train.epochs=3"]))
    (line,) = read_lines(tmp_path / "quality" / "toy.jsonl")
    assert {key: line[key] for key in ("suite", "way", "seed", "changes")} == {
        "suite": "toy", "way": "ndpp:neighbors=3", "seed": 4, "changes": ["train.epochs=3"],
    }  # fmt: skip
    assert (line["old_old"], line["new_old"], line["new_new"]) == (0.1, 0.25, 0.3)


def test_a_run_that_is_there_is_not_made_again(plan, run, toy, lines):
    run(plan(["independent"], seeds=1))
    assert names(plan(["independent"], seeds=1)) == [[]]  # and no old model for it
    assert names(plan(["independent", "rm"])) == [
        [("old", 0), ("old", 1)], [("rm", 0), ("independent", 1), ("rm", 1)],
    ]  # fmt: skip
    run(plan(["independent", "rm"]))
    assert asked(toy).count(("independent", 0)) == 1
    assert len(lines()) == 4
    run(plan(["independent", "rm"]))
    assert len(toy.made) == 2 + 5


def test_other_changes_are_other_runs(plan, run, lines):
    run(plan(["rm"], seeds=1))
    run(plan(["rm"], seeds=1, changes=["train.epochs=3"]))
    assert lines() == [("rm", 0), ("rm", 0, "train.epochs=3")]


def test_a_killed_last_line_is_mended_and_its_run_made_again(plan, run, toy, lines, tmp_path):
    run(plan(["rm"]))
    path = tmp_path / "quality" / "toy.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    (kept,) = lines()
    again = plan(["rm"])
    assert names(again)[1] == [("rm", 1 - kept[1])]
    run(again)
    assert sorted(lines()) == [("rm", 0), ("rm", 1)]
    assert path.read_text().count("\n") == 2


def test_a_broken_file_of_lines_stops_before_anything_is_run(plan, toy, tmp_path):
    (tmp_path / "quality").mkdir()
    (tmp_path / "quality" / "toy.jsonl").write_text("{\n\n")
    with pytest.raises(DataError, match="line 1"):
        plan()
    assert toy.made == []


def test_a_run_that_fails_does_not_stop_the_others_and_is_made_again(plan, run, toy, lines):
    toy.broken.append("independent")
    done = run(plan(["independent", "rm", "bt2"], seeds=1))
    assert sorted(lines()) == [("bt2", 0), ("rm", 0)]
    (failed,) = [one for one in done if one.error]
    assert (failed.task.way, failed.line) == ("independent", None)
    assert failed.error.strip().endswith("RuntimeError: out of memory")
    toy.broken.clear()
    run(plan(["independent", "rm", "bt2"], seeds=1))
    assert sorted(lines()) == [("bt2", 0), ("independent", 0), ("rm", 0)]


def test_a_killed_process_ends_the_benchmark_with_what_to_do():
    with ProcessPoolExecutor(1) as pool:
        killed = pool.submit(os._exit, 9)
        with pytest.raises(RunsFailed, match="Run the same command again"):
            result_of(killed)


def test_a_suite_that_is_not_known_fails_as_a_run_does(tmp_path):
    place = Place(tmp_path, None, "cpu")
    assert "KeyError" in one_run(Task("nowhere", "rm", 0, (), place)).error


def test_two_plans_side_by_side_make_a_shared_run_once(plan, run, toy, lines):
    both = [plan(["ndpp", "rm"], seeds=1), plan(["bt2", "ndpp"], seeds=2)]
    stages = side_by_side(both)
    assert names(stages) == [
        [("old", 0), ("old", 1)],
        [("ndpp", 0), ("rm", 0), ("independent", 0), ("independent", 1), ("ndpp", 1)],
        [("bt2", 0), ("bt2", 1)],
    ]
    run(stages)
    assert len(toy.made) == len(set(toy.made)) == 9
    assert len(lines()) == 7
    assert side_by_side([]) == []


def test_plans_under_other_changes_share_nothing(plan):
    plans = [plan(["rm"], seeds=1), plan(["rm"], seeds=1, changes=["train.epochs=3"])]
    assert [len(stage) for stage in side_by_side(plans)] == [2, 2]


def test_what_bt2_starts_from_does_not_leave_a_second_line(plan, run, tmp_path):
    run(plan(["independent"], seeds=1))
    run(plan(["bt2"], seeds=1))
    assert (tmp_path / "quality" / "toy.jsonl").read_text().count('"independent"') == 1


def test_lines_of_several_suites_go_to_files_of_their_own(plan, run, toy, tmp_path, monkeypatch):
    monkeypatch.setitem(SUITES, "other", toy)
    run(side_by_side([plan(["rm"], seeds=1), plan(["rm"], seeds=1, name="other")]))
    for name in ("toy", "other"):
        (line,) = read_lines(tmp_path / "quality" / f"{name}.jsonl")
        assert (line["suite"], line["way"]) == (name, "rm")


def test_stages_wait_for_each_other(plan, run, toy):
    run(plan(["bt2", "ndpp", "rm"], seeds=3))
    ways = [task.way for task in toy.made]
    assert set(ways[:3]) == {"old"}
    assert set(ways[-3:]) == {"bt2"}


def test_appending_does_not_touch_other_lines(tmp_path):
    append(tmp_path / "a.jsonl", {"suite": "a", "way": "b", "seed": 0, "changes": []})
    before = (tmp_path / "a.jsonl").read_text()
    append(tmp_path / "a.jsonl", {"suite": "a", "way": "c", "seed": 0, "changes": []})
    assert (tmp_path / "a.jsonl").read_text().startswith(before)
