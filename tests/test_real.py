"""Real collections, where this machine has them: the figures we know from elsewhere come out."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest
import torch

import nobackfill as nb

DATA = Path(os.environ.get("NOBACKFILL_DATA", "/nowhere"))
pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("name", "old_map", "new_map"), [("cub200", 0.115, 0.117), ("landmarks50", 0.336, 0.351)]
)
def test_raw_features_of_two_backbones(name, old_map, new_map):
    """Frozen MobileNetV2 and ResNet-50 features, measured before by a separate script."""
    if not (DATA / name / "features.npz").exists():
        pytest.skip(f"no {name} under NOBACKFILL_DATA={DATA}")
    with (DATA / name / "manifest.csv").open() as file:
        rows = list(csv.DictReader(file))
    features = np.load(DATA / name / "features.npz", allow_pickle=False)
    flags = {
        key: np.array([row[key] == "True" for row in rows]) for key in ("is_query", "is_gallery")
    }
    for key, column in flags.items():
        assert column.any(), key
    for backbone, expected in (("mobilenet_v2", old_map), ("resnet50", new_map)):
        vectors = nb.Vectors(
            [row["path"] for row in rows],
            torch.from_numpy(features[backbone].astype(np.float32)),
            [row["label"] for row in rows],
            columns=flags,
        )
        measured = nb.evaluate(vectors, vectors).old_old.mean_average_precision
        assert measured == pytest.approx(expected, abs=6e-4)
