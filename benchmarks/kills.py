"""Kills a training at random moments, resumes it, and compares the weights with an unbroken one.

    python benchmarks/kills.py --times 20

Each time `nobackfill train recipes/glyphs/ndpp.toml` is killed by SIGKILL somewhere between its
start and its end, then run again with --resume. One that had ended already is told, but counts as
no kill. Appends one JSON line to kills.jsonl.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
RECIPES = HERE.parent / "recipes" / "glyphs"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, default=HERE / "kills.jsonl")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        train("old", work / "old").wait()
        start = time.perf_counter()
        train("ndpp", work / "whole", old=work / "old").wait()
        length = time.perf_counter() - start
        wanted = weights(work / "whole")
        kills = []
        while sum(kill["was_running"] for kill in kills) < options.times:
            folder, after = work / str(len(kills)), draw.uniform(0, length)
            kills.append(kill_and_resume(folder, work / "old", after, wanted))
            print(kills[-1], flush=True)
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds_unbroken": round(length, 1),
        "killed_while_training": sum(kill["was_running"] for kill in kills),
        "identical": sum(kill["identical"] for kill in kills),
        "kills": kills,
    }
    with options.output.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(f"{line['identical']} of {len(kills)} identical")
    sys.exit(line["identical"] < len(kills))


def kill_and_resume(folder, old, after, wanted):
    """One kill, one resume: when it came, after which epoch, and whether the weights are equal."""
    process = train("ndpp", folder, old=old)
    time.sleep(after)
    was_running = process.poll() is None
    if was_running:
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    metrics = folder / "metrics.jsonl"
    epochs = len(metrics.read_text().splitlines()) if metrics.exists() else 0
    code = train("ndpp", folder, old=old, resume=True).wait()
    return {
        "after_seconds": round(after, 2),
        "after_epochs": epochs,
        "was_running": was_running,
        "exit_code": code,
        "identical": code == 0 and weights(folder) == wanted,
    }


def train(name, folder, *, old=None, resume=False):
    command = [sys.executable, "-m", "nobackfill", "train", str(RECIPES / f"{name}.toml")]
    command += ["-o", str(folder), "--device", "cpu", *(["--resume"] if resume else [])]
    command += [] if old is None else ["--set", f"old.run={old}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=-3)


def weights(folder):
    path = folder / "model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


if __name__ == "__main__":
    main()
