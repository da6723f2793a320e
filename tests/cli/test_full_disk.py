"""Commands that write files onto a disk that is full: the old output stays, whole."""

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.vectors.space import Space

LABELS = np.arange(120) % 12
OLD_NEW = ("--old", "old.parquet", "--new", "new.parquet", "--device", "cpu")
COMMANDS = {
    "fit": ("fit", *OLD_NEW, "--epochs", "1", "--overwrite", "-o", "DISK/head"),
    **{
        f"embed .{suffix}": ("embed", "head", "new.parquet", "-o", f"DISK/out.{suffix}")
        for suffix in ("parquet", "safetensors", "npz")
    },
    "pull": ("gallery", "pull", "flat://old.parquet", "-o", "DISK/pulled.parquet"),
    "plan": ("gallery", "plan", "flat://old.parquet", *OLD_NEW, "-o", "DISK/plan.parquet"),
    "page": ("evaluate", *OLD_NEW, "--report", "DISK/page.html"),
    "queries": ("evaluate", *OLD_NEW, "--save-queries", "DISK/queries.parquet"),
}


@pytest.fixture
def place(tmp_path, monkeypatch, command):
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(12, 6, generator=generator)[LABELS]
    for name in ("old", "new"):
        rows = centre + 0.3 * torch.randn(120, 6, generator=generator)
        vectors = nb.Vectors(np.arange(120), rows, LABELS, space=Space(6, name))
        vectors.save(tmp_path / f"{name}.parquet")
    monkeypatch.chdir(tmp_path)
    assert command("fit", *OLD_NEW, "--epochs", "1", "-o", "head")[0] == 0


def contents(folder):
    """Bytes of the files, without locks, which stay, and pages with which a pull goes on."""
    files = (path for path in folder.rglob("*") if path.is_file())
    stay = (path for path in files if not path.name.endswith(".lock"))
    return {path: path.read_bytes() for path in stay if not path.parent.name.endswith(".pages")}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_old_output_stays_whole(name, disk, place, command):
    arguments = [part.replace("DISK", str(disk.path)) for part in COMMANDS[name]]
    code, _, errors = command(*arguments)
    assert code in (0, 1, 3), errors
    old = contents(disk.path)
    assert old
    for room in (0, 4096):
        disk.leave(room)
        now, _, errors = command(*arguments)
        assert "Traceback" not in errors
        if now != 2:  # it needs no more than that
            assert room
            assert contents(disk.path).keys() == old.keys()
            continue
        assert "pace" in errors or "room" in errors, errors
        assert contents(disk.path) == old
    disk.leave(disk.large)
    assert command(*arguments)[0] == code
    assert contents(disk.path).keys() == old.keys()  # nothing is left over
