"""Files as people have them: text, shards, nested records, other names, missing vectors."""

import gzip
import json
import uuid
from datetime import date

import datasets
import lancedb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import torch

import nobackfill as nb
from nobackfill.errors import ConfigError, DataError
from nobackfill.vectors import delimited, json_lines, lance, tabular
from nobackfill.vectors.arrow_columns import to_numpy
from nobackfill.vectors.column_names import Columns
from nobackfill.vectors.load import read_file
from nobackfill.vectors.several_files import read_files
from nobackfill.vectors.space import Space, write_record

IDS = ["a", "b", "c"]
ROWS = [[0.5, -1.0], [2.0, 3e-5], [-4.25, 6.0]]
LABELS = ["x", "y", "x"]
MATRIX = torch.tensor(ROWS)


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def records(**columns):
    columns = {"id": IDS, "vector": ROWS, **columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def assert_read(vectors, ids=IDS, labels=LABELS):
    assert vectors.ids.tolist() == ids
    assert torch.equal(vectors.vectors, MATRIX)
    assert (None if vectors.labels is None else vectors.labels.tolist()) == labels


# -- CSV


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("form", ["wide", "lists"])
def test_csv_of_any_delimiter_and_encoding(delimiter, encoding, form, tmp_path):
    lines = [["id", "label", *(["e_0", "e_1"] if form == "wide" else ["emb"])]]
    for id, label, row in zip(IDS, LABELS, ROWS, strict=True):
        lines.append([id, label, *(map(str, row) if form == "wide" else [f'"{row}"'])])
    text = "\r\n".join(map(delimiter.join, lines))
    (tmp_path / "file.csv").write_bytes(text.encode(encoding))
    assert_read(nb.load_vectors(tmp_path / "file.csv"))


DAY = date(2024, 1, 31)


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ({"vector": [DAY, DAY]}, "date32"),
        ({"vector": [[True], [False]]}, "list<element: bool>"),
        ({"e_0": [0.5, 2.0], "e_1": [DAY, DAY]}, "date32"),
        ({"e_0": [0.5, 2.0], "e_1": [[0.5], [2.0]]}, "list<element: double>"),
    ],
)
def test_a_column_of_anything_else_is_no_vector(columns, kind, tmp_path):
    pq.write_table(pa.table({"id": ["a", "b"], **columns}), tmp_path / "file.parquet")
    name = "vector" if "vector" in columns else "e_1"
    with pytest.raises(DataError, match=f"`{name}` contains {kind}.*, not a list of floats"):
        nb.load_vectors(tmp_path / "file.parquet", vector="vector" if name == "vector" else "e_")


@pytest.mark.parametrize(
    "cells",
    [
        ["[0.5, -1.0]", "[2.0, 3e-05]", "[-4.25, 6.0]"],
        ["[0.5,-1.0]", "[2, 3e-05]", "[ -4.25 , 6]"],
        ["{0.5,-1}", "{2,0.00003}", "{-4.25,6}"],
        ["[ 0.5  -1. ]", "[2.e+00 3.e-05]", "[-4.25\n 6.  ]"],
        ["(0.5, -1.0)", "(2.0, 3e-05)", "(-4.25, 6.0)"],
        ["0.5, -1.0", "2.0, 3e-05", "-4.25, 6.0"],
    ],
    ids=["Python", "spaces", "PostgreSQL", "NumPy", "tuples", "no brackets"],
)
def test_vectors_in_a_cell(cells, tmp_path):
    pd.DataFrame({"id": IDS, "label": LABELS, "vector": cells}).to_csv(
        tmp_path / "file.csv", index=False
    )
    assert_read(nb.load_vectors(tmp_path / "file.csv"))


@pytest.mark.parametrize(
    ("cell", "says"),
    [("[0.1 ... 0.2]", "part was left out"), ("[0.1, none]", "list of numbers.*none")],
)
def test_cells_that_are_no_vectors_are_refused(cell, says, tmp_path):
    (tmp_path / "file.csv").write_text(f'id,vector\na,"[1.0, 2.0]"\nb,"{cell}"\n')
    with pytest.raises(DataError, match=says):
        nb.load_vectors(tmp_path / "file.csv")


def test_decimal_commas_and_a_header_of_numbers(tmp_path):
    (tmp_path / "excel.csv").write_text("id;e1;e2\na;0,5;-1\nb;2,0;3e-5\nc;-4,25;6\n")
    assert_read(nb.load_vectors(tmp_path / "excel.csv"), labels=None)
    np.savetxt(tmp_path / "bare.csv", MATRIX.numpy(), delimiter=",")
    assert_read(nb.load_vectors(tmp_path / "bare.csv"), [0, 1, 2], None)
    pd.DataFrame(ROWS).to_csv(tmp_path / "frame.csv", index=False)  # its header is 0, 1
    assert_read(nb.load_vectors(tmp_path / "frame.csv"), [0, 1, 2], None)
    pd.DataFrame(ROWS, index=IDS).to_csv(tmp_path / "index.csv")
    assert_read(nb.load_vectors(tmp_path / "index.csv"), labels=None)


def test_the_index_that_pandas_writes_is_no_column_beside_ids(tmp_path):
    frame = pd.DataFrame({"id": IDS, "label": LABELS, "vector": map(str, ROWS)})
    frame.to_csv(tmp_path / "file.csv")  # the first column has no name
    vectors = nb.load_vectors(tmp_path / "file.csv")
    assert_read(vectors)
    assert not vectors.columns
    table = pl.DataFrame({"": [7, 8, 9], "id": IDS, "vec": MATRIX.numpy(), "label": LABELS})
    assert_read(nb.as_vectors(table))


def test_text_remains_text_unless_nothing_is_lost(tmp_path):
    (tmp_path / "file.csv").write_text(
        "id,e0,e1,label,price,good,text\n007,1,2,1,2.5,true,\n8,3,4,2,,false,5 apples\n"
    )
    vectors = nb.load_vectors(tmp_path / "file.csv")
    assert vectors.ids.tolist() == ["007", "8"]
    assert vectors.labels.tolist() == [1, 2]
    np.testing.assert_array_equal(vectors.columns["price"], [2.5, np.nan])
    assert vectors.columns["good"].tolist() == [True, False]
    assert vectors.columns["text"].tolist() == ["", "5 apples"]


def test_an_empty_id_in_csv_is_missing(tmp_path):
    (tmp_path / "file.csv").write_text("item_id,e0,e1\na,1,2\n,3,4\n")
    with pytest.raises(DataError, match=r"`item_id`.*1 of 2 are missing.*row 1"):
        nb.load_vectors(tmp_path / "file.csv")


# -- JSON


def test_json_lines_are_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "BLOCK", 400)
    matrix = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    rows = [{"id": f"é {row}", "emb": v.tolist()} for row, v in enumerate(matrix)]
    write_lines(tmp_path / "file.jsonl", rows)
    vectors = nb.load_vectors(tmp_path / "file.jsonl")
    np.testing.assert_array_equal(vectors.vectors, matrix)
    assert vectors.ids.tolist() == [f"é {row}" for row in range(200)]
    rows[170]["emb"] = [1.0]
    write_lines(tmp_path / "file.jsonl", rows)
    with pytest.raises(DataError, match="id 'é 170' has 1 dimensions, the first one has 4"):
        nb.load_vectors(tmp_path / "file.jsonl")


def test_csv_is_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK", 300)
    matrix = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    frame = pd.DataFrame({"id": np.arange(200), "emb": [str(row) for row in matrix.tolist()]})
    frame.to_csv(tmp_path / "file.csv", index=False)
    vectors = nb.load_vectors(tmp_path / "file.csv")
    np.testing.assert_array_equal(vectors.vectors, matrix)
    assert vectors.ids.tolist() == list(range(200))


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2"])
@pytest.mark.parametrize("name", ["file.csv", "file.tsv", "file.jsonl", "file.json"])
def test_compressed_text(suffix, name, tmp_path):
    if name.endswith("sv"):
        text = pd.DataFrame({"id": IDS, "label": LABELS, "vector": list(map(str, ROWS))}).to_csv(
            index=False, sep="\t" if name == "file.tsv" else ","
        )
    elif name == "file.jsonl":
        text = "\n".join(map(json.dumps, records(label=LABELS)))
    else:
        text = json.dumps(records(label=LABELS), indent=1)
    with pa.output_stream(str(tmp_path / (name + suffix)), compression="detect") as file:
        file.write(text.encode())
    assert (tmp_path / (name + suffix)).read_bytes() != text.encode()
    assert_read(nb.load_vectors(tmp_path / (name + suffix)))


@pytest.mark.parametrize(
    "document",
    [
        records(label=LABELS),
        {"object": "list", "data": records(label=LABELS), "model": "m"},
        {"result": {"points": records(payload=[{"label": x} for x in LABELS])}, "status": "ok"},
        {"ids": IDS, "embeddings": ROWS, "metadatas": [{"label": x} for x in LABELS]},
        {id: {"vector": row, "metadata": {"label": x}}
         for id, row, x in zip(IDS, ROWS, LABELS, strict=True)},
        {"embedding_dict": dict(zip(IDS, ROWS, strict=True)),
         "metadata_dict": {id: {"label": x} for id, x in zip(IDS, LABELS, strict=True)}},
    ],
    ids=["records", "answer", "points", "columns", "by id", "vectors by id"],
)  # fmt: skip
def test_documents_of_every_form(document, tmp_path):
    for indent in (None, 2):
        (tmp_path / "file.json").write_text(json.dumps(document, indent=indent))
        assert_read(nb.load_vectors(tmp_path / "file.json"))


def test_json_lines_may_be_called_json(tmp_path):
    write_lines(tmp_path / "file.json", [{"meta": {"label": r.pop("label")}, **r}
                                         for r in records(label=LABELS)])  # fmt: skip
    assert_read(nb.load_vectors(tmp_path / "file.json"))


def test_a_nested_column_has_its_last_name_unless_two_have(tmp_path):
    payload = [{"id": 7, "color": {"name": "red"}}] * 3
    write_lines(tmp_path / "file.jsonl", records(payload=payload))
    vectors = nb.load_vectors(tmp_path / "file.jsonl", label="name")
    assert vectors.ids.tolist() == IDS
    assert vectors.labels.tolist() == ["red"] * 3
    assert vectors.columns["payload.id"].tolist() == [7] * 3


def test_several_vectors_in_a_line_are_refused(tmp_path):
    data = [[{"embedding": row}] * (1 + (row is ROWS[2])) for row in ROWS]
    write_lines(tmp_path / "file.jsonl", [{"id": i, "data": d} for i, d in enumerate(data)])
    with pytest.raises(DataError, match="`data.embedding` must have one record per row.* has 2"):
        nb.load_vectors(tmp_path / "file.jsonl")


def test_a_column_that_nobody_needs_does_not_stand_in_the_way(tmp_path):
    write_lines(tmp_path / "file.jsonl", records(label=LABELS, note=[1, 2, "three"]))
    with pytest.raises(DataError, match="cannot be read"):  # already in the first block
        nb.load_vectors(tmp_path / "file.jsonl")
    lines = records(label=LABELS, note=[1, 2, 3]) * 2000
    lines = [{**line, "id": n} for n, line in enumerate(lines)]
    lines[5000]["note"] = "three"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "BLOCK", 10_000)
        write_lines(tmp_path / "file.jsonl", lines)
        loaded = read_file(tmp_path / "file.jsonl")
    assert len(loaded.vectors) == 6000
    assert set(loaded.vectors.columns) == set()
    assert "only the id, the vector and the label are read" in loaded.remarks[-1]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_long_texts_fit_into_a_block(suffix, tmp_path):
    texts = ["short", "long " * 300_000, "longer " * 700_000]
    if suffix == ".csv":
        pd.DataFrame({"id": IDS, "text": texts, "vector": ROWS}).to_csv(
            tmp_path / "file.csv", index=False
        )
    else:
        write_lines(tmp_path / "file.jsonl", records(text=texts))
    vectors = nb.load_vectors(tmp_path / f"file{suffix}")
    assert_read(vectors, labels=None)
    assert vectors.columns["text"].tolist() == texts


# -- several files


def shards(folder, count=12, write=pq.write_table):
    """Writes a row per shard, and returns the vectors."""
    folder.mkdir(parents=True)
    matrix = np.random.default_rng(0).normal(size=(count, 2)).astype(np.float32)
    for row in range(count):
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(matrix[row]), 2)
        write(pa.table({"id": [f"i{row}"], "embedding": vectors}), folder / f"s-{row}.parquet")
    return matrix


def test_shards_are_one_table_in_natural_order(tmp_path):
    matrix = shards(tmp_path / "old")
    (tmp_path / "old" / "_SUCCESS").touch()
    (tmp_path / "old" / ".crc").touch()
    for path in (tmp_path / "old", tmp_path / "old" / "*.parquet", tmp_path / "o*" / "s-*"):
        vectors = nb.load_vectors(path)
        assert vectors.ids.tolist() == [f"i{row}" for row in range(12)]
        np.testing.assert_array_equal(vectors.vectors, matrix)


def test_a_folder_may_hold_any_table(tmp_path):
    for number, (id, row) in enumerate(zip(IDS, ROWS, strict=True)):
        for name in ("lines", "text", "arrow"):
            (tmp_path / name).mkdir(exist_ok=True)
        write_lines(tmp_path / "lines" / f"{number}.jsonl", [{"id": id, "vector": row}])
        (tmp_path / "text" / f"{number}.csv").write_text(f'id,vector\n{id},"{row}"\n')
        table = pa.table({"id": [id], "vector": pa.array([row], pa.list_(pa.float32()))})
        feather.write_feather(table, tmp_path / "arrow" / f"{number}.feather")
    for name in ("lines", "text", "arrow"):
        assert_read(nb.load_vectors(tmp_path / name), labels=None)


def test_folders_that_cannot_be_one_table_are_refused(tmp_path):
    shards(tmp_path / "old", 2)
    (tmp_path / "old" / "more.csv").write_text("id,e0,e1\nz,1,2\n")
    with pytest.raises(DataError, match=r"several formats, such as more\.csv and s-0\.parquet"):
        nb.load_vectors(tmp_path / "old")
    (tmp_path / "old" / "more.csv").unlink()
    pq.write_table(pa.table({"key": ["z"], "embedding": [[1.0, 2.0]]}), tmp_path / "old/z.parquet")
    with pytest.raises(DataError, match=r"z\.parquet has no column `id`, but s-0\.parquet has"):
        nb.load_vectors(tmp_path / "old")
    with pytest.raises(DataError, match="No file has such a name"):
        nb.load_vectors(tmp_path / "old" / "*.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no file of vectors"):
        nb.load_vectors(tmp_path / "empty")


def test_a_lance_table_is_read_in_parts_in_its_order(tmp_path, monkeypatch):
    monkeypatch.setattr(lance, "PART", 6)  # three rows, or two where fragments meet
    matrix = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), 2)
    rows = pa.table({"doc": [f"doc {row}" for row in range(20)], "vec": lists})
    table = lancedb.connect(str(tmp_path)).create_table("docs", rows[:8])
    table.add(rows[8:])
    vectors = nb.load_vectors(tmp_path / "docs.lance", id="doc")
    assert vectors.ids.tolist() == rows["doc"].to_pylist()
    assert torch.equal(vectors.vectors, torch.from_numpy(matrix))


def test_splits_of_a_dataset_become_a_column(tmp_path):
    make = datasets.Dataset.from_dict
    parts = {
        "train": make({"id": IDS[:2], "emb": ROWS[:2], "tokens": [[1, 2, 3]] * 2}),
        "test": make({"id": IDS[2:], "emb": ROWS[2:], "tokens": [[4]]}),
    }
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "data")
    vectors = nb.load_vectors(tmp_path / "data")
    assert vectors.ids.tolist() == IDS
    assert torch.equal(vectors.vectors.float(), MATRIX)
    assert vectors.columns["split"].tolist() == ["train", "train", "test"]
    assert len(nb.load_vectors(tmp_path / "data" / "test")) == 1
    datasets.DatasetDict({"train": parts["train"], "odd": parts["test"]}).save_to_disk(
        tmp_path / "odd"
    )
    with pytest.raises(DataError, match="'odd' is not known"):
        nb.load_vectors(tmp_path / "odd")


def test_a_folder_has_a_record_beside_or_within(tmp_path):
    shards(tmp_path / "old", 2)
    assert nb.load_vectors(tmp_path / "old").space is None
    write_record(tmp_path / "old.space.json", Space(2, "beside"))
    assert nb.load_vectors(tmp_path / "old").space.weights == "beside"
    write_record(tmp_path / "old" / "space.json", Space(2, "within"))
    assert nb.load_vectors(tmp_path / "old").space.weights == "within"
    assert nb.load_vectors(tmp_path / "old" / "*.parquet").space is None


@pytest.mark.parametrize(
    ("name", "says"),
    [("a.xlsx", "save it as CSV"), ("a.pkl", "never loaded"), ("a.h5", r"as \.npz"),
     ("a.sqlite", "Export the table"), ("a.parquet.gz", r"formats of vectors are \.parquet")],
)  # fmt: skip
def test_other_files_are_refused_with_advice(name, says, tmp_path):
    (tmp_path / name).write_bytes(gzip.compress(b"x"))
    with pytest.raises(DataError, match=says):
        nb.load_vectors(tmp_path / name)


# -- columns


def test_what_was_chosen_is_said(tmp_path):
    pq.write_table(pa.table({"doc_id": IDS, "Embedding": ROWS, "category": LABELS}),
                   tmp_path / "file.parquet")  # fmt: skip
    loaded = read_file(tmp_path / "file.parquet")
    assert loaded.remarks == (
        "`doc_id` is read as the id, `Embedding` as the vector and `category` as the label",
    )
    assert loaded.vectors.labels.tolist() == loaded.vectors.columns["category"].tolist() == LABELS
    pq.write_table(pa.table({"id": IDS, "vector": ROWS, "label": LABELS}),
                   tmp_path / "ours.parquet")  # fmt: skip
    assert read_file(tmp_path / "ours.parquet").remarks == ()


def test_two_candidates_are_an_error_with_both(tmp_path):
    names = {"doc_id": IDS, "item_id": IDS[::-1], "emb": ROWS, "label": LABELS}
    pq.write_table(pa.table(names), tmp_path / "file.parquet")
    with pytest.raises(DataError, match="`doc_id` and `item_id` may both be the id.*--id doc_id"):
        nb.load_vectors(tmp_path / "file.parquet")
    assert nb.load_vectors(tmp_path / "file.parquet", id="item_id").ids.tolist() == IDS[::-1]
    np.savez(tmp_path / "file.npz", id=IDS, emb=MATRIX, vec=MATRIX)
    with pytest.raises(DataError, match="`emb` and `vec` may both be the vector.*--vector emb"):
        nb.load_vectors(tmp_path / "file.npz")
    assert_read(nb.load_vectors(tmp_path / "file.npz", vector="vec"), labels=None)


@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".jsonl", ".csv"])
@pytest.mark.parametrize("role", ["id", "vector", "label"])
def test_a_misspelt_column_gets_a_suggestion(suffix, role, tmp_path):
    frame = pd.DataFrame({"product_id": IDS, "dense": ROWS, "colour": LABELS})
    path = tmp_path / f"file{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path)
    elif suffix == ".npz":
        np.savez(path, product_id=IDS, dense=ROWS, colour=LABELS)
    elif suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False)
    right = {"id": "product_id", "vector": "dense", "label": "colour"}
    assert nb.load_vectors(path, **right).labels.tolist() == LABELS
    wrong = {"id": "produkt_id", "vector": "densse", "label": "color"}[role]
    with pytest.raises(ConfigError, match=f"`{wrong}`.*Did you mean `{right[role]}`"):
        nb.load_vectors(path, **{**right, role: wrong})


def test_a_list_of_floats_is_the_vector_whatever_its_name(tmp_path):
    table = pa.table({"id": IDS, "clip": ROWS, "tokens": [[1, 2]] * 3, "tags": [["t"]] * 3})
    pq.write_table(table, tmp_path / "file.parquet")
    loaded = read_file(tmp_path / "file.parquet")
    assert torch.equal(loaded.vectors.vectors.float(), MATRIX)
    assert loaded.remarks == ("`clip` is read as the vector",)
    assert set(loaded.vectors.columns) == set()


def test_whole_numbers_become_floats(tmp_path):
    pq.write_table(
        pa.table({"id": IDS, "vector": [[1, 2], [3, 4], [5, 6]]}), tmp_path / "f.parquet"
    )
    assert nb.load_vectors(tmp_path / "f.parquet").vectors.tolist() == [[1, 2], [3, 4], [5, 6]]


def test_uuids_are_text(tmp_path):
    values = [uuid.uuid4() for _ in range(100)]
    raw = pa.array([value.bytes for value in values], pa.binary(16))
    expected = [str(value) for value in values]
    assert to_numpy(pa.chunked_array([raw.slice(3, 50), raw.slice(60)]), "id").tolist() == [
        *expected[3:53], *expected[60:],
    ]  # fmt: skip
    if hasattr(pa, "uuid"):
        ids = pa.ExtensionArray.from_storage(pa.uuid(), raw)
        pq.write_table(pa.table({"uuid": ids, "vector": [[1.0]] * 100}), tmp_path / "f.parquet")
        assert nb.load_vectors(tmp_path / "f.parquet").ids.tolist() == expected


@pytest.mark.parametrize(
    "words", [["a", "bcd", ""], ["ß", "bcd", ""], ["", "", ""], [" x", "y ", "z"]]
)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_text_is_the_same_in_ascii_or_not(words, kind):
    long = pa.array(["skipped", *words, "too"], kind)
    column = pa.chunked_array([long.slice(1, 2), long.slice(3, 1)])
    assert to_numpy(column, "id").tolist() == words
    assert to_numpy(column, "id").dtype.kind == "U"


def test_long_texts_do_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(tabular, "SMALL", 1000)
    table = pa.table({"id": IDS, "vector": ROWS, "text": ["short", "x" * 200, ""], "tag": LABELS})
    pq.write_table(table, tmp_path / "file.parquet")
    loaded = read_file(tmp_path / "file.parquet")
    assert set(loaded.vectors.columns) == {"tag"}
    assert "long texts are not read: text" in loaded.remarks[-1]


# -- rows without a direction

BAD = [[0.5, 1.0], [float("nan"), 1.0], None, [0.0, 0.0], [float("inf"), 1.0], [3.0, 4.0]]
NAMES = [f"i{row}" for row in range(6)]


def write_bad(path):
    if path.suffix == ".parquet":
        table = pa.table({"id": NAMES, "emb": pa.array(BAD, pa.list_(pa.float32()))})
        pq.write_table(table, path)
    elif path.suffix == ".jsonl":
        write_lines(path, [{"id": id, "emb": row} for id, row in zip(NAMES, BAD, strict=True)])
        path.write_text(path.read_text().replace("Infinity", "1e999"))
    elif path.suffix == ".csv":
        frame = pd.DataFrame([row or [None, None] for row in BAD], columns=["e0", "e1"])
        frame.assign(id=NAMES).to_csv(path, index=False)
    else:
        nan = float("nan")
        np.savez(path, id=NAMES, emb=np.float32([row or [nan, nan] for row in BAD]))


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz"])
def test_invalid_rows_are_left_out_and_counted(suffix, tmp_path):
    path = tmp_path / f"file{suffix}"
    write_bad(path)
    with pytest.raises(DataError, match="--drop-invalid|is missing"):
        nb.load_vectors(path)
    says = r"4 of 6 vectors are left out, .*: 'i1', 'i2', 'i3', 'i4'$"
    with pytest.warns(UserWarning, match=says):
        vectors = nb.load_vectors(path, drop_invalid=True)
    assert vectors.ids.tolist() == ["i0", "i5"]
    assert vectors.vectors.tolist() == [[0.5, 1.0], [3.0, 4.0]]


def test_the_first_vector_may_be_missing(tmp_path):
    for suffix in (".parquet", ".csv", ".jsonl"):
        path = tmp_path / f"file{suffix}"
        frame = pd.DataFrame({"id": ["a", "b"], "emb": [None, [1.0, 2.0]]})
        if suffix == ".parquet":
            frame.to_parquet(path)
        elif suffix == ".csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_json(path, orient="records", lines=True)
        loaded = read_file(path, drop_invalid=True)
        assert loaded.vectors.ids.tolist() == ["b"]
        assert loaded.dropped == ("a",)


def test_nothing_but_invalid_rows_is_an_error(tmp_path):
    np.savez(tmp_path / "file.npz", id=IDS, vector=np.zeros((3, 2)))
    with pytest.raises(DataError, match="None of 3 vectors has a direction"):
        nb.load_vectors(tmp_path / "file.npz", drop_invalid=True)


def test_what_one_file_leaves_out_all_leave_out(tmp_path):
    good = np.float32([[1, 2]] * 6)
    write_bad(tmp_path / "old.npz")
    np.savez(tmp_path / "new.npz", id=NAMES[::-1], emb=good)
    paths = {"old": tmp_path / "old.npz", "new": tmp_path / "new.npz"}
    read = read_files(paths, drop_invalid=True)
    assert read.vectors["old"].ids.tolist() == ["i0", "i5"]
    assert read.vectors["new"].ids.tolist() == ["i5", "i0"]
    assert any("4 of 6 vectors are left out" in remark for remark in read.remarks)


# -- rows without ids


def test_rows_without_ids_take_those_of_the_other_file(tmp_path):
    np.save(tmp_path / "new.npy", MATRIX.numpy())
    write_lines(tmp_path / "old.jsonl", records())
    paths = {"old": tmp_path / "old.jsonl", "new": tmp_path / "new.npy"}
    read = read_files(paths)
    assert read.vectors["new"].ids.tolist() == IDS
    assert "matched by position" in read.remarks[-1]
    np.save(tmp_path / "new.npy", MATRIX.numpy()[:2])
    with pytest.raises(DataError, match="3 rows.*2.*missing row"):
        read_files(paths)
    nb.Vectors([2, 0, 1], MATRIX).save(tmp_path / "old.npz")  # ids are row numbers of the other
    read = read_files({**paths, "old": tmp_path / "old.npz"})
    assert read.vectors["new"].ids.tolist() == [0, 1]


def test_a_file_without_the_named_columns_may_have_ours(tmp_path):
    pd.DataFrame({"sku": IDS, "clip": map(str, ROWS)}).to_csv(tmp_path / "own.csv", index=False)
    nb.Vectors(IDS, MATRIX).save(tmp_path / "ours.parquet")
    paths = {"old": tmp_path / "own.csv", "new": tmp_path / "ours.parquet"}
    read = read_files(paths, Columns("sku", "clip"))
    assert list(read.vectors) == ["old", "new"]
    for vectors in read.vectors.values():
        assert_read(vectors, labels=None)
    pairs = {"a": ["b"], "b": ["a"]}
    assert nb.evaluate(*paths.values(), id="sku", vector="clip", pairs=pairs).num_gallery == 3
    for names in (Columns("skuu", "clip"), Columns("sku", "clip_")):
        with pytest.raises(ConfigError, match=r"own.csv.*Did you mean `(sku|clip)`"):
            read_files(paths, names)
    with pytest.raises(ConfigError, match=r"ours.parquet: There is no column `sku`"):
        read_files({"new": paths["new"]}, Columns("sku"))


def test_a_label_may_be_in_one_of_the_files(tmp_path):
    write_lines(tmp_path / "old.jsonl", records(kind=LABELS))
    write_lines(tmp_path / "new.jsonl", records(category=["other"] * 3))
    paths = {"old": tmp_path / "old.jsonl", "new": tmp_path / "new.jsonl"}
    read = read_files(paths, Columns(label="kind"))
    assert read.vectors["old"].labels.tolist() == LABELS
    assert read.vectors["new"].labels is None


def test_arrays_of_objects_are_refused_with_advice(tmp_path):
    np.savez(tmp_path / "file.npz", id=np.array(IDS, dtype=object), vector=MATRIX.numpy())
    with pytest.raises(DataError, match=r"`id` contains Python objects.*`id\.astype\(str\)`"):
        nb.load_vectors(tmp_path / "file.npz")


def test_tensors_of_torch(tmp_path):
    torch.save(MATRIX.bfloat16(), tmp_path / "bare.pt")
    bare = read_file(tmp_path / "bare.pt")
    assert not bare.has_ids
    assert torch.equal(bare.vectors.vectors, MATRIX.bfloat16().float())
    torch.save(MATRIX, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    torch.save(MATRIX, tmp_path / "mapped.pt")
    for name in ("old.pt", "mapped.pt"):
        nb.load_vectors(tmp_path / name).vectors[0] = 7
        assert torch.equal(nb.load_vectors(tmp_path / name).vectors, MATRIX)
    torch.save([MATRIX], tmp_path / "list.pt")
    with pytest.raises(DataError, match="contains a list"):
        nb.load_vectors(tmp_path / "list.pt")
