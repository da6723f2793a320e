"""The first sentence of a page names every metric that decides."""

from types import SimpleNamespace

import pytest

from nobackfill.evaluation.conclusion import first_sentence

RISE = {"mean": 0.07, "low": 0.05, "high": 0.09}
FALL = {"mean": -0.07, "low": -0.09, "high": -0.05}
OPEN = {"mean": 0.01, "low": -0.02, "high": 0.04}


def conclude(verdict, gain, first_hits):
    summary = {
        "verdict": verdict,
        "differences": {"new_old - old_old": gain},
        "changes": {"map": gain, "recall_at_1": first_hits},
    }
    return first_sentence(
        SimpleNamespace(modalities=None, verdict=verdict, doubts=(), summary=lambda: summary)
    )


@pytest.mark.parametrize(
    ("verdict", "gain", "first_hits", "says"),
    [
        (
            "mixed",
            RISE,
            FALL,
            "Recall@1 falls by 7.0 points (9.0 to 5.0): users who take the first",
        ),
        (
            "mixed",
            FALL,
            RISE,
            "Recall@1 rises by 7.0 points (5.0 to 9.0): users who take the first",
        ),
        ("not compatible", OPEN, FALL, "Recall@1 falls by 7.0 points"),
    ],
)
def test_other_metrics_explain_what_map_does_not(verdict, gain, first_hits, says):
    assert says in conclude(verdict, gain, first_hits)


@pytest.mark.parametrize(
    ("verdict", "gain", "first_hits"),
    [("compatible", RISE, OPEN), ("not compatible", FALL, FALL), ("undecided", OPEN, OPEN)],
)
def test_where_map_explains_the_verdict_it_is_alone(verdict, gain, first_hits):
    assert "Recall@1" not in conclude(verdict, gain, first_hits)
