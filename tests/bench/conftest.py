"""Invented lines, and features of a few items."""

import numpy as np
import pytest

from nobackfill_bench import Place, Task


@pytest.fixture(scope="session")
def lines_of():
    """Makes the lines of one way: by seed old/old, new/old and new/new."""

    def make(way, numbers, *, suite="glyphs", changes=(), **more):
        return [
            {
                "suite": suite, "way": way, "seed": seed, "changes": list(changes),
                "device": "cpu", "seconds": 6.0, "epochs": 12, "old_old": old_old,
                "new_old": new_old, "new_new": new_new, "lost": 0.05,
                "verdict": "compatible" if new_old > old_old else "undecided", **more,
            }
            for seed, (old_old, new_old, new_new) in numbers.items()
        ]  # fmt: skip

    return make


@pytest.fixture(scope="session")
def cells():
    """The rows of a table in Markdown, by their first cell."""

    def read(lines):
        rows = [[one.strip() for one in line[1:-1].split("|")] for line in lines if line[:1] == "|"]
        return {row[0]: row[1:] for row in rows if not row[0].startswith("--")}

    return read


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A folder with the features of two backbones as `bench/features.py` reads them.

    20 classes of six items: 12 classes to train on, 8 others are searched.
    """
    folder = tmp_path_factory.mktemp("data")
    (folder / "cub200").mkdir()
    generator = np.random.default_rng(0)
    labels = np.arange(20 * 6) % 20
    rows = [
        f"{item}.jpg,{label},{'train' if label < 12 else 'validation'},{label >= 12},{label >= 12}"
        for item, label in enumerate(labels)
    ]
    manifest = "\n".join(["path,label,split,is_query,is_gallery", *rows])
    (folder / "cub200" / "manifest.csv").write_text(manifest)
    centre = generator.normal(size=(20, 8))[labels]
    np.savez(
        folder / "cub200" / "features.npz",
        mobilenet_v2=centre[:, :6] + generator.normal(size=(120, 6)),
        resnet50=centre + 0.5 * generator.normal(size=(120, 8)),
    )
    return folder


@pytest.fixture
def task(data, tmp_path):
    """Makes a task on those features."""

    def make(suite, way, *changes, seed=0, place=None):
        return Task(suite, way, seed, changes, place or Place(tmp_path / "work", data, "cpu"))

    return make
