"""`nobackfill train --pairs` and what follows it: embed, evaluate, report, gallery check."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import nobackfill as nb

if find_spec("sentence_transformers") is None:
    pytest.skip("sentence-transformers is not installed", allow_module_level=True)
sys.path[:0] = [str(Path(__file__).parents[1] / "integrations")]

from tiny_models import pairs as draw_pairs
from tiny_models import tiny_model

OPTIONS = ["--epochs", "3", "--learning-rate", "1e-3", "--batch-size", "32"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An old model, and a file of pairs."""
    folder = tmp_path_factory.mktemp("pairs")
    tiny_model(folder / "bert").save_pretrained(str(folder / "old"))
    queries, documents = draw_pairs(400)
    lines = [
        json.dumps({"query": query, "document": document})
        for query, document in zip(queries, documents, strict=True)
    ]
    (folder / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def arguments(files, run, *more):
    return [
        "train", "--pairs", files / "pairs.jsonl", "--old-model", files / "old", "-o", run,
        *OPTIONS, *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def run(files):
    """A finished run, trained in a process of its own."""
    made = process(arguments(files, files / "run", "--json"), files)
    out, error = made.communicate()
    assert made.returncode == 0, error
    (files / "printed.json").write_text(out)
    return files / "run"


def process(words, folder):
    """Starts a command in another process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "nobackfill", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment,
    )  # fmt: skip


def test_a_run_trains_and_measures_the_upgrade(files, run):
    printed = json.loads((files / "printed.json").read_text())
    result = printed["evaluation"]
    assert printed["run"] == str(run)
    assert result == json.loads((run / "evaluation.json").read_text())
    assert result["num_queries"] == result["num_gallery"] == 40
    assert result["new_old"] > result["old_old"] + 0.05
    assert {path.name for path in run.iterdir()} - {".lock"} == {
        "settings.json", "environment.json", "model", "old.parquet", "validation.parquet",
        "evaluation.json",
    }  # fmt: skip


def test_the_model_loads_without_us(files, run):
    from sentence_transformers import SentenceTransformer

    queries = nb.load_vectors(run / "validation.parquet")
    model = SentenceTransformer(str(run / "model"), device="cpu")
    texts = queries.columns["text"].tolist()
    assert torch.allclose(torch.as_tensor(model.encode(texts)), queries.vectors, atol=1e-5)


def test_held_out_vectors_are_of_pairs_that_were_not_trained_on(files, run):
    old, new = (nb.load_vectors(run / name) for name in ("old.parquet", "validation.parquet"))
    assert old.ids.tolist() == new.ids.tolist()
    assert old.labels.tolist() == new.labels.tolist()
    assert new.space.parent == old.space.fingerprint != new.space.fingerprint
    assert new.space.method == "pairs: contrast"
    for label in set(old.labels.tolist()):
        assert old.columns["is_query"][old.labels == label].tolist() == [True, False]


def test_evaluate_gives_the_same_result(nobackfill, run):
    code, out, _ = nobackfill(
        "evaluate", "--old", run / "old.parquet", "--new", run / "validation.parquet", "--json"
    )
    assert code == 0
    result = json.loads((run / "evaluation.json").read_text())
    assert json.loads(out)["new_old"] == pytest.approx(result["new_old"])


def test_a_verdict_is_declared_in_the_run_and_read_by_gallery_check(nobackfill, run):
    code, _, _ = nobackfill(
        "evaluate", "--old", run / "old.parquet", "--new", run / "validation.parquet",
        "--declare", run,
    )  # fmt: skip
    assert code == 0
    old = nb.load_vectors(run / "old.parquet").space
    (measured,) = nb.load_vectors(run / "validation.parquet").space.compatible_with
    assert measured.fingerprint == old.fingerprint


def test_embed_makes_queries_of_lines_and_documents_of_tables(nobackfill, run, tmp_path):
    (tmp_path / "queries.txt").write_text("bam ban\n\nbas bat\n")
    (tmp_path / "documents.csv").write_text("id,text\nx,bam ban\ny,bas bat\n")
    code, out, _ = nobackfill("embed", run, tmp_path / "queries.txt", "-o", tmp_path / "q.parquet")
    assert (code, out.split(" ")[0]) == (0, "2")
    code, _, _ = nobackfill(
        "embed", run, tmp_path / "documents.csv", "-o", tmp_path / "d.parquet", "--json"
    )
    assert code == 0
    queries, documents = (
        nb.load_vectors(tmp_path / "q.parquet"),
        nb.load_vectors(tmp_path / "d.parquet"),
    )
    assert documents.ids.tolist() == ["x", "y"]
    assert torch.allclose(queries.vectors, documents.vectors, atol=1e-6)
    space = nb.load_vectors(run / "validation.parquet").space
    assert queries.space.fingerprint == documents.space.fingerprint == space.fingerprint


def test_a_report_shows_the_run(nobackfill, run, tmp_path):
    code, out, _ = nobackfill("report", run, "-o", tmp_path / "r.html")
    assert code == 0
    assert "ompatible" in out
    facts = json.loads((tmp_path / "r.json").read_text())
    assert facts["trained"]["method"] == "contrast"
    assert nobackfill("report", run, run, "-o", tmp_path / "two.html")[0] == 2


def test_a_gallery_of_old_documents_may_be_searched(nobackfill, run, tmp_path):
    old = nb.load_vectors(run / "old.parquet")
    documents = old.select((~torch.from_numpy(old.columns["is_query"])).nonzero().flatten().numpy())
    documents.save(tmp_path / "gallery.parquet")
    nobackfill("evaluate", "--old", run / "old.parquet", "--new", run / "validation.parquet",
               "--declare", run)  # fmt: skip
    code, out, error = nobackfill(
        "gallery", "check", f"flat://{tmp_path / 'gallery.parquet'}", "--model", run, "--strict"
    )
    assert code == 0, out + error


def test_time_is_limited_and_the_run_continues(nobackfill, files, run, tmp_path):
    code, out, _ = nobackfill(*arguments(files, tmp_path / "run", "--seconds", "0"))
    assert code == 3
    assert "--resume" in out
    assert not (tmp_path / "run" / "model").exists()
    code, _, error = nobackfill(*arguments(files, tmp_path / "run"))
    assert code == 2
    assert "--resume" in error
    code, out, _ = nobackfill(*arguments(files, tmp_path / "run", "--resume"))
    assert code == 0
    assert weights(tmp_path / "run") == weights(run)


def test_other_settings_do_not_continue_a_run(nobackfill, files, tmp_path):
    assert nobackfill(*arguments(files, tmp_path / "run", "--seconds", "0"))[0] == 3
    code, _, error = nobackfill(*arguments(files, tmp_path / "run", "--resume", "--method", "odpp"))
    assert code == 2
    assert "other settings: method (it is 'contrast' there, not 'odpp')" in error


def test_a_finished_run_is_printed_again(nobackfill, files, run):
    code, out, _ = nobackfill(*arguments(files, run, "--resume"))
    assert code == 0
    assert f"The model is in {run / 'model'}." in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "-o", "run"], "Pass a recipe, or a file of pairs"),
        (["train", "r.toml", "--pairs", "p.jsonl", "-o", "run"], "Leave one of them out"),
        (["train", "r.toml", "--method", "odpp", "-o", "run"], "--method is an option of --pairs"),
        (["train", "--pairs", "p.jsonl", "-o", "run"], "--old-model is missing"),
        (
            ["train", "--pairs", "p.jsonl", "--old-model", "m", "--set", "a=1", "-o", "run"],
            "--set is an option of recipes",
        ),
        (
            ["train", "--pairs", "p.jsonl", "--old-model", "m", "--epochs", "0", "-o", "run"],
            "`epochs` is 0",
        ),
    ],
)
def test_options_that_contradict_each_other(nobackfill, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, _, error = nobackfill(*words)
    assert code == 2
    assert message in error
    assert not (tmp_path / "run").exists()


def test_bad_pairs_and_models_end_with_2(nobackfill, files, tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"query": "a", "document": ""}\n')
    code, _, error = nobackfill(
        "train", "--pairs", bad, "--old-model", files / "old", "-o", tmp_path / "run"
    )
    assert code == 2
    assert "line 1: the document is empty" in error
    code, _, error = nobackfill(
        "train", "--pairs", files / "pairs.jsonl", "--old-model", tmp_path, "-o", tmp_path / "run2"
    )
    assert code == 2
    assert "Cannot load the model" in error


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_killed_run_ends_with_the_same_weights(files, run, tmp_path, seed):
    """Kills at random moments: one soon after the settings are written, two at any time."""
    draw, killed = random.Random(seed), 0
    words, settings = arguments(files, tmp_path / "run", "--json"), tmp_path / "run/settings.json"
    for seconds in (0.5, 8, 12):
        was_there = settings.exists()
        training = process([*words, *(["--resume"] if was_there else [])], files)
        while not settings.exists() and training.poll() is None:
            time.sleep(0.005)
        end = time.monotonic() + draw.uniform(0, seconds)
        while time.monotonic() < end and training.poll() is None:
            time.sleep(0.005)
        killed += training.poll() is None
        training.send_signal(signal.SIGKILL)
        training.communicate()
    more = ["--resume"] if (tmp_path / "run" / "settings.json").exists() else []
    last = process([*words, *more], files)
    _, error = last.communicate()
    assert last.returncode == 0, error
    assert killed
    assert weights(tmp_path / "run") == weights(run)


def weights(folder):
    from safetensors.torch import load_file

    tensors = load_file(folder / "model" / "model.safetensors")
    return {name: tensor.tolist() for name, tensor in tensors.items()}
