"""`evaluation.json` is checked field by field."""

import json

import pytest

from nobackfill.errors import DataError
from nobackfill.evaluation.summary_file import SHOWN, read_summary

SPAN = {"mean": 0.1, "low": None, "high": 0.2, "confidence": 0.95, "groups": 9}
METRICS = {"map": 0.3, "recall_at_1": 0.4, "ndcg_at_10": None, "in_order": 0.1}
PAIRS = ("old_old", "new_old", "new_new")
WHOLE = {
    **dict.fromkeys(PAIRS, 0.3), **dict.fromkeys(("p_up", "p_comp", "p_1", "gain_recovered")),
    "verdict": "compatible", "new_old_above_old_old": True, "changes": {"map": SPAN},
    "differences": {f"{a} - {b}": SPAN for a, b in (PAIRS[1::-1], PAIRS[2::-2], PAIRS[2:0:-1])},
    "metrics": dict.fromkeys(PAIRS, METRICS), "flips": [{"k": 1, "negative": 0.1, "positive": 0}],
    "recall_at_1": dict.fromkeys(PAIRS, 0.3), "protocol": "plain", "num_queries": 3, "num_asked": 3,
    "num_gallery": 3, "notes": ["a"], "searched": "items",
}  # fmt: skip


def read(folder, summary):
    path = folder / "evaluation.json"
    path.write_text(summary if isinstance(summary, str) else json.dumps(summary))
    return read_summary(path)


def test_a_whole_file_is_read_as_it_is(tmp_path):
    assert read(tmp_path, {**WHOLE, "unknown": [1]}) == {**WHOLE, "unknown": [1]}


def test_less_is_enough_for_a_verdict_and_nothing_for_a_model_alone(tmp_path):
    few = {key: WHOLE[key] for key in (*PAIRS, "verdict")}
    assert read(tmp_path, few) == few
    assert read(tmp_path, {"new_new": 0.2}) == {"new_new": 0.2}


@pytest.mark.parametrize("name", SHOWN)
def test_a_missing_field_is_named(tmp_path, name):
    less = {key: value for key, value in WHOLE.items() if key != name}
    with pytest.raises(DataError, match=rf"evaluation\.json: `{name}` is missing\. Remove it"):
        read(tmp_path, less)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"new_old": "0.3"}, "new_old"),
        ({"verdict": "yes"}, "verdict"),
        ({"verdict": ["compatible"]}, "verdict"),
        ({"flips": []}, "flips"),
        ({"flips": [{"k": 1}]}, r"flips\[0\].negative"),
        ({"changes": {"map": {**SPAN, "low": "x"}}}, "changes.map.low"),
        ({"metrics": {**WHOLE["metrics"], "old_old": {}}}, "metrics.old_old.map"),
        ({"metrics": {"old_old": METRICS, "new_old": METRICS}}, "metrics.new_new"),
        ({"tests": {"paris": {"old_old": 1}}}, "paris.new_old"),
        ({"tests": {"paris": 7}}, "tests.paris"),
        ({"expected": {"source": "x", "rows": [{}]}}, r"expected.rows\[0\].difference"),
        ({"notes": [None]}, r"notes\[0\]"),
    ],
)
def test_a_field_of_another_type_is_named(tmp_path, change, field):
    with pytest.raises(DataError, match=rf"evaluation\.json: `{field}`"):
        read(tmp_path, {**WHOLE, **change})


@pytest.mark.parametrize(
    "text", ["", "[", "[" * 100_000, "{}x", '{"new_old": NaN}', '{"new_old": 1e999}', "\udcff",
             '{"num_queries": ' + "9" * 400 + "}", "[]"]
)  # fmt: skip
def test_no_json_is_a_sentence(tmp_path, text):
    path = tmp_path / "evaluation.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=r"evaluation\.json"):
        read_summary(path)
