"""What a check says of copies that are whole, and of copies broken in the ways users meet."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nobackfill.data import verify as check_module
from nobackfill.data.listing import Dataset, Listing, read_table
from nobackfill.data.registry import DATASETS
from nobackfill.data.verify import Check, Files, check_dataset, choose_files
from nobackfill.errors import ConfigError, DataError

FILES = ["a/0.jpg", "a/1.jpg", "a/deep/2.jpg", "b/3.jpg", "b/4.jpg"]
WHOLE = {"images": 5, "train_images": 3, "train_classes": 2, "queries": 2, "gallery": 2}


def read_small(root: Path) -> Listing:
    """A collection of our own: a list of names; those in `a` are trained on."""
    files = [row[0] for row in read_table(root / "list.txt", "names", separator=",", columns=1)]
    is_train = np.array([file.startswith("a/") for file in files])
    return Listing(
        root=root,
        files=files,
        classes=np.where(is_train, [f"{row % 2}" for row in range(len(files))], ""),
        columns={"split": np.where(is_train, "train", "validation")},
        notes=("small",),
    )


@pytest.fixture
def root(tmp_path, monkeypatch):
    small = Dataset(description="", layout="", read=read_small, counts=WHOLE)
    monkeypatch.setitem(DATASETS, "small", small)
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise).save(tmp_path / file)
    (tmp_path / "list.txt").write_text("\n".join(FILES))
    return tmp_path


def truncate(path):
    path.write_bytes(path.read_bytes()[:400])


def test_a_whole_copy_passes(root):
    check = check_dataset("small", root, decode="all")
    assert check.passed
    assert check.counts == check.official == WHOLE
    assert not check.differences
    assert check.missing == check.undecodable == check.unused == Files()
    assert (check.decoded, check.notes, check.root) == (5, ("small",), root)


def test_missing_files_are_counted_and_the_first_of_the_list_is_named(root):
    for file in (FILES[4], FILES[1], FILES[2]):
        (root / file).unlink()
    check = check_dataset("small", root, decode="all")
    assert check.missing == Files(3, "a/1.jpg")
    assert not check.passed
    assert not check.differences  # the lists still name them
    assert not check.undecodable.number  # missing is told once
    assert check.decoded == 2


def test_a_missing_folder_is_missing_files(root):
    (root / "b").rename(root / "c")
    assert check_dataset("small", root, decode="none").missing == Files(2, "b/3.jpg")


def test_truncated_files_are_counted_and_the_first_is_named_with_the_reason(root):
    truncate(root / FILES[2])
    (root / FILES[3]).write_text("<html>moved</html>")
    check = check_dataset("small", root, decode="all")
    assert (check.undecodable.number, check.undecodable.first) == (2, "a/deep/2.jpg")
    assert "2.jpg" in check.undecodable.reason
    assert "truncated" in check.undecodable.reason
    assert not check.passed
    assert not check.missing.number


def test_nothing_is_opened_where_nothing_is_asked(root):
    truncate(root / FILES[2])
    check = check_dataset("small", root, decode="none")
    assert check.passed
    assert check.decoded == 0


def test_some_is_an_even_sample(root, monkeypatch):
    monkeypatch.setattr(check_module, "SAMPLE", 3)
    seen = []
    check = check_dataset("small", root, watch=lambda files: seen.extend(files) or iter(files))
    assert seen == ["a/0.jpg", "a/deep/2.jpg", "b/4.jpg"]
    assert check.decoded == 3
    many = [str(number) for number in range(4_001)]
    monkeypatch.undo()
    chosen = [int(file) for file in choose_files(many, "some")]
    assert len(set(chosen)) == 1_000
    assert (chosen[0], chosen[-1]) == (0, 4_000)
    assert set(np.diff(chosen)) <= {4, 5}
    assert choose_files(many, "all") == many


def test_files_that_no_list_names_are_no_fault(root):
    for name in ("a/Thumbs.db", "a/deep/extra.jpg", "outside.jpg"):
        (root / name).write_bytes(b"")
    check = check_dataset("small", root, decode="all")
    assert check.unused == Files(2, "a/Thumbs.db")
    assert check.passed


def test_bare_names_are_looked_for_in_the_folder_itself(root, monkeypatch):
    def read(root: Path) -> Listing:
        names = np.array(["0.jpg", "9.jpg"])
        split = np.array(["train", "train"])
        return Listing(root=root / "a", files=[*names], classes=names, columns={"split": split})

    monkeypatch.setitem(DATASETS, "bare", Dataset(description="", layout="", read=read))
    check = check_dataset("bare", root)
    assert check.missing == Files(1, "9.jpg")
    assert check.unused == Files(2, "1.jpg")


def test_files_behind_links_are_there_and_links_to_nothing_are_not(root):
    (root / "a" / "deep").rename(root / "elsewhere")
    (root / "a" / "deep").symlink_to(root / "elsewhere")
    (root / FILES[0]).unlink()
    (root / FILES[0]).symlink_to(root / "nowhere.jpg")
    assert check_dataset("small", root, decode="none").missing == Files(1, FILES[0])


def test_counts_that_differ_are_told_with_their_sign(root):
    (root / "list.txt").write_text("\n".join([*FILES[:4], "a/5.jpg", "a/6.jpg", "a/7.jpg"]))
    check = check_dataset("small", root, decode="none")
    assert check.differences == {"images": 2, "train_images": 3, "queries": -1, "gallery": -1}
    assert not check.passed


def test_a_count_that_is_not_found_at_all_differs(root, monkeypatch):
    dataset = Dataset(description="", layout="", read=read_small, counts={**WHOLE, "captions": 7})
    monkeypatch.setitem(DATASETS, "small", dataset)
    check = check_dataset("small", root)
    assert check.differences == {"captions": -7}
    assert not check.passed


def test_a_list_that_cannot_be_read_is_an_error_of_its_own(root):
    (root / "list.txt").write_text("\n".join(FILES).replace("/1", ",1"))
    with pytest.raises(DataError, match="must have 1 columns"):
        check_dataset("small", root)
    (root / "list.txt").write_text("\n".join([*FILES, FILES[0]]))
    with pytest.raises(DataError, match=r"a/0\.jpg twice"):
        check_dataset("small", root)
    (root / "list.txt").unlink()
    with pytest.raises(DataError, match="No such file"):
        check_dataset("small", root)


def test_an_unknown_name_is_told(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean `market1501`"):
        check_dataset("market-1501", tmp_path)


def test_the_summary_is_json(root):
    check = check_dataset("small", root, decode="all")
    assert isinstance(check, Check)
    summary = json.loads(json.dumps(check.summary()))
    assert summary["counts"] == summary["official"] == WHOLE
    assert summary["missing"] == {"number": 0, "first": None, "reason": None}
    assert summary["passed"] is True
