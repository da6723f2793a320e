"""`nobackfill evaluate` query by query, as a person and as a program see it."""

import json
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import nobackfill as nb

LABELS = np.arange(240) % 24
LIGHT = np.where(np.arange(240) % 5 == 0, "[red]night", "day")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    centre = torch.randn(24, 12, generator=torch.Generator().manual_seed(0))
    for name, seed, noise in (("old", 1, 1.0), ("new", 2, 0.9)):
        generator = torch.Generator().manual_seed(seed)
        values = centre[LABELS] + noise * torch.randn(240, 12, generator=generator)
        columns = {"light": LIGHT}
        nb.Vectors(np.arange(240), values, LABELS, columns=columns).save(folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="module")
def evaluation(files):
    return nb.evaluate(*(nb.load_vectors(files / f"{name}.parquet") for name in ("old", "new")))


def evaluate(files, *arguments):
    command = [sys.executable, "-m", "nobackfill", "evaluate", "--old", files / "old.parquet"]
    command += ["--new", files / "new.parquet", "--device", "cpu", *arguments]
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


def test_programs_get_slices_flips_and_thresholds(files, evaluation, tmp_path):
    code, out, err = evaluate(
        files, "--json", "--slice", "light", "--slice", "label", "--smallest", "1", "--flips", "5",
        "--false-accept", "0.01", "--save-queries", tmp_path / "queries.parquet", "--seed", "0",
    )  # fmt: skip
    assert (code, err) == (0, "")
    found, comparison = json.loads(out), nb.compare(evaluation)
    assert [one["value"] for one in found["slices"]["light"]] == [
        one.value for one in comparison.slices("light")
    ]
    assert found["slices"]["light"][0]["difference"]["mean"] == pytest.approx(
        comparison.slices("light")[0].difference.mean
    )
    assert len(found["slices"]["label"]) == 24
    assert [one["query"] for one in found["flipped"]] == [o.query for o in comparison.flipped(5)]
    assert [one["query"] for one in found["won"]] == [o.query for o in comparison.won(5)]
    assert [one["pair"] for one in found["thresholds"]] == ["old_old", "new_old", "new_new"]
    assert found["thresholds"][1]["value"] == pytest.approx(comparison.thresholds(0.01)[1].value)
    assert pq.read_table(tmp_path / "queries.parquet").num_rows == 240
    assert "slices" not in json.loads(evaluate(files, "--json")[1])


def test_people_read_the_worst_first(files, evaluation):
    code, out, _ = evaluate(files, "--slice", "light", "--flips", "1", "--false-accept", "0.01")
    assert code == 0
    assert "light, the worst first" in out
    assert "[red]night" in out  # what is in a column is text, not a colour
    lost, won = len(nb.compare(evaluation).flipped(1)), len(nb.compare(evaluation).won(1))
    assert f"{lost} queries lose their hit in the top 1, {won} win one." in out
    assert "own class passes" in out
    worst = nb.compare(evaluation).flipped(1)[0]
    assert f"{worst.query}: first hit 1 → {worst.rank_after}" in out


def test_small_slices_are_left_out(files):
    found = json.loads(evaluate(files, "--json", "--slice", "light", "--smallest", "100")[1])
    assert [one["value"] for one in found["slices"]["light"]] == ["day"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--slice", "ligth"], "Did you mean `light`"),
        (["--false-accept", "2"], "between 0 and 1"),
        (["--flips", "0"], "k"),
    ],
)
def test_what_cannot_be_told_is_two(files, arguments, says):
    code, out, err = evaluate(files, *arguments)
    assert code == 2
    assert says in err
    assert out == ""
