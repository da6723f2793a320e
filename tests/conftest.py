"""Settings of the whole test run, and a suite of the benchmark that trains nothing."""

import functools
import gc
import importlib.util
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import ForwardRef, get_args

import jaxtyping
import pytest
import torch
from beartype import BeartypeConf, beartype

# Tests work on tiny tensors: one thread is as fast, and does not stall on a busy machine.
torch.set_num_threads(1)

# Kernels for GPUs are interpreted where there is none.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


check_types = beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))
check_shapes = jaxtyping.jaxtyped
axes = jaxtyping.jaxtyped("context")  # inside, an axis of one name has one size


def parts(annotation):
    yield annotation
    for part in get_args(annotation):
        yield from parts(part)


def check(function=None, *, typechecker=None):
    """Checks types and shapes at each call as `jaxtyped` does, at a fraction of its cost.

    That binds the arguments of every call and checks them twice, which takes longer than most
    functions. It is left to it what only it can do: names of classes, sizes from arguments, yields.
    """
    if function is None:
        return functools.partial(check, typechecker=typechecker)
    if typechecker is None or not isinstance(function, FunctionType):
        return check_shapes(function, typechecker=typechecker)
    inside = [part for hint in function.__annotations__.values() for part in parts(hint)]
    shapes = [part for part in inside if isinstance(part, type(jaxtyping.AbstractArray))]
    named = any(isinstance(part, str | ForwardRef) for part in inside)
    if named or any("{" in shape.dim_str for shape in shapes):
        return check_shapes(function, typechecker=typechecker)
    annotations = dict(function.__annotations__)
    checked = check_types(function)
    # beartype puts `int | float` where it saw that before `float | int`; options are read by order.
    function.__annotations__ = annotations
    checked.__annotations__ = dict(annotations)
    if not shapes:
        return checked
    if inspect.isgeneratorfunction(function):
        return check_shapes(function, typechecker=typechecker)

    @functools.wraps(function)
    def within_axes(*arguments, **options):
        with axes:
            return checked(*arguments, **options)

    return within_axes


jaxtyping.jaxtyped = check  # which the import hook of pytest puts at every function


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
        runner, "ProcessPoolExecutor", lambda number, mp_context: ThreadPoolExecutor(number)
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
def pytest_collection():
    """Leaves what stays, a million objects, out of every search for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_unconfigure():
    gc.unfreeze()  # some libraries complain of what is left at the end


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
