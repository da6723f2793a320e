from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import average_precision_score

from nobackfill.evaluation.metrics import retrieval
from nobackfill.evaluation.mixed_scores import (
    half_done,
    headroom,
    make_part,
    metrics_of_queries,
    on_new,
    on_old,
    scale_of,
    search,
    two_stage,
)

CLASSES, ITEMS = 6, 5


def a_part(seed=0, most=1000):
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(CLASSES * ITEMS) % CLASSES
    old, new = (
        torch.randn(CLASSES, dim, generator=generator)[classes]
        + torch.randn(len(classes), dim, generator=generator)
        for dim in (4, 7)
    )
    return make_part(new, old, classes, most=most)


def precision_of(part, scores):
    return metrics_of_queries(part, scores)["map"]


def by_hand(part, score):
    """The average precision of each query by scikit-learn, itself left out."""
    found = []
    for query in part.queries.tolist():
        others = np.arange(len(part.classes)) != query
        relevant = (part.classes == part.classes[query]).numpy()[others]
        found.append(average_precision_score(relevant, score[query][others]))
    return np.array(found)


def test_a_part_has_unit_vectors_and_evenly_chosen_queries():
    part = a_part(most=10)
    assert part.queries.tolist() == list(range(0, 30, 3))
    for side in (part.old, part.new):
        torch.testing.assert_close(side.norm(dim=1), torch.ones(30))
    assert part.groups.tolist() == part.classes[part.queries].tolist()


def test_searches_are_those_of_scikit_learn():
    part = a_part()
    query = F.normalize(part.old + 0.3, dim=1)
    for scores, whole in (
        (on_old(part, query), query @ part.old.T),
        (on_new(part), part.new @ part.new.T),
    ):
        np.testing.assert_allclose(
            precision_of(part, scores), by_hand(part, whole.numpy()), atol=1e-6
        )


def test_the_headroom_asks_by_the_mean_of_the_others():
    part = a_part()
    query = torch.stack(
        [
            part.old[(part.classes == part.classes[i]) & (torch.arange(30) != i)].mean(dim=0)
            for i in range(30)
        ]
    )
    expected = by_hand(part, (query @ part.old.T).numpy())
    np.testing.assert_allclose(precision_of(part, headroom(part)), expected, atol=1e-6)


@pytest.mark.parametrize("k", [1, 4, 1000])
def test_a_second_stage_puts_the_first_hits_in_the_order_of_the_new_vectors(k):
    part = a_part()
    first, again = (part.old @ part.old.T).numpy().copy(), (part.new @ part.new.T).numpy()
    np.fill_diagonal(first, -np.inf)
    whole = first.copy()
    for row in range(30):
        best = np.argsort(-first[row])[: min(k, 30)]
        whole[row, best] = 10 + again[row, best]
    found = precision_of(part, two_stage(part, part.old, k))
    np.testing.assert_allclose(found, by_hand(part, whole), atol=1e-6)
    if k == 1000:
        np.testing.assert_allclose(found, precision_of(part, on_new(part)))


def test_the_scale_is_that_of_strangers():
    part = a_part()
    scores = (part.new @ part.new.T).numpy()
    strangers = scores[part.classes.numpy()[:, None] != part.classes.numpy()[None]]
    scale = scale_of(part, on_new(part))
    assert scale.mean == pytest.approx(strangers.mean(), abs=1e-6)
    assert scale.deviation == pytest.approx(strangers.std(ddof=1), abs=1e-6)


def test_half_a_backfill_lies_between_none_and_all():
    part = a_part()
    scales = scale_of(part, on_old(part, part.old)), scale_of(part, on_new(part))
    none, every = torch.zeros(30, dtype=torch.bool), torch.ones(30, dtype=torch.bool)
    for is_new, alone in ((none, on_old(part, part.old)), (every, on_new(part))):
        mixed = precision_of(part, half_done(part, part.old, is_new, scales))
        np.testing.assert_allclose(mixed, precision_of(part, alone), atol=1e-6)
    half = torch.arange(30) < 15
    scores = half_done(part, part.old, half, scales)(torch.arange(30))
    old, new = scales
    torch.testing.assert_close(scores[:, :15], new((part.new @ part.new.T)[:, :15]))
    torch.testing.assert_close(scores[:, 15:], old((part.old @ part.old.T)[:, 15:]))


def a_part_of_roles():
    """Of each class two items are queries, and one of them is searched, and two others."""
    row = torch.arange(30) // CLASSES
    whole = a_part()
    roles = {"is_query": row < 2, "is_gallery": (row > 0) & (row < 4)}
    return make_part(whole.new, whole.old, whole.classes, most=1000, **roles), row


def test_items_outside_the_gallery_are_never_found():
    part, row = a_part_of_roles()
    assert part.queries.tolist() == list(range(12))
    gallery = (row > 0) & (row < 4)
    for scores, queries in (
        (on_old(part, part.old), part.old),
        (two_stage(part, part.old, 1000), part.new),
    ):
        items = part.old if queries is part.old else part.new
        expected = retrieval(
            queries[part.queries], items[gallery],
            part.classes[part.queries], part.classes[gallery],
            ignored=[[query - 6] if query >= 6 else [] for query in range(12)],
        )  # fmt: skip
        found = search(part, scores)
        assert torch.equal(found.ranks.long(), expected.ranks.long())
        assert torch.equal(found.num_ranked, expected.num_ranked)
        torch.testing.assert_close(found.average_precision, expected.average_precision)
        metrics = metrics_of_queries(part, scores)
        assert metrics["recall_at_1"].mean() == pytest.approx(expected.recall(1))
        assert metrics["ndcg_at_10"].mean() == pytest.approx(expected.ndcg(10))
    # what is not searched fills no place of the first stage
    assert search(part, two_stage(part, part.old, 1)).ranks.max() <= 18


def test_a_second_stage_ranks_gallery_items_again():
    part, row = a_part_of_roles()
    gallery = (row > 0) & (row < 4)
    first = part.old @ part.old.T
    first[torch.arange(30), torch.arange(30)] = -torch.inf
    first[:, ~gallery] = -torch.inf
    scores = two_stage(part, part.old, 3)(part.queries)
    best = first[part.queries].topk(3).indices
    assert torch.equal((scores >= 1).nonzero()[:, 1].reshape(12, 3), best.sort().values)


def test_the_headroom_and_the_scale_are_those_of_the_gallery():
    part, row = a_part_of_roles()
    gallery = (row > 0) & (row < 4)
    ideal = [
        part.old[gallery & (part.classes == query % CLASSES) & (torch.arange(30) != query)].mean(0)
        for query in range(12)
    ]
    expected = F.normalize(torch.stack(ideal), dim=1) @ part.old.T
    torch.testing.assert_close(headroom(part)(part.queries), expected)
    scores = (part.new[:12] @ part.new.T)[:, gallery]
    strangers = scores[part.classes[:12, None] != part.classes[gallery]]
    assert scale_of(part, on_new(part)).mean == pytest.approx(strangers.mean().item(), abs=1e-6)


def test_a_query_without_anything_to_find_counts_nowhere():
    part, _ = a_part_of_roles()
    lonely = part.is_gallery & (part.classes != 0)
    found = metrics_of_queries(replace(part, is_gallery=lonely), on_new(part))
    for values in found.values():
        assert np.flatnonzero(np.isnan(values)).tolist() == [0, 6]
