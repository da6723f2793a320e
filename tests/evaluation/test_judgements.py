"""Judgements of a person become a verdict only where they can."""

from itertools import product
from math import comb

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.data.listing import GroundTruth, Judgement
from nobackfill.errors import DataError
from nobackfill.evaluation.agreement import compare_rankings
from nobackfill.evaluation.bootstrap import Interval
from nobackfill.evaluation.judgements import Preference, decide, judge, share_interval

LABELS = np.arange(240) % 60


def files(old_noise, new_noise):
    centre = torch.randn(60, 16, generator=torch.Generator().manual_seed(0))[LABELS]
    sides = []
    for seed, noise in ((1, old_noise), (2, new_noise)):
        values = torch.randn(centre.shape, generator=torch.Generator().manual_seed(seed))
        sides.append(nb.Vectors(np.arange(240), centre + noise * values))
    return sides


def judgements_of(old, new, *, marks=True):
    """What a person would say who knows the classes and counts the hits of each side."""
    relevant, judgements = {}, {}
    for change in compare_rankings(old, new).changes():
        right = LABELS[change.query] == LABELS
        gain = int(right[change.after].sum()) - int(right[change.before].sum())
        preferred = "after" if gain > 0 else "before" if gain < 0 else "equal"
        sides = [list(map(str, ids)) for ids in (change.before, change.after)]
        judgements[str(change.query)] = Judgement(*sides, preferred)
        shown = {*change.before, *change.after}
        relevant[str(change.query)] = [str(item) for item in shown if marks and right[item]]
    return GroundTruth(relevant, {}, judgements)


@pytest.mark.parametrize(
    ("noises", "verdict"),
    [((1.4, 0.6), "compatible"), ((0.6, 1.4), "not compatible"), ((1.0, 1.0), "undecided")],
)
@pytest.mark.parametrize("marks", [True, False])
def test_a_verdict_on_which_the_labels_agree(noises, verdict, marks):
    old, new = files(*noises)
    result = judge(old, new, judgements_of(old, new, marks=marks))
    assert result.verdict == verdict
    assert bool(result.changes) == marks
    assert result.counts["judged"] == 50


def test_metrics_are_those_of_loops_over_the_shown_items():
    old, new = files(1.2, 0.8)
    truth = judgements_of(old, new)
    result = judge(old, new, truth)
    precisions = {"old_old": [], "new_old": []}
    for query, judgement in truth.judgements.items():
        shown = [int(item) for item in {*judgement.before, *judgement.after}]
        right = {int(item) for item in truth.relevant[query]}
        if not right:
            continue
        for pair, side in (("old_old", old), ("new_old", new)):
            cosine = torch.cosine_similarity(side.vectors[int(query)], old.vectors[shown])
            order = [shown[place] for place in cosine.argsort(descending=True).tolist()]
            hits = [place for place, item in enumerate(order, start=1) if item in right]
            precisions[pair].append(np.mean([(n + 1) / place for n, place in enumerate(hits)]))
    for pair, values in precisions.items():
        assert result.summary()["metrics"][pair]["map"] == pytest.approx(np.mean(values))
    assert result.counts["marked"] == len(precisions["old_old"])


def test_judgements_on_other_results_do_not_count():
    old, new = files(1.4, 0.6)
    truth = judgements_of(old, new)
    query = next(iter(truth.judgements))
    seen = truth.judgements[query]
    others = Judgement(seen.before, seen.before, seen.preferred)
    truth.judgements[query] = others
    truth.relevant[query] = []
    counts = judge(old, new, truth).counts
    assert (counts["judged"], counts["stale"]) == (49, 1)
    with pytest.raises(DataError, match="None of the 50 judged queries has the results"):
        judge(new, old, truth)


def test_seven_judged_queries_are_too_few_for_a_verdict():
    old, new = files(1.4, 0.6)
    truth = judgements_of(old, new, marks=False)
    few = GroundTruth(
        dict(list(truth.relevant.items())[:7]), {}, dict(list(truth.judgements.items())[:7])
    )
    result = judge(old, new, few)
    assert result.verdict == "undecided"
    assert "at least 8 independent groups of queries, and these are of 7" in result.notes[-1]


def test_near_duplicates_count_as_one_query():
    old, new = files(1.4, 0.6)
    for side in (old, new):
        side.vectors[1::2] = 2 * side.vectors[::2]
    truth = judgements_of(old, new, marks=False)
    pairs = {int(query) // 2 for query in truth.judgements}
    assert judge(old, new, truth).preference.groups == len(pairs) < 50


def test_the_preference_decides_and_marks_may_object():
    falls = {"map": Interval(-0.1, -0.2, -0.05, 0.95, 20)}
    unknown = {"map": Interval(-0.1, float("nan"), float("nan"), 0.95, 3)}
    gain, loss = Preference(15, 2, 3), Preference(2, 15, 3)
    rises = {"map": Interval(0.1, 0.05, 0.2, 0.95, 20)}
    assert decide(gain, {}) == decide(gain, unknown) == "compatible"
    assert decide(gain, falls) == decide(loss, rises) == "mixed"
    assert decide(loss, falls) == "not compatible"
    assert decide(Preference(0, 0, 20), {}) == decide(Preference(7, 0, 0), {}) == "undecided"
    assert decide(Preference(9, 4, 7), falls) == "undecided"


def test_the_interval_is_that_of_the_sign_test():
    for total, number in product(range(1, 25), range(25)):
        if number > total:
            continue
        tail = sum(comb(total, k) for k in range(number, total + 1)) / 2**total
        assert (share_interval(number, total)[0] > 0.5) == (tail < 0.025)
        mirrored = share_interval(total - number, total)
        assert share_interval(number, total)[0] == pytest.approx(1 - mirrored[1], abs=1e-9)
    assert share_interval(1500, 2000)[0] == pytest.approx(0.7304, abs=1e-3)
