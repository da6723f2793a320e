"""The page of an assessment says what the verdict holds."""

import pytest

from nobackfill.evaluation.bootstrap import Interval
from nobackfill.head.assess.assess import Verdict
from nobackfill.head.assess.candidates import CONTROL, Candidate
from nobackfill.head.assess.crowding import Crowding
from nobackfill.head.assess.overview import changes_table
from nobackfill.report import charts
from nobackfill.report.pages.assessment import assessment_page


def an_interval(mean):
    return Interval(mean, mean - 0.01, mean + 0.02, 0.95, 30)


@pytest.fixture
def drawn(monkeypatch):
    """What was drawn: of each way the gain and where its interval begins and ends."""
    found = {}

    def intervals(values, *, label):
        found.update(values)
        return charts.intervals(values, label=label)

    monkeypatch.setattr("nobackfill.report.pages.assessment.intervals", intervals)
    return found


@pytest.fixture
def page(drawn):
    gains = {"keep the old model": 0.0, "procrustes": 0.03, "mimic": 0.05, "full backfill": 0.2}
    candidates = [
        Candidate(
            name,
            0.3 + gain,
            {"map": 0.4 + gain, "recall_at_1": 0.5 + gain, "ndcg_at_10": 0.6 + gain},
            {
                "map": an_interval(gain),
                "recall_at_1": an_interval(2 * gain),
                "ndcg_at_10": an_interval(-gain if name == "procrustes" else gain),
            },
            an_interval(gain - 0.02),
            an_interval(gain / 2),
            an_interval(3 * gain),
        )
        for name, gain in gains.items()
    ]
    verdict = Verdict(
        "upgrade with head",
        "queries mapped by mimic beat the old model.",
        candidates,
        "mimic",
        0.614,
        Crowding(1234, 0.25, 1700, 0.4567, [("ant", "bee", 0.98)]),
        {
            "items": 9000, "classes": 1234, "fitted_classes": 1111, "validation_classes": 61,
            "test_classes": 62, "test_queries": 3000,
        },
        notes=["a note"],
    )  # fmt: skip
    return assessment_page(verdict, title="Is it worth it?")


def test_the_verdict_comes_first(page):
    assert (page.title, page.verdict) == ("Is it worth it?", "upgrade with head")
    assert page.summary == ["Queries mapped by mimic beat the old model."]
    assert page.notes == ["a note"]
    assert any(one.startswith("live traffic") for one in page.not_measured)
    assert page.made_of["test queries"] == "3,000"


def test_every_way_has_a_row_and_the_chosen_one_is_bold(page):
    (table,), (changes,) = (section.tables for section in page.sections[:2])
    names = [row[0] for row in table.rows]
    assert names == ["keep the old model", "procrustes", "mimic *", "full backfill"]
    assert names[table.strong] == changes.rows[changes.strong][0] == "mimic *"
    assert [row[0] for row in changes.rows] == names[1:]


def test_metrics_are_those_of_evaluate(page):
    table = page.sections[0].tables[0]
    assert table.columns == [
        "way", "mAP", "Recall@1", "nDCG@10", "lose", "gain", "pays", "validation"
    ]  # fmt: skip
    assert table.numbers == set(table.columns) - {"way", "pays"}
    assert table.rows[0] == ["keep the old model", "40.00", "50.00", "60.00", "", "", "", "30.00"]
    assert table.rows[2] == [
        "mimic *", "45.00", "55.00", "65.00", "2.5 %", "15.0 %", "yes", "35.00"
    ]  # fmt: skip
    assert [row[6] for row in table.rows] == ["", "no", "yes", "yes"]  # procrustes costs nDCG


def test_changes_have_their_intervals(page):
    (table,) = page.sections[1].tables
    assert table.columns == [
        "way", "gain (95 %)", "new model adds", "95 % interval", "Recall@1 (95 %)",
        "nDCG@10 (95 %)",
    ]  # fmt: skip
    assert table.numbers == set(table.columns) - {"way"}
    assert table.rows[1] == [
        "mimic *", "+5.00 (+4.00 to +7.00)", "+3.00", "+2.00 to +5.00",
        "+10.00 (+9.00 to +12.00)", "+5.00 (+4.00 to +7.00)",
    ]  # fmt: skip


def test_the_new_model_adds_nothing_to_a_head_on_old_vectors():
    interval, every = an_interval(0.1), ("map", "recall_at_1", "ndcg_at_10")
    control = Candidate(
        CONTROL, 0.3, dict.fromkeys(every, 0.3), dict.fromkeys(every, interval), interval,
        interval, interval,
    )  # fmt: skip
    (row,) = changes_table([control], [CONTROL], 0).rows
    assert row[2:4] == ["", ""]


def test_gains_are_drawn_and_told_of_all_but_the_old_model(page, drawn):
    (figure,) = page.sections[0].figures
    assert figure.says == (
        "procrustes: +3.00 (+2.00 to +5.00); mimic: +5.00 (+4.00 to +7.00); "
        "full backfill: +20.00 (+19.00 to +22.00)."
    )
    assert "procrustes" in figure.svg
    assert list(drawn) == ["procrustes", "mimic", "full backfill"]
    assert drawn["mimic"] == pytest.approx((5.0, 4.0, 7.0))
    assert "keep the old model" not in figure.svg


def test_sentences_tell_on_what_and_how_much_room_there_is(page):
    ways, _, room = (section.text for section in page.sections)
    assert "lose, gain: queries that lose or gain their first hit" in ways
    assert "on 3,000 queries of 62 test classes" in ways
    assert "fitted on 1,111 other classes" in ways
    assert "* was chosen on 61 more" in ways
    assert "mAP would be 61.4 percent" in room
    assert "1,234 classes, 25 % of them with another at a cosine above 0.6 (1,700 pairs)" in room
    assert "nearest other class is 0.457" in room


def test_what_the_paper_would_choose_is_not_among_what_was_not_measured(page):
    assert "the paper recommends ndpp for few classes" in page.sections[2].text
    assert not any("paper" in one for one in page.not_measured)
