"""Settings of the whole test run, and a suite of the benchmark that trains nothing."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

# Tests work on tiny tensors: one thread is as fast, and does not stall on a busy machine.
torch.set_num_threads(1)

# Kernels for GPUs are interpreted where there is none.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture
def toy(monkeypatch):
    """A suite by the name of "toy", whose runs are made in threads of this process."""
    from nobackfill_bench import SUITES, Suite
    from nobackfill_bench.quality import runner, trained

    @dataclass(frozen=True)
    class Toy(Suite):
        """Trains nothing, and remembers its tasks; `broken` fails."""

        made: list = field(default_factory=list)
        broken: list = field(default_factory=list)

        def stages(self, ways):
            return trained.stages(ways)

        def run(self, task):
            self.made.append(task)
            if task.way in self.broken:
                raise RuntimeError("out of memory")
            if task.way in ("old", "cores_old"):
                return None
            return {
                "device": "cpu", "seconds": 1.0, "epochs": 1, "lost": 0.1, "verdict": "undecided",
                "old_old": 0.1, "new_old": 0.25, "new_new": 0.3,
            }  # fmt: skip

    suite = Toy(
        title="A toy upgrade", text=("Nothing is trained.",), ways=("independent", "rm"), seeds=2
    )
    monkeypatch.setitem(SUITES, "toy", suite)
    monkeypatch.setattr(
        runner.multiprocessing, "get_context", lambda kind: SimpleNamespace(Pool=ThreadPool)
    )
    return suite


@pytest.fixture
def nobackfill(capsys, monkeypatch):
    """Runs a command; returns its exit code, stdout and stderr."""

    from nobackfill.cli.main import main  # not before types are watched

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["nobackfill", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def command(nobackfill):
    """The same, where a file of tests has no command of its own."""
    return nobackfill


class Disk:
    """A file system in memory, of a size that can be changed."""

    large = 256 * 2**20

    def __init__(self, path):
        self.path = path

    def mount(self, options=f"size={large},mode=755"):
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def leave(self, room):
        """Makes it larger than what it holds by some bytes."""
        size = shutil.disk_usage(self.path).used + room
        assert self.mount(f"remount,size={size}").returncode == 0


@pytest.fixture
def disk():
    path = Path(tempfile.mkdtemp(prefix="nobackfill-disk-"))
    path.chmod(0o755)
    disk = Disk(path)
    told = disk.mount() if shutil.which("mount") else None
    if told is None or told.returncode:
        path.rmdir()
        why = "there is no `mount`" if told is None else told.stderr.strip()
        pytest.skip(f"wanted to mount a small disk, which root may: {why}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)  # also if a test failed
        path.rmdir()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Leaves out the doctests of test files, which have none.

    With `--doctest-ignore-import-errors` their collector skips a file that cannot be imported, and
    leaves half of it in `sys.modules`, where the collector of tests finds it and reports nothing.
    """
    collectors = yield
    return [collector for collector in collectors if type(collector) is pytest.Module]


def pytest_collection_modifyitems(items):
    """Marks what `make test` leaves to `make test-all`; see slow_tests.py."""
    path = Path(__file__).with_name("slow_tests.py")
    spec = importlib.util.spec_from_file_location("slow_tests", path)
    slow_tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(slow_tests)
    for item in items:
        if slow_tests.is_slow(item.nodeid):
            item.add_marker(pytest.mark.slow)
