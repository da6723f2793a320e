"""Runs tests on a mistake in a fork of a process that has imported and collected everything.

A test run of its own spends most of its time on imports. Here, pytest collects all tests once. For
each mistake the process is forked, the code of the changed functions is replaced in the fork, and
the selected tests run there. The changed file is on disk, too, for tests that start processes.

Mistakes that this cannot replace raise `NotReplaceable`: lines that an import executes, and Triton
kernels, whose source is read when they are imported.
"""

import atexit
import gc
import importlib
import os
import pkgutil
import select
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import pytest

Key = tuple[str, str, int]  # file, qualified name and first line of a function


class NotReplaceable(Exception):
    """The mistake changes more than the code of functions."""


class Forks:
    """A pytest plugin: collects all tests, and calls `work` instead of running them."""

    def __init__(self, work: Callable[["Forks"], None]) -> None:
        self.work = work
        self.failed = ""
        self.failing: dict[str, bool] = {}  # tests that fail in a fork without a mistake

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Imports the rest of the package, and calls `work`."""
        package = importlib.import_module("nobackfill")
        for module in pkgutil.walk_packages(package.__path__, "nobackfill."):
            if not module.name.endswith("__main__"):
                with suppress(ImportError):
                    importlib.import_module(module.name)
        self.items = {item.nodeid: item for item in session.items}
        self.by_file: dict[str, list[str]] = defaultdict(list)
        for name in self.items:
            self.by_file[name.partition("::")[0]].append(name)
        self.functions: dict[Key, list[FunctionType]] = defaultdict(list)
        for part in gc.get_objects():
            if type(part) is FunctionType and "nobackfill" in part.__code__.co_filename:
                self.functions[key_of(part.__code__)].append(part)
        gc.freeze()
        self.work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes the first failure."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def first_failure(
        self, path: Path, before: bytes, after: bytes, names: Sequence[str], limit: float
    ) -> str | None:
        """First test that fails with a changed file; "" if all pass, None after `limit`.

        A test that fails without the change, too, does not count.
        """
        changed = changed_code(path, before, after)
        names = [name for name in names if name in self.items and not self.failing.get(name)]
        while names:
            with replaced(path, after):
                failed = self.run(names, changed, limit)
            if not failed:
                return failed
            if failed not in self.failing:
                self.failing[failed] = self.run([failed], {}, limit) != ""
            if not self.failing[failed]:
                return failed
            print(f"{failed} fails without a mistake, too", flush=True)
            names = names[names.index(failed) + 1 :]
        return ""

    def run(self, names: Sequence[str], changed: dict[Key, CodeType], limit: float) -> str | None:
        """Runs tests in a fork."""
        readable, writable = os.pipe()
        # Some library complains about being forked; pytest would blame the first test.
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        child = os.fork()
        sys.unraisablehook = hook
        if child == 0:
            os.close(readable)
            self.run_forked([self.items[name] for name in names], changed, writable)
        os.close(writable)
        ready, _, _ = select.select([readable], [], [], limit)
        ended, _, failed = (
            os.read(readable, 100_000).decode().partition("\n") if ready else ("",) * 3
        )
        os.close(readable)
        if not ready:
            os.killpg(child, signal.SIGKILL)  # its own session, with all that it started
        os.waitpid(child, 0)
        if ready and not ended:
            raise NotReplaceable  # the process crashed
        return failed if ready else None

    def run_forked(
        self, items: Sequence[pytest.Item], changed: dict[Key, CodeType], answer: int
    ) -> None:
        """Replaces the code, runs the tests up to the first failure, and ends the process."""
        try:
            os.setsid()
            atexit._clear()
            for key, code in changed.items():
                for function in self.functions[key]:
                    function.__code__ = code
            for item, following in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self.failed:
                    break
            os.write(answer, f"ended\n{self.failed}".encode())
            items[0].session._setupstate.teardown_exact(None)
            atexit._run_exitfuncs()  # databases that the tests started
        finally:
            os._exit(0)


@contextmanager
def replaced(path: Path, content: bytes) -> Iterator[None]:
    """Replaces a file within the block; afterwards no bytecode of the replacement is valid."""
    original, times = path.read_bytes(), path.stat()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def key_of(code: CodeType) -> Key:
    """Identity of the code of a function."""
    return code.co_filename, code.co_qualname, code.co_firstlineno


def changed_code(path: Path, before: bytes, after: bytes) -> dict[Key, CodeType]:
    """Code of all functions of a file that a mistake changes; `path` is the imported file."""
    module = next(
        (module for module in list(sys.modules.values()) if file_of(module) == str(path)), None
    )
    if module is None or module.__spec__ is None:
        raise NotReplaceable
    loader = module.__spec__.loader
    trees = [loader.source_to_code(source, str(path)) for source in (before, after)]  # type: ignore[union-attr]
    changed = dict(changed_functions(*trees))
    if not changed or b"import triton" in before:
        raise NotReplaceable
    return changed


def file_of(module: ModuleType) -> str | None:
    """Path of a module's file."""
    return getattr(module, "__file__", None)


def changed_functions(before: CodeType, after: CodeType) -> Iterator[tuple[Key, CodeType]]:
    """Pairs the functions of two versions of a file."""
    parts = [
        [part for part in code.co_consts if isinstance(part, CodeType)] for code in (before, after)
    ]
    names = [[part.co_qualname for part in some] for some in parts]
    if names[0] != names[1]:
        return
    for old, new in zip(*parts, strict=True):
        if (
            old.co_code != new.co_code
            or old.co_consts != new.co_consts
            or old.co_names != new.co_names
        ):
            if len(old.co_freevars) != len(new.co_freevars):
                raise NotReplaceable
            if old.co_flags & 1:  # a function, not the body of a class
                yield key_of(old), new
            yield from changed_functions(old, new)
