"""Looking without touching: old and new queries side by side, and a collection as a file."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from nobackfill.errors import ConfigError, DataError
from nobackfill.gallery import pull as pulling
from nobackfill.gallery.pull import pull
from nobackfill.gallery.shadow import compare_queries, exactly, overlap
from nobackfill.gallery.stores.base import Rows, SearchResults, ours
from nobackfill.vectors import load_vectors


@pytest.fixture
def both():
    draw = np.random.default_rng(8)
    old = draw.normal(size=(9, 8)).astype(np.float32)
    return old, old + 0.5 * draw.normal(size=(9, 8)).astype(np.float32)


def best(query, items, k):
    ids, vectors, _ = items
    cosines = query @ vectors.T / np.linalg.norm(query, axis=1, keepdims=True)
    order = (-cosines).argsort(axis=1)[:, :k]
    return [[ids[p] for p in row] for row in order], np.take_along_axis(cosines, order, axis=1)


def test_queries_are_compared_one_by_one(store, items, both):
    found = compare_queries(store, store.main, *both, 5)
    (old, old_cosines), (new, new_cosines) = (best(query, items, 5) for query in both)
    shares = [len(set(a) & set(b)) / 5 for a, b in zip(old, new, strict=True)]
    assert (found.queries, found.k) == (9, 5)
    assert found.overlap == pytest.approx(np.mean(shares), abs=1e-9 if store.exact else 0.1)
    changed = np.mean([a[0] != b[0] for a, b in zip(old, new, strict=True)])
    assert found.first_changed == pytest.approx(changed, abs=1e-9 if store.exact else 0.25)
    assert found.score_shift == pytest.approx(
        (new_cosines[:, 0] - old_cosines[:, 0]).mean(), abs=1e-5
    )
    assert min(found.old_recall, found.new_recall) >= (1.0 if store.exact else 0.9)
    assert store.notes() == {}


def test_an_exact_search_reads_every_page(store, items, both, monkeypatch):
    monkeypatch.setattr("nobackfill.gallery.shadow.PAGE", 7)
    found = exactly(store, store.main, both[0], 12)
    assert found.ids == best(both[0], items, 12)[0]


def test_recall_is_that_of_what_an_exact_search_finds():
    one = SearchResults([["a", "b"], ["c"]], [[1.0, 0.9], [0.8]])
    other = SearchResults([["a", "c"], ["c"]], [[1.0, 0.9], [0.8]])
    assert overlap(one, other) == 0.75


def test_a_collection_becomes_a_file_of_vectors(store, items, tmp_path):
    ids, vectors, columns = items
    seen = []
    output = tmp_path / "out" / "pulled.parquet"
    assert pull(store, store.main, output, page=33, progress=seen.append) == 200
    assert seen == [33, 66, 99, 132, 165, 198, 200]
    found = load_vectors(output)
    place = {one: row for row, one in enumerate(ids)}
    rows = [place[one] for one in found.ids.tolist()]
    assert sorted(rows) == list(range(200))
    np.testing.assert_allclose(found.vectors.numpy(), vectors[rows], atol=1e-6)
    if "colour" in found.columns:
        assert found.columns["colour"].tolist() == [columns["colour"][row] for row in rows]
    assert [path.name for path in output.parent.iterdir()] == ["pulled.parquet"]


def test_a_stopped_pull_goes_on_behind_the_last_page(store, items, tmp_path, monkeypatch):
    output = tmp_path / "pulled.parquet"

    class Stop(Exception):
        pass

    def stop(done):
        if done >= 99:
            raise Stop

    with pytest.raises(Stop):
        pull(store, store.main, output, page=33, progress=stop)
    assert not output.exists()
    asked = []
    scan = type(store).scan
    monkeypatch.setattr(
        type(store),
        "scan",
        lambda self, c, *, after=None, limit=1000: (
            asked.append(after),
            scan(self, c, after=after, limit=limit),
        )[1],
    )
    assert pull(store, store.main, output, page=33) == 200
    assert asked[0] is not None  # nothing was read twice
    assert len(asked) == 5
    assert sorted(load_vectors(output).ids.tolist()) == sorted(items[0])


def test_what_cannot_be_pulled_is_refused(store, tmp_path):
    with pytest.raises(ConfigError, match="parquet"):
        pull(store, store.main, tmp_path / "x.npz")
    new = ours(store.main, "empty")
    store.create(new, 8)
    with pytest.raises(DataError, match="empty"):
        pull(store, new, tmp_path / "x.parquet")


def test_pages_with_other_columns_are_joined(tmp_path):
    pages = [
        Rows(["a"], np.ones((1, 2), np.float32), {"size": [None], "tags": [["x"]]}),
        Rows(["b"], np.ones((1, 2), np.float32), {"size": [3.5], "more": ["y"]}),
    ]
    paths = []
    for number, page in enumerate(pages):
        paths.append(tmp_path / f"{number}.parquet")
        pq.write_table(pulling.as_table(page), paths[-1])
    pulling._join(paths, tmp_path / "all.parquet")
    table = pq.read_table(tmp_path / "all.parquet").to_pydict()
    assert table["size"] == [None, 3.5]
    assert table["tags"] == ['["x"]', None]
    assert table["more"] == [None, "y"]
