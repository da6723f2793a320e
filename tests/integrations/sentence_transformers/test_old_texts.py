import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

if find_spec("sentence_transformers") is None:
    pytest.skip("sentence-transformers is not installed", allow_module_level=True)
sys.path[:0] = [str(Path(__file__).parents[1])]

from tiny_models import pairs, tiny_model

from nobackfill.errors import DataError
from nobackfill.integrations.sentence_transformers import OldTexts
from nobackfill.vectors import Vectors

_, TEXTS = pairs(4)
VECTORS = torch.arange(12.0).reshape(4, 3) + 1


def file_of(ids, **columns):
    return Vectors(ids, VECTORS, columns=columns)


@pytest.mark.parametrize(
    ("old", "texts"),
    [
        (dict(zip(TEXTS, VECTORS.tolist(), strict=True)), None),
        (dict(zip(TEXTS, VECTORS, strict=True)), None),
        ((TEXTS, VECTORS), None),
        ((TEXTS, VECTORS.numpy()), None),
        (file_of(TEXTS), None),
        (file_of([7, 8, 9, 10], text=TEXTS), None),
        (file_of([7, 8, 9, 10]), dict(zip([7, 8, 9, 10], TEXTS, strict=True))),
        (file_of(["a", "b", "c", "d"]), dict(zip("dcba", TEXTS[::-1], strict=True))),
    ],
    ids=["lists", "tensors", "pair", "numpy", "ids", "column", "by number", "by id"],
)
def test_every_form_has_the_same_texts_and_vectors(old, texts):
    read = OldTexts.read(old, texts)
    assert list(read.texts) == TEXTS
    assert torch.equal(read.vectors, VECTORS)


def test_old_vectors_whose_text_is_not_known_stay():
    read = OldTexts.read(file_of([7, 8, 9, 10]), {9: TEXTS[2], 5: "another"})
    assert read.texts == [None, None, TEXTS[2], None]
    assert len(read.vectors) == 4


@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".safetensors"])
def test_files_are_read(tmp_path, suffix):
    path = tmp_path / f"old{suffix}"
    file_of([7, 8, 9, 10], text=TEXTS).save(path)
    read = OldTexts.read(str(path))
    assert list(read.texts) == TEXTS
    assert torch.equal(read.vectors, VECTORS)


def test_the_old_model_embeds_each_text_once_as_a_document(tmp_path):
    model = tiny_model(tmp_path / "tiny").train()
    model.prompts["document"] = "passage: "
    read = OldTexts.read(model, [TEXTS[1], *TEXTS, TEXTS[2]])
    assert model.training  # as before
    assert read.texts == [TEXTS[1], TEXTS[0], *TEXTS[2:]]
    expected = model.encode([f"passage: {text}" for text in read.texts])
    np.testing.assert_allclose(read.vectors.numpy(), expected, atol=1e-6)
    assert not read.vectors.is_inference()
    as_queries = OldTexts.read(model, TEXTS, role="query")
    assert not torch.allclose(as_queries.vectors[1], read.vectors[0], atol=1e-3)


def test_groups_are_a_column_the_labels_or_a_list():
    old = OldTexts.read(
        Vectors(TEXTS, VECTORS, labels=["x", "y", "x", "z"], columns={"n": [3, 3, 1, 0]})
    )
    assert old.groups("label").tolist() == [0, 1, 0, 2]
    assert old.groups("n").tolist() == [2, 2, 1, 0]
    assert old.groups(["b", "a", "a", "a"]).tolist() == [1, 0, 0, 0]
    with pytest.raises(DataError, match="no column 'm' of groups, but n, label"):
        old.groups("m")
    with pytest.raises(DataError, match="2 groups and 4 texts"):
        old.groups([1, 2])


def test_vectors_of_some_texts():
    old = OldTexts.read((TEXTS, VECTORS))
    assert torch.equal(old.of([TEXTS[2], TEXTS[0]], "queries"), VECTORS[[2, 0]])
    with pytest.raises(DataError, match="1 of 2 queries have no old vector, the first is 'new'"):
        old.of([TEXTS[0], "new"], "queries")


@pytest.mark.parametrize(
    ("old", "texts", "words"),
    [
        (object(), None, "cannot be read from object"),
        ((TEXTS[:3], VECTORS), None, "3 texts and 4 vectors"),
        (file_of([7, 8, 9, 10]), None, "ids but no texts"),
        (file_of([7, 8, 9, 10]), {1: "a"}, "None of the ids in `documents`"),
    ],
)
def test_what_cannot_be_read_is_refused(old, texts, words):
    with pytest.raises(DataError, match=words):
        OldTexts.read(old, texts)


def test_the_old_model_needs_texts(tmp_path):
    model = tiny_model(tmp_path / "tiny")
    with pytest.raises(DataError, match="documents=train_dataset"):
        OldTexts.read(model)
    with pytest.raises(DataError, match="no texts to embed"):
        OldTexts.read(model, [])
