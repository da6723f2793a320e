"""Fifteen people's files, each written by their own software: one command, or one call, each.

docs/files.md has the commands.
"""

import csv
import json
import re
import uuid
from pathlib import Path
from types import SimpleNamespace

import datasets
import duckdb
import lancedb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

import nobackfill as nb

CLASSES, DIM = 24, 6
COUNT = 5 * CLASSES
random = np.random.default_rng(0)
KINDS = np.arange(COUNT) % CLASSES
LABELS = np.array([f"kind {kind}" for kind in KINDS])
IDS = np.array([f"item {row}" for row in range(COUNT)])
UUIDS = [uuid.UUID(int=int(random.integers(2**62)) << 64 | row) for row in range(COUNT)]
CENTRES = random.normal(size=(CLASSES, DIM))[KINDS]
MODELS = {
    name: (CENTRES + noise * random.normal(size=(COUNT, DIM))).astype(np.float32)
    for name, noise in (("old", 1.0), ("new", 0.3))
}


def pandas_parquet(path, matrix):
    frame = pd.DataFrame({"doc_id": IDS, "embedding": list(matrix), "category": LABELS})
    frame.to_parquet(path.with_suffix(".parquet"), index=False)


def polars_feather(path, matrix):
    frame = pl.DataFrame({"item_id": IDS, "vec": matrix, "class": LABELS})
    frame.write_ipc(path.with_suffix(".feather"))


def duckdb_parquet(path, matrix):
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE items (uuid UUID, emb FLOAT[{DIM}], label VARCHAR)")
    rows = zip(UUIDS, matrix.tolist(), LABELS.tolist(), strict=True)
    connection.executemany("INSERT INTO items VALUES (?, ?, ?)", list(rows))
    connection.execute(f"COPY items TO '{path.with_suffix('.parquet')}'")


def pyarrow_partitions(path, matrix):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), DIM)
    table = pa.table({"_id": IDS, "embeddings": lists, "label": LABELS})
    pads.write_dataset(
        table, path, format="parquet", partitioning=["label"], partitioning_flavor="hive"
    )


def hugging_face(path, matrix):
    columns = {"id": IDS.tolist(), "embeddings": matrix.tolist(), "label": KINDS.tolist()}
    features = datasets.Features(
        id=datasets.Value("string"),
        embeddings=datasets.Sequence(datasets.Value("float32")),
        label=datasets.ClassLabel(names=[f"kind {kind}" for kind in range(CLASSES)]),
    )
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(path, num_shards=2)


def numpy_archive(path, matrix):
    np.savez(path.with_suffix(".npz"), ids=IDS, embeddings=matrix, labels=KINDS)


def torch_dictionary(path, matrix):
    value = {"ids": IDS.tolist(), "embeddings": torch.from_numpy(matrix), "labels": LABELS.tolist()}
    torch.save(value, path.with_suffix(".pt"))


def encoded(path, matrix):
    np.save(path.with_suffix(".npy"), matrix)  # what `SentenceTransformer.encode` returns


def langchain_dump(path, matrix):
    records = {
        id: {"id": id, "vector": row, "text": f"text of {id}", "metadata": {"category": label}}
        for id, row, label in zip(IDS.tolist(), matrix.tolist(), LABELS.tolist(), strict=True)
    }
    path.with_suffix(".json").write_text(json.dumps(records, indent=2))


def llama_index_store(path, matrix):
    store = {
        "embedding_dict": dict(zip(IDS.tolist(), matrix.tolist(), strict=True)),
        "text_id_to_ref_doc_id": {id: "document" for id in IDS.tolist()},
        "metadata_dict": {
            id: {"_node_type": "TextNode", "category": label}
            for id, label in zip(IDS.tolist(), LABELS.tolist(), strict=True)
        },
    }
    path.with_suffix(".json").write_text(json.dumps(store))


def qdrant_scroll(path, matrix):
    points = [
        {"id": str(id), "payload": {"category": label, "price": 2.5}, "vector": row, "shard": None}
        for id, row, label in zip(UUIDS, matrix.tolist(), LABELS.tolist(), strict=True)
    ]
    path.with_suffix(".jsonl").write_text("\n".join(map(json.dumps, points)))


def chroma_get(path, matrix):
    result = {
        "ids": IDS.tolist(),
        "embeddings": matrix.tolist(),
        "documents": [f"text of {id}" for id in IDS.tolist()],
        "uris": None,
        "included": ["metadatas", "documents", "embeddings"],
        "data": None,
        "metadatas": [{"category": label} for label in LABELS.tolist()],
    }
    path.with_suffix(".json").write_text(json.dumps(result))


def spreadsheet(path, matrix):
    with path.with_suffix(".csv").open("w", encoding="utf-8-sig", newline="") as file:
        rows = csv.writer(file, delimiter=";")
        rows.writerow(["Product ID", "Class", *(f"dim{number + 1}" for number in range(DIM))])
        for id, label, row in zip(IDS, LABELS, matrix.tolist(), strict=True):
            rows.writerow([id, label, *row])


def batch_of_an_api(path, matrix):
    lines = [
        {
            "id": f"batch_req_{path.name}_{row}",
            "custom_id": id,
            "response": {
                "status_code": 200,
                "request_id": f"request-{row}",
                "body": {
                    "object": "list",
                    "data": [{"object": "embedding", "index": 0, "embedding": vector}],
                    "model": "text-embedding",
                    "usage": {"prompt_tokens": 8, "total_tokens": 8},
                },
            },
            "error": None,
        }
        for row, (id, vector) in enumerate(zip(IDS.tolist(), matrix.tolist(), strict=True))
    ]
    path.with_suffix(".jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")


def forty_shards(path, matrix):
    path.mkdir()
    lists = pa.array(matrix.tolist(), pa.list_(pa.float32()))
    table = pa.table({"id": IDS, "embedding": lists, "category": LABELS})
    for shard in range(40):
        rows = table.slice(shard * COUNT // 40, COUNT // 40)
        pq.write_table(rows, path / f"part-{shard}-of-40.parquet")
    (path / "_SUCCESS").touch()


def lance_table(path, matrix):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), DIM)
    table = pa.table({"id": IDS, "vector": lists, "category": LABELS})
    lancedb.connect(str(path.parent)).create_table(path.name, table)


def other_names(path, matrix):
    tensors = {"keys": torch.arange(COUNT), "clip": torch.from_numpy(matrix)}
    save_file({**tensors, "kind": torch.from_numpy(KINDS)}, path.with_suffix(".safetensors"))


PAIRS = {"pairs": "pairs.csv"}
PEOPLE = {  # writer, name of the old file, and what must be said on the command line
    "pandas": (pandas_parquet, "old.parquet", {}),
    "polars": (polars_feather, "old.feather", {}),
    "duckdb": (duckdb_parquet, "old.parquet", {}),
    "pyarrow": (pyarrow_partitions, "old", {}),
    "Hugging Face datasets": (hugging_face, "old", {}),
    "numpy": (numpy_archive, "old.npz", {}),
    "torch": (torch_dictionary, "old.pt", {}),
    "sentence-transformers": (encoded, "old.npy", {"pairs": "rows.csv"}),
    "LangChain": (langchain_dump, "old.json", {}),
    "LlamaIndex": (llama_index_store, "old.json", {}),
    "Qdrant": (qdrant_scroll, "old.jsonl", {}),
    "Chroma": (chroma_get, "old.json", {}),
    "spreadsheet": (spreadsheet, "old.csv", {"id": "Product ID"}),
    "embeddings API": (batch_of_an_api, "old.jsonl", PAIRS),
    "40 shards": (forty_shards, "old/*.parquet", {}),
    "LanceDB": (lance_table, "old.lance", {}),
    "safetensors": (other_names, "old.safetensors", {"id": "keys", "label": "kind"}),
}


@pytest.fixture(scope="module")
def expected():
    """Summaries of the same upgrade in memory, with labels and with pairs."""
    old, new = (nb.Vectors(IDS, MODELS[name], LABELS) for name in ("old", "new"))
    relevant = {str(id): IDS[label == LABELS].tolist() for id, label in zip(IDS, LABELS)}  # noqa: B905
    return SimpleNamespace(
        labels=nb.evaluate(old, new).summary(),
        pairs=nb.evaluate(old, new, pairs=relevant).summary(),
    )


@pytest.fixture(params=PEOPLE)
def person(request, tmp_path):
    """A person's files of both models, and the options that they need."""
    write, old, options = PEOPLE[request.param]
    for name, matrix in MODELS.items():
        write(tmp_path / name, matrix)
    for file, names in (("pairs.csv", IDS), ("rows.csv", np.arange(COUNT))):
        pairs = [
            f"{query},{item}"
            for query, label in zip(names, LABELS, strict=True)
            for item in names[label == LABELS]
        ]
        (tmp_path / file).write_text("\n".join(["query,relevant", *pairs]))
    if "pairs" in options:
        options = {**options, "pairs": str(tmp_path / options["pairs"])}
    old_path, new_path = (str(tmp_path / re.sub("^old", name, old)) for name in ("old", "new"))
    return SimpleNamespace(name=request.param, old=old_path, new=new_path, options=options)


def assert_same(found, person, expected):
    wanted = expected.pairs if "pairs" in person.options else expected.labels
    for pair in ("old_old", "new_old", "new_new"):
        assert found[pair] == pytest.approx(wanted[pair], abs=1e-6)
    assert found["verdict"] == wanted["verdict"]


def test_one_command_leads_to_a_verdict(person, command, expected):
    options = [part for name, value in person.options.items() for part in (f"--{name}", value)]
    code, out, err = command(
        "evaluate", "--old", person.old, "--new", person.new, *options, "--json"
    )
    assert code == 0, err
    assert_same(json.loads(out), person, expected)


def test_one_call_leads_to_a_verdict(person, expected):
    assert_same(nb.evaluate(person.old, person.new, **person.options).summary(), person, expected)


def test_the_list_has_the_command_of_each_person():
    text = (Path(__file__).parents[2] / "docs" / "files.md").read_text(encoding="utf-8")
    table = {
        cells[0].strip(): cells[-1]
        for line in text.splitlines()
        if line.startswith("|") and len(cells := line.strip("|").split("|")) >= 3
    }
    for name, (_, old, options) in PEOPLE.items():
        assert f"--old {old} " in table[name].replace("'", "")
        for option in options:
            assert f"--{option} " in table[name]
