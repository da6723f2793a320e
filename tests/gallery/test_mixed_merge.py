import pytest
import torch

from nobackfill.errors import DataError
from nobackfill.gallery.mixed_merge import merge_rankings
from nobackfill.ops.nearest import nearest


def merged_by_hand(one, other, k):
    """All that was found, best first, each item where it first comes."""
    rows = []
    for items, scores, more_items, more_scores in zip(*one, *other, strict=True):
        found = [*zip(items.tolist(), scores.tolist(), strict=True)]
        found += zip(more_items.tolist(), more_scores.tolist(), strict=True)
        kept = {}
        for item, score in sorted(found, key=lambda pair: -pair[1]):  # stable
            kept.setdefault(item, score)
        rows.append((list(kept.items()) + [(-1, -torch.inf)] * k)[:k])
    return rows


@pytest.mark.parametrize("k", [1, 4, 9, 20])
def test_is_what_sorting_by_hand_gives(k):
    generator = torch.Generator().manual_seed(0)

    def ranking(found):
        items = torch.stack([torch.randperm(12, generator=generator)[:found] for _ in range(5)])
        scores = torch.randint(6, (5, found), generator=generator) / 6  # with ties
        return items, scores.sort(dim=1, descending=True).values

    one, other = ranking(6), ranking(4)
    items, scores = merge_rankings(one, other, k)
    merged = [
        list(zip(*row, strict=True)) for row in zip(items.tolist(), scores.tolist(), strict=True)
    ]
    assert merged == merged_by_hand(one, other, k)


def test_two_halves_of_one_gallery_are_searched_like_the_whole():
    generator = torch.Generator().manual_seed(0)
    query, gallery = (torch.randn(n, 8, generator=generator) for n in (5, 40))
    first, second = nearest(query, gallery[:25], 10), nearest(query, gallery[25:], 10)
    items, scores = merge_rankings(first, (second[0] + 25, second[1]), 10)
    expected = nearest(query, gallery, 10)
    assert torch.equal(items, expected[0])
    torch.testing.assert_close(scores, expected[1])


def test_equal_scores_keep_the_first_gallery_first():
    tie = torch.ones(1, 1)
    items, _ = merge_rankings((torch.tensor([[8]]), tie), (torch.tensor([[2]]), tie), 2)
    assert items.tolist() == [[8, 2]]


def test_refuses_other_queries_and_no_items():
    one, two = ((torch.zeros(n, 1, dtype=torch.int64), torch.zeros(n, 1)) for n in (1, 2))
    with pytest.raises(DataError, match="same queries, but one has 1 and the other 2"):
        merge_rankings(one, two, 1)
    with pytest.raises(DataError, match="k is 0"):
        merge_rankings(one, one, 0)
