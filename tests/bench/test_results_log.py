import json

import pytest

from nobackfill.errors import DataError
from nobackfill_bench.results_log import append, key_of, mend, read_lines


def line(way, seed=0, changes=(), **more):
    return {"suite": "glyphs", "way": way, "seed": seed, "changes": list(changes), **more}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "glyphs.jsonl"
    for way in ("ndpp", "odpp"):
        append(path, line(way, new_old=0.5))
    return path


def test_what_is_appended_is_read_again(path):
    assert read_lines(path) == [line("ndpp", new_old=0.5), line("odpp", new_old=0.5)]
    assert path.read_text().count("\n") == 2


def test_there_are_no_lines_where_there_is_no_file(tmp_path):
    assert read_lines(tmp_path / "none.jsonl") == []
    mend(tmp_path / "none.jsonl")
    assert not (tmp_path / "none.jsonl").exists()


def test_of_two_lines_of_one_run_the_later_counts(path):
    append(path, line("ndpp", new_old=0.7))
    assert [one["new_old"] for one in read_lines(path)] == [0.7, 0.5]


@pytest.mark.parametrize(
    "other",
    [
        line("bct"), line("ndpp", 1), line("ndpp", changes=["train.epochs=3"]),
        line("ndpp") | {"suite": "omniglot"},
    ],
)  # fmt: skip
def test_runs_that_differ_in_anything_are_two(path, other):
    append(path, other)
    assert key_of(other) != key_of(line("ndpp"))
    assert len(read_lines(path)) == 3


@pytest.mark.parametrize("kept", [1, 20, 60])
def test_a_last_line_that_a_kill_cut_short_is_left_out_and_then_cut_off(path, kept):
    whole = path.read_bytes()
    path.write_bytes(whole + json.dumps(line("bct", new_old=0.9)).encode()[:kept])
    assert [one["way"] for one in read_lines(path)] == ["ndpp", "odpp"]
    mend(path)
    assert path.read_bytes() == whole
    append(path, line("bct"))
    assert [one["way"] for one in read_lines(path)] == ["ndpp", "odpp", "bct"]


def test_a_letter_of_two_bytes_may_be_cut_in_the_middle(path):
    whole = path.read_bytes()
    path.write_bytes(whole + '{"suite": "ü'.encode()[:-1])
    mend(path)
    assert path.read_bytes() == whole


def test_a_file_whose_only_line_was_cut_short_becomes_empty(tmp_path):
    path = tmp_path / "glyphs.jsonl"
    path.write_text('{"suite": ')
    mend(path)
    assert path.read_text() == ""


def test_whole_lines_are_left_as_they_are(path):
    whole = path.read_bytes()
    mend(path)
    assert path.read_bytes() == whole


def test_a_last_line_that_lacks_nothing_but_its_line_break_is_kept_or_not_counted(path):
    path.write_bytes(path.read_bytes()[:-1])
    counted = read_lines(path)
    mend(path)
    assert read_lines(path) == counted


@pytest.mark.parametrize("bad", ["{", '{"suite": "glyphs"}', "[1]", "no JSON"])
def test_a_bad_line_in_the_middle_is_an_error_that_says_where(path, bad):
    first, second = path.read_text().splitlines()
    path.write_text("\n".join([first, bad, second, ""]))
    with pytest.raises(DataError, match=r"line 2 of .*glyphs\.jsonl.*Remove that line"):
        read_lines(path)


def test_empty_lines_are_passed_over(path):
    path.write_text("\n" + path.read_text().replace("\n", "\n\n"))
    assert len(read_lines(path)) == 2
