"""What the commands print fits a terminal of 80 x 25, and no id is cut without a word."""

import re
import unicodedata

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.cli import output
from nobackfill.vectors.space import Space

NUMBER, CLASSES, DIM = 480, 40, 16
FOLDER = "photographs/2019/summer/holidays-with-the-whole-family/at_the_sea"
IDS = np.array([f"{FOLDER}/{number:06d}.jpg" for number in range(NUMBER)])
GALLERY = "gallery_of_the_shop_in_the_old_town_of_the_city"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Old, better and unrelated vectors of items with long ids, and a gallery."""
    folder = tmp_path_factory.mktemp("shop")
    generator, labels = torch.Generator().manual_seed(0), np.arange(NUMBER) % CLASSES
    centre, item = torch.randn(CLASSES, DIM, generator=generator), torch.randn(NUMBER, DIM)
    columns = {"light": ["sunny", "dark"] * (NUMBER // 2)}
    old_space = Space(dim=DIM, weights="resnet50, March 2024")
    for name, noise, space in (
        ("old", 1.5, old_space),
        ("new", 0.5, Space(dim=DIM, weights="new", parent=old_space.fingerprint)),
        (GALLERY, 1.5, old_space),
    ):
        generator.manual_seed(7 if space is old_space else 8)
        values = centre[labels] + item / 2 + noise * torch.randn(NUMBER, DIM, generator=generator)
        vectors = nb.Vectors(
            IDS, values, [f"class {c}" for c in labels], columns=columns, space=space
        )
        vectors.save(folder / f"{name}.parquet")
        vectors.select(np.arange(3)).save(folder / f"{name}-queries.parquet")
    rotated = torch.linalg.qr(torch.randn(DIM, DIM, generator=generator))[0]
    values = nb.load_vectors(folder / "new.parquet").vectors @ rotated
    nb.Vectors(IDS, values, [f"class {c}" for c in labels]).save(folder / "other.parquet")
    return folder


@pytest.fixture
def terminal(nobackfill, folder, monkeypatch):
    """Runs a command as on a terminal of 80 columns; returns its exit code and lines."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(output.console, "_force_terminal", True)

    def run(*arguments):
        code, out, err = nobackfill(*arguments)
        assert "Traceback" not in err
        return code, out.splitlines()

    assert output.console.width == 80
    return run


def cells(line):
    """Columns that a line takes on a terminal."""
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in line.rstrip())


FILES = ("--old", "old.parquet", "--new", "new.parquet")
URI = f"flat://{GALLERY}.parquet"
COMMANDS = [
    ("evaluate", *FILES),
    ("evaluate", *FILES, "--flips", "1", "--slice", "light", "--false-accept", "0.01"),
    ("evaluate", "--old", "old.parquet", "--new", "other.parquet"),
    ("assess", *FILES, "--epochs", "1"),
    ("fit", "--old", "old.parquet", "--new", "other.parquet", "-o", "head", "--epochs", "1"),
    ("embed", "head", "other.parquet", "-o", "compatible.parquet"),
    ("matrix", "old.parquet", "new.parquet", "compatible.parquet"),
    ("methods",),
    ("datasets",),
    ("gallery", "plan", URI, *FILES, "-o", "plan.parquet"),
    ("gallery", "backfill", URI, "--plan", "plan.parquet", "--new", "new.parquet", "--name",
     "the_new_model_of_this_very_year", "--share", "0.5"),
    ("gallery", "status", URI),
    ("gallery", "search", URI, "--queries", "old-queries.parquet"),
    ("gallery", "shadow", URI, "--old-queries", "old-queries.parquet", "--queries",
     "new-queries.parquet"),
    ("gallery", "check", URI, "--model", "new.parquet"),
    ("gallery", "switch", URI, "--model", "new.parquet"),
    ("gallery", "log", URI),
    ("gallery", "rollback", URI),
    ("gallery", "index", URI, "--name", "the_new_model_of_this_very_year"),
    ("gallery", "clean", URI, "--name", "the_new_model_of_this_very_year"),
]  # fmt: skip


def test_every_command_fits_eighty_columns(terminal):
    for arguments in COMMANDS:
        code, lines = terminal(*arguments)
        assert code in (0, 1, 3), arguments
        assert lines, arguments
        for line in lines:
            assert cells(line) <= 80, (arguments, line)
        if re.search(r"[a-z]…[a-z]", "".join(lines)):  # in the middle of a name
            assert any("--json has all of it" in line for line in lines), arguments


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        (("evaluate", *FILES), "Compatible: "),
        (("evaluate", "--old", "old.parquet", "--new", "other.parquet"), "Not compatible: "),
        (("evaluate", "--old", "new.parquet", "--new", "new.parquet"), "Undecided: "),
        (("evaluate", *FILES, "--independent", "other.parquet"), "Compatible: "),
        (("assess", *FILES, "--epochs", "1"), "Two-stage: |Upgrade with head: |Full backfill: "),
        (("assess", "--old", "old.parquet", "--new", "old.parquet", "--epochs", "1"), "Keep the"),
    ],
)
def test_the_verdict_is_first_then_numbers_then_what_is_not_measured(terminal, arguments, verdict):
    _, lines = terminal(*arguments)
    assert lines[0].startswith(tuple(verdict.split("|")))
    assert len(lines) <= 25
    (table,) = (n for n, line in enumerate(lines) if line.startswith(("query/gallery", "way ")))
    (missing,) = (n for n, line in enumerate(lines) if line.startswith("Not measured: "))
    notes = [n for n, line in enumerate(lines) if line.startswith("Note")]
    assert 0 < table < missing < min([*notes, len(lines)])


def test_a_file_gets_whole_ids(nobackfill, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    out = nobackfill("gallery", "search", URI, "--queries", "old-queries.parquet")[1]
    assert all(id in out for id in IDS[:3])
    assert "…" not in out
