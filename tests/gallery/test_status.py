"""Coverage counts the owner's present items, in every kind of database."""

import numpy as np
import pytest

from nobackfill.errors import GalleryError
from nobackfill.gallery.mixed import MixedGallery
from nobackfill.gallery.status import check_share, coverage, in_percent, share_of, status_of
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.vectors import Vectors

NUMBER, REPLACED = 400, 40


def many(first):
    """Ids from `first` on, and vectors of unit length."""
    vectors = np.random.default_rng(first).normal(size=(NUMBER, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return [str(first + number) for number in range(NUMBER)], vectors


def replace_in_file(uri):
    """The owner writes the file again with other items in place of the first ones."""
    path = uri.removeprefix("flat://")
    ids, vectors = many(1)
    Vectors([*many(1001)[0][:REPLACED], *ids[REPLACED:]], vectors).save(path)


def replace_in_lancedb(uri):
    lancedb = pytest.importorskip("lancedb")
    folder, _, table = uri.removeprefix("lancedb://").rpartition("/")
    opened = lancedb.connect(folder).open_table(table)
    rows = opened.search().limit(NUMBER).to_arrow().sort_by("id").slice(0, REPLACED)
    opened.delete(f"id <= {REPLACED}")
    ids = rows["id"].to_pylist()
    opened.add(rows.set_column(0, "id", [[id + 1000 for id in ids]]))


def replace_in_pgvector(uri):
    psycopg = pytest.importorskip("psycopg")
    with open_store(uri) as store:
        table = store.main
    host = uri.partition("?host=")[2].partition("&")[0]
    with psycopg.connect(host=host, user="postgres", dbname="postgres") as connection:
        connection.execute(
            f"insert into {table} select id + 1000, vector from {table} where id <= {REPLACED}"
        )
        connection.execute(f"update {table} set vector = null where id <= {REPLACED}")


OWNERS = {
    "flat": replace_in_file,
    "lancedb": replace_in_lancedb,
    "pgvector": replace_in_pgvector,
}


@pytest.mark.parametrize("kind", OWNERS)
def test_items_that_the_owner_replaced_are_not_covered(kind, fill_as, tmp_path):
    ids, vectors = many(1)
    uri = fill_as(kind, tmp_path, ids, vectors, {"colour": ["red"] * NUMBER})
    with open_store(uri) as store:
        new = ours(store.main, "v2")
        store.create(new, 8)
        store.upsert(new, ids, vectors)
        assert coverage(store, new) == (NUMBER, NUMBER)
        assert check_share(store, new) == 1.0
    OWNERS[kind](uri)
    with open_store(uri) as store:
        assert store.count(new) == store.count(store.main) == NUMBER  # totals agree
        assert coverage(store, new) == (NUMBER - REPLACED, NUMBER)
        assert (share_of(store, new), share_of(store, store.main)) == (0.9, 1.0)
        assert in_percent(share_of(store, new)) == "90.0 %"
        assert MixedGallery(store, new, same_space=True).share() == 0.9
        with pytest.raises(GalleryError, match=r"has 360 of the 400 .*\(90\.0 %\)"):
            check_share(store, new)
        assert check_share(store, new, partial=True) == 0.9
        store.note(f"space/{new}", '{"dim": 8, "name": "new"}')
        assert [held.share for held in status_of(store).collections] == [1.0, 0.9]


def test_an_empty_collection_covers_nothing(fill_as, tmp_path):
    uri = fill_as("flat", tmp_path, *many(1), {"colour": ["red"] * NUMBER})
    with open_store(uri) as store:
        new = ours(store.main, "v2")
        store.create(new, 8)
        assert share_of(store, new) == 0.0
        with pytest.raises(GalleryError, match=r"has 0 of the 400 .*\(0\.0 %\)"):
            check_share(store, new)
