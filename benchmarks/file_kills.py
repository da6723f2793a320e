"""Kills commands at every system call, over outputs of an earlier run, and looks at what is left.

    python benchmarks/file_kills.py                     # every call that can change a file
    python benchmarks/file_kills.py --calls all         # every system call: hours
    python benchmarks/file_kills.py --only embed --limit 20

Requires strace, which sends SIGKILL when the command enters a system call for the N-th time. A
process that has imported everything is forked for each kill, so that one takes less than a second.
After each kill an output must be the old one or the new one, whole, with the record of its own
model; then the command is run again, and must leave the new output and no temporary files. Appends
one JSON line per command to file_kills.jsonl.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

import nobackfill as nb
from nobackfill.cli.exit_codes import exit_code_of
from nobackfill.cli.main import app
from nobackfill.errors import NobackfillError
from nobackfill.gallery.planning.plan_file import load_plan
from nobackfill.vectors.records import space_of
from nobackfill.vectors.space import Space

HERE = Path(__file__).parent
CHANGES = re.compile(
    r"(p?write(64|v|v2)?|rename(at2?)?|(un)?link(at)?|rmdir|mkdir(at)?|symlink(at)?|f?truncate"
    r"|fallocate|f(data)?sync|f?ch(mod|own)(at)?|open(at)?|creat|close|fcntl|copy_file_range)"
)
PATIENCE = 60  # seconds for one command
LABELS = np.arange(120) % 12
OLD_NEW = ["--old", "old.parquet", "--new", "new.parquet", "--device", "cpu"]


@dataclass(frozen=True)
class Case:
    """A command, and what its output is.

    Attributes:
        arguments: Command that replaces the output.
        before: Command that makes the earlier output.
        output: Name of the output: a file, a folder, or a page with files next to it.
        read: Function from the path of the output to something that tells old from new.
        writes: Names of everything that is written.
    """

    arguments: list[str]
    before: list[str]
    output: str
    read: Callable[[Path], object]
    writes: tuple[str, ...] = ()


def told_by_vectors(path):
    """The vectors and the model that made them, by all ways to read it."""
    vectors = nb.load_vectors(path)
    assert (vectors.space is None) == (space_of_or_none(path) is None), "records disagree"
    assert vectors.space is None or space_of(path).fingerprint == vectors.space.fingerprint
    space = vectors.space and vectors.space.fingerprint
    return vectors.vectors.numpy().tobytes(), vectors.ids.tolist(), space


def space_of_or_none(path):
    try:
        return space_of(path)
    except NobackfillError:
        return None


def told_by_head(path):
    """The weights and the space of a head."""
    head = nb.CompatibleHead.from_pretrained(path)
    arrays = {name: array.tobytes() for name, array in head.arrays().items()}
    return arrays, head.space_.fingerprint


def told_by_plan(path):
    plan = load_plan(path)
    return plan.ids.tolist(), plan.order


def told_by_page(path):
    """Each file of a report by its contents, without the date."""
    return path.read_bytes()


def fit(old, seed):
    return ["fit", "--old", old, *OLD_NEW[2:], "-o", "head", "--overwrite", "--seed", seed,
            "--epochs", "1", "--hidden", "8"]  # fmt: skip


def plan(order):
    return ["gallery", "plan", "flat://old.parquet", *OLD_NEW, "-o", "plan.parquet", "--order",
            order]  # fmt: skip


def page(name, old):
    arguments = ["evaluate", "--old", old, *OLD_NEW[2:], "--report", "page.html"]
    return Case(arguments, [*arguments[:2], "other.parquet", *arguments[3:]], name, told_by_page,
                ("page.html", "page.json", "page.md", "page.queries.parquet"))  # fmt: skip


def embed(output):
    return Case(
        ["embed", "made", "bare.parquet", "-o", output, "--device", "cpu"],
        ["embed", "made2", "bare.parquet", "-o", output, "--device", "cpu"],
        output,
        told_by_vectors,
    )


CASES = {
    "fit": Case(fit("old.parquet", "1"), fit("other.parquet", "2"), "head", told_by_head),
    "embed .parquet": embed("mapped.parquet"),
    "embed .npy": embed("mapped.npy"),
    "embed .npz": embed("mapped.npz"),
    "embed .safetensors": embed("mapped.safetensors"),
    "pull": Case(
        ["gallery", "pull", "flat://old.parquet", "-o", "pulled.parquet"],
        ["gallery", "pull", "flat://other.parquet", "-o", "pulled.parquet"],
        "pulled.parquet",
        told_by_vectors,
    ),
    "plan": Case(plan("planned"), plan("random"), "plan.parquet", told_by_plan),
    **{
        f"evaluate --report {suffix}": page(f"page{suffix}", "old.parquet")
        for suffix in (".html", ".json", ".md", ".queries.parquet")
    },
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", choices=["changes", "all"], default="changes")
    parser.add_argument("--only", help="Commands whose name starts with this.", default="")
    parser.add_argument("--limit", type=int, help="Random kills of each command.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, default=HERE / "file_kills.jsonl")
    options = parser.parse_args()
    names = [name for name in CASES if name.startswith(options.only)]
    lost = 0
    with tempfile.TemporaryDirectory() as scratch:
        prepare(Path(scratch))
        for name in names:
            line = try_command(
                name, Path(scratch), calls=options.calls, limit=options.limit, seed=options.seed
            )
            lost += len(line["lost"])
            print(json.dumps({**line, "lost": line["lost"][:5]}), flush=True)
            with options.output.open("a") as file:
                file.write(json.dumps(line) + "\n")
    sys.exit(lost > 0)


def prepare(folder):
    """Writes vectors of three models, in `folder`, and two heads."""
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(12, 6, generator=generator)[LABELS]
    split = np.where(LABELS < 6, "train", "validation")
    for name in ("old", "other", "new"):
        turn = torch.randn(6, 6, generator=generator)
        rows = (centre + 0.3 * torch.randn(120, 6, generator=generator)) @ turn
        vectors = nb.Vectors(
            np.arange(120), rows, LABELS, columns={"split": split}, space=Space(6, name)
        )
        vectors.save(folder / f"{name}.parquet")
    nb.Vectors(vectors.ids, vectors.vectors, space=vectors.space).save(folder / "bare.parquet")
    os.chdir(folder)
    for name, old in (("made", "old.parquet"), ("made2", "other.parquet")):
        run([*fit(old, "1")[:-4], "--epochs", "0", "-o", name])


def try_command(name, folder, *, calls="changes", limit=None, seed=0):
    """Kills a command at its system calls; returns counts, and what was lost."""
    case, start = CASES[name], time.perf_counter()
    home = folder / "case"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    for path in folder.iterdir():
        if path != home:
            (home / path.name).symlink_to(path)
    os.chdir(home)
    # Make both outputs, and learn the system calls.
    command(case.arguments)  # in this process, which then has imported everything
    new = case.read(home / case.output)
    clean(home)
    run(case.before)
    old = case.read(home / case.output)
    assert old != new, f"{name}: both outputs are the same"
    shutil.copytree(home, folder / "before", symlinks=True, dirs_exist_ok=True)
    points = kill_points(case.arguments, folder, calls)
    total = len(points)
    if limit is not None and limit < total:
        points = sorted(random.Random(seed).sample(points, limit))
    # Kill at each.
    counts, lost, unkilled = {"old": 0, "new": 0}, [], 0
    for point in points:
        restore(folder)
        was_killed = kill_at(case.arguments, point)
        unkilled += not was_killed
        found = what_is_left(case, home, old, new)
        counts[found] = counts.get(found, 0) + 1
        if found not in ("old", "new"):
            lost.append({"call": point, "found": found})
        # The next run finishes, and removes what was left.
        code = run(case.arguments, check=False)
        again = what_is_left(case, home, old, new)
        left = [path.name for path in home.iterdir() if path.name.startswith(".")]
        if was_killed and (code != 0 or again != "new" or left):
            lost.append({"call": point, "again": again, "code": code, "left": left})
    shutil.rmtree(folder / "before")
    shutil.rmtree(home)
    os.chdir(folder)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": name,
        "calls": calls,
        "system_calls": total,
        "kills": len(points) - unkilled,
        "left_old": counts["old"],
        "left_new": counts["new"],
        "lost": lost,
        "seconds": round(time.perf_counter() - start, 1),
    }


def clean(home):
    for path in home.iterdir():
        if not path.is_symlink():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def restore(folder):
    """Puts back the outputs of the earlier run."""
    home = folder / "case"
    clean(home)
    for path in (folder / "before").iterdir():
        if not path.is_symlink():
            if path.is_dir():
                shutil.copytree(path, home / path.name)
            else:
                shutil.copy2(path, home / path.name)


def what_is_left(case, home, old, new):
    """Whether an output is the old or the new one, or what is wrong with it."""
    try:
        found = case.read(home / case.output)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return "old" if found == old else "new" if found == new else "something else"


def run(arguments, *, check=True):
    """Runs a command in a fork of this process; returns its exit code."""
    child = os.fork()
    if not child:
        os._exit(command(arguments))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert not check or code in (0, 1, 3), f"{arguments}: {code}"
    return 0 if code in (1, 3) else code  # a verdict is not a failure


def command(arguments):
    """Runs a command silently, and returns its exit code."""
    silence, kept = os.open(os.devnull, os.O_WRONLY), [os.dup(1), os.dup(2)]
    for stream in (1, 2):
        os.dup2(silence, stream)
    sys.argv = ["nobackfill", *arguments]
    try:
        return exit_code_of(lambda: app(prog_name="nobackfill"))
    finally:
        for stream, there in zip((1, 2), kept, strict=True):
            os.dup2(there, stream)
            os.close(there)
        os.close(silence)


def traced(arguments, *options):
    """Runs a command in a fork that strace watches; returns how it ended."""
    ready, go = os.pipe()
    child = os.fork()
    if not child:
        os.read(ready, 1)
        os._exit(command(arguments))
    os.close(ready)
    strace = subprocess.Popen(
        ["strace", "-f", "-p", str(child), *options], stderr=subprocess.PIPE, text=True
    )
    try:
        assert "attached" in strace.stderr.readline()
        os.write(go, b".")
        end = time.monotonic() + PATIENCE
        while True:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.005)
    finally:
        os.close(go)
        strace.communicate()


def kill_points(arguments, folder, calls):
    """System calls to kill at: those that may change a file, or all. A pair of name and number."""
    log = folder / "trace"
    code = traced(arguments, "-o", str(log))
    assert code in (0, 1, 3), code
    lines = [line.split(None, 1) for line in log.read_text(errors="replace").splitlines()]
    log.unlink()
    points, counted = [], {}
    for thread, call in lines:
        if "resumed>" in call or call.startswith(("+++", "---")):
            continue
        name = call.partition("(")[0]
        counted[thread, name] = number = counted.get((thread, name), 0) + 1
        if (name, number) not in points and (calls == "all" or CHANGES.fullmatch(name)):
            points.append((name, number))
    return points


def kill_at(arguments, point):
    """Kills a command when a thread of it enters a system call for the n-th time."""
    name, number = point
    inject = f"inject={name}:signal=KILL:when={number}"
    return traced(arguments, "-o", os.devnull, "-e", inject) == -signal.SIGKILL


if __name__ == "__main__":
    main()
