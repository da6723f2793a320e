"""Rankings of two models are compared as slow loops compare them."""

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.errors import DataError
from nobackfill.evaluation.agreement import (
    compare_rankings,
    overlap,
    share_below,
    spread_of,
)

ITEMS, DIM = 60, 6


def vectors(seed, *, dim=DIM, ids=None, columns=None):
    values = torch.randn(ITEMS, dim, generator=torch.Generator().manual_seed(seed))
    return nb.Vectors(np.arange(ITEMS) if ids is None else ids, values, columns=columns or {})


def noisy(file, seed, noise=0.5):
    generator = torch.Generator().manual_seed(seed)
    values = file.vectors + noise * torch.randn(file.vectors.shape, generator=generator)
    return nb.Vectors(file.ids, values, columns=file.columns)


def found_by_loops(query, gallery, row, hidden=()):
    """Rows of the gallery by cosine to a query, best first, without itself and hidden rows."""
    scores = {}
    for other in range(len(gallery)):
        if other != row and other not in hidden:
            a, b = query.vectors[row].double(), gallery.vectors[other].double()
            scores[other] = float(a @ b / (a.norm() * b.norm()))
    return sorted(scores, key=lambda other: -scores[other]), scores


def test_overlaps_and_scores_are_those_of_loops():
    old = vectors(0)
    new = noisy(old, 1)
    agreement = compare_rankings(old, new)
    found = {
        pair: [found_by_loops(query, gallery, row) for row in range(ITEMS)]
        for pair, query, gallery in (
            ("old_old", old, old),
            ("new_old", new, old),
            ("new_new", new, new),
        )
    }
    summary = agreement.summary()
    assert list(summary["overlap"]["new_old"]) == ["1", "10"]  # 100 of 59 would all be the same
    for pair in ("new_old", "new_new"):
        for k in (1, 10):
            shares = [
                len(set(a[:k]) & set(b[:k])) / k
                for (a, _), (b, _) in zip(found["old_old"], found[pair], strict=True)
            ]
            assert summary["overlap"][pair][str(k)] == pytest.approx(np.mean(shares), abs=1e-9)
    best = {pair: [max(scores.values()) for _, scores in rows] for pair, rows in found.items()}
    floor = np.quantile(best["old_old"], 0.05)
    for pair, values in best.items():
        assert summary["best_score"][pair]["p50"] == pytest.approx(np.median(values), abs=1e-6)
        below = sum(value < floor for value in values) / ITEMS
        assert summary["below_old_p5"][pair] == pytest.approx(below, abs=1e-9)
    changed = [
        a[:5] != b[:5] for (a, _), (b, _) in zip(found["old_old"], found["new_old"], strict=True)
    ]
    assert summary["changed"] == pytest.approx(np.mean(changed))
    for change in agreement.changes():
        assert change.before == found["old_old"][change.query][0][:5]
        assert change.after == found["new_old"][change.query][0][:5]
        assert changed[change.query]


def test_progress_ends_with_all_queries_of_all_searches():
    steps = []
    compare_rankings(vectors(0), vectors(1), progress=lambda *step: steps.append(step))
    assert steps[-1] == (3 * ITEMS, 3 * ITEMS)


def test_the_sample_is_random_but_repeats():
    old = vectors(0)
    first, again, other = (
        compare_rankings(old, noisy(old, 1), seed=s).changes(9) for s in (1, 1, 2)
    )
    assert first == again
    assert {change.query for change in first} != {change.query for change in other}


def test_equal_vectors_agree_and_leave_nothing_to_list():
    agreement = compare_rankings(vectors(0), vectors(0))
    assert agreement.overlaps()["new_old"] == {1: 1.0, 10: 1.0}
    assert agreement.changes() == []


def test_vectors_of_another_length_search_only_their_own_gallery():
    agreement = compare_rankings(vectors(0), vectors(1, dim=9))
    assert list(agreement.rankings) == ["old_old", "new_new"]
    assert agreement.summary()["changed"] is None
    assert "new queries have 9 dimensions and old vectors 6" in agreement.notes[-1]


def test_queries_and_gallery_are_those_of_the_columns():
    is_query = np.arange(ITEMS) < 20
    old = vectors(0, columns={"is_query": is_query, "is_gallery": ~is_query})
    agreement = compare_rankings(old, vectors(1))
    assert agreement.query_ids.tolist() == list(range(20))
    assert agreement.gallery_ids.tolist() == list(range(20, 60))


def test_items_of_a_session_do_not_find_each_other():
    session = np.arange(ITEMS) // 4
    old = vectors(0, columns={"session": session})
    agreement = compare_rankings(old, noisy(old, 1), sessions="session")
    for ranking in agreement.rankings.values():
        assert not (session[ranking.places.numpy()] == session[:, None]).any()


def test_shifted_rows_are_a_doubt():
    old = vectors(0)
    shifted = nb.Vectors(old.ids, noisy(old, 1, 0.01).vectors.roll(1, dims=0))
    assert compare_rankings(old, shifted).doubts


def test_a_sample_of_many_queries(monkeypatch):
    monkeypatch.setattr("nobackfill.evaluation.agreement.QUERIES", 12)
    agreement = compare_rankings(vectors(0), vectors(1))
    assert (len(agreement.query_ids), agreement.num_asked) == (12, 60)
    assert agreement.rankings["old_old"].places.shape == (12, 58)


def test_one_item_to_find_cannot_be_compared():
    few = [nb.Vectors(["a", "b"], torch.eye(2)) for _ in range(2)]
    with pytest.raises(DataError, match="two gallery items or more for each query"):
        compare_rankings(*few)


def test_a_protocol_that_needs_labels_says_so():
    with pytest.raises(DataError, match="market1501"):
        compare_rankings(vectors(0), vectors(1), protocol="market1501")


def test_parts_by_hand():
    first, second = torch.tensor([[3, 1, 2], [0, 1, 2]]), torch.tensor([[1, 3, 5], [7, 8, 9]])
    assert overlap(first, second, 3).tolist() == pytest.approx([2 / 3, 0])
    assert spread_of(torch.arange(101.0))["p25"] == 25
    assert share_below(torch.tensor([0.0, 4.0, 6.0, 9.0]), torch.arange(101.0)) == 0.5
