"""A gallery that is part old, part new answers like one exact search over what each item is."""

import numpy as np
import pytest

from nobackfill.errors import ConfigError, GalleryError
from nobackfill.evaluation.score_scale import Scale
from nobackfill.gallery.mixed import MixedGallery
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def queries():
    return np.random.default_rng(5).normal(size=(7, 8)).astype(np.float32)


def migrate(store, items, share, dim=8):
    """Gives a share of the items new vectors; returns which, and these."""
    ids, vectors, _ = items
    fresh = np.random.default_rng(3).normal(size=(len(ids), dim)).astype(np.float32)
    number = round(share * len(ids))
    moved = np.random.default_rng(4).permutation(len(ids))[:number]
    new = ours(store.main, "v2")
    store.create(new, dim)
    if number:
        store.upsert(new, [ids[place] for place in moved], fresh[moved])
    return new, moved, fresh


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("k", [1, 10])
def test_one_space_is_searched_as_one_gallery(store, items, queries, share, k, agrees):
    ids, vectors, _ = items
    new, moved, fresh = migrate(store, items, share)
    mixed = MixedGallery(store, new, same_space=True)
    assert mixed.share() == pytest.approx(share)
    gallery = vectors.copy()
    gallery[moved] = unit(fresh[moved])
    cosines = unit(queries) @ gallery.T
    found = mixed.search(queries, k)
    for row, (names, scores) in enumerate(zip(found.ids, found.cosines, strict=True)):
        order = (-cosines[row]).argsort()[:k]
        assert agrees(store, names, [ids[place] for place in order])
        if store.exact:
            np.testing.assert_allclose(scores, cosines[row][order], atol=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_two_spaces_are_merged_by_deviations_from_strangers(store, items, queries, share, agrees):
    ids, vectors, _ = items
    new, moved, fresh = migrate(store, items, share, dim=5)
    asking = np.random.default_rng(6).normal(size=(7, 5)).astype(np.float32)
    mixed = MixedGallery(store, new, same_space=False)
    mixed.calibrate(queries, asking)
    old_cosines, new_cosines = unit(queries) @ vectors.T, unit(asking) @ unit(fresh).T
    old_scale = old_cosines.mean(), old_cosines.std()
    score = (old_cosines - old_scale[0]) / old_scale[1]
    if len(moved):
        among = new_cosines[:, moved]
        score[:, moved] = (among - among.mean()) / among.std()
    found = mixed.search(queries, 10, query_new=asking)
    for row, (names, scores) in enumerate(zip(found.ids, found.cosines, strict=True)):
        order = (-score[row]).argsort()[:10]
        assert agrees(store, names, [ids[place] for place in order])
        if store.exact:
            np.testing.assert_allclose(scores, score[row][order], atol=1e-3)


def test_an_item_is_found_once_and_no_more_than_there_are(store, items, queries, agrees):
    new, _, _ = migrate(store, items, 0.5)
    found = MixedGallery(store, new, same_space=True).search(queries, 1000)
    for names in found.ids:
        assert len(names) == len(set(names))
        assert agrees(store, sorted(names), sorted(items[0]))


def test_what_cannot_be_asked_is_refused(line, items, queries):
    with open_store(line) as store:
        new, _, _ = migrate(store, items, 0.5)
        mixed = MixedGallery(store, new, same_space=True)
        with pytest.raises(ConfigError, match="at least one"):
            mixed.search(queries, 0)
        with pytest.raises(ConfigError, match="one for each"):
            mixed.search(queries, 3, query_new=queries)
        with pytest.raises(GalleryError, match="calibrate"):
            MixedGallery(store, new, same_space=False).search(queries, 3, query_new=queries)


def test_a_scale_is_that_of_strangers():
    cosines = np.eye(3)[:2]
    scale = Scale.of(cosines)
    assert scale.mean == pytest.approx(cosines.mean())
    assert scale(1.0) == pytest.approx((1 - cosines.mean()) / cosines.std())
