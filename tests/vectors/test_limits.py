"""What a file asks for is compared with the file and the machine before it is given."""

import gzip
import io
import json
import re
import tracemalloc
import zipfile
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

import nobackfill as nb
from nobackfill.core import memory
from nobackfill.errors import DataError
from nobackfill.evaluation.file_columns import check_agreement
from nobackfill.head.closed_form import moments, paired_blocks
from nobackfill.vectors.json_lines import Lines
from nobackfill.vectors.packed_text import pack_text
from nobackfill.vectors.split_column import is_training

ROWS = np.eye(4, dtype=np.float32)


def npy(shape, dtype="<f4", data=b""):
    """An array whose header may lie."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (63 - (10 + len(text)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def npz(path, compression=zipfile.ZIP_STORED, **members):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return path


@pytest.mark.parametrize("shape", [(10**9, 512), (4, 10**12), (4, 5), (3, 4)])
def test_a_header_of_an_archive_is_not_believed(tmp_path, shape):
    path = npz(tmp_path / "v.npz", vector=npy(shape, data=ROWS.tobytes()))
    tracemalloc.start()
    with pytest.raises(DataError, match=r"v\.npz: The header of vector\.npy says .* bytes"):
        nb.load_vectors(path)
    assert tracemalloc.get_traced_memory()[1] < 10**8
    tracemalloc.stop()


def test_an_archive_that_unpacks_to_much_more_is_refused(tmp_path):
    rows = 2**22
    path = npz(
        tmp_path / "v.npz", zipfile.ZIP_DEFLATED, vector=npy((rows, 17), data=bytes(68 * rows))
    )
    assert path.stat().st_size < 10**6
    with pytest.raises(DataError, match=r"would unpack to 285,212,\d\d\d"):
        nb.load_vectors(path)


def test_compressed_archives_of_vectors_are_read(tmp_path):
    rows = np.random.default_rng(0).normal(size=(2000, 8)).astype(np.float32)
    np.savez_compressed(tmp_path / "v.npz", vector=rows, label=np.zeros(2000, np.int64))
    assert np.array_equal(nb.load_vectors(tmp_path / "v.npz").vectors.numpy(), rows)


def test_no_more_memory_than_there_is(tmp_path, monkeypatch):
    np.savez(tmp_path / "v.npz", vector=ROWS)
    monkeypatch.setattr("nobackfill.core.memory.available_memory", lambda: 10)
    with pytest.raises(DataError, match=r"The archive needs .* GB of memory, and 0\.0 GB are left"):
        nb.load_vectors(tmp_path / "v.npz")
    with pytest.raises(DataError, match="A map of 4 dimensions to 4 needs"):
        moments(paired_blocks(torch.eye(4), torch.eye(4)))


def test_the_memory_that_is_left_is_the_least_of_all_limits(tmp_path, monkeypatch):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:  7 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", meminfo)
    monkeypatch.setattr(memory, "LIMITS", ())
    assert memory.available_memory() == 7 * 1024
    (tmp_path / "max").write_text("5000\n")
    (tmp_path / "now").write_text("3000\n")
    monkeypatch.setattr(memory, "LIMITS", [(tmp_path / "max", tmp_path / "now")])
    assert memory.available_memory() == 2000
    (tmp_path / "max").write_text("max\n")
    assert memory.available_memory() == 7 * 1024
    meminfo.unlink()
    assert memory.available_memory() is None
    memory.check_memory(10**18, "Something", "")


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path)


def in_parquet(path, texts):
    parquet(path, id=texts, vector=[[1.0, 2.0]] * len(texts))


def in_jsonl(path, texts):
    path.write_text("\n".join(json.dumps({"id": t, "vector": [1.0, 2.0]}) for t in texts))


def in_safetensors(path, texts):
    data, offsets = pack_text(np.array(texts, dtype=object))
    save_file({"vector": torch.ones(len(texts), 2), "id.bytes": data, "id.offsets": offsets}, path)


def in_pt(path, texts):
    torch.save({"vector": torch.ones(len(texts), 2), "id": list(texts)}, path)


WAYS = {"parquet": in_parquet, "jsonl": in_jsonl, "safetensors": in_safetensors, "pt": in_pt}
EVERY = pytest.mark.parametrize("suffix", WAYS)


@EVERY
def test_one_long_id_does_not_size_all_rows(tmp_path, suffix):
    """10,000 ids, one of 100,000 characters: 4 GB if NumPy padded all to it."""
    WAYS[suffix](tmp_path / f"v.{suffix}", [*(f"{n}x" for n in range(9999)), "y" * 100_000])
    tracemalloc.start()
    with pytest.raises(DataError, match=r"`(id|list)` has a text of 100,000 characters.*shorten"):
        nb.load_vectors(tmp_path / f"v.{suffix}")
    assert tracemalloc.get_traced_memory()[1] < 2 * 10**8
    tracemalloc.stop()


def wide(rows=10_000):
    """Texts of which one would take 4 GB if NumPy padded all to it; some are not ASCII."""
    return [*(f"text {row} ß" for row in range(rows - 2)), "a\0b", "z" * 100_000]


@pytest.mark.parametrize("suffix", ["parquet", "npz", "safetensors", "jsonl", "csv", "pt"])
def test_one_long_text_does_not_size_all_rows(tmp_path, suffix):
    texts, path = wide(), tmp_path / f"v.{suffix}"
    ids, rows = [f"i{row}" for row in range(len(texts))], np.ones((len(texts), 2), np.float32)
    if suffix == "pt":
        torch.save({"id": ids, "vector": torch.from_numpy(rows), "text": texts}, path)
    elif suffix == "jsonl":
        lines = [{"id": i, "vector": [1, 1], "text": t} for i, t in zip(ids, texts, strict=True)]
        path.write_text("\n".join(map(json.dumps, lines)))
    elif suffix == "csv":
        texts[-2] = "a"  # a NUL is no text there
        lines = [f"{i},{t},1,1" for i, t in zip(ids, texts, strict=True)]
        path.write_text("\n".join(["id,text,v0,v1", *lines]))
    else:
        nb.Vectors(ids, rows, columns={"text": texts}).save(path)
    assert path.stat().st_size < 10**6
    tracemalloc.start()
    read = nb.load_vectors(path)
    assert tracemalloc.get_traced_memory()[1] < 5 * 10**7
    tracemalloc.stop()
    assert read.columns["text"].tolist() == texts
    some = read.select([5, 7])
    assert some.columns["text"].tolist() == texts[5:8:2]
    assert some.columns["text"].dtype.kind == "U"  # no longer wide
    assert "zzz…" in str(read.select([len(texts) - 1]).page())


def test_texts_from_python_are_not_padded_either():
    texts = wide()
    rows = np.ones((len(texts), 2), np.float32)
    for values in (texts, np.array(texts, dtype=object), np.array(texts, np.dtypes.StringDType())):
        found = nb.Vectors(range(len(texts)), rows, columns={"text": values}).columns["text"]
        assert found.dtype.kind == "T"
        assert found.tolist() == texts


def test_a_long_text_is_compared_like_others():
    texts = wide()
    ids, rows = range(len(texts)), np.random.default_rng(0).normal(size=(len(texts), 4))
    sides = {"new": nb.Vectors(ids, rows, columns={"text": texts, "split": texts})}
    check_agreement("text", sides | {"old": sides["new"]})
    other = nb.Vectors(ids, rows, columns={"text": [*texts[:-1], "other"]})
    with pytest.raises(DataError, match=r"9999 is 'z{79} in new and 'other' in old"):
        check_agreement("text", sides | {"old": other})
    with pytest.raises(DataError, match="The column `split` has the value"):
        is_training(sides["new"])


def test_a_long_split_is_still_a_split():
    texts = ["train" + " " * 100_000, *["train", "test"] * 5000]
    split = nb.Vectors(range(10_001), np.ones((10_001, 2)), columns={"split": texts})
    assert split.columns["split"].dtype.kind == "T"
    assert is_training(split).tolist() == [True, *[True, False] * 5000]


@pytest.mark.parametrize("role", ["ids", "labels"])
def test_long_ids_and_labels_are_refused(role):
    rows = np.ones((10_000, 2))
    with pytest.raises(DataError, match="has a text of 100,000 characters"):
        nb.Vectors(**{"ids": range(10_000), "vectors": rows} | {role: wide()})


def test_texts_larger_than_the_vectors_are_left_out(tmp_path, monkeypatch):
    """They are counted as they are stored, not padded."""
    monkeypatch.setattr("nobackfill.vectors.tabular.SMALL", 10**6)
    for texts, kept in ((wide(), ["text"]), ([text * 20 for text in wide()], [])):
        rows = len(texts)
        parquet(tmp_path / "v.parquet", id=range(rows), vector=[[1.0, 2.0]] * rows, text=texts)
        assert list(nb.load_vectors(tmp_path / "v.parquet").columns) == kept


@pytest.mark.parametrize("text", ["a\0", "\ud800"])
def test_a_text_that_cannot_be_kept_is_refused(text):
    with pytest.raises(DataError, match="the character NUL|invalid Unicode"):
        nb.Vectors(range(10_001), np.ones((10_001, 2)), columns={"text": [*wide(), text]})


@EVERY
def test_long_ids_of_a_few_rows_are_read(tmp_path, suffix):
    WAYS[suffix](tmp_path / f"v.{suffix}", ["a" * 5000, "b"])
    assert len(nb.load_vectors(tmp_path / f"v.{suffix}").ids[0]) == 5000


@EVERY
def test_ids_that_end_with_a_nul_are_refused(tmp_path, suffix):
    WAYS[suffix](tmp_path / f"v.{suffix}", ["a", "b\0"])
    with pytest.raises(DataError, match="row 1 ends with the character NUL"):
        nb.load_vectors(tmp_path / f"v.{suffix}")


def test_so_are_those_in_python():
    with pytest.raises(DataError, match="row 0 ends with the character NUL"):
        nb.Vectors(["a\0", "b"], np.ones((2, 2), np.float32))


def test_damaged_offsets_of_arrow_are_a_sentence(tmp_path):
    """Arrow itself ends the process at some of them."""
    table = pa.table({"id": ["a", "b"] * 20, "vector": [[1.0, 2.0]] * 40})
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    data = bytearray(sink.getvalue())
    offsets = np.arange(0, 82, 2, dtype=np.int32).tobytes()
    place = data.find(offsets)
    assert place > 0
    data[place + 8 : place + 12] = (2**30).to_bytes(4, "little")
    (tmp_path / "v.arrow").write_bytes(data)
    with pytest.raises(DataError, match="cannot be read as"):
        nb.load_vectors(tmp_path / "v.arrow")


@pytest.mark.parametrize(
    ("name", "state", "problem"),
    [
        ("state.json", None, "no JSON"),
        ("state.json", [], "it must be an object"),
        ("state.json", {}, "`_data_files` is missing"),
        ("state.json", {"_data_files": [{"filename": None}]}, r"`_data_files\[0\].filename` must"),
        ("state.json", {"_data_files": [{"filename": "../../x.arrow"}]}, "not within its folder"),
        ("dataset_dict.json", {"splits": ["../x"]}, "not within its folder"),
        ("dataset_dict.json", {"splits": [7]}, r"`splits\[0\]` must be text"),
    ],
)
def test_a_dataset_names_files_of_its_own(tmp_path, name, state, problem):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / name).write_text("" if state is None else json.dumps(state))
    with pytest.raises(DataError, match=problem) as told:
        nb.load_vectors(folder)
    assert re.search("Save the dataset again", str(told.value))


@pytest.mark.parametrize("number", [2**63 - 1, "9" * 5000, 10**8])
def test_the_number_of_a_column_counts_nothing(tmp_path, number):
    """A range up to it would fill the memory."""
    (tmp_path / "v.csv").write_text(f"id,v0,v1,v{number}\na,1,2,3\nb,2,1,3\n")
    tracemalloc.start()
    with suppress(DataError):
        nb.load_vectors(tmp_path / "v.csv")
    assert tracemalloc.get_traced_memory()[1] < 10**8
    tracemalloc.stop()


def test_long_texts_of_many_rows_do_not_stop_a_table(tmp_path):
    """Arrow splits a column of more than 16 MB per batch into chunks."""
    rows = 9000
    texts = [f"{row} " + "t" * 4000 for row in range(rows)]
    ids = [f"i{row}" for row in range(rows)]
    parquet(tmp_path / "v.parquet", id=ids, vector=[[1.0, 2.0]] * rows, text=texts)
    assert nb.load_vectors(tmp_path / "v.parquet").ids.tolist() == ids


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_may_ask_for_any_memory_and_are_refused(tmp_path, compression):
    path = npz(tmp_path / "v.npz", compression, vector=npy((4, 4), data=ROWS.tobytes()))
    with pytest.raises(DataError, match=r"vector\.npy is compressed in a way that NumPy does not"):
        nb.load_vectors(path)


@pytest.mark.parametrize("name", ["v.json", "v.jsonl"])
@pytest.mark.parametrize("text", ["null", ' null\n{"id": "a", "vector": [1, 2]}\n'])
def test_a_file_that_begins_with_null_is_refused(tmp_path, name, text):
    """The reader of pyarrow ends the process."""
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match="begins with `null`"):
        nb.load_vectors(tmp_path / name)


RECORD = '{"id": "%s", "vector": [1, null]}\n'


@pytest.mark.parametrize("line", ["null\n", " \t null \r\n", "null null\n", " " * 5000 + "null\n"])
@pytest.mark.parametrize("compressed", [False, True])
def test_lines_of_null_anywhere_are_refused(tmp_path, line, compressed):
    """A block of them, of 2 MB, would end the process."""
    text = (RECORD % "a" + line * (5 * 2**20 // len(line)) + RECORD % "b").encode()
    path = tmp_path / ("v.jsonl.gz" if compressed else "v.jsonl")
    path.write_bytes(gzip.compress(text) if compressed else text)
    with pytest.raises(DataError, match="A line begins with `null`"):
        nb.load_vectors(path)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11, 64])
def test_a_line_of_null_is_seen_wherever_a_block_ends(tmp_path, size):
    for first, is_record in (("a", True), (" null", False), ("nul", True), ("   \t null", False)):
        text = f'{{"v": null}}\n\n"null"\n{first}\n'.encode()
        (tmp_path / "v.jsonl").write_bytes(text)
        with Lines(tmp_path / "v.jsonl") as lines:
            if is_record:
                read = b"".join(iter(lambda lines=lines: lines.read(size), b""))
                assert read == text
            else:
                with pytest.raises(DataError, match="`null`"):
                    list(iter(lambda lines=lines: lines.read(size), b""))


def test_nulls_within_a_document_are_read(tmp_path):
    records = [{"id": "a", "vector": [1, 2], "note": None}, {"id": "b", "vector": [2, 1]}]
    (tmp_path / "v.json").write_text(json.dumps(records, indent=1).replace("null", "\nnull"))
    assert nb.load_vectors(tmp_path / "v.json").ids.tolist() == ["a", "b"]
