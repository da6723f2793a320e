"""The page of a sequence: its matrix, AC and AM after each upgrade, and P-scores."""

from dataclasses import replace

import pytest

from nobackfill.report.pages.sequence import after_section, sequence_page
from nobackfill.training.sequence import SequenceModel, SequenceSummary

MODELS = [
    SequenceModel(run="1", method="independent", step=0, parent=None),
    SequenceModel(run="2", method="ndpp", step=1, parent="a" * 16),
    SequenceModel(run="3", method="ndpp", step=2, parent="b" * 16),
]
SUMMARY = SequenceSummary(
    MODELS,
    matrix=[[0.30], [0.35, 0.45], [0.33, 0.44, 0.50]],
    ac=0.5,
    am=0.395,
    tests={},
    after=[{"upgrades": 1, "ac": 1.0, "am": 0.36667}, {"upgrades": 2, "ac": 0.5, "am": 0.395}],
)
SCORES = [{"new": 2, "old": 1, "p_up": 0.912, "p_comp": 0.25, "p_1": 0.392}]


def test_every_section_is_there_with_its_title():
    page = sequence_page(
        replace(SUMMARY, tests={"easy": [[0.1], [0.2, 0.3]] + [[0.1] * 3]}), title="t"
    )
    titles = [section.title for section in page.sections]
    assert "After each upgrade" in titles
    assert "On easy" in titles
    assert page.not_measured[1] == "galleries by models later than the query's"


@pytest.mark.parametrize("scores", [[], SCORES])
def test_scores_after_each_upgrade(scores):
    (section,) = after_section(replace(SUMMARY, p_scores=scores))
    assert section.title == "After each upgrade"
    assert section.text.startswith("AC: share of upgrades that are compatible.")
    assert ("P-scores compare" in section.text) == bool(scores)
    after, *further = section.tables
    assert (after.columns, after.rows) == (
        ["upgrades", "AC", "AM"],
        [["1", "1.00", "0.367"], ["2", "0.50", "0.395"]],
    )
    rows = [table.rows for table in further]
    assert rows == ([[["1 → 2", "0.91", "0.25", "0.39"]]] if scores else [])


def test_a_sequence_of_an_earlier_version_has_no_such_section():
    assert after_section(replace(SUMMARY, after=[])) == []
