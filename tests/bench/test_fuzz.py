"""The fuzzer: a minute of it, and that it sees what must not happen."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow  # a minute, and imports of everything
FILES = 700  # about a minute


@pytest.fixture(scope="module")
def fuzz_files():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("fuzz_files")
    sys.path.remove(str(ROOT / "benchmarks"))


def test_a_minute_of_damaged_files(tmp_path):
    command = [
        sys.executable, ROOT / "benchmarks" / "fuzz_files.py", "--dry-run",
        "--files", str(FILES), "--seed", "1",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout[done.stdout.index("{\n") :])
    assert found["faults"] == {}, done.stdout + done.stderr
    assert done.returncode == 0
    assert found["files"] == FILES


def hold_memory():
    held = bytearray(1_800_000_000)
    held[::4096] = b"x" * len(held[::4096])


def write_half():
    Path("out").write_text("half")
    from nobackfill.errors import DataError

    raise DataError("It is damaged.")


PLANTED = {
    "traceback": lambda: 1 / 0,
    "signal": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "time-out": lambda: time.sleep(60),
    "memory": hold_memory,
    "half-written out": write_half,
    "raw control characters": lambda: print("\x1b[31m"),
    "": lambda: print("fine"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_what_must_not_happen_is_seen(fuzz_files, tmp_path, monkeypatch, fault):
    monkeypatch.setattr(fuzz_files, "PATIENCE", 6)
    (tmp_path / "case").mkdir()
    seed = fuzz_files.Seed("planted", tmp_path / "case", (), PLANTED[fault], ("out",))
    assert fuzz_files.read_in_a_fork([seed], tmp_path)[0].fault == fault


def test_a_fault_is_counted_once_and_its_number_finds_it_again(fuzz_files, tmp_path, capsys):
    """Files are read many at a time; the one to blame is read again alone."""
    folder = tmp_path / "seed"
    folder.mkdir()
    (folder / "a.bin").write_bytes(bytes(range(256)))

    def read():
        if not Path("a.bin").read_bytes().startswith(b"\x00\x01\x02\x03"):
            os.kill(os.getpid(), signal.SIGKILL)

    seeds = [fuzz_files.Seed("planted", folder, ("a.bin",), read)]
    found = fuzz_files.fuzz(seeds, 100, 7, tmp_path)
    capsys.readouterr()
    assert found["files"] == 100
    assert 0 < found["faults"]["signal"] < 100
    seed, number = map(int, found["examples"]["signal"][0].split(":"))
    assert fuzz_files.fuzz_one(seeds, seed, number, tmp_path).fault == "signal"
    assert fuzz_files.fuzz(seeds, 100, 7, tmp_path)["faults"] == found["faults"]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.csv", "a.toml", "a.bin", "a.npz"])
def test_the_same_seed_damages_in_the_same_way(fuzz_files, name):
    data = b'{"a": [1, 2.5, "text"], "b": {"c": null}}\n' * 3
    damaged = [fuzz_files.mutate(data, name, Random(number)) for number in range(200)]
    assert damaged == [fuzz_files.mutate(data, name, Random(number)) for number in range(200)]
    assert len(set(damaged)) > 150
