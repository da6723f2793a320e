"""No output replaces what the command reads, what is no file, or what somebody else wrote."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.core.locks import lock_output
from nobackfill.vectors.space import Space

LABELS = np.arange(120) % 12


@pytest.fixture
def place(tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(12, 6, generator=generator)[LABELS]
    for name in ("old", "new"):
        rows = centre + 0.3 * torch.randn(120, 6, generator=generator)
        vectors = nb.Vectors(np.arange(120), rows, LABELS, space=Space(6, name))
        vectors.save(tmp_path / f"{name}.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


OLD_NEW = ("--old", "old.parquet", "--new", "new.parquet", "--device", "cpu")
OVER_INPUTS = {
    "plan over the gallery": (
        "gallery", "plan", "flat://old.parquet", *OLD_NEW, "-o", "old.parquet"),
    "plan over new vectors": (
        "gallery", "plan", "flat://old.parquet", *OLD_NEW, "-o", "./new.parquet"),
    "plan over what a backfill wrote": (
        "gallery", "plan", "flat://old.parquet", *OLD_NEW, "-o", "old.parquet.nobackfill"),
    "pull over the gallery": ("gallery", "pull", "flat://old.parquet", "-o", "old.parquet"),
    "pull by a link": ("gallery", "pull", "flat://old.parquet", "-o", "link.parquet"),
    "queries over the old file": ("evaluate", *OLD_NEW, "--save-queries", "old.parquet"),
    "queries over the report": (
        "evaluate", *OLD_NEW, "--save-queries", "r.queries.parquet", "--report", "r.html"),
    "embed over its input": ("embed", "head", "new.parquet", "-o", "new.parquet"),
    "embed over the head": ("embed", "head", "new.parquet", "-o", "head/fitted.npy"),
    "embed into the shards": ("embed", "head", "shards", "-o", "shards/1.parquet"),
    "fit over its input": ("fit", *OLD_NEW, "-o", "head", "--onnx", "new.parquet"),
}  # fmt: skip


@pytest.mark.parametrize("name", OVER_INPUTS)
def test_an_input_is_not_replaced(name, place, command):
    (place / "link.parquet").symlink_to("old.parquet")
    (place / "old.parquet.nobackfill").write_bytes(b"")
    (place / "shards").mkdir()
    os.link(place / "new.parquet", place / "shards" / "0.parquet")
    (place / "head").mkdir()
    for file in ("config.json", "fitted.npy"):
        (place / "head" / file).write_text("{}")
    before = contents(place)
    code, out, err = command(*OVER_INPUTS[name])
    assert (code, out) == (2, "")
    assert "would be replaced" in err or "which is read" in err or "Two outputs" in err
    assert "unexpected" not in err
    assert contents(place) == before


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_what_is_no_file_is_not_replaced(kind, place, command):
    path = place / "o.parquet"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/null")  # refused before anything is opened
    for arguments in (
        ("evaluate", *OLD_NEW, "--save-queries", path),
        ("gallery", "pull", "flat://old.parquet", "-o", path),
    ):
        code, _, err = command(*arguments)
        assert code == 2
        assert f"it is a {kind}" in err


@pytest.mark.parametrize("suffix", [".json", ".md", ".queries.parquet"])
def test_a_report_replaces_files_of_a_report_only(suffix, place, command):
    (place / f"r{suffix}").write_text("mine")
    evaluate = ("evaluate", *OLD_NEW, "--report", "r.html")
    code, _, err = command(*evaluate)
    assert (code, (place / f"r{suffix}").read_text()) == (2, "mine")
    assert f"would replace r{suffix}, which is not part of a report" in err
    (place / f"r{suffix}").unlink()
    for _ in range(2):  # its own files it does
        assert command(*evaluate)[0] == 0
    # A run that was killed after the page was written is continued.
    for other in (".json", ".md", ".queries.parquet"):
        (place / f"r{other}").unlink()
    assert command(*evaluate)[0] == 0
    assert sorted(path.name for path in place.glob("*r.*")) == [
        "r.html", "r.json", "r.md", "r.queries.parquet",
    ]  # fmt: skip


FIT = ("fit", *OLD_NEW, "--epochs", "0", "--hidden", "0", "-o", "head")


def test_a_second_fit_is_refused_while_the_first_is_running(place, command):
    code = "import sys; from nobackfill.core.locks import lock_output\n"
    code += "with lock_output('head'): print('in', flush=True); sys.stdin.read()"
    first = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert first.stdout.readline() == b"in\n"
    code, _, err = command(*FIT)
    assert code == 2
    assert "Another process is writing head. Wait for it, or choose another path." in err
    first.communicate()
    assert command(*FIT)[0] == 0
    assert not list(place.glob(".*"))  # no lock is left
    with lock_output(Path("head")):
        pass
