"""What is Qdrant's own; the rest is in test_congruence."""

import subprocess
import sys
import threading
from uuid import uuid4

import numpy as np
import pytest

from nobackfill.errors import ConfigError, DataError, GalleryError
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.gallery.stores.uri import read_uri

qdrant_client = pytest.importorskip("qdrant_client")
models = qdrant_client.models
point_id = pytest.importorskip("nobackfill.gallery.stores.qdrant.points").point_id
KEY = "k3y-of-the-owner"


def rows(count, dim=6, seed=0):
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


def normal(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def make(folder, ids, vectors, *, distance="Cosine", name="photos", vector=None, lacking=()):
    """A collection as its owner would make it; some items may lack the vector."""
    client = qdrant_client.QdrantClient(path=str(folder))
    config = models.VectorParams(size=vectors.shape[1], distance=models.Distance(distance))
    client.create_collection(name, vectors_config={vector: config} if vector else config)
    points = [
        models.PointStruct(
            id=one,
            vector=({} if one in lacking else {vector: row.tolist()}) if vector else row.tolist(),
            payload={"colour": f"colour {place}"},
        )
        for place, (one, row) in enumerate(zip(ids, vectors, strict=True))
    ]
    client.upsert(name, points)
    return client


def line_of(folder, client=None):
    if client is not None:
        client.close()
    return f"qdrant:{folder}"


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("gone", [False, True])
def test_pages_are_complete_also_for_uuids_and_where_the_last_item_is_gone(tmp_path, limit, gone):
    ids = [*range(10), *(str(uuid4()) for _ in range(10))]
    line = line_of(tmp_path, make(tmp_path, ids, rows(20)))
    with open_store(line) as store:
        found, after = [], None
        while page := store.scan(store.main, after=after, limit=limit).ids:
            assert len(page) <= limit
            assert page[0] != after
            found, after = found + page, page[-1]
            if gone:
                store.client.delete("photos", models.PointIdsList(points=[point_id(after)]))
        assert found == [*map(str, range(10)), *sorted(ids[10:])]


def test_vectors_of_any_length_are_told_with_unit_length_before_and_after_reopening(tmp_path):
    vectors = rows(30) * 5
    line = line_of(tmp_path, make(tmp_path, range(30), vectors))
    for _ in range(2):
        with open_store(line) as store:
            np.testing.assert_allclose(store.scan("photos").vectors, normal(vectors), atol=1e-6)
            found = store.search("photos", vectors[3:4] * 2, 30)
            np.testing.assert_allclose(
                found.cosines[0], -np.sort(-normal(vectors) @ normal(vectors)[3]), atol=1e-5
            )


def test_the_only_collection_is_taken_and_several_are_told(tmp_path):
    client = make(tmp_path, range(3), rows(3))
    config = models.VectorParams(size=4, distance=models.Distance.COSINE)
    client.create_collection("texts", vectors_config=config)
    client.update_collection_aliases(
        [
            models.CreateAliasOperation(
                create_alias=models.CreateAlias(collection_name="photos", alias_name="live")
            )
        ]
    )
    line = line_of(tmp_path, client)
    with pytest.raises(GalleryError, match=r"which collection .* It has: photos, texts"):
        open_store(line)
    with pytest.raises(GalleryError, match="Did you mean `photos`"):
        open_store(f"{line}?collection=photo")
    with open_store(f"{line}?collection=live") as store:
        assert store.count(store.main) == 3
    with open_store(f"{line}?collection=photos") as store:
        store.create(ours("photos", "v2"), 3)
        store.client.delete_collection("texts")
    with open_store(line) as store:  # ours is not the owner's
        assert store.main == "photos"
        store.client.delete_collection("photos")
    with pytest.raises(GalleryError, match="It has none"):
        open_store(line)


def test_what_is_not_there_is_told_and_nothing_is_made(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        open_store(f"qdrant:{tmp_path / 'never'}")
    assert not (tmp_path / "never").exists()
    with pytest.raises(DataError, match="Qdrant did not write it"):
        open_store(f"qdrant:{tmp_path}")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="Did you mean `collection`"):
        open_store(f"qdrant:{tmp_path}?colection=x")


def test_a_folder_that_another_process_has_open_is_told(tmp_path):
    line = line_of(tmp_path, make(tmp_path, range(3), rows(3)))
    script = (
        f"import sys, qdrant_client; client = qdrant_client.QdrantClient(path={str(tmp_path)!r}); "
        f"print('open', flush=True); sys.stdin.read(); client.close()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(GalleryError, match="another process"):
            open_store(line)
        other.stdin.close()
    with open_store(line) as store:
        assert store.count("photos") == 3


@pytest.mark.parametrize("distance", ["Dot", "Euclid"])
def test_other_metrics_are_told_as_cosines_where_lengths_are_one(tmp_path, distance):
    vectors = normal(rows(40))
    line = line_of(tmp_path, make(tmp_path, range(40), vectors, distance=distance))
    query = rows(3, seed=1) * 4
    with open_store(line) as store:
        found = store.search("photos", query, 5)
        cosines = normal(query) @ vectors.T
        assert found.ids == [[str(one) for one in (-row).argsort()[:5]] for row in cosines]
        np.testing.assert_allclose(found.cosines, -np.sort(-cosines)[:, :5], atol=1e-5)


@pytest.mark.parametrize(("distance", "told"), [("Dot", "lengths"), ("Manhattan", "Manhattan")])
def test_metrics_that_tell_no_cosines_are_refused_and_the_folder_is_free_again(
    tmp_path, distance, told
):
    line = line_of(tmp_path, make(tmp_path, range(40), rows(40) * 3, distance=distance))
    for _ in range(2):
        with pytest.raises(GalleryError, match=f"(?s)Cannot compute cosines.*{told}"):
            open_store(line)


def test_an_empty_collection_of_another_metric_is_looked_at_when_it_is_searched(tmp_path):
    client = make(tmp_path, [1], rows(1), distance="Dot")
    client.delete("photos", models.PointIdsList(points=[1]))
    with open_store(line_of(tmp_path, client)) as store:
        assert store.search("photos", rows(2), 3).ids == [[], []]
        store.client.upsert("photos", [models.PointStruct(id=1, vector=[9.0] * 6)])
        with pytest.raises(GalleryError, match="lengths"):
            store.search("photos", rows(2), 3)


def test_items_that_their_owner_removed_are_not_written_again(tmp_path):
    line = line_of(tmp_path, make(tmp_path, range(10), rows(10)))
    with open_store(line) as store:
        new = ours("photos", "v2")
        store.create(new, 3)
        store.client.delete("photos", models.PointIdsList(points=[4, 5]))
        store.upsert(new, [str(one) for one in range(10)], rows(10, 3))
        assert store.contained(new, [str(one) for one in range(12)]) == set("01236789")
        store.upsert(new, ["4"], rows(1, 3))
        assert store.count(new) == 8
        with pytest.raises(GalleryError, match="whole number or a UUID"):
            store.upsert(new, ["shoe"], rows(1, 3))
        with pytest.raises(GalleryError, match="3 dimensions"):
            store.upsert(new, ["1", "2"], rows(1, 6))
        assert store.get(new, ["shoe", "007", "7"]).ids == ["7"]
        with pytest.raises(GalleryError, match="notes"):
            store.create("photos__nobackfill_notes", 3)


def test_named_vectors_are_read_and_retired_and_all_else_stays(tmp_path):
    vectors = rows(12)
    client = make(tmp_path, range(12), vectors, vector="image", lacking=[5])
    line = line_of(tmp_path, client)
    with pytest.raises(GalleryError, match="Did you mean `image`"):
        open_store(f"{line}?vector=imag")
    with open_store(f"{line}?vector=image") as store:
        stored = store.scan("photos").vectors
        assert np.isnan(stored[5]).all()
        assert not np.isnan(np.delete(stored, 5, axis=0)).any()
        new = ours("photos", "v2")
        store.create(new, 3)
        store.upsert(new, [str(one) for one in range(12)], rows(12, 3))
        store.remove(new, ["4"])
        with pytest.raises(GalleryError, match="1 have none"):
            store.retire(new)
        store.upsert(new, ["4"], rows(12, 3)[4:5])
        store.retire(new)
    with open_store(line) as store:
        left = store.scan("photos")
        assert np.isnan(left.vectors).all()
        assert left.columns == {"colour": [f"colour {one}" for one in range(12)]}
        assert store.search("photos", vectors[:1], 5).ids == [[]]
        assert store.count(new) == 12
        assert store.contained("photos", ["3", "99"]) == {"3"}
    with open_store(line, read_only=True) as store, pytest.raises(GalleryError, match="read only"):
        store.retire(new)


def test_the_unnamed_vector_is_never_retired(tmp_path):
    with open_store(line_of(tmp_path, make(tmp_path, range(3), rows(3)))) as store:
        with pytest.raises(GalleryError, match="keeps them together"):
            store.retire(ours("photos", "v2"))
        assert not np.isnan(store.scan("photos").vectors).any()


def test_a_client_for_a_server_gets_what_the_line_says_and_never_tells_the_key(monkeypatch):
    asked = {}

    class Refusing:
        """In place of the client: remembers how it was made, and answers as a refusing server."""

        query_batch_points = None

        def __init__(self, **named):
            asked.update(named)

        def get_collections(self):
            raise RuntimeError(f"401 for {KEY}")

        def close(self):
            asked["closed"] = True

    monkeypatch.setattr("nobackfill.gallery.stores.qdrant.points.QdrantClient", Refusing)
    line = f"qdrant://db:7000/photos?api_key={KEY}&https=true&prefer_grpc=true&timeout=9&vector=a"
    with pytest.raises(GalleryError, match=r"401 for \*\*\*") as caught:
        open_store(line)
    assert asked == {
        "host": "db", "port": 7000, "api_key": KEY, "https": True, "prefer_grpc": True,
        "timeout": 9, "check_compatibility": False, "closed": True,
    }  # fmt: skip
    assert KEY not in f"{caught.value}{caught.value!r}{read_uri(line)!r}{read_uri(line).shown}"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    for wrong in ("https=yes", "timeout=soon"):
        with pytest.raises(ConfigError, match=wrong.split("=")[0]):
            open_store(f"qdrant://db/photos?{wrong}")


def test_nothing_is_left_behind(tmp_path):
    line = line_of(tmp_path / "here", make(tmp_path / "here", range(3), rows(3)))
    before = threading.active_count()
    with open_store(line) as store:
        store.note("a", "b")
    store.close()  # again is no harm
    assert threading.active_count() == before
    script = f"from nobackfill.gallery.stores import open_store; open_store({line!r}).close()"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout + done.stderr == ""
