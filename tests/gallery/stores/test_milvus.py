"""What is Milvus' own, by Milvus Lite; the rest is in test_congruence."""

import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

from nobackfill.errors import ConfigError, DataError, GalleryError
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.gallery.stores.uri import read_uri

pymilvus = pytest.importorskip("pymilvus")
milvus_rows = pytest.importorskip("nobackfill.gallery.stores.milvus.rows")
manager = pytest.importorskip("milvus_lite.server_manager").server_manager_instance
DataType = pymilvus.DataType
TOKEN = "t0ken-of-the-owner"
ODD = [
    "",
    '"',
    "'",
    "\\",
    '\\"',
    "a\nb",
    "tab\t",
    "\r",
    "ü",
    "日本",
    '" or id != "',
    "]",
    "\U0001f600",
]


def rows(count, dim=6, seed=0):
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


def normal(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class Owner:
    """Whose gallery it is: makes collections, and ends as a process does."""

    def __init__(self, folder):
        self.path = str(folder / "stored.db")
        self.client = pymilvus.MilvusClient(self.path)

    def make(self, ids, vectors, *, name="photos", metric="COSINE", index="FLAT", second=False):
        """A collection with a key and a vector of other names than ours; flushed now and then."""
        schema = pymilvus.MilvusClient.create_schema(enable_dynamic_field=False)
        if isinstance(ids[0], str):
            schema.add_field("name", DataType.VARCHAR, is_primary=True, max_length=80)
        else:
            schema.add_field("name", DataType.INT64, is_primary=True)
        schema.add_field("image", DataType.FLOAT_VECTOR, dim=vectors.shape[1])
        params = self.client.prepare_index_params()
        params.add_index("image", index_type=index, metric_type=metric)
        if second:
            schema.add_field("text", DataType.FLOAT_VECTOR, dim=2)
            params.add_index("text", index_type=index, metric_type="COSINE")
        schema.add_field("colour", DataType.VARCHAR, max_length=20)
        self.client.create_collection(name, schema=schema, index_params=params)
        for first in range(0, len(ids), 11):
            some = range(first, min(first + 11, len(ids)))
            data = [
                {"name": ids[one], "image": vectors[one], "colour": f"colour {one}"}
                | ({"text": [1.0, 2.0]} if second else {})
                for one in some
            ]
            self.client.insert(name, data)
            if first % 2:
                self.client.flush(name)

    def end(self):
        """Returns the line."""
        self.client.close()
        manager.release_server(self.path)
        return f"milvus:{self.path}"


def threads_left(before):
    """Those that were not there before, once they had time to end."""
    for _ in range(100):
        left = [one for one in threading.enumerate() if one not in before]
        if not left:
            break
        time.sleep(0.02)
    return left


@pytest.fixture
def owner(tmp_path):
    one = Owner(tmp_path)
    yield one
    one.end()


def pages(store, collection, limit):
    found, after = [], None
    while page := store.scan(collection, after=after, limit=limit).ids:
        assert len(page) <= limit
        assert page[0] != after
        found, after = found + page, page[-1]
    return found


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("text", [False, True])
def test_pages_are_complete_and_ascending(owner, limit, text):
    numbers = (np.random.default_rng(1).permutation(300)[:60] - 50).tolist()
    ids = [f"item {one}" for one in numbers] if text else numbers
    owner.make(ids, rows(60))
    line = owner.end()
    with open_store(line) as store:
        assert pages(store, "photos", limit) == [str(one) for one in sorted(ids)]
        new = ours("photos", "v2")
        store.create(new, 3)
        for first in (40, 0, 20):  # in any order, twice, and partly removed
            store.upsert(
                new, [str(one) for one in ids[first : first + 25]], rows(25, 3)[: 60 - first]
            )
        store.remove(new, [str(one) for one in ids[30:33]])
        left = sorted([*ids[:30], *ids[33:]])
        assert pages(store, new, limit) == [str(one) for one in left]
        assert store.count(new) == 57


def test_the_place_to_go_on_may_be_an_item_that_is_gone(owner):
    owner.make(list(range(10)), rows(10))
    with open_store(owner.end()) as store:
        store.client.delete("photos", ids=[4])
        assert store.scan("photos", after="4").ids == ["5", "6", "7", "8", "9"]


def test_ids_with_quotes_and_backslashes_are_ids_and_nothing_else(owner):
    owner.make(ODD, rows(len(ODD)))
    with open_store(owner.end()) as store:
        for limit in (1, 3, 100):
            assert pages(store, "photos", limit) == sorted(ODD)
        for place, one in enumerate(ODD):
            got = store.get("photos", [one])
            assert got.ids == [one]
            assert got.columns == {"colour": [f"colour {place}"]}
            assert store.contained("photos", [one, one + "x"]) == {one}
        new = ours("photos", "v2")
        store.create(new, 3)
        store.upsert(new, ODD, rows(len(ODD), 3))
        store.remove(new, [ODD[10]])  # which would remove all, were it not quoted
        assert pages(store, new, 2) == sorted(set(ODD) - {ODD[10]})
        store.note('a" \\ b', 'c" \\ d')
        store.note("e", "f")
        store.note('a" \\ b', None)
        assert store.notes() == {"e": "f"}


@pytest.mark.parametrize("metric", ["IP", "L2"])
def test_other_metrics_are_told_as_cosines_where_lengths_are_one(owner, metric):
    vectors = normal(rows(40))
    owner.make(list(range(40)), vectors, metric=metric)
    query = rows(3, seed=1) * 4
    with open_store(owner.end()) as store:
        assert store.exact
        found = store.search("photos", query, 5)
        cosines = normal(query) @ vectors.T
        assert found.ids == [[str(one) for one in (-row).argsort()[:5]] for row in cosines]
        np.testing.assert_allclose(found.cosines, -np.sort(-cosines)[:, :5], atol=1e-5)


@pytest.mark.parametrize("metric", ["IP", "L2"])
def test_metrics_that_tell_no_cosines_are_refused_and_the_file_is_free_again(owner, metric):
    owner.make(list(range(40)), rows(40) * 3, metric=metric)
    line = owner.end()
    before = threading.enumerate()
    with pytest.raises(GalleryError, match="(?s)Cannot compute cosines.*lengths"):
        open_store(line)
    assert threads_left(before) == []


def test_a_graph_index_is_not_exact_but_finds_as_many_as_are_asked_for(owner):
    vectors = rows(600, 8)
    owner.make(list(range(600)), vectors, index="AUTOINDEX")
    with open_store(owner.end()) as store:
        assert not store.exact
        assert [len(found) for found in store.search("photos", vectors[:3], 599).ids] == [599] * 3
        assert [len(found) for found in store.search("photos", vectors[:3], 10**6).ids] == [600] * 3


def test_the_only_collection_and_vector_are_taken_and_several_are_told(owner):
    owner.make([1, 2], rows(2), second=True)
    owner.make([1, 2], rows(2), name="texts")
    line = owner.end()
    with pytest.raises(GalleryError, match=r"which collection .* It has: photos, texts"):
        open_store(line)
    with pytest.raises(GalleryError, match="Did you mean `photos`"):
        open_store(f"{line}?collection=photo")
    with pytest.raises(GalleryError, match=r"which vector .* It has: image, text"):
        open_store(f"{line}?collection=photos")
    with open_store(f"{line}?collection=photos&vector=text") as store:
        assert store.dim("photos") == 2
        rest = store.scan("photos")
        np.testing.assert_allclose(rest.vectors, [[1.0, 2.0]] * 2)
        assert rest.columns == {"colour": ["colour 0", "colour 1"]}


def test_what_is_not_there_is_told_and_nothing_is_made(tmp_path):
    with pytest.raises(DataError, match="it does not exist"):
        open_store(f"milvus:{tmp_path / 'never.db'}")
    with pytest.raises(ConfigError, match=r"must end with \.db"):
        open_store(f"milvus:{tmp_path}")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "earlier.db").write_bytes(b"SQLite format 3")
    with pytest.raises(DataError, match="an earlier version"):
        open_store(f"milvus:{tmp_path / 'earlier.db'}")
    with pytest.raises(ConfigError, match="Did you mean `collection`"):
        open_store(f"milvus:{tmp_path / 'x.db'}?colection=x")


@contextmanager
def opened_by_another_process(path):
    """A process that has the file open until its input ends."""
    script = (
        f"import sys, pymilvus; client = pymilvus.MilvusClient({path!r}); "
        f"print('open', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout.readline() == "open\n"
        yield other
        other.stdin.close()


def test_a_file_that_another_process_has_open_is_told(owner):
    owner.make([1, 2, 3], rows(3))
    line = owner.end()
    with (
        opened_by_another_process(owner.path),
        pytest.raises(GalleryError, match="another process"),
    ):
        open_store(line)
    with open_store(line) as store:
        assert store.count("photos") == 3


@pytest.mark.parametrize("closes", [False, True])
def test_another_process_that_opens_the_file_in_the_same_moment(owner, closes, monkeypatch):
    owner.make([1, 2, 3], rows(3))
    line, check, calls = owner.end(), milvus_rows.check_free, []

    def late(lock, shown):
        """Takes the file for free at first: the other process opens it right after."""
        calls.append(lock)
        if len(calls) == 1:
            return
        if closes:
            other.stdin.close()
            other.wait()
        check(lock, shown)

    monkeypatch.setattr(milvus_rows, "check_free", late)
    with opened_by_another_process(owner.path) as other:
        if closes:
            with open_store(line) as store:
                assert store.count("photos") == 3
        else:
            with pytest.raises(GalleryError, match="another process"):
                open_store(line)
    assert len(calls) == 2


def test_two_stores_of_one_process_share_the_engine_until_the_last_is_closed(owner):
    owner.make([1, 2, 3], rows(3))
    line = owner.end()
    before = threading.enumerate()
    first, second = open_store(line), open_store(line)
    first.close()
    first.close()  # again is no harm
    assert second.count("photos") == 3
    second.close()
    assert threads_left(before) == []


def test_an_engine_that_the_owner_started_in_this_process_is_left_running(owner):
    owner.make([1, 2, 3], rows(3))
    with open_store(f"milvus:{owner.path}") as store:
        assert store.count("photos") == 3
    assert owner.client.query("photos", output_fields=["count(*)"])[0]["count(*)"] == 3


def test_items_that_their_owner_removed_are_not_written_again(owner):
    owner.make(list(range(10)), rows(10))
    with open_store(owner.end()) as store:
        new = ours("photos", "v2")
        store.create(new, 3)
        store.client.delete("photos", ids=[4, 5])
        store.upsert(new, [str(one) for one in range(10)], rows(10, 3))
        assert store.contained(new, [str(one) for one in range(12)]) == set("01236789")
        store.upsert(new, ["4"], rows(1, 3))
        assert store.count(new) == 8
        with pytest.raises(GalleryError, match="whole number"):
            store.upsert(new, ["shoe"], rows(1, 3))
        with pytest.raises(GalleryError, match="3 dimensions"):
            store.upsert(new, ["1", "2"], rows(1, 6))
        assert store.get(new, ["shoe", "007", "7"]).ids == ["7"]
        with pytest.raises(GalleryError, match="notes"):
            store.create("photos__nobackfill_notes", 3)
        with pytest.raises(GalleryError, match="65535"):
            store.note("long", "ü" * 40_000)
        with pytest.raises(GalleryError, match="keeps them together"):
            store.retire("photos__nobackfill_v2")


def test_a_collection_of_ours_whose_index_was_never_made_is_completed(owner):
    owner.make(list(range(10)), rows(10))
    new = ours("photos", "v2")
    schema = pymilvus.MilvusClient.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=3)
    owner.client.create_collection(new, schema=schema)  # and killed
    with open_store(owner.end()) as store:
        store.create(new, 3)
        assert store.client.list_indexes(new) == ["vector"]
        store.upsert(new, ["1"], rows(1, 3))
        assert store.search(new, rows(1, 3), 4).ids == [["1"]]


def test_a_server_is_asked_over_the_network(owner):
    owner.make(list(range(10)), rows(10))
    port = owner.client._config.address.rpartition(":")[2]
    with open_store(f"milvus://127.0.0.1:{port}/photos") as store:
        assert not store.exact
        assert store.count("photos") == 10
        new = ours("photos", "v2")
        store.create(new, 3)
        store.upsert(new, ["1", "2"], rows(2, 3))
        assert store.search(new, rows(1, 3), 1).ids == [["1"]]
        with pytest.raises(GalleryError) as caught:
            store._call(store.client.describe_collection, "never")
        assert "milvus://127.0.0.1" in str(caught.value)


def test_a_client_for_a_server_gets_what_the_line_says_and_never_tells_the_token(monkeypatch):
    asked = {}

    class Refusing:
        """In place of the client: remembers how it was made, and answers as a refusing server."""

        def __init__(self, **named):
            asked.update(named)

        def list_collections(self):
            raise RuntimeError(f"401 for {TOKEN}")

        def close(self):
            asked["closed"] = True

    monkeypatch.setattr("nobackfill.gallery.stores.milvus.rows.MilvusClient", Refusing)
    line = f"milvus://db/photos?token={TOKEN}&https=true&database=shop&timeout=9"
    with pytest.raises(GalleryError, match=r"401 for \*\*\*") as caught:
        open_store(line)
    assert asked == {
        "uri": "https://db:19530", "token": TOKEN, "db_name": "shop", "timeout": 9, "closed": True,
    }  # fmt: skip
    assert TOKEN not in f"{caught.value}{caught.value!r}{read_uri(line)!r}{read_uri(line).shown}"
    assert caught.value.__suppress_context__


def test_nothing_is_left_behind(owner):
    owner.make([1, 2, 3], rows(3))
    line = owner.end()
    script = (
        f"from nobackfill.gallery.stores import open_store; "
        f"store = open_store({line!r}); store.note('a', 'b'); store.close()"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)
    with open_store(line) as store:
        assert store.notes() == {"a": "b"}
