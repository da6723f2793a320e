"""Runs on pairs: other dimensions, old vectors from a file, and what a kill leaves."""

import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

if find_spec("sentence_transformers") is None:
    pytest.skip("sentence-transformers is not installed", allow_module_level=True)
sys.path[:0] = [str(Path(__file__).parent)]

from tiny_models import pairs as draw_pairs
from tiny_models import tiny_model

from nobackfill.errors import ConfigError, DataError
from nobackfill.integrations import text_run
from nobackfill.integrations.text_folder import TextRunSettings, read_settings
from nobackfill.integrations.text_models import load_text_model, text_space, weights_digest
from nobackfill.integrations.text_results import embed_with_run, evaluation_of
from nobackfill.integrations.text_run import train_on_pairs
from nobackfill.integrations.text_training import TextTraining
from nobackfill.vectors import Vectors, load_vectors

TRAINING = TextTraining(epochs=3, batch_size=32, learning_rate=1e-3)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Models of 32 and of 48 dimensions, and pairs with ids of their own."""
    folder = tmp_path_factory.mktemp("pairs")
    for dim in (32, 48):
        tiny_model(folder / f"bert{dim}", dim=dim).save_pretrained(str(folder / f"model{dim}"))
    queries, documents = draw_pairs(300)
    with (folder / "pairs.jsonl").open("w") as file:
        for row, (query, document) in enumerate(zip(queries, documents, strict=True)):
            pair = {
                "query": query, "document": document, "query_id": row, "document_id": row,
            }  # fmt: skip
            file.write(json.dumps(pair) + "\n")
    return folder


def settings(files, **options):
    options = {"old_model": str(files / "model32"), "training": TRAINING, **options}
    return TextRunSettings(str(files / "pairs.jsonl"), **options)


def test_queries_of_another_dimension_are_mapped_for_the_old_documents(files, tmp_path):
    longer = replace(TRAINING, epochs=12)
    chosen = settings(files, new_model=str(files / "model48"), training=longer)
    result = train_on_pairs(chosen, tmp_path)
    old, new, mapped = (
        load_vectors(tmp_path / name)
        for name in ("old.parquet", "validation.parquet", "validation_query.parquet")
    )
    assert (old.dim, new.dim, mapped.dim) == (32, 48, 32)
    assert result["new_old"] > 0.3  # a random order of 30 documents gives 0.13
    # the mapped queries are made to fit the old space, the stored vectors are not
    assert mapped.space.parent == old.space.fingerprint
    assert new.space.parent is None
    assert mapped.space.fingerprint != new.space.fingerprint
    evaluation, _ = evaluation_of(tmp_path)
    assert evaluation.summary()["new_old"] == pytest.approx(result["new_old"])
    # lines of text become mapped queries, tables become stored documents
    (tmp_path / "a.txt").write_text("bam ban\n")
    (tmp_path / "a.csv").write_text("id,text\n1,bam ban\n")
    assert embed_with_run(tmp_path, tmp_path / "a.txt").dim == 32
    assert embed_with_run(tmp_path, tmp_path / "a.txt").space == mapped.space
    assert embed_with_run(tmp_path, tmp_path / "a.csv").dim == 48
    assert embed_with_run(tmp_path, tmp_path / "a.csv", side="query").dim == 32
    with pytest.raises(ConfigError, match="unknown side"):
        embed_with_run(tmp_path, tmp_path / "a.csv", side="galery")


def test_ids_that_queries_and_documents_share_are_told_apart(files, tmp_path):
    train_on_pairs(settings(files), tmp_path)
    old = load_vectors(tmp_path / "old.parquet")
    queries = old.ids[old.columns["is_query"]].tolist()
    documents = old.ids[~old.columns["is_query"]].tolist()
    assert queries == [f"query {item}" for item in documents]
    assert old.labels.tolist() == [*documents, *documents]


def test_old_vectors_of_a_file_take_the_place_of_embedding(files, tmp_path, monkeypatch):
    model = load_text_model(str(files / "model32"))
    rows = [json.loads(line) for line in (files / "pairs.jsonl").read_text().splitlines()]
    vectors = torch.as_tensor(model.encode([row["document"] for row in rows])).clone()
    ids = [row["document_id"] for row in rows]
    Vectors(ids, vectors).save(tmp_path / "old.parquet")
    embedded = train_on_pairs(settings(files), tmp_path / "embedded")
    chosen = settings(files, old_vectors=str(tmp_path / "old.parquet"))
    read = train_on_pairs(chosen, tmp_path / "read")
    assert read["new_old"] == pytest.approx(embedded["new_old"], abs=1e-6)

    # rows in another order are the same vectors; vectors of other documents are others
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0)).tolist()
    Vectors([ids[row] for row in order], vectors[order]).save(tmp_path / "old.parquet")
    reordered = train_on_pairs(chosen, tmp_path / "reordered")
    assert reordered["new_old"] == pytest.approx(embedded["new_old"], abs=1e-6)
    Vectors(ids, vectors[order]).save(tmp_path / "old.parquet")
    shuffled = train_on_pairs(chosen, tmp_path / "shuffled")
    assert abs(shuffled["new_old"] - embedded["new_old"]) > 1e-3

    Vectors(ids[:299], vectors[:299]).save(tmp_path / "old.parquet")
    with pytest.raises(DataError, match="line 300: no old vector has the id '299'"):
        train_on_pairs(chosen, tmp_path / "missing")


def test_a_kill_after_training_does_not_train_again(files, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(text_run, "embed_held_out", stop)
        with pytest.raises(KeyboardInterrupt):
            train_on_pairs(settings(files), tmp_path)
    assert (tmp_path / "model").exists()
    assert not (tmp_path / "evaluation.json").exists()
    with pytest.raises(DataError, match="not finished"):
        embed_with_run(tmp_path, tmp_path / "a.txt")
    monkeypatch.setattr(text_run, "train_model", stop)
    result = train_on_pairs(settings(files), tmp_path, resume=True)
    assert result["num_queries"] == 30


def test_changed_pairs_do_not_continue_a_run(files, tmp_path):
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text((files / "pairs.jsonl").read_text())
    chosen = replace(settings(files), pairs=str(pairs))
    assert train_on_pairs(chosen, tmp_path / "run", seconds=0.0) is None
    pairs.write_text(pairs.read_text().replace("bam", "ban"))
    with pytest.raises(ConfigError, match="pairs_digest"):
        train_on_pairs(chosen, tmp_path / "run", resume=True)


def test_settings_are_read_as_they_were_written(files, tmp_path):
    chosen = settings(files, method="odpp", weight=0.5, max_tokens=8, held_out=0.2)
    train_on_pairs(chosen, tmp_path, seconds=0.0)
    assert replace(read_settings(tmp_path), pairs_digest="") == chosen
    (tmp_path / "settings.json").write_text('{"pairs": 3}')
    with pytest.raises(DataError, match=r"settings\.json"):
        read_settings(tmp_path)


def test_texts_are_cut_as_the_settings_say(files, tmp_path):
    train_on_pairs(settings(files, max_tokens=4), tmp_path)
    (tmp_path / "a.csv").write_text("id,text\n1,bam ban bar bas\n2,bam ban bat bem\n")
    first, second = embed_with_run(tmp_path, tmp_path / "a.csv").vectors
    assert torch.allclose(first, second)  # two words and the ends are left


def test_a_folder_of_another_kind_is_left_alone(files, tmp_path):
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(ConfigError, match="another run"):
        train_on_pairs(settings(files), tmp_path)


@pytest.mark.parametrize("option", [{"held_out": 0.0}, {"held_out": 1.0}, {"max_tokens": 0}])
def test_settings_are_checked(files, option):
    with pytest.raises(ConfigError, match=next(iter(option))):
        settings(files, **option)


def test_too_few_pairs_are_an_error(tmp_path, files):
    path = tmp_path / "two.jsonl"
    path.write_text('{"query": "a", "document": "b"}\n{"query": "c", "document": "d"}\n')
    with pytest.raises(DataError, match="has 2 pairs, of which 1"):
        train_on_pairs(replace(settings(files), pairs=str(path)), tmp_path / "run")


def test_a_space_is_that_of_the_weights_and_of_how_texts_are_read(files):
    model = load_text_model(str(files / "model32"))
    again = load_text_model(str(files / "model32"))
    assert text_space(model) == text_space(again)
    assert text_space(model).normalized
    shorter = load_text_model(str(files / "model32"), max_tokens=8)
    assert text_space(shorter).fingerprint != text_space(model).fingerprint
    with torch.no_grad():
        next(again.parameters())[0, 0] += 1e-6
    assert weights_digest(again) != weights_digest(model)


def test_weights_may_contain_a_single_number():
    counting = torch.nn.BatchNorm1d(2)  # its number of batches has no dimension
    before = weights_digest(counting)
    counting.num_batches_tracked += 1
    assert weights_digest(counting) != before


def test_a_model_that_cannot_be_loaded_is_named(tmp_path):
    with pytest.raises(DataError, match="Cannot load the model"):
        load_text_model(str(tmp_path / "absent"))
