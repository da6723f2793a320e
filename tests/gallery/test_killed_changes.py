"""A kill between two writes of one change: the log has the change, and running it again ends it.

Where an engine has transactions there is nothing between; these engines have none.
"""

import numpy as np
import pytest

from nobackfill.gallery.backfill import FromFile, backfill
from nobackfill.gallery.cleanup import remove_new
from nobackfill.gallery.repair import repair, replay
from nobackfill.gallery.routing import ROUTE, current, entries, rollback, switch
from nobackfill.gallery.sketch import Sketch, keep
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import Space

NEW = Space(dim=8, weights="new")


class Killed(BaseException):
    """Ends a change as SIGKILL does: nothing after it is done."""


def clean(store, name):
    remove_new(store, name)


def serve(store, name):
    switch(store, name, query_space=NEW.fingerprint, share=1.0)


def go_back(store, name):
    rollback(store)


# name: (before, the change, whether it was done)
CHANGES = {
    "clean": (None, clean, lambda store, name: not store.exists(name)),
    "switch": (None, serve, lambda store, name: current(store).collection == name),
    "rollback": (serve, go_back, lambda store, name: current(store).collection != name),
}


def kill_after(store, writes, monkeypatch):
    """Lets the store write so many times, and ends it at the next one."""
    left = [writes]

    def counted(write):
        def run(*arguments):
            if not left[0]:
                raise Killed
            left[0] -= 1
            return write(*arguments)

        return run

    for method in ("note", "drop"):
        monkeypatch.setattr(store, method, counted(getattr(store, method)))


@pytest.fixture(params=["lancedb", "milvus", "qdrant"])
def line(request, fill_with, items):
    line = fill_with(request.param)
    with open_store(line) as store:
        name = ours(store.main, "v2")
        rows = np.random.default_rng(2).normal(size=(len(items[0]), 8)).astype(np.float32)
        backfill(store, name, items[0], FromFile(Vectors(items[0], rows, space=NEW)))
        keep(store, name, Sketch.of(items[0][:16], items[1][:16]))
    return line


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("writes", range(4))
def test_a_change_is_in_the_log_wherever_a_kill_comes(line, change, writes, monkeypatch):
    before, work, was_done = CHANGES[change]
    with open_store(line) as store:
        name = ours(store.main, "v2")
        if before is not None:
            before(store, name)
        with monkeypatch.context() as patch:
            kill_after(store, writes, patch)
            try:
                work(store, name)
            except Killed:
                pass
            else:
                assert writes > 1  # every change has two writes at least
    with open_store(line) as store:
        done, actions = was_done(store, name), [entry["action"] for entry in entries(store)]
        assert change in actions or not done
        if not done:
            work(store, name)  # the same command again
            assert was_done(store, name)
        assert repair(store, dry_run=True) == []
        assert replay(store)[0].collection == current(store).collection


def test_a_rollback_that_was_logged_twice_is_one(fill_with, items):
    with open_store(fill_with("flat")) as store:
        for letter in "abc":
            switch(store, store.main, query_space=letter * 16, share=1.0)
        rollback(store)
        served = current(store)
        twice = next(key for key, text in store.notes().items() if '"rollback"' in text)
        store.note(f"{twice}1", store.read_note(twice))
        store.note(ROUTE, None)
        repair(store)
        assert current(store).query_space == served.query_space == "b" * 16
        assert rollback(store).query_space == "a" * 16
