"""The README's way from two files of vectors to a head runs as it is written there."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from typer.testing import CliRunner

import nobackfill as nb
from nobackfill.cli.main import app

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def commands():
    """The block of commands below the heading about two files of vectors."""
    part = README.split("## You have two files of vectors", 1)[1]
    block = re.search(r"```\n(nobackfill assess.*?)```", part, re.DOTALL)[1]
    return [shlex.split(line)[1:] for line in block.strip().splitlines()]


def test_five_commands_lead_from_two_files_to_a_head(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(800) % 100
    mean = F.normalize(torch.randn(100, 16, generator=generator), dim=1)
    columns = {"split": np.where(labels < 50, "train", "validation")}
    for name, noise, dim in (("old", 1.5, 16), ("new", 0.5, 24)):
        turn = torch.linalg.qr(torch.randn(dim, 16, generator=generator)).Q
        vectors = mean[labels] + noise * torch.randn(800, 16, generator=generator) / 4
        known = nb.Vectors(np.arange(800), vectors @ turn.T, labels.numpy(), columns=columns)
        known.save(f"{name}.parquet")
    steps = commands()
    assert [step[0] for step in steps] == ["assess", "fit", "embed", "evaluate", "evaluate"]
    for step in steps:
        result = CliRunner().invoke(app, step)
        assert result.exit_code == 0, (step, result.output)
        if step[0] == "assess":
            assert "Upgrade with head" in result.output
    for name in ("assessment.html", "assessment.json", "report.html", "head/config.json"):
        assert Path(name).exists(), name
    asked = nb.load_vectors("compatible.parquet")
    assert (asked.columns["fitted"] == (labels < 50).numpy()).all()
    told = json.loads(Path("report.json").read_text())
    assert "used to fit" not in json.dumps(told)  # those that ask are new to the head
