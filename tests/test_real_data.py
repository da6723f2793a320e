"""Real collections, where this machine has them: the figures we know from elsewhere come out."""

import csv
import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import nobackfill as nb
from nobackfill.data.decode import open_image
from nobackfill.data.listing import count_items
from nobackfill.data.registry import DATASETS

PREPARE = Path(__file__).parents[1] / "benchmarks" / "prepare.py"
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


# Collections, unpacked by `benchmarks/prepare.py` into the layouts of their authors.


def unpack(out, *names):
    for name in names:
        if not (DATA / name).is_dir():
            pytest.skip(f"no {name} under NOBACKFILL_DATA={DATA}")
    subprocess.run([sys.executable, PREPARE, out, "--only", *names], check=True)


def assert_counts(listing, name):
    """What the authors say it holds is what was found; and every twentieth file is an image."""
    counts = count_items(listing)
    assert {key: counts[key] for key in DATASETS[name].counts} == DATASETS[name].counts
    for file in listing.files[::20]:
        open_image(listing.root / file)


@pytest.mark.parametrize("name", ["cub200", "flickr8k"])
def test_prepared_collections_hold_what_their_authors_say(name, tmp_path):
    unpack(tmp_path, name)
    assert_counts(DATASETS[name].read(tmp_path / name), name)


def test_prepared_landmarks_are_a_manifest(tmp_path):
    unpack(tmp_path, "landmarks50")
    listing = DATASETS["manifest"].read(tmp_path / "landmarks50" / "manifest.csv")
    counts = count_items(listing)
    assert (counts["images"], counts["train_classes"], counts["search_classes"]) == (6246, 25, 25)


@pytest.mark.parametrize(
    ("name", "positives"), [("roxford5k", (3029, 5526, 2497)), ("rparis6k", (6874, 17224, 10350))]
)
def test_the_official_ground_truth_of_the_revisited_buildings(name, positives, tmp_path):
    truth = DATA / "roxford5k" / f"gnd_{name}.pkl"
    if not truth.exists():
        pytest.skip(f"no {truth}")
    (tmp_path / "jpg").mkdir()
    shutil.copyfile(truth, tmp_path / truth.name)
    listing = DATASETS[name].read(tmp_path, queries="cropped")
    counts = count_items(listing)
    assert {key: counts[key] for key in DATASETS[name].counts} == DATASETS[name].counts
    found = {
        way: sum(map(len, truth.relevant.values())) for way, truth in listing.ground_truth.items()
    }
    assert found == dict(zip(("easy", "medium", "hard"), positives, strict=True))
    for left, top, right, bottom in listing.boxes.values():
        assert 0 <= left < right
        assert 0 <= top < bottom


def test_boxes_of_oxford_show_what_was_cropped_from_the_large_images(tmp_path):
    """The archive also holds the queries as they were cropped before anything was made smaller."""
    unpack(tmp_path, "roxford5k")
    listing = DATASETS["roxford5k"].read(tmp_path / "roxford5k", queries="cropped")
    assert_counts(listing, "roxford5k")
    alike = []
    with zipfile.ZipFile(DATA / "roxford5k" / "roxford5k_176.zip") as archive:
        for row, box in listing.boxes.items():
            packed = io.BytesIO(archive.read(f"queries_cropped/{listing.files[row]}"))
            cropped = open_image(listing.root / listing.files[row]).crop(box)
            both = [image.convert("L").resize((32, 32)) for image in (cropped, Image.open(packed))]
            alike.append(np.corrcoef(*(np.asarray(image).ravel() for image in both))[0, 1])
    assert len(alike) == 70
    assert min(alike) > 0.9
