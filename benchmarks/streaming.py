"""How much memory and time the evaluation of a large gallery takes.

    python benchmarks/streaming.py --queries 10000 --gallery 1000000

Writes an old and a new file of vectors (Parquet, not of unit length), runs `nobackfill evaluate`
on them in a process of its own, and appends a JSON line to streaming.jsonl: seconds, and the most
memory that this process ever held. Not timed: making the files. They need twice the size of the
gallery on the disk.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

import nobackfill as nb


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--gallery", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--classes", type=int, default=50_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--work", type=Path, help="where the files go, and stay")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = options.work or Path(folder)
        files = {name: folder / f"{name}.parquet" for name in ("old", "new")}
        for seed, (name, path) in enumerate(files.items()):
            if not path.exists():
                make(path, options, noise={"old": 1.0, "new": 0.8}[name], seed=seed)
        start = time.perf_counter()
        command = [
            sys.executable, "-m", "nobackfill", "evaluate", "--old", files["old"],
            "--new", files["new"], "--device", options.device, "--json",
        ]  # fmt: skip
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        line = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "queries": options.queries,
            "gallery": options.gallery,
            "dim": options.dim,
            "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
            "threads": torch.get_num_threads(),
            "seconds": time.perf_counter() - start,
            "peak_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
            **{
                key: value
                for key, value in json.loads(done.stdout).items()
                if key in ("old_old", "new_old", "new_new", "verdict")
            },
        }
    print(json.dumps(line))
    with options.output.open("a") as file:
        file.write(json.dumps(line) + "\n")


def make(path, options, *, noise, seed):
    """Items around class means that both files share."""
    number = options.queries + options.gallery
    mean = torch.randn(options.classes, options.dim, generator=torch.Generator().manual_seed(7))
    label = torch.arange(number) % options.classes
    vectors = torch.randn(number, options.dim, generator=torch.Generator().manual_seed(seed))
    for rows in torch.arange(number).split(65_536):
        vectors[rows] = mean[label[rows]] + 1.5 * noise * vectors[rows]
    is_query = np.arange(number) < options.queries
    nb.Vectors(
        [f"item-{row:07d}" for row in range(number)],
        vectors,
        label.numpy(),
        columns={"is_query": is_query, "is_gallery": ~is_query},
    ).save(path)


if __name__ == "__main__":
    main()
