"""Simulated worlds, and the same upgrade judged by the command line and by Python."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import NobackfillError
from nobackfill.evaluation.gate import WEIGHED, Gate
from nobackfill.evaluation.verdict import changes_sentence


class World:
    """Items of some classes, sorted by class; models see them with more or less noise."""

    def __init__(self, classes=24, items=8, dim=16, seed=0):
        self.generator = torch.Generator().manual_seed(seed)
        self.dim, self.size = dim, classes * items
        self.labels = np.repeat(np.arange(classes), items)
        self.ids = [f"item {row}" for row in range(self.size)]
        self.means = self.random(classes)
        self.items = self.random(self.size)  # what models see of the item, besides its class

    def random(self, rows):
        return torch.randn(rows, self.dim, generator=self.generator)

    def view(self, spread=1.5, noise=0.0):
        """Vectors of a model: the class, `spread` of the item, and noise of the model."""
        around = spread * self.items + noise * self.random(self.size)
        return self.means[self.labels] + around

    def shuffled(self, values):
        return np.asarray(values)[torch.randperm(len(values), generator=self.generator).numpy()]

    def upgrade(self, old, new, *, truth=None, options=None, ids=None, labels="own", **columns):
        """Two files of the same items; columns are those of the old file."""
        ids = self.ids if ids is None else ids
        labels = self.labels if isinstance(labels, str) else labels
        return Upgrade(
            nb.Vectors(ids, old, labels, columns=columns),
            nb.Vectors(ids, new),
            truth,
            options or {},
        )


@dataclass
class Upgrade:
    """Two files, the relevant items if they are listed, and options of the evaluation."""

    old: nb.Vectors
    new: nb.Vectors
    truth: dict[str, list[str]] | None = None
    options: dict[str, Any] = field(default_factory=dict)


@pytest.fixture
def world():
    return World


@pytest.fixture
def upgrade_of():
    return Upgrade


@pytest.fixture
def by_command(tmp_path, nobackfill):
    """Judges an upgrade by `nobackfill evaluate --require-compatible`."""

    def judge(upgrade):
        arguments = ["--require-compatible", "--device", "cpu"]
        for side in ("old", "new"):
            getattr(upgrade, side).save(tmp_path / f"{side}.parquet")
            arguments += [f"--{side}", tmp_path / f"{side}.parquet"]
        if upgrade.truth is not None:
            lines = (
                json.dumps({"query": query, "relevant": items})
                for query, items in upgrade.truth.items()
            )
            (tmp_path / "truth.jsonl").write_text("\n".join(lines))
            arguments += ["--ground-truth", tmp_path / "truth.jsonl"]
        for name, value in upgrade.options.items():
            flag = f"--{name.replace('_', '-')}"
            for part in value if isinstance(value, list) else [value]:
                arguments += [flag] if part is True else [flag, part]
        code, out, err = nobackfill("evaluate", *arguments)
        return code, " ".join(f"{out} {err}".split())

    return judge


@pytest.fixture
def by_python():
    """Judges an upgrade by `nobackfill.evaluate`; an error is the verdict "refused"."""

    def judge(upgrade):
        options = dict(upgrade.options)
        limits = {"metrics": tuple(options.pop("metric", WEIGHED))}
        for name in ("min_gain", "max_negative_flips"):
            if name in options:
                limits[name] = options.pop(name)
        try:
            result = nb.evaluate(
                upgrade.old,
                upgrade.new,
                label=options.pop("group", None),
                ground_truth=None if upgrade.truth is None else GroundTruth(upgrade.truth),
                gate=Gate(**limits),
                sessions=options.pop("group_leak", None),
                **options,
            )
            felt = changes_sentence(result.summary()["changes"])
            return result.verdict, " ".join([*result.notes, felt])
        except NobackfillError as error:
            return "refused", str(error)

    return judge
