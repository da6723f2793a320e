import os
import pickle
import zipfile
from dataclasses import FrozenInstanceError, replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from nobackfill.errors import DataError
from nobackfill.vectors import Vectors, load_vectors, matrix
from nobackfill.vectors import parquet as as_parquet
from nobackfill.vectors import rows as as_rows
from nobackfill.vectors.beside import path_beside
from nobackfill.vectors.formats import FORMATS
from nobackfill.vectors.packed_text import pack_text, unpack_text
from nobackfill.vectors.records import declare_space, read_space
from nobackfill.vectors.space import CompatibleWith, Space

WORDS = ["", "plain", "naïve", "日本語", "🙂🙂", "a\nb", " ", "ß", "id", "0"]
TABLES = [".parquet", ".safetensors", ".npz"]  # the formats that hold columns
SPACE = Space(dim=3, weights="ab" * 32, compatible_with=(CompatibleWith("cd", "mAP", 0.25),))

every_table = pytest.mark.parametrize("suffix", TABLES)
every_format = pytest.mark.parametrize("suffix", FORMATS)


def rows(n=10, dim=3, dtype=torch.float32, seed=0):
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed)).to(dtype)


def random_vectors(seed):
    """Vectors with every kind of column, in an order and of a size that the seed decides."""
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 11))
    columns = {
        "is_query": random.random(n) < 0.5,
        "is_gallery": random.integers(0, 2, n),
        "camera": random.integers(-(2**62), 2**62, n),
        "text": random.choice(WORDS, n),
        "score": np.where(random.random(n) < 0.2, np.nan, random.normal(size=n)),
        "half": random.normal(size=n).astype(np.float16),
        "single": random.normal(size=n).astype(np.float32),
        "file": np.arange(n),
        "a/b ß": random.choice(["", "x"], n),
    }
    names = random.permutation(list(columns))[: int(random.integers(0, len(columns) + 1))]
    ids = random.permutation(WORDS)[:n] if seed % 2 else random.permutation(2**40 + np.arange(n))
    labels = [None, random.integers(0, 3, n), random.choice(WORDS, n)][seed % 3]
    return Vectors(
        ids,
        rows(n, 3, torch.float16 if seed % 4 < 2 else torch.float32, seed),
        labels,
        columns={str(name): columns[name] for name in names},
        space=SPACE if seed % 5 else None,
        compatible_dim=2 if seed % 7 == 0 else None,
    )


def assert_same_array(one, other):
    assert one.dtype.kind == other.dtype.kind
    assert one.dtype == other.dtype or one.dtype.kind == "U"
    np.testing.assert_array_equal(one, other)


def assert_same(one, other):
    assert_same_array(one.ids, other.ids)
    assert one.vectors.dtype == other.vectors.dtype
    assert torch.equal(one.vectors, other.vectors)
    assert (one.labels is None) == (other.labels is None)
    if one.labels is not None:
        assert_same_array(one.labels, other.labels)
    assert set(one.columns) == set(other.columns)
    for name, column in one.columns.items():
        assert_same_array(column, other.columns[name])
    assert (one.space, one.compatible_dim) == (other.space, other.compatible_dim)


# -- in memory


def test_everything_is_kept_and_of_few_kinds():
    vectors = Vectors(
        torch.arange(2, dtype=torch.int32),
        np.eye(2),
        ["x", "y"],
        columns={"is_query": [0, 1], "weight": [1, 2.5], "camera": np.array([1, 2], np.uint8)},
    )
    assert (len(vectors), vectors.dim, vectors.vectors.dtype) == (2, 2, torch.float64)
    assert vectors.ids.dtype == np.int64
    assert vectors.labels.dtype.kind == "U"
    assert vectors.columns["is_query"].tolist() == [False, True]
    assert vectors.columns["weight"].dtype == np.float64
    assert vectors.columns["camera"].dtype == np.int64


def test_objects_as_of_pandas_are_of_one_kind():
    vectors = Vectors(
        np.array(["a", "b"], dtype=object), torch.eye(2), np.array([1, 2], dtype=object)
    )
    assert vectors.ids.dtype.kind == "U"
    assert vectors.labels.dtype == np.int64


def test_vectors_do_not_change():
    with pytest.raises(FrozenInstanceError):
        Vectors([0], rows(1)).ids = [1]


def test_the_memory_is_that_of_the_caller():
    tensor, array = rows(), rows().numpy()
    assert Vectors(range(10), tensor).vectors.data_ptr() == tensor.data_ptr()
    assert Vectors(range(10), array).vectors.data_ptr() == array.ctypes.data


@pytest.mark.parametrize("form", ["read-only", "big-endian", "backwards", "by columns"])
def test_any_array_will_do(form):
    array = rows().numpy()
    wanted = array.copy()
    if form == "read-only":
        array.flags.writeable = False
    if form == "big-endian":
        array = array.astype(">f4")
    if form == "backwards":
        array = array[::-1].copy()[::-1]
    if form == "by columns":
        array = np.asfortranarray(array)
    assert torch.equal(Vectors(range(10), array).vectors, torch.from_numpy(wanted))


def test_the_repr_is_one_short_line():
    vectors = Vectors([1], rows(1), ["x"], columns={"a": [1]}, space=SPACE, compatible_dim=2)
    known = f"labelled, columns: a, space: {SPACE.fingerprint}, compatible_dim: 2"
    assert repr(vectors) == f"Vectors(1 x 3 float32, {known})"
    assert repr(Vectors([1], rows(1))) == "Vectors(1 x 3 float32)"


@pytest.mark.parametrize("seed", range(8))
def test_select_carries_everything_along(seed):
    vectors = random_vectors(seed)
    random = np.random.default_rng(seed)
    index = random.permutation(len(vectors))[: random.integers(1, len(vectors) + 1)]
    some = vectors.select(index)
    for new, old in enumerate(index):
        assert some.ids[new] == vectors.ids[old]
        assert torch.equal(some.vectors[new], vectors.vectors[old])
        assert vectors.labels is None or some.labels[new] == vectors.labels[old]
        for name, column in vectors.columns.items():
            np.testing.assert_equal(some.columns[name][new], column[old])
    assert (some.space, some.compatible_dim) == (vectors.space, vectors.compatible_dim)


@pytest.mark.parametrize("form", [np.array, torch.tensor, list])
def test_a_mask_and_row_numbers_select_the_same(form):
    vectors = Vectors(["a", "b", "c"], rows(3))
    assert vectors.select(form([True, False, True])).ids.tolist() == ["a", "c"]
    assert vectors.select(form([0, 2])).ids.tolist() == ["a", "c"]


@pytest.mark.parametrize(
    "wrong", [[True], [3], [-1], [0.0], ["a"], [], [False] * 3, [[0]]], ids=str
)
def test_a_selection_that_is_none_is_refused(wrong):
    with pytest.raises(DataError):
        Vectors(["a", "b", "c"], rows(3)).select(wrong)


def changed(row, value, n=10):
    vectors = rows(n)
    vectors[row] = value
    return vectors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], torch.randn(3)), r"shape \(items, dim\).*\(3,\)"),
        (([], torch.randn(0, 3)), r"at least one.*\(0, 3\)"),
        (([0], torch.randn(1, 0)), r"at least one.*\(1, 0\)"),
        (([0], torch.ones(1, 3, dtype=torch.int64)), "not int64.*float32"),
        (([0], torch.ones(1, 3, dtype=torch.bfloat16)), "not bfloat16"),
        (([0], np.ones((1, 3), int)), "not int64"),
        ((range(9), rows()), "`id`.*9 for 10"),
        ((range(10), rows(), [1]), "`label`.*1 for 10"),
        ((["a", "b", "a", "b"], rows(4)), r"2 of 4 are repetitions.*'a' \(row 2\)"),
        (([5, 5], rows(2)), r"5 \(row 1\)"),
        ((list("abcdefghij"), changed(3, torch.nan)), r"id 'd' \(row 3\) contains NaN"),
        ((range(10), changed((4, 1), -torch.inf)), r"id 4 \(row 4\) .* infinite"),
        ((list("abcdefghij"), changed(9, 0)), r"id 'j' \(row 9\) contains only zeros"),
        (([0.5], rows(1)), "`id` must be text or whole numbers, not float64"),
        (([0], rows(1), torch.ones(1)), "`label` must be text or whole numbers, not float32"),
        ((["a", 1], rows(2)), "`id`.*row 1 contains 1"),
        ((["a", None], rows(2)), "`id`.*row 1 contains None"),
        (([[0]], rows(1)), r"`id`.*shape \(1, 1\)"),
        (([2**63], rows(1)), "63 bits"),
        ((np.array([2**63], np.uint64), rows(1)), "63 bits"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(arguments, message):
    with pytest.raises(DataError, match=message):
        Vectors(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": {"label": [1, 2]}}, "named 'label'"),
        ({"columns": {"vector": [1, 2]}}, "named 'vector'"),
        ({"columns": {"id": [1, 2]}}, "named 'id'"),
        ({"columns": {"nobackfill.space": ["", ""]}}, "named 'nobackfill.space'"),
        ({"columns": {"camera": [1]}}, "`camera`.*1 for 2"),
        ({"columns": {"camera": [[1], [2]]}}, r"`camera`.*\(2, 1\)"),
        ({"columns": {"when": np.array(["2020", "2021"], "M8[Y]")}}, "`when`.*row 0 contains"),
        ({"columns": {"is_query": [1, 2]}}, r"`is_query`.*true or false.*\[1, 2\]"),
        ({"columns": {"is_gallery": ["yes", "no"]}}, "`is_gallery`.*true or false"),
        ({"compatible_dim": 0}, "from 1 to 3.*not 0"),
        ({"compatible_dim": 4}, "from 1 to 3.*not 4"),
        ({"space": replace(SPACE, dim=2)}, "space has 2 dimensions.*have 3"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options, message):
    with pytest.raises(DataError, match=message):
        Vectors([0, 1], rows(2), **options)


def test_the_whole_is_looked_through_block_by_block(monkeypatch):
    monkeypatch.setattr(matrix, "BLOCK", 6)  # two rows
    for row in range(7):
        with pytest.raises(DataError, match=rf"\(row {row}\)"):
            Vectors(range(7), changed(row, 0, n=7))


# -- on disk


@every_table
@pytest.mark.parametrize("seed", range(24))
def test_a_file_comes_back_as_it_was(suffix, seed, tmp_path, monkeypatch):
    monkeypatch.setattr(as_parquet, "ROWS", 3)
    vectors = random_vectors(seed)
    vectors.save(tmp_path / f"file{suffix}")
    assert_same(load_vectors(tmp_path / f"file{suffix}"), vectors)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_bare_array_comes_back_with_row_numbers_as_ids(dtype, tmp_path):
    vectors = Vectors(range(10), rows(dtype=dtype), space=SPACE)
    vectors.save(tmp_path / "file.npy")
    assert_same(load_vectors(tmp_path / "file.npy"), vectors)
    np.testing.assert_array_equal(np.load(tmp_path / "file.npy"), vectors.vectors.numpy())


@every_format
def test_float64_is_saved_as_float32(suffix, tmp_path):
    vectors = rows(dtype=torch.float64)
    Vectors(range(10), vectors).save(tmp_path / f"file{suffix}")
    assert torch.equal(load_vectors(tmp_path / f"file{suffix}").vectors, vectors.float())


@every_format
def test_what_float32_cannot_hold_is_refused(suffix, tmp_path):
    for value in (1e300, 1e-300):
        np.save(tmp_path / "v.npy", np.full((1, 3), value))
        with pytest.raises(DataError, match="out of the range of float32: id 0 .* has 1.7"):
            load_vectors(tmp_path / "v.npy").save(tmp_path / f"file{suffix}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [1, 7, 400])
def test_vectors_that_float32_cannot_scale_are_refused(dtype, dim):
    """Scaled, all of them would be zero or NaN, and so equal to each other."""
    for exponent in range(-37, 38):
        row = torch.full((1, dim), 10.0**exponent, dtype=dtype)
        scaled = torch.nn.functional.normalize(row.float(), dim=1).norm().item()
        if 10.0**exponent >= 1e-12 and 10.0**exponent * dim**0.5 <= 1e19:
            assert scaled == pytest.approx(1.0)
            Vectors(["x"], -row)
            continue
        with pytest.raises(DataError, match=r"out of the range of float32: id 'x' \(row 0\) has"):
            Vectors(["x"], -row)
        if exponent < -25 or (exponent > 25 and dim > 1):  # a single huge number is scaled
            assert scaled != pytest.approx(1.0)


def test_vectors_out_of_range_can_be_left_out(tmp_path):
    vectors = torch.ones(4, 3) * torch.tensor([[1.0], [1e30], [1e-30], [1e-5]])
    np.save(tmp_path / "v.npy", vectors.numpy())
    with pytest.warns(UserWarning, match="2 of 4 vectors are left out.* out of range: 1, 2"):
        kept = load_vectors(tmp_path / "v.npy", drop_invalid=True)
    assert kept.ids.tolist() == [0, 3]


def test_small_half_precision_is_in_range():
    smallest = torch.full((1, 4), 6e-8, dtype=torch.float16)
    assert len(Vectors(["x"], smallest)) == len(Vectors(["x"], smallest * 0 + 65504)) == 1


@every_format
def test_vectors_in_any_layout_are_saved(suffix, tmp_path):
    vectors = rows(3, 10).T
    Vectors(range(10), vectors.requires_grad_()).save(tmp_path / f"file{suffix}")
    assert torch.equal(load_vectors(tmp_path / f"file{suffix}").vectors, vectors)


@every_format
def test_a_capital_suffix_is_the_same_format(suffix, tmp_path):
    Vectors(range(10), rows()).save(tmp_path / f"file{suffix.upper()}")
    assert len(load_vectors(str(tmp_path / f"file{suffix.upper()}"))) == 10


@every_format
def test_a_file_may_be_loaded_and_saved_over_itself(suffix, tmp_path):
    path = tmp_path / f"file{suffix}"
    vectors = Vectors(range(10), rows())
    vectors.save(path)
    load_vectors(path).save(path)
    assert_same(load_vectors(path), vectors)


@every_table
def test_one_array_under_two_names_is_two_columns(suffix, tmp_path):
    mask = np.array([True, False])
    columns = {"is_query": mask, "is_gallery": mask}
    Vectors([0, 1], rows(2), columns=columns).save(tmp_path / f"file{suffix}")
    assert set(load_vectors(tmp_path / f"file{suffix}").columns) == set(columns)


# -- the space, in the file and beside it


@every_format
def test_the_space_is_read_without_the_vectors(suffix, tmp_path):
    Vectors(range(10), rows(), space=SPACE).save(tmp_path / f"file{suffix}")
    assert read_space(tmp_path / f"file{suffix}") == SPACE


@every_table
def test_the_space_travels_with_the_file(suffix, tmp_path):
    Vectors(range(10), rows(), space=SPACE).save(tmp_path / f"file{suffix}")
    (tmp_path / f"file{suffix}").rename(tmp_path / f"moved{suffix}")
    assert load_vectors(tmp_path / f"moved{suffix}").space == SPACE
    assert os.listdir(tmp_path) == [f"moved{suffix}"]


@every_format
def test_a_file_without_a_space_takes_the_one_beside(suffix, tmp_path):
    Vectors(range(10), rows()).save(tmp_path / f"file{suffix}")
    declare_space(tmp_path / f"file{suffix}", SPACE)
    assert load_vectors(tmp_path / f"file{suffix}").space == SPACE


@every_format
def test_what_was_measured_later_stands_beside_the_file(suffix, tmp_path):
    path = tmp_path / f"file{suffix}"
    Vectors(range(10), rows(), space=SPACE).save(path)
    later = SPACE.with_measured(CompatibleWith("ef", "mAP", 0.75))
    declare_space(path, later)
    assert load_vectors(path).space == later
    declare_space(path, replace(SPACE, compatible_with=()))  # taken back
    assert load_vectors(path).space.compatible_with == ()


@every_table
def test_what_was_measured_of_other_vectors_is_not_taken_over(suffix, tmp_path):
    path = tmp_path / f"file{suffix}"
    Vectors(range(10), rows(), space=SPACE).save(path)
    other = replace(SPACE, weights="other").with_measured(CompatibleWith("ef", "mAP", 0.75))
    declare_space(path, other)
    assert load_vectors(path).space == SPACE


@every_format
def test_no_old_space_is_left_beside_new_vectors(suffix, tmp_path):
    path = tmp_path / f"file{suffix}"
    Vectors(range(10), rows(), space=SPACE).save(path)
    Vectors(range(10), rows()).save(path)
    assert load_vectors(path).space is None


def test_notes_that_make_no_sense_are_refused(tmp_path):
    path = tmp_path / "file.safetensors"
    tensors = {"id": torch.arange(2), "vector": rows(2)}
    save_file(tensors, path, metadata={"nobackfill.compatible_dim": "two"})
    with pytest.raises(DataError, match="compatible_dim.*'two'"):
        load_vectors(path)
    save_file(tensors, path, metadata={"nobackfill.space": "{}"})
    with pytest.raises(DataError, match="lacks schema"):
        load_vectors(path)


# -- a file is written whole or not at all


class DiskFull(OSError):
    pass


def fail(*_, **__):
    raise DiskFull


def fail_after_half(suffix, monkeypatch):
    """Makes the writer of a format stop when part of the file is on disk."""
    if suffix == ".parquet":
        monkeypatch.setattr(as_parquet, "ROWS", 4)
        write_batch = pq.ParquetWriter.write_batch
        calls = []

        def once(writer, batch):
            calls.append(batch)
            return write_batch(writer, batch) if len(calls) == 1 else fail()

        monkeypatch.setattr(pq.ParquetWriter, "write_batch", once)
    elif suffix == ".safetensors":

        def half(tensors, path, metadata):
            Path(path).write_bytes(b"half")
            fail()

        monkeypatch.setattr("nobackfill.vectors.safetensors.save_file", half)
    else:
        write_array = np.lib.format.write_array

        def and_then_fail(file, array, **options):
            write_array(file, array, **options)
            fail()

        monkeypatch.setattr(np.lib.format, "write_array", and_then_fail)


@every_format
def test_a_failure_half_way_leaves_what_was_there(suffix, tmp_path, monkeypatch):
    path = tmp_path / f"file{suffix}"
    old = Vectors(range(10), rows(seed=1), space=SPACE)
    old.save(path)
    with monkeypatch.context() as patch:
        fail_after_half(suffix, patch)
        with pytest.raises(DiskFull):
            Vectors(range(10), rows(seed=2)).save(path)
    beside = {path_beside(path).name} if suffix == ".npy" else set()
    assert set(os.listdir(tmp_path)) == {path.name, *beside}
    assert_same(load_vectors(path), old)


@every_format
def test_a_failure_half_way_leaves_nothing_where_nothing_was(suffix, tmp_path, monkeypatch):
    fail_after_half(suffix, monkeypatch)
    with pytest.raises(DiskFull):
        Vectors(range(10), rows(), space=SPACE).save(tmp_path / f"file{suffix}")
    assert os.listdir(tmp_path) == []


@every_format
def test_every_format_is_written_under_another_name_first(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(DiskFull):
        Vectors(range(10), rows()).save(tmp_path / f"file{suffix}")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("suffix", [".parquet", ".safetensors"])
def test_half_a_character_cannot_be_saved(suffix, tmp_path):
    with pytest.raises(DataError, match="invalid Unicode"):
        Vectors(["\ud800"], rows(1)).save(tmp_path / f"file{suffix}")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (Vectors(range(1, 11), rows()), "ids other than the row numbers"),
        (Vectors([str(row) for row in range(10)], rows()), "ids other than the row numbers"),
        (Vectors(range(10), rows(), range(10)), "also have label"),
        (Vectors(range(10), rows(), columns={"camera": range(10)}), "also have camera"),
        (Vectors(range(10), rows(), compatible_dim=2), "also have nobackfill.compatible_dim"),
    ],
)
def test_a_bare_array_holds_nothing_else(vectors, message, tmp_path):
    with pytest.raises(DataError, match=rf"{message}.*\.parquet, \.safetensors or \.npz"):
        vectors.save(tmp_path / "file.npy")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["text.bytes", "text.offsets", "__metadata__"])
def test_safetensors_refuses_names_that_it_uses_itself(name, tmp_path):
    with pytest.raises(DataError, match=f"`{name}` cannot be saved"):
        Vectors(range(10), rows(), columns={name: range(10)}).save(tmp_path / "file.safetensors")
    Vectors(range(10), rows(), columns={name: range(10)}).save(tmp_path / "file.npz")
    assert set(load_vectors(tmp_path / "file.npz").columns) == {name}


def test_an_archive_may_have_numbers_under_the_names_of_packed_text(tmp_path):
    columns = {"text.bytes": range(10), "text.offsets": range(10)}
    Vectors(range(10), rows(), columns=columns).save(tmp_path / "file.npz")
    assert set(load_vectors(tmp_path / "file.npz").columns) == set(columns)


# -- files that are not what they seem


@every_format
def test_a_missing_file_is_named(suffix, tmp_path):
    with pytest.raises(DataError, match=rf"none{suffix}: .*no such file"):
        load_vectors(tmp_path / f"none{suffix}")


@every_format
def test_a_folder_is_no_file(suffix, tmp_path):
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(DataError, match="no such file"):
        load_vectors(tmp_path / f"folder{suffix}")


@pytest.mark.parametrize("name", ["vectors.bin", "vectors.parquet.gz", "vectors"])
def test_an_unknown_suffix_is_answered_with_the_known_ones(name, tmp_path):
    with pytest.raises(DataError, match=r"'vectors.*\.parquet, \.csv, .*\.npy, \.pt\."):
        load_vectors(tmp_path / name)
    with pytest.raises(DataError, match=r"'vectors.*\.parquet, \.safetensors, \.npz, \.npy\."):
        Vectors(range(10), rows()).save(tmp_path / name)
    assert os.listdir(tmp_path) == []


@every_format
@pytest.mark.parametrize("contents", [b"", b"id,vector\n1,2\n", b"PAR1" * 9, b"PK\x03\x04" * 9])
def test_another_file_under_this_name_is_refused(suffix, contents, tmp_path):
    path = tmp_path / f"file{suffix}"
    path.write_bytes(contents)
    with pytest.raises(DataError, match="cannot be read as.*write it again"):
        load_vectors(path)


@every_format
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_file_cut_short_is_refused(suffix, share, tmp_path):
    path = tmp_path / f"file{suffix}"
    Vectors(range(100), rows(100)).save(path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(DataError, match="cannot be read as"):
        load_vectors(path)


@pytest.mark.parametrize(("suffix", "other"), list(permutations(FORMATS, 2)))
def test_one_format_under_the_name_of_another_is_refused(suffix, other, tmp_path):
    Vectors(range(10), rows()).save(tmp_path / f"file{other}")
    (tmp_path / f"file{other}").rename(tmp_path / f"file{suffix}")
    with pytest.raises(DataError, match="cannot be read as"):
        load_vectors(tmp_path / f"file{suffix}")


class Malicious:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("kind", ["pickle.npy", "object.npy", "pickle.npz", "object.npz"])
def test_a_pickle_is_refused_and_not_run(kind, tmp_path):
    mark, path = tmp_path / "mark", tmp_path / kind
    array = np.array([Malicious(mark)], dtype=object)
    if kind == "object.npy":
        np.save(path, array, allow_pickle=True)
    elif kind == "object.npz":
        np.savez(path, id=array, vector=rows(1).numpy(), allow_pickle=True)
    else:
        path.write_bytes(pickle.dumps(Malicious(mark)))
    with pytest.raises(DataError, match="cannot be read as"):
        load_vectors(path)
    assert not mark.exists()


@every_table
@pytest.mark.parametrize(
    ("found", "message"),
    [
        (("id", "scores"), "No column is known to be the vector.*are id, scores"),
        (("a", "b"), "No column is known to be the vector.*--vector NAME.*are a, b"),
    ],
)
def test_a_missing_column_is_answered_with_those_found(suffix, found, message, tmp_path):
    path = tmp_path / f"file{suffix}"
    columns = {found[0]: np.arange(3), found[1]: np.ones(3, np.float32)}
    if suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif suffix == ".safetensors":
        save_file({name: torch.from_numpy(array) for name, array in columns.items()}, path)
    else:
        np.savez(path, **columns)
    with pytest.raises(DataError, match=message):
        load_vectors(path)


@every_format
@pytest.mark.parametrize("value", [torch.nan, 0])
def test_a_bad_vector_in_a_file_is_named(suffix, value, tmp_path, monkeypatch):
    path = tmp_path / f"file{suffix}"
    with monkeypatch.context() as patch:
        patch.setattr("nobackfill.vectors.vectors.check_rows", lambda *_: None)
        Vectors(range(10), changed(6, value)).save(path)
    with pytest.raises(DataError, match=rf"file{suffix}: .*id 6"):
        load_vectors(path)


def test_a_bare_array_of_another_shape_or_type_is_refused(tmp_path):
    for array in (np.ones(3), np.float32(1), np.ones((2, 3), int), np.array([["a"]])):
        np.save(tmp_path / "file.npy", array)
        with pytest.raises(DataError, match=r"file\.npy: Vectors must"):
            load_vectors(tmp_path / "file.npy")


# -- each format by itself


def test_a_mapped_array_is_not_copied_and_the_file_not_changed(tmp_path, monkeypatch):
    path = tmp_path / "file.npy"
    np.save(path, rows().numpy())
    mapped = []
    open_memmap = np.lib.format.open_memmap

    def remember(*arguments, **options):
        mapped.append(open_memmap(*arguments, **options))
        return mapped[-1]

    monkeypatch.setattr(np.lib.format, "open_memmap", remember)
    vectors = load_vectors(path)
    assert isinstance(mapped[0], np.memmap)
    assert vectors.vectors.data_ptr() == mapped[0].ctypes.data
    vectors.vectors[0] = 7
    assert torch.equal(torch.from_numpy(np.load(path)), rows())


def test_mapped_tensors_do_not_change_the_file(tmp_path):
    path = tmp_path / "file.safetensors"
    Vectors(range(10), rows()).save(path)
    load_vectors(path).vectors[0] = 7
    assert torch.equal(load_vectors(path).vectors, rows())


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="wants the list of mapped files")
def test_safetensors_are_mapped(tmp_path):
    path = tmp_path / "file.safetensors"
    Vectors(range(10), rows()).save(path)
    vectors = load_vectors(path)
    spans = [
        line.split()[0].split("-")
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith(str(path))
    ]
    pointer = vectors.vectors.data_ptr()
    assert any(int(start, 16) <= pointer < int(end, 16) for start, end in spans)


@pytest.mark.parametrize("words", [WORDS, [""], ["", ""], ["a"]])
def test_text_as_bytes_and_offsets_is_the_loop(words):
    texts, offsets = pack_text(np.array(words))
    position = 0
    for row, word in enumerate(words):
        encoded = word.encode()
        assert offsets[row] == position
        assert bytes(texts[position : position + len(encoded)].tolist()) == encoded
        position += len(encoded)
    assert offsets[-1] == len(texts) == position
    assert unpack_text(texts, offsets, "id").tolist() == words


@pytest.mark.parametrize("offsets", [[1, 2], [0, 1], [0, 3], [0, 2, 1, 2], []])
def test_offsets_that_miss_the_text_are_refused(offsets):
    texts = torch.tensor([97, 98], dtype=torch.uint8)
    with pytest.raises(DataError, match=r"`id\.offsets` must rise from 0 to 2"):
        unpack_text(texts, torch.tensor(offsets, dtype=torch.int64), "id")


def test_the_names_in_a_safetensors_file(tmp_path):
    Vectors(["a", "b"], rows(2), [1, 2]).save(tmp_path / "file.safetensors")
    names = set(load_file(tmp_path / "file.safetensors"))
    assert names == {"id.bytes", "id.offsets", "vector", "label"}


def test_a_bfloat16_column_of_others_is_carried_along(tmp_path):
    column = torch.ones(2, dtype=torch.bfloat16)
    tensors = {"id": torch.arange(2), "vector": rows(2), "weight": column}
    save_file(tensors, tmp_path / "file.safetensors")
    assert load_vectors(tmp_path / "file.safetensors").columns["weight"].dtype == np.float32


def test_numpy_alone_reads_what_we_write(tmp_path):
    vectors = Vectors(["ß", ""], rows(2), [1, 2], columns={"file": ["x", "y"]}, space=SPACE)
    vectors.save(tmp_path / "file.npz")
    with np.load(tmp_path / "file.npz", allow_pickle=False) as archive:
        assert archive["id"].tolist() == ["ß", ""]
        assert archive["file"].tolist() == ["x", "y"]
        assert Space.from_json(str(archive["nobackfill.space"])) == SPACE


def test_an_archive_of_numpy_is_read(tmp_path):
    np.savez_compressed(tmp_path / "file.npz", id=["a", "b"], vector=np.eye(2), label=[3, 4])
    vectors = load_vectors(tmp_path / "file.npz")
    assert_same(vectors, Vectors(["a", "b"], np.eye(2), [3, 4]))


def test_a_broken_member_of_an_archive_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "file.npz", "w") as archive:
        archive.writestr("id.npy", b"no array")
        archive.writestr("vector.npy", b"no array")
    with pytest.raises(DataError):
        load_vectors(tmp_path / "file.npz")


def write_parquet(path, vector, **columns):
    columns = {"id": pa.array(["a", "b", "c"]), **columns}
    pq.write_table(pa.table({**columns, "vector": vector}), path)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (pa.list_(pa.float32()), torch.float32),
        (pa.list_(pa.float16()), torch.float16),
        (pa.large_list(pa.float64()), torch.float64),
        (pa.list_(pa.float32(), 2), torch.float32),
    ],
    ids=str,
)
def test_lists_of_floats_as_others_write_them(kind, dtype, tmp_path, monkeypatch):
    monkeypatch.setattr(as_parquet, "ROWS", 2)
    values = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    write_parquet(tmp_path / "file.parquet", pa.array(values, kind))
    vectors = load_vectors(tmp_path / "file.parquet")
    assert torch.equal(vectors.vectors, torch.tensor(values, dtype=dtype))
    assert vectors.ids.tolist() == ["a", "b", "c"]


def test_a_large_table_is_in_memory_once(tmp_path, monkeypatch):
    vectors = pa.FixedSizeListArray.from_arrays(rows(60_000, 64).numpy().ravel(), 64)
    table = pa.table({"id": np.arange(60_000), "vector": vectors})
    pq.write_table(table, tmp_path / "file.parquet", row_group_size=30_000)
    monkeypatch.setattr(as_parquet, "ROWS", 500)
    monkeypatch.setattr(as_rows, "THREADS", 1)  # each holds as much
    before, during = pa.total_allocated_bytes(), []
    check_lengths = as_rows._check_lengths

    def look(*arguments):
        during.append(pa.total_allocated_bytes() - before)
        check_lengths(*arguments)

    monkeypatch.setattr(as_rows, "_check_lengths", look)
    load_vectors(tmp_path / "file.parquet")
    assert len(during) == 120
    assert max(during) < vectors.nbytes / 3


@pytest.mark.parametrize("group", [1, 7, 100, 5000])
@pytest.mark.parametrize("threads", [1, 8])
def test_groups_of_rows_end_where_they_belong(tmp_path, monkeypatch, group, threads):
    monkeypatch.setattr(as_parquet, "ROWS", 3)
    monkeypatch.setattr(as_rows, "THREADS", threads)
    values = rows(120, 4)
    lists = pa.FixedSizeListArray.from_arrays(values.numpy().ravel(), 4)
    table = pa.table({"id": np.arange(120), "vector": lists})
    pq.write_table(table, tmp_path / "file.parquet", row_group_size=group)
    assert load_vectors(tmp_path / "file.parquet").vectors.equal(values)


def test_of_many_wrong_rows_the_first_is_named(tmp_path):
    lists = [[1.0, 2.0]] * 100
    lists[30] = lists[77] = lists[99] = [1.0]
    table = pa.table({"id": np.arange(100), "vector": pa.array(lists, pa.list_(pa.float32()))})
    pq.write_table(table, tmp_path / "file.parquet", row_group_size=10)
    with pytest.raises(DataError, match="vector of id 30 has 1"):
        load_vectors(tmp_path / "file.parquet")


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), VECTOR[:1]], ["id", "id", "vector"])
    pq.write_table(table, tmp_path / "file.parquet")
    with pytest.raises(DataError, match="Two columns have the same name"):
        load_vectors(tmp_path / "file.parquet")


def test_plain_arrow_reads_what_we_write(tmp_path):
    Vectors(["a", "ß"], rows(2, dtype=torch.float16), [1, 2]).save(tmp_path / "file.parquet")
    table = pq.read_table(tmp_path / "file.parquet")
    assert table.schema.field("vector").type == pa.list_(pa.float16(), 3)
    assert table.drop_columns("vector").to_pydict() == {"id": ["a", "ß"], "label": [1, 2]}


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (pa.array([[1.0, 2.0], [3.0], [4.0, 5.0]]), "id 'b' has 1 dimensions, the first one has 2"),
        (pa.array([[1.0, 2.0], [3.0, 4.0], None]), "id 'c' is missing"),
        (pa.array([[1.0, 2.0], [3.0, 4.0], None], pa.list_(pa.float32(), 2)), "id 'c' is missing"),
        (pa.array([None, [3.0, 4.0], [1.0, 2.0]]), "id 'a' is missing"),
        (pa.array([[1.0, 2.0], [3.0, None], [4.0, 5.0]]), "id 'b' .*NaN"),
        (pa.array([1.0, 2.0, 3.0]), "double.*list of floats"),
        (pa.array([[], [], []], pa.list_(pa.float32())), r"\(3, 0\)"),
    ],
)
def test_lists_that_are_no_vectors_are_refused(vector, message, tmp_path, monkeypatch):
    monkeypatch.setattr(as_parquet, "ROWS", 2)
    write_parquet(tmp_path / "file.parquet", vector)
    with pytest.raises(DataError, match=message):
        load_vectors(tmp_path / "file.parquet")


def test_an_empty_table_is_refused(tmp_path):
    schema = pa.schema({"id": pa.string(), "vector": pa.list_(pa.float32())})
    pq.write_table(schema.empty_table(), tmp_path / "file.parquet")
    with pytest.raises(DataError, match="at least one"):
        load_vectors(tmp_path / "file.parquet")


VECTOR = pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def test_columns_as_others_write_them(tmp_path):
    write_parquet(
        tmp_path / "file.parquet",
        VECTOR,
        id=pa.array([3, 1, 2], pa.int32()),
        label=pa.array(["x", "y", "x"]).dictionary_encode(),
        split=pa.array(["train", None, "ß"], pa.large_string()),
        weight=pa.array([0.5, None, 1.5], pa.float32()),
        is_query=pa.array([1, 0, 1], pa.int8()),
    )
    vectors = load_vectors(tmp_path / "file.parquet")
    assert vectors.ids.tolist() == [3, 1, 2]
    assert vectors.labels.tolist() == ["x", "y", "x"]
    assert vectors.columns["split"].tolist() == ["train", "", "ß"]
    np.testing.assert_array_equal(vectors.columns["weight"], np.float32([0.5, np.nan, 1.5]))
    assert vectors.columns["is_query"].tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": pa.array(["a", None, "c"])}, "`id`.*1 of 3 are missing.*row 1.*drop these rows"),
        ({"label": pa.array([None, "x", "x"])}, "`label`.*1 of 3.*row 0"),
        ({"camera": pa.array([1, 2, None])}, "`camera`.*row 2.*drop the column"),
        ({"is_query": pa.array([True, None, None])}, "`is_query`.*2 of 3"),
    ],
)
def test_columns_that_cannot_be_kept_are_refused_by_name(columns, message, tmp_path):
    write_parquet(tmp_path / "file.parquet", VECTOR, **columns)
    with pytest.raises(DataError, match=message):
        load_vectors(tmp_path / "file.parquet")


def test_the_record_beside_a_file_is_checked_too(tmp_path):
    Vectors(range(10), rows()).save(tmp_path / "file.npy")
    path_beside(tmp_path / "file.npy").write_text("{")
    with pytest.raises(DataError, match=r"file\.npy\.space\.json is no JSON that nobackfill reads"):
        load_vectors(tmp_path / "file.npy")


def test_rows_can_be_taken_backwards():
    vectors = Vectors(["a", "b", "c"], torch.eye(3))
    assert vectors.select(np.arange(3)[::-1]).ids.tolist() == ["c", "b", "a"]


def test_bare_vectors_have_beside_them_what_a_head_was_fitted_on(tmp_path):
    fitted = [True, False, True]
    for name in ("made.npy", "made.NPY"):
        Vectors(range(3), rows(3), columns={"fitted": fitted}).save(tmp_path / name)
        assert load_vectors(tmp_path / name).columns["fitted"].tolist() == fitted
        assert np.load(tmp_path / name).shape == (3, 3)
    Vectors(range(3), rows(3)).save(tmp_path / "made.npy")  # of which nothing is known
    assert "fitted" not in load_vectors(tmp_path / "made.npy").columns
    assert not (tmp_path / "made.fitted.json").exists()


def test_other_formats_leave_what_lies_beside_bare_vectors(tmp_path):
    Vectors(range(3), rows(3), columns={"fitted": [True] * 3}).save(tmp_path / "made.npy")
    Vectors(range(3), rows(3)).save(tmp_path / "made.npz")
    assert "fitted" in load_vectors(tmp_path / "made.npy").columns
    assert "fitted" not in load_vectors(tmp_path / "made.npz").columns


def test_a_column_of_someone_else_does_not_go_beside_bare_vectors(tmp_path):
    with pytest.raises(DataError, match="they also have fitted"):
        Vectors(range(3), rows(3), columns={"fitted": ["a", "b", "c"]}).save(tmp_path / "made.npy")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("half", "made.fitted.json is no JSON"),
        ('{"fitted": "012"}', "a 1 or a 0 for each row"),
        ('{"other": "010"}', "a 1 or a 0 for each row"),
        ('{"fitted": 10}', "a 1 or a 0 for each row"),
        ("[]", "must contain a JSON object, not a list"),
        ('{"fitted": "0101"}', "`fitted` must have one value per vector, but has 4 for 3"),
    ],
)
def test_what_lies_beside_bare_vectors_must_be_of_them(tmp_path, text, says):
    np.save(tmp_path / "made.npy", rows(3).numpy())
    (tmp_path / "made.fitted.json").write_text(text)
    with pytest.raises(DataError, match=says):
        load_vectors(tmp_path / "made.npy")


@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".safetensors"])
def test_a_short_record_beside_a_file_takes_its_dimensions_from_the_vectors(tmp_path, suffix):
    from nobackfill.vectors.records import space_of

    path = tmp_path / f"old{suffix}"
    Vectors(["a", "b"], torch.eye(2)).save(path)
    (tmp_path / "old.space.json").write_text('{"name": "resnet50"}')
    wanted = Space(2, "resnet50", normalized=None, dtype=None)
    assert load_vectors(path).space == space_of(path) == wanted
    assert space_of(tmp_path / "old.space.json").dim is None
