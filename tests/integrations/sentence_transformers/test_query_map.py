"""The map on queries, saved with the model and loaded where nobackfill cannot be imported."""

import json
import subprocess
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

from nobackfill.errors import ConfigError
from nobackfill.integrations.sentence_transformers import add_query_map
from nobackfill.integrations.sentence_transformers.query_map import query_map_of

QUERIES, DOCUMENTS = pairs(6)

ALONE = """
import json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "nobackfill":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocked())
from sentence_transformers import SentenceTransformer
folder, queries, documents = json.loads(sys.argv[1])
model = SentenceTransformer(folder, device="cpu")
vectors = [model.encode_query(queries), model.encode_document(documents), model.encode(documents)]
assert not any(name.split(".")[0] == "nobackfill" for name in sys.modules)
print(json.dumps([rows.tolist() for rows in vectors]))
"""


@pytest.fixture
def model(tmp_path):
    return tiny_model(tmp_path / "tiny")


@pytest.mark.parametrize("old_dim", [20, 32, 48])
def test_queries_speak_the_old_space_and_documents_the_new(model, old_dim):
    plain = model.encode([QUERIES[0], DOCUMENTS[0]])
    add_query_map(model, old_dim)
    padded = np.zeros(max(old_dim, 32))
    padded[:32] = plain[0]
    expected = padded[:old_dim] / np.linalg.norm(padded[:old_dim])  # starts as the identity
    np.testing.assert_allclose(model.encode_query(QUERIES[0]), expected, atol=1e-6)
    np.testing.assert_allclose(model.encode_document(DOCUMENTS[0]), plain[1], atol=1e-6)
    np.testing.assert_allclose(model.encode(DOCUMENTS[0]), plain[1], atol=1e-6)


def test_a_saved_folder_gives_the_same_vectors_without_nobackfill(model, tmp_path):
    add_query_map(model, 20)
    with torch.no_grad():
        query_map_of(model).linear.weight.normal_(generator=torch.Generator().manual_seed(0))
    model.save_pretrained(str(tmp_path / "saved"))
    for module in (tmp_path / "saved").rglob("*.json"):
        assert "nobackfill" not in module.read_text()
    text = json.dumps([str(tmp_path / "saved"), QUERIES, DOCUMENTS])
    result = subprocess.run(
        [sys.executable, "-c", ALONE, text], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    query, document, plain = map(np.array, json.loads(result.stdout.splitlines()[-1]))
    np.testing.assert_allclose(query, model.encode_query(QUERIES), atol=1e-6)
    np.testing.assert_allclose(document, model.encode_document(DOCUMENTS), atol=1e-6)
    np.testing.assert_allclose(plain, document, atol=1e-6)
    assert (query.shape, document.shape) == ((6, 20), (6, 32))


def test_a_model_without_a_map_has_none(model):
    assert query_map_of(model) is None
    add_query_map(model, 20)
    assert query_map_of(model).out_features == 20
    with pytest.raises(ConfigError, match="has a Router already"):
        add_query_map(model, 20)
