"""What is taken from ranks beside average precision: nDCG, cut-offs, triples in order."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import ndcg_score

from nobackfill.evaluation.metrics import count_once, retrieval
from nobackfill.evaluation.rank_metrics import ndcg

GENERATOR = torch.Generator().manual_seed(0)
QUERY = torch.randn(12, 5, generator=GENERATOR, dtype=torch.float64)
GALLERY = torch.randn(40, 5, generator=GENERATOR, dtype=torch.float64)
QUERY_LABELS, GALLERY_LABELS = torch.arange(12) % 4, torch.arange(40) % 5  # class 4 is never asked
COSINE = torch.nn.functional.normalize(QUERY) @ torch.nn.functional.normalize(GALLERY).T
IGNORED = [[i, i + 3, i] for i in range(12)]


def found(**options):
    return retrieval(QUERY, GALLERY, QUERY_LABELS, GALLERY_LABELS, **options)


@pytest.mark.parametrize("k", [1, 5, 10, 100])
def test_ndcg_agrees_with_scikit_learn(k):
    relevant = (QUERY_LABELS[:, None] == GALLERY_LABELS).double().numpy()
    assert found().ndcg(k) == pytest.approx(ndcg_score(relevant, COSINE.numpy(), k=k), abs=1e-12)


def test_ndcg_by_hand():
    ranks, number = torch.tensor([1, 3, 2]), torch.tensor([2, 0, 1])
    values = ndcg(ranks, number, at=2)
    assert values[0] == pytest.approx(1 / (1 + 1 / math.log2(3)))
    assert math.isnan(values[1])
    assert values[2] == pytest.approx(1 / math.log2(3))


@pytest.mark.parametrize("options", [{}, {"ignored": IGNORED}])
def test_triples_in_order_by_loops(options):
    right = total = 0
    for i in range(12):
        hidden = set(options.get("ignored", [[]] * 12)[i])
        ranked = [j for j in range(40) if j not in hidden]
        for j in ranked:
            for k in ranked:
                if QUERY_LABELS[i] == GALLERY_LABELS[j] != GALLERY_LABELS[k]:
                    total += 1
                    right += bool(COSINE[i, j] > COSINE[i, k])
    result = found(**options)
    assert result.in_order == pytest.approx(right / total, abs=1e-12)
    assert result.num_ranked.tolist() == [
        40 - len(set(h)) for h in options.get("ignored", [[]] * 12)
    ]


def test_where_nothing_is_relevant_there_is_no_triple():
    result = retrieval(QUERY, GALLERY, QUERY_LABELS + 100, GALLERY_LABELS)
    assert math.isnan(result.in_order)
    assert math.isnan(result.ndcg(10))
    assert not result.found_by(10).any()


def test_a_cut_is_of_the_whole_ranking_even_where_it_was_cut_before():
    whole, cut = found(), found(at=3)
    assert cut.precision_at(20) == whole.precision_at(20)
    assert whole.precision_at(3) == cut.mean_average_precision
    assert cut.found_by(9).tolist() == whole.found_by(9).tolist()


@pytest.mark.parametrize("k", [1, 5])
def test_found_by_is_what_recall_counts(k):
    result = found()
    assert result.found_by(k).double().mean().item() == pytest.approx(result.recall(k))
    by_hand = [
        bool((GALLERY_LABELS[COSINE[i].argsort(descending=True)[:k]] == QUERY_LABELS[i]).any())
        for i in range(12)
    ]
    assert result.found_by(k).tolist() == by_hand


def test_an_item_in_two_lists_is_taken_out_once():
    one = torch.tensor([0, 0, 2]), torch.tensor([5, 6, 5])
    other = torch.tensor([0, 2]), torch.tensor([5, 9])
    assert count_once([one, other], 3, 10).tolist() == [2, 0, 2]
    assert count_once([], 3, 10).tolist() == [0, 0, 0]


def test_numbers_do_not_depend_on_blocks(monkeypatch):
    whole = found(ignored=IGNORED)
    monkeypatch.setattr("nobackfill.evaluation.metrics.rows_per_block", lambda *_: 5)
    parts = found(ignored=IGNORED)
    assert np.array_equal(whole.num_ranked, parts.num_ranked)
    assert whole.in_order == parts.in_order
