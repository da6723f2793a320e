"""Cases are measured one after the other; each figure is a line."""

import json
from functools import partial

import pytest
import torch

from nobackfill.errors import ConfigError
from nobackfill_bench.results_log import read_lines
from nobackfill_bench.speed import Case, Finding, Pair, Suite
from nobackfill_bench.speed.runner import measure_all, plan_cases, speed_key, why_not

pytestmark = pytest.mark.slow  # runs whole scripts

CPU = torch.device("cpu")


def make(device):
    rows = torch.ones(2_000_000, device=device)  # 8 MB
    return Pair(lambda: float(rows.sort().values[0]), lambda: float(rows[:9].sum()))


def broken(device):
    raise RuntimeError("no such vectors")


TOY = Case("toy", {"classes": 7}, "a sum", make, target=2.0, operations=1e6, bytes=8e6)
CASES = [
    TOY,
    Case("broken", {"classes": 7}, "nothing", broken),
    Case("lonely", {"classes": 7}, "nobody", make, requires=("no_such_module",)),
    Case("huge", {"classes": 7}, "a sum", make, room=1e18),
    Case("slow", {"classes": 2_000}, "a sum", make, large=True),
    Finding("share", {"classes": 7}, "of all", lambda device: 0.25),
]
SUITES = {"toys": Suite("Toys", ("For trying out.",), lambda kind: CASES)}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return tmp_path_factory.mktemp("results") / "speed.jsonl"


@pytest.fixture(scope="module")
def measured(results):
    planned = plan_cases(SUITES, ["toys"], "cpu")
    outcomes = measure_all(planned, CPU, results, repeats=3, limit=30.0)
    return {outcome.case.name: outcome for outcome in outcomes}


def test_every_case_is_told_and_one_that_fails_does_not_stop_the_others(measured):
    assert list(measured) == ["toy", "broken", "lonely", "huge", "share"]
    assert "no such vectors" in measured["broken"].error
    assert measured["lonely"].skipped == (
        "no_such_module not installed: pip install 'nobackfill[bench]'"
    )
    assert measured["huge"].skipped.startswith("may take 1000000000 GB of memory")


def test_a_line_holds_the_figure_its_peer_and_where_it_was_made(measured, results):
    line = measured["toy"].line
    assert read_lines(results, key=speed_key)[0] == json.loads(json.dumps(line))
    assert (line["suite"], line["case"], line["size"]) == ("toys", "toy", {"classes": 7})
    assert line["lowest"] <= line["ratio"] <= line["highest"]
    assert line["ratio"] > 1
    assert line["repeats"] == 3
    assert line["ours_s"] > line["peer_s"] > 0
    assert 6 < line["held_mb"] < 30
    assert line["added_mb"] > 6
    assert (line["value"], line["peer_value"]) == (1.0, 9.0)
    assert (line["device"], line["threads"]) == ("cpu", torch.get_num_threads())
    assert line["torch"] == torch.__version__
    assert line["date"]


def test_a_finding_is_a_number(measured):
    assert measured["share"].line["found"] == 0.25
    assert "ratio" not in measured["share"].line


def test_a_line_cut_short_is_mended_before_the_next_is_written(tmp_path):
    path = tmp_path / "speed.jsonl"
    path.write_text('{"suite": "toys", "ca')
    planned = plan_cases(SUITES, [], "cpu", only=["share"])
    list(measure_all(planned, CPU, path, repeats=1))
    assert [line["case"] for line in read_lines(path, key=speed_key)] == ["share"]


def test_cases_are_chosen_by_name_or_size():
    names = partial(
        lambda **options: [case.name for _, case in plan_cases(SUITES, [], "cpu", **options)]
    )
    assert names(only=["toy", "broken"]) == ["toy", "broken"]
    assert names(only=["2,000"]) == []
    assert names(only=["2,000"], large=True) == ["slow"]
    with pytest.raises(ConfigError, match="unknown suite `toy`. Did you mean `toys`"):
        plan_cases(SUITES, ["toy"], "cpu")


def test_what_has_room_and_its_modules_can_be_measured():
    assert why_not(TOY, CPU) == ""


@pytest.mark.parametrize(
    "other", [{"suite": "x"}, {"case": "x"}, {"size": {"classes": 8}}, {"device": "H200"}]
)
def test_a_figure_is_its_suite_case_size_and_device(other):
    line = {"suite": "toys", "case": "toy", "size": {"classes": 7, "dim": 2}, "device": "cpu"}
    assert speed_key(line) != speed_key(line | other)
    assert speed_key(line) == speed_key(line | {"size": {"dim": 2, "classes": 7}, "ratio": 3})
