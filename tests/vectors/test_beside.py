"""Records beside files: which belongs to which contents, also after a kill at any moment."""

import json
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nobackfill.core import locks
from nobackfill.errors import DataError
from nobackfill.vectors import Vectors, load_vectors
from nobackfill.vectors.beside import path_beside, path_by_stem
from nobackfill.vectors.records import declare_space, read_space, record_of, space_of
from nobackfill.vectors.space import CompatibleWith, Space, write_record

OLD, NEW = Space(4, "old", dtype=None), Space(4, "new", dtype=None)
FORMATS = [".parquet", ".npz", ".safetensors", ".npy"]
WITHIN = FORMATS[:3]  # formats that hold the record


def vectors(space, seed=0, **columns):
    rows = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))
    return Vectors(range(6), rows, columns=columns, space=space)


@pytest.mark.parametrize(
    ("file", "own", "shared"),
    [
        ("old.parquet", "old.parquet.space.json", "old.space.json"),
        ("runs/model.v2.npy", "runs/model.v2.npy.space.json", "runs/model.v2.space.json"),
        ("head", "head.space.json", "head.space.json"),
    ],
)
def test_names_of_records(file, own, shared):
    assert (path_beside(file), path_by_stem(file)) == (Path(own), Path(shared))


def test_two_files_of_a_stem_have_a_record_each(tmp_path):
    vectors(OLD).save(tmp_path / "y.npy")
    vectors(NEW).save(tmp_path / "y.safetensors")
    vectors(NEW, seed=1).save(tmp_path / "y.parquet")
    assert [
        load_vectors(tmp_path / f"y{suffix}").space for suffix in FORMATS if suffix != ".npz"
    ] == [NEW, NEW, OLD]
    assert read_space(tmp_path / "y.npy") == OLD


@pytest.mark.parametrize("suffix", FORMATS)
def test_no_record_of_older_contents_is_left(suffix, tmp_path):
    path = tmp_path / f"y{suffix}"
    vectors(OLD).save(path)
    declare_space(path, OLD.with_measured(CompatibleWith("ab", "mAP", 0.5)))
    vectors(NEW, seed=1).save(path)
    assert load_vectors(path).space == NEW
    vectors(None, seed=2).save(path)
    assert load_vectors(path).space is None
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", WITHIN)
def test_two_records_that_disagree_are_refused_everywhere(suffix, tmp_path):
    path = tmp_path / f"y{suffix}"
    vectors(OLD).save(path)
    for record in (path_beside(path), path_by_stem(path)):
        write_record(record, NEW)
        for read in (load_vectors, space_of, read_space):
            with pytest.raises(DataError, match=f"y{suffix} and .*{record.name} declare different"):
                read(path)
        record.unlink()


def test_two_records_beside_that_disagree_are_refused(tmp_path):
    path = tmp_path / "y.npy"
    vectors(OLD).save(path)
    write_record(path_by_stem(path), NEW)
    for read in (load_vectors, space_of):
        with pytest.raises(DataError, match="declare different models"):
            read(path)


def test_a_file_that_took_the_place_of_another_has_no_record(tmp_path):
    path = tmp_path / "y.npy"
    vectors(OLD, fitted=[True] * 6).save(path)
    np.save(path, vectors(None, seed=1).vectors.numpy())  # by another program
    read = load_vectors(path)
    assert read.space is None
    assert "fitted" not in read.columns
    with pytest.raises(DataError, match="Unknown space"):
        space_of(path)


@pytest.mark.parametrize("suffix", WITHIN)
def test_what_was_measured_of_older_contents_is_not_taken_over(suffix, tmp_path):
    path, other = tmp_path / f"y{suffix}", tmp_path / f"z{suffix}"
    vectors(OLD).save(path)
    declare_space(path, OLD.with_measured(CompatibleWith("ab", "mAP", 0.5)))
    vectors(NEW, seed=1).save(other)
    shutil.copy(other, path)  # the record stays
    assert load_vectors(path).space == space_of(path) == NEW


def test_records_of_version_0_1_are_read_and_become_those_of_their_files(tmp_path):
    for name, seed in (("y.npy", 0), ("y.npz", 1)):
        vectors(None, seed).save(tmp_path / name)
    facts = OLD.to_record()
    (tmp_path / "y.space.json").write_text(json.dumps(facts))
    (tmp_path / "y.fitted.json").write_text('{"fitted": "101010"}')
    assert load_vectors(tmp_path / "y.npy").space == load_vectors(tmp_path / "y.npz").space == OLD
    vectors(NEW, seed=2).save(tmp_path / "y.parquet")
    assert sorted(os.listdir(tmp_path)) == [
        "y.npy", "y.npy.fitted.json", "y.npy.space.json", "y.npz", "y.npz.space.json", "y.parquet",
    ]  # fmt: skip
    for name, space in (("y.npy", OLD), ("y.npz", OLD), ("y.parquet", NEW)):
        assert load_vectors(tmp_path / name).space == space_of(tmp_path / name) == space
    assert load_vectors(tmp_path / "y.npy").columns["fitted"].tolist() == [True, False] * 3


def test_the_record_of_a_folder_is_not_that_of_a_file(tmp_path):
    (tmp_path / "y").mkdir()
    vectors(None).save(tmp_path / "y" / "0.parquet")
    (tmp_path / "y.space.json").write_text(json.dumps(OLD.to_record()))
    vectors(NEW, seed=1).save(tmp_path / "y.parquet")
    assert load_vectors(tmp_path / "y.parquet").space == NEW
    assert load_vectors(tmp_path / "y").space == OLD


class Killed(BaseException):
    """Stands for a kill: nothing after it is done, not even clean-up."""


STEPS = ("replace", "unlink", "rename", "mkdir", "rmdir", "open", "fsync")


def killed_at(step, patch):
    """Makes the system fail for ever from one of its calls on, as if there were no process."""
    calls = []

    def wrap(name):
        real = getattr(os, name)

        def call(*arguments, **options):
            calls.append(name)
            if len(calls) > step:
                raise Killed
            return real(*arguments, **options)

        return call

    for name in STEPS:
        patch.setattr(os, name, wrap(name))
    return calls


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_a_kill_at_any_step_leaves_contents_with_their_own_record(
    suffix, shared, tmp_path, monkeypatch
):
    old, new = vectors(OLD), vectors(NEW, seed=1)
    outcomes, step = [], 0
    while True:
        path = tmp_path / str(step) / f"y{suffix}"
        path.parent.mkdir()
        old.save(path)
        if shared:  # as version 0.1 wrote it
            path_beside(path).unlink(missing_ok=True)
            write_record(path_by_stem(path), OLD)
        with monkeypatch.context() as patch:
            calls = killed_at(step, patch)
            try:
                new.save(path)
            except Killed:
                locks._writing.clear()  # a process that is no more locks nothing
        read = load_vectors(path)
        outcomes.append(read.space)
        expected = {OLD: old, NEW: new}[read.space]
        assert torch.equal(read.vectors, expected.vectors), step
        assert space_of(path) == read.space
        # The next run finds and removes what was left.
        vectors(OLD, seed=2).save(path)
        assert load_vectors(path).space == OLD
        beside = {path_beside(path).name} if suffix == ".npy" else set()
        assert set(os.listdir(path.parent)) == {path.name, *beside}
        if len(calls) <= step:
            break
        step += 1
    assert outcomes == sorted(outcomes, key=[OLD, NEW].index)  # once new, it stays new
    assert set(outcomes) == {OLD, NEW}


def test_a_declared_file_keeps_its_permissions_for_its_record(tmp_path):
    path = tmp_path / "y.npy"
    vectors(OLD).save(path)
    path.chmod(0o600)
    path_beside(path).unlink()
    record = declare_space(path, OLD)
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert record == record_of(path) == path_beside(path)


def test_a_record_that_is_named_remains_bound(tmp_path):
    path = tmp_path / "y.npy"
    vectors(OLD).save(path)
    measured = OLD.with_measured(CompatibleWith("ab", "mAP", 0.5))
    declare_space(path_beside(path), measured)
    assert load_vectors(path).space == measured
    np.save(path, np.ones((6, 4), np.float32))
    assert load_vectors(path).space is None


def test_a_short_record_adds_nothing_to_a_longer_one_of_the_same_model(tmp_path):
    path = tmp_path / "y.parquet"
    vectors(None).save(path)
    path_beside(path).write_text('{"name": "resnet50"}')
    assert space_of(path) == replace(Space(4, "resnet50"), normalized=None, dtype=None)
