"""`nobackfill bench speed` as a person or a script calls it."""

import json
from functools import partial

import pytest

from nobackfill_bench.speed import SPEED_SUITES, Case, Pair, Suite


@pytest.fixture
def speed(nobackfill, monkeypatch, tmp_path):
    """Runs `nobackfill bench speed` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return partial(nobackfill, "bench", "speed")


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    def broken(device):
        raise RuntimeError("no such vectors")

    made = lambda device: Pair(lambda: sum(range(9000)), lambda: sum(range(90)))  # noqa: E731
    cases = [
        Case("good", {"items": 9_000}, "a shorter sum", made, target=1e9),
        Case("lonely", {"items": 9}, "nobody", made, requires=("no_such_module",)),
        Case("bad", {"items": 9}, "nothing", broken),
    ]
    monkeypatch.setitem(SPEED_SUITES, "toys", Suite("Toys", ("Sums.",), lambda kind: cases))


BASE = ("--suite", "toys", "--device", "cpu", "--repeats", 2)


def test_figures_come_line_by_line_and_end_on_the_page(speed, tmp_path):
    code, out, err = speed(*BASE, "--case", "good", "--case", "lonely", "--json")
    assert code == 0
    (figure,) = json.loads(out)["figures"]
    assert figure["case"] == "good"
    assert "1/2  toys  good  9,000 items  ours/peer" in err
    assert "≤ 1e+09 met" in err
    assert "skipped: no_such_module not installed: pip install 'nobackfill[bench]'" in err
    written = (tmp_path / "benchmarks" / "speed.jsonl").read_text()
    assert json.loads(written) == figure
    assert "## Toys" in (tmp_path / "benchmarks" / "SPEED.md").read_text()

    speed(*BASE, "--case", "good", "-o", "benchmarks")
    assert (tmp_path / "benchmarks" / "speed.jsonl").read_text().count("\n") == 2  # both stay


def test_what_fails_is_told_and_the_others_are_kept(speed, tmp_path):
    code, out, err = speed(*BASE)
    assert (code, out) == (2, "")
    assert "failed: RuntimeError: no such vectors" in err
    assert "1 of 2 cases failed" in err
    assert "## Toys" in (tmp_path / "benchmarks" / "SPEED.md").read_text()


@pytest.mark.parametrize("option", ["--render", "--only-render"])
def test_a_page_can_be_made_without_measuring(speed, tmp_path, option):
    code, out, _ = speed(option, "-o", tmp_path / "here")
    assert (code, (tmp_path / "here" / "SPEED.md").exists()) == (0, True)
    assert out.startswith("0 figures measured; all are in")
    assert not (tmp_path / "here" / "speed.jsonl").exists()


def test_cases_are_listed(speed):
    code, out, _ = speed(*BASE, "--list")
    assert (code, "good" in out, "a shorter sum" in out) == (0, True, True)
    _, out, _ = speed(*BASE, "--list", "--json")
    assert [one["case"] for one in json.loads(out)["cases"]] == ["good", "lonely", "bad"]
    _, out, _ = speed("--device", "cpu", "--list", "--json")
    assert {one["suite"] for one in json.loads(out)["cases"]} == set(SPEED_SUITES)


def test_a_suite_that_is_not_there_is_refused(speed):
    code, _, err = speed("--suite", "ndp", "--device", "cpu")
    assert code == 2
    assert "unknown suite `ndp`. Did you mean `ndpp`" in err
