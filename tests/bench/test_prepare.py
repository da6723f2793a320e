"""`benchmarks/prepare.py` unpacks into the folder it was given and nowhere else, or not at all."""

import importlib.util
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nobackfill.data.decode import open_image
from nobackfill.data.readers.omniglot import read_omniglot
from nobackfill.errors import DataError

PATH = Path(__file__).parents[2] / "benchmarks" / "prepare.py"


def load():
    spec = importlib.util.spec_from_file_location("prepare", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


prepare = load()


@pytest.fixture
def data(tmp_path):
    """A folder of packed collections with tiny landmarks in it."""
    source = tmp_path / "data" / "landmarks50"
    source.mkdir(parents=True)
    write_zip(source, {"landmark_images/train/a/1.jpg": b"one", "other/2.jpg": b"two"})
    (source / "manifest.csv").write_text("path,label\n")
    return tmp_path / "data"


def write_zip(source, members):
    with zipfile.ZipFile(source / "landmarks50_128.zip", "w") as archive:
        for name, contents in members.items():
            archive.writestr(name, contents)


def files_below(folder):
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def test_what_is_wanted_is_unpacked(data, tmp_path):
    prepare.prepare("landmarks50", data, tmp_path / "out")
    assert files_below(tmp_path / "out") == [
        "landmarks50/landmark_images/train/a/1.jpg",
        "landmarks50/manifest.csv",
    ]
    assert (tmp_path / "out/landmarks50/landmark_images/train/a/1.jpg").read_bytes() == b"one"


def test_a_second_run_passes_over_what_is_there(data, tmp_path, capsys):
    prepare.prepare("landmarks50", data, tmp_path / "out")
    (tmp_path / "out/landmarks50/manifest.csv").write_text("changed")
    prepare.prepare("landmarks50", data, tmp_path / "out")
    assert (tmp_path / "out/landmarks50/manifest.csv").read_text() == "changed"
    assert "is there, passed over" in capsys.readouterr().out


def test_what_is_not_at_hand_is_passed_over(data, tmp_path, capsys):
    prepare.prepare("cub200", data, tmp_path / "out")
    assert "cub200: not at" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_a_run_that_was_stopped_leaves_nothing_under_the_name(data, tmp_path):
    manifest = data / "landmarks50" / "manifest.csv"
    manifest.unlink()
    with pytest.raises(FileNotFoundError):
        prepare.prepare("landmarks50", data, tmp_path / "out")
    assert not (tmp_path / "out" / "landmarks50").exists()
    manifest.write_text("path,label\n")
    prepare.prepare("landmarks50", data, tmp_path / "out")
    assert len(files_below(tmp_path / "out")) == 2


@pytest.mark.parametrize(
    "name",
    [
        "../out.txt",
        "landmark_images/../../out.txt",
        "/nowhere/out.txt",
        "a\\..\\out.txt",
        "C:/out.txt",
    ],
)
def test_names_that_lead_out_are_refused(data, tmp_path, name):
    source = data / "landmarks50"
    write_zip(source, {name: b"out"})
    with pytest.raises(DataError, match="Do not trust it"):
        prepare.unpack(source / "landmarks50_128.zip", tmp_path / "out", {"": ""})
    assert not list(tmp_path.rglob("out.txt"))


def test_links_are_refused(data, tmp_path):
    source = data / "landmarks50"
    link = zipfile.ZipInfo("landmark_images/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    write_zip(source, {link: b"/etc/passwd"})
    with pytest.raises(DataError, match="link landmark_images/link"):
        prepare.unpack(source / "landmarks50_128.zip", tmp_path / "out", {"": ""})


def test_characters_are_black_on_white_in_the_folders_of_the_authors(tmp_path):
    source, ink = tmp_path / "data" / "omniglot", np.zeros((3, 105 * 105), np.uint8)
    source.mkdir(parents=True)
    ink[1, 2 * 105 + 7] = 1  # row 2, column 7
    np.savez(
        source / "omniglot_105_packed.npz",
        images_packed=np.packbits(ink, axis=1),
        labels=np.array([0, 0, 1], np.int16),
        drawer=np.array([1, 20, 3], np.int8),
        classes=np.array(
            ["images_background/Greek/character01", "images_evaluation/Ge/character02"]
        ),
        shape=np.array([105, 105]),
    )
    prepare.prepare("omniglot", tmp_path / "data", tmp_path / "out")
    listing = read_omniglot(tmp_path / "out" / "omniglot")
    assert listing.files == [
        "images_background/Greek/character01/0001_01.png",
        "images_background/Greek/character01/0001_20.png",
        "images_evaluation/Ge/character02/0002_03.png",
    ]
    with Image.open(listing.root / listing.files[1]) as stored:
        assert (stored.mode, stored.size) == ("1", (105, 105))
    shown = np.asarray(open_image(listing.root / listing.files[1]))[..., 0]
    assert np.argwhere(shown == 0).tolist() == [[2, 7]]
    assert (shown == 255).sum() == 105 * 105 - 1
