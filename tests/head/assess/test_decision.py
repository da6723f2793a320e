"""The cheapest way that pays is recommended, and the reason explains the choice."""

import re
from dataclasses import replace

import pytest

from nobackfill.evaluation.bootstrap import Interval
from nobackfill.head.assess.candidates import Candidate
from nobackfill.head.assess.decision import decide

NAMES = {
    "keep": "keep the old model", "control": "old vectors with a head", "head": "cross_supcon",
    "both": "both models ask", "second": "two-stage, top 100", "ten": "10 % backfilled",
    "quarter": "25 % backfilled", "half": "50 % backfilled", "full": "full backfill",
}  # fmt: skip
BEFORE = 0.3  # mAP of the old model


def an_interval(mean, half):
    return Interval(mean, mean - half, mean + half, 0.95, 30)


def candidates(**gains):
    """A candidate for each name, with its gain in mAP and half the width of its interval.

    Other metrics change by at most chance.
    """
    found = {}
    for key, name in NAMES.items():
        mean, half = gains.get(key, (0.0, 0.0 if key == "keep" else 0.1))
        gain, same = an_interval(mean, half), an_interval(0.0, 0.1)
        found[name] = Candidate(
            name,
            0.5,
            dict.fromkeys(("map", "recall_at_1", "ndcg_at_10"), BEFORE + mean),
            {"map": gain, "recall_at_1": same, "ndcg_at_10": same},
            gain,
            same,
            same,
        )
    return found


def decided(ways):
    return decide(ways, "cross_supcon", 100)


def changing(ways, key, **changes):
    """The candidates, of which one changes some metrics as these intervals tell."""
    way = ways[NAMES[key]]
    return {**ways, way.name: replace(way, changes={**way.changes, **changes})}


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ({"head": (0.02, 0.01)}, "upgrade with head"),
        ({"head": (0.02, 0.01), "second": (0.2, 0.01)}, "upgrade with head"),
        ({"head": (0.02, 0.01), "both": (0.2, 0.01)}, "upgrade with head"),
        ({"both": (0.02, 0.01), "second": (0.2, 0.01)}, "both models ask"),
        ({"head": (0.0, 0.01), "second": (0.2, 0.01)}, "two-stage"),
        ({"ten": (0.02, 0.01), "half": (0.2, 0.01)}, "backfill first"),
        ({"full": (0.3, 0.1)}, "full backfill"),
        ({"head": (0.0, 0.004)}, "keep the old model"),
        ({"head": (-0.2, 0.1)}, "keep the old model"),
        ({"head": (0.0, 0.006)}, "inconclusive"),
    ],
)
def test_the_cheapest_way_that_surely_pays_is_the_answer(gains, expected):
    assert decided(candidates(**gains))[0] == expected


def test_both_models_are_not_kept_for_a_new_one_that_loses_on_its_own_gallery():
    answer, reason = decided(candidates(both=(0.02, 0.01), full=(-0.2, 0.1), head=(-0.2, 0.1)))
    assert answer == "keep the old model"
    assert "oth models" not in reason


@pytest.mark.parametrize(
    ("gain", "says"),
    [
        ((-0.2, 0.1), "even the best way .* cross_supcon, loses: -20.00 .-30.00 to -10.00. points"),
        ((-0.02, 0.02), "gains -2.00 .* less than half a point at most"),
        ((0.0, 0.004), "gains .0.00 .* less than half a point at most"),
    ],
)
def test_a_loss_is_called_one(gain, says):
    answer, reason = decided(candidates(head=gain))
    assert answer == "keep the old model"
    assert re.search(says, reason)


def test_what_a_head_on_old_vectors_gives_too_is_no_gain_of_the_new_model():
    ways = candidates(head=(0.05, 0.01))
    ways["cross_supcon"] = replace(ways["cross_supcon"], added=an_interval(0.0, 0.01))
    answer, reason = decided(ways)
    assert answer == "keep the old model"
    assert "comes from the labels" in reason


@pytest.mark.parametrize("metric", ["recall_at_1", "ndcg_at_10"])
def test_a_gain_in_map_does_not_pay_for_a_fall_of_the_first_results(metric):
    ways = changing(candidates(head=(0.05, 0.01)), "head", **{metric: an_interval(-0.07, 0.02)})
    answer, reason = decided(ways)
    assert answer == "inconclusive"
    name = {"recall_at_1": "Recall@1", "ndcg_at_10": "nDCG@10"}[metric]
    assert "gains +5.00 (+4.00 to +6.00) points of mAP, but the metrics disagree" in reason
    assert f"{name} falls by 7.0 points (9.0 to 5.0)" in reason


def test_a_fall_that_may_be_chance_does_not_keep_a_way_from_paying():
    ways = changing(candidates(head=(0.05, 0.01)), "head", recall_at_1=an_interval(-0.07, 0.08))
    assert decided(ways)[0] == "upgrade with head"


def test_a_dearer_way_is_taken_if_the_head_costs_first_hits():
    gains = {"head": (0.05, 0.01), "second": (0.04, 0.01)}
    ways = changing(candidates(**gains), "head", recall_at_1=an_interval(-0.07, 0.02))
    answer, reason = decided(ways)
    assert answer == "two-stage"
    assert reason.endswith("Cross_supcon would reach 35.0 % mAP, but Recall@1 would fall.")


def test_a_full_backfill_that_costs_first_hits_is_not_recommended():
    gains = {"head": (0.0, 0.02), "full": (0.1, 0.01)}
    ways = changing(candidates(**gains), "full", recall_at_1=an_interval(-0.07, 0.02))
    answer, reason = decided(ways)
    assert answer == "inconclusive"
    assert reason.endswith("Full backfill would reach 40.0 % mAP, but Recall@1 would fall.")


def test_a_fall_of_the_first_results_alone_is_a_reason_to_keep_the_old_model():
    ways = changing(candidates(head=(0.0, 0.02)), "head", ndcg_at_10=an_interval(-0.07, 0.02))
    answer, reason = decided(ways)
    assert answer == "keep the old model"
    assert "nDCG@10 falls by 7.0 points" in reason


@pytest.mark.parametrize(
    ("key", "gain", "says"),
    [
        ("full", (0.112, 0.01), "Full backfill would reach 41.2 % mAP, but costs embedding the "
         "whole gallery again."),
        ("half", (0.112, 0.01), "50 % backfilled would reach 41.2 % mAP, but costs embedding 50 % "
         "of the gallery again."),
        ("both", (0.112, 0.01), "Both models ask would reach 41.2 % mAP, but needs both models for "
         "each query."),
        ("second", (0.112, 0.01), "Two-stage, top 100 would reach 41.2 % mAP, but needs the new "
         "vectors of the first 100 results of each query."),
        ("full", (0.112, 0.2), "Full backfill would reach 41.2 % mAP, but its gain may be chance."),
        ("control", (0.112, 0.01), "Old vectors with a head would reach 41.2 % mAP, without the "
         "new model."),
    ],
)  # fmt: skip
def test_the_reason_says_why_a_better_scoring_way_is_not_preferred(key, gain, says):
    answer, reason = decided(candidates(head=(0.05, 0.01), **{key: gain}))
    assert answer == "upgrade with head"
    assert reason.endswith(f"by +5.00 (+4.00 to +6.00) points of mAP. {says}")


def test_the_reason_names_no_way_that_scores_less():
    reason = decided(candidates(head=(0.05, 0.01), full=(0.05, 0.01)))[1]
    assert "would reach" not in reason


def test_a_way_that_a_head_on_old_vectors_may_equal_is_not_called_too_dear():
    ways = candidates(head=(0.0, 0.02), second=(0.1, 0.01))
    second = ways["two-stage, top 100"]
    ways[second.name] = replace(second, added=an_interval(0.0, 0.01))
    answer, reason = decided(ways)
    assert answer == "inconclusive"
    assert reason.endswith("but a head on the old vectors may gain as much.")


def test_a_full_backfill_uses_no_labels_so_a_head_on_old_vectors_is_no_rival():
    ways = candidates(full=(0.1, 0.01))
    ways["full backfill"] = replace(ways["full backfill"], added=an_interval(0.0, 0.01))
    assert decided(ways)[0] == "full backfill"


def test_without_intervals_nothing_pays():
    unknown = Interval(0.2, float("nan"), float("nan"), 0.95, 5)
    ways = {
        name: replace(way, changes=dict.fromkeys(way.changes, unknown), added=unknown)
        for name, way in candidates(head=(0.2, 0.0)).items()
    }
    assert not any(way.pays for way in ways.values())
    assert decided(ways)[0] == "inconclusive"
