"""The training scripts of docs/sentence-transformers.md run, without and with the new lines."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

for package in ("sentence_transformers", "datasets", "accelerate"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)
ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "tests" / "integrations")]

from tiny_models import pairs, tiny_model

from nobackfill.vectors import Vectors

PAGE = (ROOT / "docs" / "sentence-transformers.md").read_text(encoding="utf-8")
DIFFS = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)


def scripts(diff):
    """The script before and after."""
    lines = diff.splitlines()
    before = [line[1:] for line in lines if not line.startswith("+")]
    after = [line[1:] for line in lines if not line.startswith("-")]
    return "\n".join(before), "\n".join(after)


# One process imports the libraries for all scripts; each of them leaves a model.
ONE_BY_ONE = """
import json, os, sys
for name, script in json.load(sys.stdin):
    exec(compile(script, name, "exec"), {"__name__": "__main__"})
    os.rename("compatible-model", name)
"""


def run(scripts, folder):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        [sys.executable, "-c", ONE_BY_ONE], input=json.dumps(scripts),
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]


def test_at_most_five_lines_change():
    assert len(DIFFS) == 2
    for diff in DIFFS:
        assert sum(line[:1] in "+-" and bool(line) for line in diff.splitlines()) <= 5
        assert scripts(diff)[0] == scripts(DIFFS[0])[0]  # the same script before


def test_its_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


def test_both_scripts_train_a_model_that_sentence_transformers_loads(tmp_path):
    from sentence_transformers import SentenceTransformer

    model = tiny_model(tmp_path / "tiny", seed=1)
    model.save_pretrained(str(tmp_path / "model-in-service"))
    queries, documents = pairs(24)
    with (tmp_path / "pairs.jsonl").open("w") as file:
        for query, document in zip(queries, documents, strict=True):
            file.write(json.dumps({"anchor": query, "positive": document}) + "\n")
    Vectors(range(24), model.encode_document(documents), columns={"text": documents}).save(
        tmp_path / "old-vectors.parquet"
    )

    names = ("before", "file", "model")
    run(list(zip(names, (*scripts(DIFFS[0]), scripts(DIFFS[1])[1]), strict=True)), tmp_path)
    found = {
        name: SentenceTransformer(str(tmp_path / name), device="cpu").encode_query(queries)
        for name in names
    }
    np.testing.assert_allclose(found["file"], found["model"], atol=1e-4)
    assert np.abs(found["file"] - found["before"]).max() > 1e-4
