"""A backfill writes what was planned, once, and can be stopped anywhere."""

import hashlib
import multiprocessing
import os
import random
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from nobackfill.core.config import build_recipe
from nobackfill.errors import ConfigError, DataError, GalleryError, SpaceMismatch
from nobackfill.gallery.backfill import FromFile, backfill, foresee, sweep
from nobackfill.gallery.backfill_from_model import FromModel
from nobackfill.gallery.provenance import declared, token_of
from nobackfill.gallery.routing import entries
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.training.pipeline import train_run
from nobackfill.vectors import Vectors, load_vectors
from nobackfill.vectors.space import Space

SPACE = Space(dim=5, weights="new")
KILLS = 50
CPU = torch.device("cpu")


@pytest.fixture(scope="session")
def fresh(items):
    rows = np.random.default_rng(9).normal(size=(len(items[0]), 5)).astype(np.float32)
    return Vectors(items[0], rows, space=SPACE)


def checksum(store, collection):
    """Of all ids and vectors, whatever their order."""
    digest, after, rows = hashlib.sha256(), None, []
    while (page := store.scan(collection, after=after, limit=50)).ids:
        rows += [(one, v.tobytes()) for one, v in zip(page.ids, page.vectors, strict=True)]
        after = page.ids[-1]
    assert len({one for one, _ in rows}) == len(rows)
    for one, vector in sorted(rows):
        digest.update(one.encode() + vector)
    return digest.hexdigest()


def test_vectors_of_no_named_model_are_not_written(fill_with, items, fresh):
    """Those of two such models would count as the same."""
    nobodys = FromFile(Vectors(items[0], fresh.vectors, space=replace(SPACE, weights=None)))
    with open_store(fill_with("flat")) as store:
        new = ours(store.main, "v2")
        with pytest.raises(
            GalleryError, match="new ones contains neither `weights` nor .*of 5 dim"
        ):
            backfill(store, new, items[0], nobodys)
        assert not store.exists(new)


def test_it_writes_in_order_and_says_what_made_it(store, items, fresh):
    ids, new = items[0], ours(store.main, "v2")
    before = checksum(store, store.main)
    source = FromFile(fresh)
    assert foresee(store, new, ids, 5, rate=10.0).seconds == pytest.approx(20.0)
    seen = []
    work = backfill(store, new, ids[:60], source, batch=25, progress=seen.append)
    assert seen == [25, 50, 60]
    assert (work.planned, work.done, work.gone, work.left) == (60, 60, 0, 0)
    assert store.count(new) == 60
    assert declared(store, new) == SPACE
    got = store.get(new, ids[:60])
    place = {one: row for row, one in enumerate(ids)}
    wanted = fresh.vectors.numpy()[[place[one] for one in got.ids]]
    stored = got.vectors / np.linalg.norm(got.vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(
        stored, wanted / np.linalg.norm(wanted, axis=1, keepdims=True), atol=1e-6
    )
    ahead = foresee(store, new, ids, 5)
    assert (ahead.done, ahead.left, ahead.numbers) == (60, 140, 700)
    again = backfill(store, new, ids, source)
    assert again.done == len(ids)
    assert checksum(store, store.main) == before
    assert [one["action"] for one in entries(store)] == ["backfill", "backfill"]
    assert [one["written"] for one in entries(store)] == [60, 140]


def test_nothing_is_written_twice(store, items, fresh, monkeypatch):
    new, source = ours(store.main, "v2"), FromFile(fresh)
    backfill(store, new, items[0][:30], source)
    written = []
    upsert = type(store).upsert
    monkeypatch.setattr(
        type(store),
        "upsert",
        lambda self, c, ids, v: (written.extend(ids), upsert(self, c, ids, v)),
    )
    backfill(store, new, items[0][:40], source)
    assert written == items[0][30:40]


def test_items_that_are_gone_are_left_out(store, items, fresh):
    new = ours(store.main, "v2")
    work = backfill(store, new, ["987654", *items[0][:3]], FromFile(fresh))
    assert (work.done, work.gone) == (3, 1)


def test_a_rate_is_kept(store, items, fresh):
    start = time.monotonic()
    backfill(store, ours(store.main, "v2"), items[0][:20], FromFile(fresh), rate=50.0, batch=5)
    assert time.monotonic() - start >= 0.4


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_none_writes_nothing(fill_with, items, fresh, rate):
    with open_store(fill_with("flat")) as store:
        new = ours(store.main, "v2")
        with pytest.raises(ConfigError, match="positive number of items per second"):
            backfill(store, new, items[0], FromFile(fresh), rate=rate)
        with pytest.raises(ConfigError, match="positive number"):
            foresee(store, new, items[0], 5, rate=rate)
        assert not store.exists(new)


def test_another_model_or_none_is_refused(store, items, fresh):
    new = ours(store.main, "v2")
    backfill(store, new, items[0][:3], FromFile(fresh))
    other = Vectors(fresh.ids, fresh.vectors, space=replace(SPACE, weights="other"))
    with pytest.raises(SpaceMismatch, match="another name"):
        backfill(store, new, items[0], FromFile(other))
    with pytest.raises(GalleryError, match=r"space\.json"):
        backfill(store, new, items[0], FromFile(Vectors(fresh.ids, fresh.vectors)))
    with pytest.raises(DataError, match="such as"):
        backfill(store, new, items[0], FromFile(fresh.select(np.arange(50))))


def test_vectors_of_items_that_are_gone_are_swept(tmp_path, items, fresh):
    path = tmp_path / "items.safetensors"
    Vectors(items[0], items[1]).save(path)
    with open_store(f"flat://{path}") as store:
        new = ours(store.main, "v2")
        backfill(store, new, items[0], FromFile(fresh))
    Vectors(items[0][:150], items[1][:150]).save(path)  # the owner has removed fifty
    with open_store(f"flat://{path}") as store:
        token = token_of(store, new)
        assert sweep(store, new, token) == 50
        assert store.count(new) == 150
        assert sweep(store, new, token) == 0


def _work(line, ids, fresh):
    with open_store(line) as store:
        backfill(store, ours(store.main, "v2"), ids, FromFile(fresh), batch=5)


@pytest.mark.parametrize("kind", ["flat", "pgvector"])
def test_kills_at_random_moments_lose_nothing(kind, tmp_path, items, fresh, request):
    line = request.getfixturevalue("fill_with")(kind)
    context, chance = multiprocessing.get_context("fork"), random.Random(0)
    with open_store(line) as store:
        before = checksum(store, store.main)
    killed = 0
    for _ in range(KILLS):
        process = context.Process(target=_work, args=(line, items[0], fresh))
        process.start()
        process.join(chance.uniform(0.0, 0.12))
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.join()
        with open_store(line) as store:
            new = ours(store.main, "v2")
            if store.exists(new) and store.count(new) == len(items[0]):
                store.drop(new)  # finished: once more from the start
    assert killed >= KILLS // 2
    _work(line, items[0], fresh)
    with open_store(line) as store:
        new = ours(store.main, "v2")
        assert checksum(store, store.main) == before
        assert store.count(new) == len(items[0])
        alone = ours(store.main, "alone")
        backfill(store, alone, items[0], FromFile(fresh))  # never stopped
        assert checksum(store, new) == checksum(store, alone)


@pytest.mark.parametrize("kind", ["flat", "pgvector"])
def test_two_at_once_write_what_one_writes(kind, items, fresh, request):
    line = request.getfixturevalue("fill_with")(kind)
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=_work, args=(line, items[0], fresh)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    with open_store(line) as store:
        new, alone = ours(store.main, "v2"), ours(store.main, "alone")
        assert store.count(new) == len(items[0])
        backfill(store, alone, items[0], FromFile(fresh))
        assert checksum(store, new) == checksum(store, alone)


def test_a_model_embeds_what_is_to_be_written(tmp_path):
    data = {"name": "glyphs", "train_classes": 8, "test_classes": 3, "images_per_class": 2}
    recipe = build_recipe({"data": data, "train": {"epochs": 1, "batch_size": 4}})
    for _ in train_run(recipe, tmp_path / "run", device=CPU):
        pass
    stored = load_vectors(tmp_path / "run" / "validation.parquet")
    Vectors(stored.ids, stored.vectors).save(tmp_path / "items.npz")
    source = FromModel(tmp_path / "run", tmp_path / "run", device=CPU)
    with open_store(f"flat://{tmp_path / 'items.npz'}") as store:
        new, ids = ours(store.main, "v2"), [str(one) for one in stored.ids.tolist()]
        assert backfill(store, new, ids[::-1], source, batch=7).done == len(ids)
        assert declared(store, new).fingerprint == stored.space.fingerprint
        got = store.get(new, ids)
        order = [ids.index(one) for one in got.ids]
        np.testing.assert_allclose(got.vectors, stored.vectors.numpy()[order], atol=1e-5)
        with pytest.raises(DataError, match="not in the collection"):
            source.make(["nobody"])
