"""Tables of LanceDB: ids of all kinds, indexes, two writers, what owners change meanwhile."""

import subprocess
import sys

import numpy as np
import pytest

lancedb = pytest.importorskip("lancedb")
import pyarrow as pa  # noqa: E402

from nobackfill.errors import ConfigError, DataError, GalleryError
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import MARK, ours
from nobackfill.gallery.stores.lancedb import tables as lance_tables

DIM = 8
HARD = ["o'neil", "''", "' or true --", 'x"y', "a\\b", "a\\'b", "`", "%_", "ü\n😀", " ", "{}", "\\"]


def as_table(ids, vectors, **columns):
    flat = pa.array(np.asarray(vectors).ravel())
    return pa.table({"id": ids, "vector": pa.FixedSizeListArray.from_arrays(flat, DIM), **columns})


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(3000, DIM)).astype(np.float32)


@pytest.fixture
def make(tmp_path):
    """Makes an owner's table; returns it and its line."""

    def made(table):
        database = lancedb.connect(tmp_path)
        made = database.create_table("items", table, on_bad_vectors="null")
        return made, f"lancedb://{tmp_path}/items"

    return made


def test_ids_of_any_text(make, vectors):
    _, line = make(as_table(HARD, vectors[: len(HARD)]))
    with open_store(line) as store:
        new = ours(store.main, "v2")
        store.create(new, DIM)
        store.upsert(new, HARD, vectors[: len(HARD)])
        for row, one in enumerate(HARD):
            found = store.get(new, [one])
            assert found.ids == [one]
            np.testing.assert_array_equal(found.vectors[0], vectors[row])
        assert sorted(store.get(store.main, HARD).ids) == sorted(HARD)
        pages, after = [], None
        while (ids := store.scan(store.main, after=after, limit=2).ids) != []:
            pages += ids
            after = ids[-1]
        assert pages == sorted(HARD, key=str.encode)
        store.remove(new, [HARD[2]])
        assert store.count(new) == len(HARD) - 1
        for key in HARD:
            store.note(key, key)
        assert store.notes() == {key: key for key in HARD}
        store.note(HARD[2], None)
        assert len(store.notes()) == len(HARD) - 1


def test_whole_numbers_are_compared_as_text(make, vectors):
    _, line = make(as_table([7, -3, 2**62], vectors[:3]))
    with open_store(line) as store:
        assert store.scan(store.main).ids == ["-3", "7", str(2**62)]
        asked = ["7", "007", "+7", "7.0", " 7", "x", "", str(2**70)]
        assert store.contained(store.main, asked) == {"7"}
        assert store.get(store.main, asked).ids == ["7"]
        assert store.scan(store.main, after="0", limit=1).ids == ["7"]
        with pytest.raises(GalleryError, match="after the id 'x': .* whole numbers"):
            store.scan(store.main, after="x")


def test_other_names_and_columns(make, vectors):
    table = as_table(["b", "a"], vectors[:2], other=[1, None], Tags=[["x"], []])
    _, line = make(table.rename_columns(["The Key", "embedding", "other", "Tags"]))
    with open_store(f"{line}?id=The Key&vector=embedding") as store:
        rows = store.scan(store.main)
        assert rows.ids == ["a", "b"]
        assert rows.columns == {"other": [None, 1], "Tags": [[], ["x"]]}
        assert store.get(store.main, ["b"]).columns == {"other": [1], "Tags": [["x"]]}
        assert store.search(store.main, vectors[:1], 1).ids == [["b"]]
    for options, wanted in (("", r"column `id` .*\?id="), ("?id=other&vector=v", "column `v`")):
        with pytest.raises(DataError, match=wanted):
            open_store(line + options)
    with pytest.raises(GalleryError, match="vectors of one length"):
        open_store(f"{line}?id=The Key&vector=Tags")
    with pytest.raises(DataError, match="whole numbers or texts"):
        open_store(f"{line}?id=Tags&vector=embedding")


def test_where_there_is_nothing(make, vectors, tmp_path):
    make(as_table([1], vectors[:1]))
    with pytest.raises(DataError, match="No table `photos`"):
        open_store(f"lancedb://{tmp_path}/photos")
    with pytest.raises(DataError, match="no such folder"):
        open_store(f"lancedb://{tmp_path}/nowhere/photos")
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(ConfigError, match=r"not a local folder.*s3://"):
        open_store("lancedb://s3://bucket/items")


def test_a_scan_sees_what_its_owner_changes(make, vectors):
    table, line = make(as_table(list(range(0, 100, 2)), vectors[:50]))
    with open_store(line) as store:
        first = store.scan(store.main, limit=10)
        assert first.ids[-1] == "18"
        table.delete("id in (18, 20)")  # the last one seen, and the next
        table.add(as_table([21, 1], vectors[50:52]))
        table.optimize()  # rows have moved
        rows = store.scan(store.main, after="18", limit=3)
        assert rows.ids == ["21", "22", "24"]
        np.testing.assert_array_equal(rows.vectors, vectors[[50, 11, 12]])
        assert store.count(store.main) == 50


def test_a_search_sees_what_others_write(make, vectors, tmp_path):
    table, line = make(as_table([0], vectors[:1]))
    with open_store(line) as store, open_store(line) as other:
        new = ours(store.main, "v2")
        other.create(new, DIM)
        for one in range(1, 40):  # some of them in one tick of the file system's clock
            table.add(as_table([one], vectors[one : one + 1]))
            assert store.search(store.main, vectors[one : one + 1], 1).ids == [[str(one)]]
            other.upsert(new, [str(one)], vectors[one : one + 1])
            assert store.search(new, vectors[one : one + 1], 1).ids == [[str(one)]]
        table.delete("id = 7")
        assert store.search(store.main, vectors[7:8], 1).ids != [["7"]]
        other.drop(new)
        with pytest.raises(GalleryError, match="Could not search at lancedb:.*not found"):
            store.search(new, vectors[:1], 1)
        other.create(new, 4)
        other.upsert(new, ["7", "8"], vectors[:2, :4])
        assert store.search(new, vectors[1:2, :4], 1).ids == [["8"]]
        lancedb.connect(tmp_path).drop_table("items")
        make(as_table([5, 4], vectors[5:7]))
        assert store.search(store.main, vectors[6:7], 5).ids == [["4", "5"]]


def test_a_table_is_not_opened_for_each_search(make, vectors, monkeypatch):
    table, line = make(as_table(list(range(50)), vectors[:50]))
    with open_store(line, read_only=True) as store:
        opened, database = [], store._tables._database
        open_table = database.open_table
        monkeypatch.setattr(database, "open_table", lambda n: opened.append(n) or open_table(n))
        for _ in range(5):
            store.search(store.main, vectors[:1], 3)
        assert opened == ["items"]
        table.add(as_table([50], vectors[50:51]))
        store.search(store.main, vectors[:1], 3)
        assert opened == ["items", "items"]


def test_a_table_made_anew_has_the_number_of_an_earlier_version(make, vectors, tmp_path):
    _, line = make(as_table([1, 2, 3], vectors[:3]))
    with open_store(line) as store:
        assert store.scan(store.main).ids == ["1", "2", "3"]
        assert store.search(store.main, vectors[:1], 1).ids == [["1"]]
        lancedb.connect(tmp_path).drop_table("items")
        make(as_table([5, 4, 3, 2], vectors[10:14]))
        assert store.search(store.main, vectors[10:11], 9).ids[0][0] == "5"
        rows = store.scan(store.main, after="2")
        assert rows.ids == ["3", "4", "5"]
        np.testing.assert_array_equal(rows.vectors, vectors[[12, 11, 10]])


def test_items_removed_by_their_owner_are_not_written(make, vectors):
    table, line = make(as_table(list(range(10)), vectors[:10]))
    with open_store(line) as store:
        new = ours(store.main, "v2")
        store.create(new, DIM)
        table.delete("id in (3, 4)")
        store.upsert(new, ["3", "5", "4", "99", "5"], vectors[[3, 0, 4, 9, 5]])
        rows = store.scan(new)
        assert rows.ids == ["5"]
        np.testing.assert_array_equal(rows.vectors, vectors[5:6])  # of two the last
        store.upsert(new, ["3"], vectors[:1])
        assert store.count(new) == 1


def test_many_items_at_once(make, vectors):
    ids = [str(one) for one in range(3000)]
    _, line = make(as_table(ids, vectors))
    with open_store(line) as store:
        assert sorted(store.get(store.main, ids).ids) == sorted(ids)
        new = ours(store.main, "v2")
        store.create(new, DIM)
        store.upsert(new, ids, vectors)
        found = store.search(new, vectors[:120], 2)  # more than are asked at once
        assert [row[0] for row in found.ids] == ids[:120]
        store.remove(new, ids[:2500])
        assert store.count(new) == 500


def test_items_without_a_vector_are_rows_of_nan(make, vectors):
    kind = pa.list_(pa.float32(), DIM)
    column = pa.array([vectors[0].tolist(), None, vectors[2].tolist()], kind)
    _, line = make(pa.table({"id": [1, 2, 3], "vector": column}))
    with open_store(line) as store:
        rows = store.scan(store.main)
        np.testing.assert_array_equal(rows.vectors[[0, 2]], vectors[[0, 2]])
        assert np.isnan(rows.vectors[1]).all()
        assert sorted(store.search(store.main, vectors[:1], 5).ids[0]) == ["1", "3"]


def test_ids_that_are_not_unlike(make, vectors):
    _, line = make(as_table([1, 2, 2], vectors[:3]))
    with open_store(line) as store, pytest.raises(GalleryError, match="3 rows, 0 .* and 2 diff"):
        store.scan(store.main)


@pytest.mark.parametrize(
    ("metric", "length", "exact"),
    [
        ("cosine", 1, False), ("cosine", 3, False), ("l2", 1, False), ("dot", 1, False),
        ("l2", 3, True), ("dot", 3, True),
    ],
)  # fmt: skip
def test_the_owners_index_is_used_where_it_tells_cosines(make, vectors, metric, length, exact):
    from lancedb.index import IvfFlat

    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    table, line = make(as_table(list(range(len(unit))), unit * length))
    with open_store(line) as store:
        assert store.exact
    table.create_index("vector", config=IvfFlat(distance_type=metric, num_partitions=2))
    with open_store(line) as store:
        assert store.exact == exact
        for some in (unit[:5] * 7, unit[:1]):
            found = store.search(store.main, some, 10)
            for query, (names, cosines) in enumerate(zip(found.ids, found.cosines, strict=True)):
                order = (-(unit @ unit[query])).argsort()[:10]  # two parts are both looked at
                assert names == [str(place) for place in order]
                np.testing.assert_allclose(cosines, (unit @ unit[query])[order], atol=1e-5)


def test_retire_removes_the_vectors_and_nothing_else(make, vectors):
    table, line = make(as_table([1, 2, 3], vectors[:3], colour=["a", "b", "c"]))
    with open_store(line, read_only=True) as store, pytest.raises(GalleryError, match="read only"):
        store.retire(ours(store.main, "v2"))
    with open_store(line) as store:
        new = ours(store.main, "v2")
        store.create(new, DIM)
        store.upsert(new, ["1", "2"], vectors[:2])
        with pytest.raises(GalleryError, match="1 have none"):
            store.retire(new)
        store.upsert(new, ["3"], vectors[2:3])
        store.retire(new)
        store.retire(new)
    table.checkout_latest()
    assert table.to_arrow()["vector"].null_count == 3
    with open_store(line) as store:
        rows = store.scan(store.main)
        assert (rows.ids, rows.columns) == (["1", "2", "3"], {"colour": ["a", "b", "c"]})
        assert np.isnan(rows.vectors).all()
        assert not store.has_exact_vectors()
        assert store.search(store.main, vectors[:1], 1).ids == [[]]
        store.remove(new, ["3"])
        store.upsert(new, ["3", "4"], vectors[2:4])
        assert store.search(new, vectors[2:3], 1).ids == [["3"]]
        assert store.count(new) == 3


def test_what_cannot_be_written(make, vectors):
    _, line = make(as_table([1, 2], vectors[:2]))
    with open_store(line) as store:
        with pytest.raises(GalleryError, match="another name"):
            store.create(f"{store.main}{MARK}notes", DIM)
        new = ours(store.main, "v2")
        with pytest.raises(GalleryError, match="Could not read at lancedb:.*not found"):
            store.upsert(new, ["1"], vectors[:1])
        store.create(new, DIM)
        with pytest.raises(GalleryError, match="vectors of 8 dimensions"):
            store.upsert(new, ["1"], vectors[:1, :4])
        with pytest.raises(GalleryError, match="vectors of 8 dimensions"):
            store.search(new, vectors[:1, :4], 1)


def test_many_small_writes_leave_few_files(make, vectors, monkeypatch, tmp_path):
    monkeypatch.setattr(lance_tables, "TIDY_AFTER", 5)
    _, line = make(as_table(list(range(40)), vectors[:40]))
    with open_store(line) as store:
        new = ours(store.main, "v2")
        store.create(new, DIM)
        for one in range(40):
            store.upsert(new, [str(one)], vectors[one : one + 1])
        rows = store.scan(new)
        assert rows.ids == [str(one) for one in range(40)]
        np.testing.assert_array_equal(rows.vectors, vectors[:40])
    fragments = lancedb.connect(tmp_path).open_table(new).stats()["fragment_stats"]
    assert fragments["num_fragments"] <= 2


RIVAL = """
import sys
import numpy as np
from nobackfill.gallery.stores import open_store
with open_store(sys.argv[1]) as store:
    new = f"{store.main}__nobackfill_v2"
    print("ready", flush=True)
    sys.stdin.readline()
    store.create(new, 8)
    for number in range(15):
        ids = [str(one) for one in range(10 * number, 10 * number + 100)]
        store.upsert(new, ids, np.full((100, 8), float(sys.argv[2]), dtype=np.float32))
        store.note(f"by {sys.argv[2]}", str(number))
"""


def test_two_writers_of_the_same_items_at_once(make, vectors):
    _, line = make(as_table(list(range(300)), vectors[:300]))
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", RIVAL, line, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("1", "2")
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    with open_store(line) as store:
        rows = store.scan(ours(store.main, "v2"))
        assert rows.ids == [str(one) for one in range(240)]
        assert set(rows.vectors.ravel().tolist()) <= {1.0, 2.0}
        assert store.notes() == {"by 1": "14", "by 2": "14"}


def test_a_write_is_tried_again_where_another_was_faster(make, vectors, monkeypatch):
    monkeypatch.setattr(lance_tables.time, "sleep", lambda seconds: None)
    _, line = make(as_table([1], vectors[:1]))
    tried = []

    def change(table):
        tried.append(table)
        if len(tried) < 3:
            raise RuntimeError("lance error: Retryable commit conflict for version 2")

    with open_store(line) as store:
        store._tables.write("items", change)
        assert len(tried) == 3

        def broken(table):
            tried.append(table)
            raise OSError("No space left on device")

        with pytest.raises(GalleryError, match="Could not write at .*No space left"):
            store._tables.write("items", broken)
        assert len(tried) == 4


def test_a_table_is_removed_in_one_step(make, vectors, monkeypatch, tmp_path):
    _, line = make(as_table([1, 2], vectors[:2]))

    def killed(*arguments, **options):
        raise KeyboardInterrupt

    with open_store(line) as store:
        new = ours(store.main, "v2")
        for kill in (True, False):
            store.create(new, DIM)
            store.upsert(new, ["1"], vectors[:1])
            with monkeypatch.context() as patch:
                if kill:
                    patch.setattr(
                        lance_tables.os,
                        "rename",
                        lambda a, b, rename=lance_tables.os.rename: (rename(a, b), killed()),
                    )
                    with pytest.raises(KeyboardInterrupt):
                        store.drop(new)
                else:
                    store.drop(new)
            assert not store.exists(new)
            assert store.new_collections() == []
        assert [path.name for path in tmp_path.glob(".*removed")] == []


def test_what_is_left_of_a_removed_table_is_no_table(make, vectors, tmp_path):
    _, line = make(as_table([1, 2], vectors[:2]))
    with open_store(line) as store:
        new = ours(store.main, "v2")
        (tmp_path / f"{new}.lance" / "data").mkdir(parents=True)
        assert store.new_collections() == []
        store.create(new, DIM)
        store.upsert(new, ["1"], vectors[:1])
        assert store.scan(new).ids == ["1"]
