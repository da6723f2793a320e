"""Without labels, an assessment compares rankings by a map that needs none."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import nobackfill as nb
from nobackfill.errors import DataError
from nobackfill.head.assess.without_labels import map_without_labels

ITEMS = 120


def old_and_new(*, dim=8, noise=0.05, columns=None, items=ITEMS):
    """Old vectors, and new ones that are a rotation of them with noise."""
    generator = torch.Generator().manual_seed(0)
    old = torch.randn(items, 8, generator=generator)
    turn = torch.linalg.qr(torch.randn(dim, dim, generator=generator))[0][:8]
    new = old @ turn + noise * torch.randn(items, dim, generator=generator)
    return (nb.Vectors(np.arange(items), side, columns=columns or {}) for side in (old, new))


@pytest.mark.parametrize("dim", [8, 11])
def test_a_rotated_space_agrees_once_it_is_mapped(dim):
    old, new = old_and_new(dim=dim)
    agreement = nb.assess_rankings(old, new)
    assert agreement.overlaps()["new_old"][10] > 0.8
    assert agreement.head in str(agreement.notes)
    if dim == 8:
        assert nb.compare_rankings(old, new).overlaps()["new_old"][10] < 0.5


def test_items_that_the_map_was_fitted_to_do_not_search():
    old, new = old_and_new()
    mapped, _, number = map_without_labels(old, new, seed=3)
    assert mapped.columns["fitted"].sum() == number == ITEMS // 2
    agreement = nb.assess_rankings(old, new, seed=3)
    assert not mapped.columns["fitted"][agreement.query_ids].any()
    assert len(agreement.query_ids) == ITEMS // 2
    others = nb.assess_rankings(old, new, seed=4).query_ids
    assert set(others) != set(agreement.query_ids)


def test_training_items_are_fitted_to_and_others_search():
    split = np.where(np.arange(ITEMS) < 90, "train", "validation")
    agreement = nb.assess_rankings(*old_and_new(columns={"split": split}))
    assert agreement.query_ids.tolist() == list(range(90, ITEMS))


def test_items_that_are_no_queries_are_fitted_to():
    is_query = np.arange(ITEMS) < 30
    columns = {"is_query": is_query, "is_gallery": ~is_query}
    agreement = nb.assess_rankings(*old_and_new(columns=columns))
    assert agreement.query_ids.tolist() == list(range(30))
    assert len(agreement.gallery_ids) == 90


def test_a_second_stage_ranks_the_first_results_by_new_vectors():
    old, new = old_and_new(noise=1.0)
    agreement = nb.assess_rankings(old, new, k=7)
    first, second = (agreement.rankings[pair].places for pair in ("new_old", "two_stage"))
    unit = F.normalize(new.vectors.double(), dim=1)
    for row, query in enumerate(agreement.query_ids.tolist()):
        cosine = {place: float(unit[query] @ unit[place]) for place in first[row, :7].tolist()}
        assert second[row, :7].tolist() == sorted(cosine, key=lambda place: -cosine[place])
    assert (second[:, 7:] == first[:, 7:]).all()
    shares = agreement.overlaps()["two_stage"]
    own = agreement.rankings["new_new"].places
    expected = [len({*a} & {*b}) for a, b in zip(second[:, :10].tolist(), own[:, :10].tolist())]  # noqa: B905
    assert shares[10] == pytest.approx(np.mean(expected) / 10)


def test_the_map_is_the_one_that_is_closest_to_unseen_old_vectors():
    """New vectors with a stretched axis need more than a rotation."""
    old, new = old_and_new(noise=0.01, items=400)
    stretched = nb.Vectors(new.ids, new.vectors * torch.linspace(0.2, 3, 8))
    assert map_without_labels(old, stretched, seed=0)[1].startswith("ridge")


def test_few_items_cannot_be_mapped():
    old, new = old_and_new(items=30)
    with pytest.raises(DataError, match="at least 20 items to be fitted to, but there are 15"):
        nb.assess_rankings(old, new)
