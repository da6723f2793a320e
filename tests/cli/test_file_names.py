"""Errors name the files that the user has passed."""

import numpy as np
import pytest
import torch

import nobackfill as nb


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, dim, label in (("march", 4, 0), ("april", 4, 0), ("short", 3, 0), ("wrong", 4, 1)):
        values = torch.randn(60, dim, generator=torch.Generator().manual_seed(dim))
        labels = np.arange(60) % 30
        labels[0] += label
        nb.Vectors(np.arange(60), values, labels, columns={"light": ["a", "b"] * 30}).save(
            tmp_path / f"{name}.parquet"
        )


@pytest.mark.parametrize("command", [["evaluate"], ["assess"], ["fit", "-o", "head"]])
@pytest.mark.parametrize(
    ("new", "options", "says"),
    [
        ("wrong", [], "in march.parquet and 1 in wrong.parquet"),
        ("april", ["--label", "ligth"], "Did you mean `light`?"),
        ("apirl", [], "Did you mean `april.parquet`?"),
    ],
)
def test_the_path_is_named(nobackfill, files, command, new, options, says):
    line = [*command, "--old", "march.parquet", "--new", f"{new}.parquet", *options]
    code, out, err = nobackfill(*line)
    assert (code, out) == (2, "")
    assert says in err
    assert "the old file" not in err
    assert "the new file" not in err
    assert new in err


def test_dimensions_name_the_old_file(nobackfill, files):
    code, _, err = nobackfill("evaluate", "--old", "march.parquet", "--new", "short.parquet")
    assert code == 2
    assert "need the 4 dimensions of march.parquet, but they have 3" in err
