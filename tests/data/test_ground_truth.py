import json
import pickle

import pytest

from nobackfill.data.ground_truth import read_ground_truth
from nobackfill.data.listing import Judgement
from nobackfill.errors import ConfigError, DataError

OFFICIAL = {
    "imlist": ["a", "b", "c", "d"],
    "qimlist": ["q"],
    "gnd": [{"easy": [0], "hard": [2], "junk": [3], "bbx": [0.0, 0.0, 9.0, 9.0]}],
}


def lines(folder, *tables):
    path = folder / "truth.jsonl"
    path.write_text("\n".join(json.dumps(table) for table in tables) + "\n\n")
    return path


def test_lines_of_json(tmp_path):
    path = lines(
        tmp_path,
        {"query": "x", "relevant": ["a", "b"], "ignored": ["c"]},
        {"query": 7, "relevant": [3]},
    )
    truth = read_ground_truth(path)
    assert truth.relevant == {"x": ["a", "b"], "7": ["3"]}
    assert truth.ignored == {"x": ["c"], "7": []}


@pytest.mark.parametrize(
    ("level", "relevant", "ignored"),
    [
        (None, {"a.jpg", "c.jpg"}, {"d.jpg"}),
        ("medium", {"a.jpg", "c.jpg"}, {"d.jpg"}),
        ("easy", {"a.jpg"}, {"c.jpg", "d.jpg"}),
        ("hard", {"c.jpg"}, {"a.jpg", "d.jpg"}),
    ],
)
def test_official_lists(tmp_path, level, relevant, ignored):
    path = tmp_path / "gnd_roxford5k.pkl"
    path.write_bytes(pickle.dumps(OFFICIAL))
    truth = read_ground_truth(path, level=level)
    assert set(truth.relevant["q.jpg"]) == relevant
    assert set(truth.ignored["q.jpg"]) == ignored


@pytest.mark.parametrize(
    "line",
    ["no json", "[]", pytest.param("[" * 10**5, id="deep"), '{"query": "a"}',
     '{"query": "a", "relevant": "b"}',
     '{"query": "a", "relevant": [], "ignore": []}', '{"relevant": ["b"]}'],
)  # fmt: skip
def test_a_line_that_says_something_else(tmp_path, line):
    path = tmp_path / "truth.jsonl"
    path.write_text('{"query": "q", "relevant": ["b"]}\n' + line)
    with pytest.raises(DataError, match="line 2 is .* Write lines such as"):
        read_ground_truth(path)


def test_what_cannot_be_used(tmp_path):
    twice = {"query": "q", "relevant": ["b"]}
    with pytest.raises(DataError, match="line 2 has the query 'q' again"):
        read_ground_truth(lines(tmp_path, twice, twice))
    with pytest.raises(DataError, match="no queries"):
        read_ground_truth(lines(tmp_path))
    with pytest.raises(DataError, match="No such file"):
        read_ground_truth(tmp_path / "nowhere.jsonl")
    with pytest.raises(ConfigError, match="one way to count"):
        read_ground_truth(lines(tmp_path, twice), level="easy")
    (tmp_path / "gnd.pkl").write_bytes(pickle.dumps(OFFICIAL))
    with pytest.raises(ConfigError, match="unknown level `eazy`. Did you mean `easy`"):
        read_ground_truth(tmp_path / "gnd.pkl", level="eazy")


JUDGED = {"query": 7, "relevant": [2], "before": [1, 2], "after": [2, 3], "preferred": "after"}


def test_judgements_of_a_page_are_read_with_their_pairs(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps(JUDGED))
    truth = read_ground_truth(path)
    assert truth.relevant == {"7": ["2"]}
    assert truth.judgements == {"7": Judgement(["1", "2"], ["2", "3"], "after")}


@pytest.mark.parametrize(
    "change",
    [{"preferred": "left"}, {"relevant": [9]}, {"before": "1"}, {"score": 1}],
    ids=["preferred", "unseen", "no list", "unknown key"],
)
def test_a_line_that_no_page_writes_is_an_error(tmp_path, change):
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps(JUDGED | change))
    with pytest.raises(DataError, match="line 1 is"):
        read_ground_truth(path)


def test_judgements_and_other_pairs_do_not_mix(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps(JUDGED) + '\n{"query": 8, "relevant": [1]}')
    with pytest.raises(DataError, match="1 lines have judgements and 1 have none.*'8'"):
        read_ground_truth(path)
