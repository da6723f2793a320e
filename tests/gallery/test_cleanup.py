"""Switching, going back, taking back and taking away: recorded, and refused where it would hurt."""

from dataclasses import asdict

import numpy as np
import pytest

from nobackfill.errors import GalleryError
from nobackfill.gallery.backfill import FromFile, backfill
from nobackfill.gallery.cleanup import remove_new, retire_old
from nobackfill.gallery.routing import before, current, entries, log, rollback, switch
from nobackfill.gallery.status import check_share, in_percent, share_of, status_of
from nobackfill.gallery.stores.base import ours
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import Space

SPACE = Space(dim=8, weights="new")


@pytest.fixture
def new(store, items):
    """A collection in which all items have new vectors."""
    name = ours(store.main, "v2")
    rows = np.random.default_rng(2).normal(size=(len(items[0]), 8)).astype(np.float32)
    backfill(store, name, items[0], FromFile(Vectors(items[0], rows, space=SPACE)))
    return name


def test_at_first_the_owners_collection_is_served(store):
    assert current(store).collection == store.main
    with pytest.raises(GalleryError, match="never switched"):
        rollback(store)
    with pytest.raises(GalleryError, match="no such collection"):
        switch(store, ours(store.main, "v2"), query_space=None, share=0.0)


def test_switches_can_be_taken_back_one_by_one(store, new):
    switch(store, store.main, query_space="a" * 16, share=1.0)
    switch(store, new, query_space="b" * 16, share=share_of(store, new))
    assert current(store).collection == new
    assert current(store).share == 1.0
    assert before(store).query_space == "a" * 16
    assert current(store).collection == new  # looking changed nothing
    assert rollback(store).query_space == "a" * 16
    assert rollback(store).query_space is None
    assert current(store).collection == store.main
    actions = [one["action"] for one in entries(store)]
    assert actions == ["backfill", "switch", "switch", "rollback", "rollback"]
    times = [one["time"] for one in entries(store)]
    assert times == sorted(times)
    assert all(one["by"] for one in entries(store))


def test_the_same_switch_again_goes_back_to_what_was_before_both(store, new):
    switch(store, new, query_space="b" * 16, share=0.5)
    again = switch(store, new, query_space="b" * 16, share=1.0)
    assert (current(store), again.share) == (again, 1.0)
    assert before(store).collection == store.main
    switch(store, new, query_space="c" * 16, share=1.0)  # another model asks
    assert rollback(store) == again
    switch(store, store.main, query_space="b" * 16, share=1.0)  # other vectors are served
    assert rollback(store) == again
    assert rollback(store).collection == store.main
    with pytest.raises(GalleryError, match="every switch of it was taken back: .* is served"):
        rollback(store)
    assert [one["action"] for one in entries(store)].count("switch") == 4


def test_what_was_removed_cannot_be_gone_back_to(store, new):
    switch(store, new, query_space=None, share=1.0)
    switch(store, store.main, query_space="b" * 16, share=1.0)
    remove_new(store, new)
    for going in (before, rollback):
        with pytest.raises(GalleryError, match=f"`{new}`: it was removed"):
            going(store)
    assert current(store).query_space == "b" * 16


def test_the_log_keeps_what_was_known_of_the_model(store, new):
    switch(store, new, query_space=None, share=1.0, standing="measured: compatible")
    assert entries(store)[-1]["standing"] == "measured: compatible"


def test_a_part_of_the_items_is_served_only_on_request(store, new, items):
    for partial in (False, True):
        assert check_share(store, new, partial=partial) == 1.0
        assert check_share(store, store.main, partial=partial) == 1.0
    store.remove(new, items[0][:1])
    with pytest.raises(GalleryError, match=r"199 of the 200 .*\(99\.5 %\).*Finish.*--partial"):
        check_share(store, new)
    assert check_share(store, new, partial=True) == 0.995
    with pytest.raises(GalleryError, match="no such collection"):
        check_share(store, ours(store.main, "v3"), partial=True)


def test_one_item_of_very_many_is_missed(store, new, monkeypatch):
    monkeypatch.setattr(store, "count", lambda name: 1_000_000)
    monkeypatch.setattr(store, "covered", lambda name: 999_999)
    with pytest.raises(GalleryError, match=r"999,999 of the 1,000,000 .*\(99\.9 %\)"):
        check_share(store, new)


@pytest.mark.parametrize(
    ("share", "told"),
    [(0.0, "0.0 %"), (0.29, "29.0 %"), (0.99999, "99.9 %"), (1.0, "100.0 %"), (0.0009, "0.0 %")],
)
def test_all_is_said_of_all_only(share, told):
    assert in_percent(share) == told


def test_every_entry_of_the_log_is_kept(store):
    for number in range(20):
        log(store, "test", number=number)
    assert [one["number"] for one in entries(store)] == list(range(20))


def test_what_is_served_cannot_be_removed(store, new, items):
    assert remove_new(store, new, dry_run=True) == len(items[0])
    assert store.count(new) == len(items[0])
    switch(store, new, query_space=None, share=1.0)
    with pytest.raises(GalleryError, match="rollback"):
        remove_new(store, new)
    rollback(store)
    assert remove_new(store, new) == len(items[0])
    assert not store.exists(new)
    assert remove_new(store, new) == 0
    assert [held.name for held in status_of(store).collections] == [store.main]


def test_old_vectors_go_only_when_nothing_needs_them(store, new, items):
    with pytest.raises(GalleryError, match="Switch to"):
        retire_old(store, new, confirm=store.main)
    switch(store, new, query_space=None, share=1.0)
    store.remove(new, items[0][:2])
    with pytest.raises(GalleryError, match="2 have none"):
        retire_old(store, new, confirm=store.main)
    rows = np.ones((2, 8), dtype=np.float32)
    store.upsert(new, items[0][:2], rows)
    assert retire_old(store, new, confirm=None, dry_run=True) == len(items[0])
    for confirmed in (None, "yes", new):
        with pytest.raises(GalleryError, match=f"--confirm {store.main}"):
            retire_old(store, new, confirm=confirmed)
    assert store.count(store.main) == len(items[0])


def test_the_status_tells_what_is_where(store, new, items):
    store.remove(new, items[0][:50])
    status = status_of(store)
    old, ours_ = status.collections
    assert (old.name, old.items, old.dim, old.space) == (store.main, 200, 8, None)
    assert (ours_.name, ours_.items, ours_.space) == (new, 150, SPACE.fingerprint)
    assert (old.share, ours_.share) == (1.0, 0.75)
    assert status.route.collection == store.main
    assert asdict(status)["collections"][1]["share"] == 0.75
