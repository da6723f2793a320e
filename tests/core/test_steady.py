"""A file that is replaced while it is read is read again, with its own record."""

import os
import threading
import time

import numpy as np
import pytest

import nobackfill as nb
from nobackfill.core.steady import ATTEMPTS, read_steadily
from nobackfill.errors import DataError
from nobackfill.vectors.space import Space

MODELS = {number: Space(dim=3, weights=f"model {number}") for number in (1, 2)}


def replace(path, text):
    (path.parent / "new").write_text(text)
    os.replace(path.parent / "new", path)


def test_what_changes_meanwhile_is_read_again(tmp_path):
    path, other = tmp_path / "a", tmp_path / "b"
    replace(path, "1")
    replace(other, "1")
    reads = []

    def read():
        first = path.read_text()
        if len(reads) < 3:  # another process writes between both
            replace(path, f"{len(reads) + 2}")
            replace(other, f"{len(reads) + 2}")
        reads.append((first, other.read_text()))
        return reads[-1]

    assert read_steadily(read, lambda: [path, other]) == ("4", "4")
    assert reads == [("1", "2"), ("2", "3"), ("3", "4"), ("4", "4")]


def test_an_error_that_comes_from_a_change_is_no_error(tmp_path):
    path, reads = tmp_path / "a", []
    replace(path, "1")

    def read():
        reads.append(path.read_text())
        if len(reads) == 1:
            replace(path, "2")
            raise ValueError("half of each")
        return reads[-1]

    assert read_steadily(read, lambda: [path]) == "2"


def test_an_error_of_a_file_that_stays_is_one(tmp_path):
    replace(tmp_path / "a", "1")
    reads = []

    def read():
        reads.append(1)
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        read_steadily(read, lambda: [tmp_path / "a"])
    assert len(reads) == 1


def test_a_file_that_never_stays_is_told(tmp_path):
    reads = []

    def read():
        reads.append(1)
        replace(tmp_path / "a", str(len(reads)))

    replace(tmp_path / "a", "0")
    with pytest.raises(DataError, match="was written again each time"):
        read_steadily(read, lambda: [tmp_path / "a"])
    assert len(reads) == ATTEMPTS


@pytest.mark.parametrize("suffix", ["parquet", "safetensors", "npy", "npz"])
def test_a_file_that_is_replaced_comes_with_its_own_record(tmp_path, suffix):
    path, stop = tmp_path / f"v.{suffix}", threading.Event()

    def save(number):
        nb.Vectors(range(4), np.full((4, 3), number, np.float32), space=MODELS[number]).save(path)

    def write():
        while not stop.is_set():
            for number in MODELS:
                save(number)
                time.sleep(0.02)

    save(1)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen, told, reads, last = set(), [], 0, time.monotonic() + 20
        while reads < 40 or (seen != {1, 2} and time.monotonic() < last):
            reads += 1
            try:
                read = nb.load_vectors(path)
            except DataError as error:
                told.append(str(error))
                continue
            number = int(read.vectors[0, 0])
            assert read.space == MODELS[number]
            assert (read.vectors == number).all()
            seen.add(number)
    finally:
        stop.set()
        writer.join()
    assert seen == {1, 2}
    assert all("was written again each time" in text for text in told)
