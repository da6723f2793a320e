"""`nobackfill report` and `evaluate --report`: files, exit codes, and what is said to whom."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import nobackfill as nb
from nobackfill.core.config import Choice, OldConfig, Recipe, TrainConfig
from nobackfill.training.pipeline import train_run

OLD = Recipe(
    data=Choice(
        "glyphs",
        {"train_classes": 12, "test_classes": 10, "images_per_class": 5, "side": 16},
    ),
    model=Choice("small", {"width": 4, "embedding_dim": 8}),
    train=TrainConfig(step=0, epochs=1, batch_size=16, learning_rate=0.05, seed=7),
)
LABELS = np.arange(120) % 12


@pytest.fixture(autouse=True)
def by_pca(monkeypatch):
    """Which of the two ways a map is laid out by is not asked here, and this is the quicker one."""
    monkeypatch.setattr("nobackfill.evaluation.tsne._open_tsne", lambda: None)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")

    def train(name, recipe):
        list(train_run(recipe, folder / name, device=torch.device("cpu")))

    new = replace(
        OLD,
        method=Choice("bct"),
        old=OldConfig(run=str(folder / "old")),
        train=replace(OLD.train, step=1),
    )
    train("old", OLD)
    train("bct-0", replace(new, train=replace(new.train, seed=0)))
    train("bct-1", replace(new, train=replace(new.train, seed=1)))
    fewer = Choice("glyphs", {**OLD.data.options, "test_classes": 9})
    train("elsewhere", replace(new, data=fewer, train=replace(new.train, seed=2)))
    return folder


def found_in(folder):
    return {path.name for path in folder.iterdir()}


# Of runs


def test_programs_get_one_object_and_the_files_of_a_run(command, runs, tmp_path):
    code, out, err = command("report", runs / "bct-0", "-o", tmp_path / "page.html", "--json")
    assert (code, err) == (0, "")
    assert found_in(tmp_path) == {"page.html", "page.md", "page.json", "page.queries.parquet"}
    told = json.loads(out)
    assert told["report"] == str(tmp_path / "page.html")
    assert {os.path.basename(path) for path in told["files"]} == found_in(tmp_path)
    beside = json.loads((tmp_path / "page.json").read_text())
    assert {key: told[key] for key in beside} == beside


def test_people_read_the_conclusion_and_where_the_page_is(command, runs, tmp_path):
    code, out, err = command("report", runs / "bct-0", runs / "bct-1", "-o", tmp_path / "page.html")
    assert (code, err) == (0, "")
    assert "compatible on every seed" in out
    assert out.endswith(f"\nReport: {tmp_path / 'page.html'}\n")


def test_several_runs_are_compared(command, runs, tmp_path):
    code, out, _ = command(
        "report", runs / "bct-0", runs / "bct-1", "-o", tmp_path / "page.html", "--json",
        "--title", "Which of them?",
    )  # fmt: skip
    told = json.loads(out)
    assert code == 0
    assert found_in(tmp_path) == {"page.html", "page.md", "page.json"}
    assert told["methods"]["bct"]["seeds"] == 2
    assert "<title>Which of them?</title>" in (tmp_path / "page.html").read_text()


def test_the_page_lies_here_if_no_place_is_named(command, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command("report", runs / "bct-0", runs / "bct-1")[0] == 0
    assert found_in(tmp_path) == {"report.html", "report.md", "report.json"}


def test_another_process_writes_the_same_bytes(command, runs, tmp_path, monkeypatch):
    """Whatever the order that sets have there; and by t-SNE, where that is installed."""
    monkeypatch.undo()
    assert command("report", runs / "bct-0", "-o", tmp_path / "here" / "page.html")[0] == 0
    done = subprocess.run(
        [sys.executable, "-m", "nobackfill", "report", runs / "bct-0",
         "-o", tmp_path / "there" / "page.html", "--device", "cpu", "--quiet"],
        env={**os.environ, "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert found_in(tmp_path / "here") == found_in(tmp_path / "there")
    for path in (tmp_path / "here").iterdir():
        assert path.read_bytes() == (tmp_path / "there" / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    ("names", "place", "says"),
    [
        (["old"], "page.html", "has no old model to compare with"),
        (["bct-0", "old"], "page.html", "has no old model to compare with"),
        (["nowhere"], "page.html", "is not a run folder: it does not exist"),
        (["bct-0", "elsewhere"], "page.html", "bct-0 and elsewhere used different items"),
        (["bct-0", "bct-0"], "page.html", "two of `bct` have the seed 0"),
        (["bct-0", "bct-1"], "page.txt", "End it in .html"),
        (["bct-0", "bct-1"], "page", "End it in .html"),
        (["bct-0", "bct-1"], "file/page.html", "Cannot write"),
        ([], "page.html", "RUN"),
    ],
)
def test_what_cannot_be_reported_is_two_and_nothing_is_written(
    command, runs, tmp_path, names, place, says
):
    (tmp_path / "file").write_text("in the way")
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*")}
    code, out, err = command("report", *(runs / name for name in names), "-o", tmp_path / place)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err
    assert found_in(tmp_path) == {"file"}
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("*")} == before


def test_a_wrong_place_is_refused_before_anything_is_measured(command, runs, tmp_path):
    shutil.copytree(runs / "bct-0", tmp_path / "bct")
    (tmp_path / "bct" / "evaluation.json").unlink()
    before = found_in(tmp_path / "bct")
    assert command("report", tmp_path / "bct", "-o", tmp_path / "page.txt")[0] == 2
    assert found_in(tmp_path / "bct") == before


def test_help_names_what_is_written(command):
    code, out, _ = command("report", "--help")
    assert code == 0
    assert "RUN" in out
    assert "--output" in out


# Of files


def save(folder, name, seed, *, noise=0.8, space=0, labels=LABELS, **columns):
    centre = torch.randn(12, 8, generator=torch.Generator().manual_seed(space))
    generator = torch.Generator().manual_seed(seed)
    values = centre[LABELS] + noise * torch.randn(120, 8, generator=generator)
    file = nb.Vectors([f"item-{i:03}" for i in range(120)], values, labels, columns=columns)
    file.save(folder / f"{name}.parquet")
    return file


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    light = np.where(np.arange(120) % 2, "day", "night")
    save(folder, "old", 1, light=light, text=np.array([f"words of {i}" for i in range(120)]))
    save(folder, "new", 2, noise=0.7)
    save(folder, "free", 3, noise=0.3, space=9)
    return folder


def both(files):
    return "evaluate", "--old", files / "old.parquet", "--new", files / "new.parquet"


def test_evaluate_writes_a_report_beside_its_answer(command, files, tmp_path):
    code, out, err = command(
        *both(files), "--report", tmp_path / "page.html", "--independent", files / "free.parquet"
    )
    assert (code, err) == (0, "")
    assert found_in(tmp_path) == {"page.html", "page.md", "page.json", "page.queries.parquet"}
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("# May new go live on the vectors of old?")
    assert "words of" in page  # what queries are is told
    assert "## By light" in page
    assert pq.read_table(tmp_path / "page.queries.parquet").num_rows == 120
    same = command(*both(files), "--independent", files / "free.parquet")[1]
    assert out == f"{same}Report: {tmp_path / 'page.html'}\n"


def test_its_json_and_its_exit_code_are_the_same_with_a_report(command, files, tmp_path):
    worse = ["evaluate", "--old", files / "new.parquet", "--new", files / "free.parquet"]
    arguments = [*worse, "--json", "--require-compatible"]
    code, out, _ = command(*arguments, "--report", tmp_path / "page.html")
    told = json.loads(out)
    assert code == 1
    assert command(*arguments)[:2] == (1, out)
    beside = json.loads((tmp_path / "page.json").read_text())
    assert {key: beside[key] for key in told} == told


def test_p_scores_are_told_with_what_they_were_made_of(command, files):
    result = nb.evaluate(
        *(nb.load_vectors(files / f"{name}.parquet") for name in ("old", "new")),
        independent=nb.load_vectors(files / "free.parquet"),
    )
    _, out, _ = command(*both(files), "--independent", files / "free.parquet")
    assert f"P_1 {result.p_scores.one:.2f}" in out
    assert (
        f"M(o,o) is old/old, {100 * result.old_old.mean_average_precision:.2f}, and M* the "
        f"independent model, {100 * result.independent.mean_average_precision:.2f}."
    ) in out
    assert "M(o,o)" not in command(*both(files))[1]
    told = json.loads(command(*both(files), "--independent", files / "free.parquet", "--json")[1])
    assert told["p_scores_of"]["independent"] == result.independent.mean_average_precision


# What `evaluate` cannot use: exit code 2, why, and nothing written


def values_of(files):
    good = nb.load_vectors(files / "new.parquet")
    return good.ids, good.vectors.numpy().copy(), good.labels


def bad_new(files, folder, what):
    """A new file that cannot be compared with the old one."""
    ids, values, labels = values_of(files)
    path = folder / "bad.npz"
    if what == "text in a column":
        path = folder / "bad.parquet"
        words = pa.array([["a", "b"]] * 120)
        pq.write_table(pa.table({"id": ids, "vector": words, "label": labels}), path)
    elif what == "text in an array":
        np.savez(path, id=ids, vector=values.astype(str), label=labels)
    elif what.startswith("text as"):
        path = folder / f"bad{what.removeprefix('text as ')}"
        path.write_text("these are words\n" * 50)
    elif what == "other ids":
        ids[5:9] = ["x1", "x2", "x3", "x4"]
        np.savez(path, id=ids, vector=values, label=labels)
    elif what == "nan":
        values[[17, 40], 3] = np.nan
        np.savez(path, id=ids, vector=values, label=labels)
    elif what == "overflow":
        values[23] *= 1e6
        with np.errstate(over="ignore"):
            np.savez(path, id=ids, vector=values.astype(np.float16), label=labels)
    return path


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("text in a column", ["bad.parquet", "list of floats"]),
        ("text in an array", ["bad.npz", "float16, float32 or float64"]),
        ("text as .parquet", ["bad.parquet"]),
        ("text as .npz", ["bad.npz"]),
        ("text as .npy", ["bad.npy"]),
        ("text as .safetensors", ["bad.safetensors"]),
        ("text as .csv", ["bad.csv"]),
        (
            "other ids",
            [
                "lacks 4 items ('item-005', 'item-006', 'item-007', …)",
                "lacks 4 items that other files search ('x1', 'x2', 'x3', …)",
                "--intersect",
            ],
        ),
        ("nan", ["bad.npz", "NaN", "'item-017' (row 17)"]),
        ("overflow", ["bad.npz", "infinite", "'item-023' (row 23)"]),
    ],
)
def test_new_vectors_that_cannot_be_used(command, files, tmp_path, what, says):
    out_folder = tmp_path / "out"
    out_folder.mkdir()
    bad = bad_new(files, tmp_path, what)
    code, out, err = command(
        "evaluate", "--old", files / "old.parquet", "--new", bad,
        "--report", out_folder / "page.html", "--save-queries", out_folder / "q.parquet",
    )  # fmt: skip
    assert (code, out) == (2, "")
    for words in says:
        assert words in err
    assert "Traceback" not in err
    assert not found_in(out_folder)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("nothing to find", "no gallery item has the label of any query"),
        ("one class", "at least two classes"),
        ("no texts", "0 queries"),
        ("no modality", "column `modality`"),
        ("no camera", "column `camera`"),
    ],
)
def test_items_that_cannot_be_searched(command, tmp_path, what, says):
    asks = np.arange(120) < 24
    roles = {"is_query": asks, "is_gallery": ~asks}
    labels, columns, protocol = LABELS, {}, "plain"
    if what == "nothing to find":
        labels, columns = np.where(asks, LABELS, LABELS + 100), roles
    elif what == "one class":
        labels = np.zeros(120, dtype=int)
    elif what == "no texts":
        columns, protocol = {"modality": np.full(120, "image")}, "rstpreid"
    elif what == "no modality":
        protocol = "rstpreid"
    elif what == "no camera":
        columns, protocol = roles, "market1501"
    for name, seed in (("old", 1), ("new", 2)):
        save(tmp_path, name, seed, labels=labels, **columns)
    before = found_in(tmp_path)
    code, out, err = command(
        *both(tmp_path), "--protocol", protocol, "--report", tmp_path / "page.html", "--json"
    )
    assert (code, out) == (2, "")
    assert says in err
    assert found_in(tmp_path) == before


def test_a_report_that_does_not_end_in_html_is_two(command, files, tmp_path):
    code, out, err = command(*both(files), "--report", tmp_path / "page.txt")
    assert (code, out) == (2, "")
    assert "End it in .html" in err
    assert not found_in(tmp_path)


@pytest.mark.parametrize("more", [["--save-queries", "q.parquet"], ["--slice", "light"]])
def test_where_a_report_is_refused_nothing_else_is_done(
    command, files, tmp_path, monkeypatch, more
):
    monkeypatch.chdir(tmp_path)
    code, out, _ = command(*both(files), "--report", "page.txt", *more)
    assert (code, out) == (2, "")
    assert not found_in(tmp_path)


@pytest.mark.parametrize("more", [["--json"], ["--report", "page.html"]])
def test_a_gallery_of_one_class_is_told_of_as_json(command, tmp_path, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    asks = np.arange(120) < 24
    labels = np.where(asks, LABELS, 3)
    for name, seed in (("old", 1), ("new", 2)):
        save(tmp_path, name, seed, labels=labels, is_query=asks, is_gallery=~asks)
    code, out, _ = command(*both(tmp_path), *more)
    assert code == 0
    assert "NaN" not in out
