"""How long a head takes to fit on many items, how much memory, and what a limit of time costs.

    python benchmarks/head_size.py --items 100000 --classes 10000 --seconds 52
    python benchmarks/head_size.py --items 100000 --classes 10000
    python benchmarks/head_size.py --items 1000000 --classes 100000 --seconds 180

Writes an old (256 dimensions) and a new file (1,024) of invented vectors, runs `nobackfill fit` on
them in a process of its own, asks 1,000 other classes, and appends a JSON line to head_size.jsonl.
`anonymous_mb` is the most memory that the process held of its own; `peak_mb` counts the pages of
the files that the system kept for it, too, which it gives up when memory is short. Not timed:
making the files.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import torch
import torch.nn.functional as F

import nobackfill as nb

NEW_DIM, OLD_DIM, LATENT, INNER = 1024, 256, 96, 512
TEST_CLASSES, PER_TEST_CLASS = 1000, 10


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--classes", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, help="what `fit` is told that it may take")
    parser.add_argument("--work", type=Path, help="where the files go, and stay")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = options.work or Path(folder)
        sizes = f"{options.items}_{options.classes}"
        files = {name: folder / f"{name}_{sizes}.safetensors" for name in ("old", "new")}
        world = World(options.classes + TEST_CLASSES)
        if not all(path.exists() for path in files.values()):
            labels = torch.arange(options.items) % options.classes
            for name, side in zip(files, world.seen(labels, seed=1), strict=True):
                nb.Vectors(torch.arange(len(side)), side, labels).save(files[name])
        line = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "items": options.items,
            "classes": options.classes,
            "limit": options.seconds,
            "threads": torch.get_num_threads(),
            **fit(files, folder / "head", options.seconds),
            **asked(folder / "head", world, options.classes),
        }
    print(json.dumps(line))
    with options.output.open("a") as file:
        file.write(json.dumps(line) + "\n")


class World:
    """Classes in families, seen by two models: the old one sees less, and with more noise.

    Args:
        classes: How many.
    """

    def __init__(self, classes):
        generator = torch.Generator().manual_seed(0)
        self.spectrum = torch.arange(1, LATENT + 1) ** -0.5
        family = torch.randn(classes // 20, LATENT, generator=generator)
        own = torch.randn(classes, LATENT, generator=generator)
        member_of = torch.randint(classes // 20, (classes,), generator=generator)
        self.middle = (family[member_of] + 0.8 * own) * self.spectrum
        self.layers = [
            torch.randn(shape, generator=generator) / shape[0] ** 0.5
            for shape in ((LATENT, INNER), (INNER, NEW_DIM), (LATENT, INNER), (INNER, OLD_DIM))
        ]

    def seen(self, labels, *, seed):
        """Old and new vectors of items of some classes, in half precision."""
        generator = torch.Generator().manual_seed(seed)
        old, new = (
            torch.empty(len(labels), dim, dtype=torch.float16) for dim in (OLD_DIM, NEW_DIM)
        )
        first, second, third, fourth = self.layers
        for rows in torch.arange(len(labels)).split(16_384):
            noise = torch.randn(3, len(rows), LATENT, generator=generator) * self.spectrum
            item = self.middle[labels[rows]] + noise[0]
            new[rows] = (torch.tanh(2 * (item + 0.3 * noise[1]) @ first) @ second).half()
            old[rows] = (F.relu(2 * (item + 0.8 * noise[2]) @ third) @ fourth).half()
        return old, new


def fit(files, head, seconds):
    """Runs the command; how long it took, and how much memory."""
    command = [
        sys.executable, "-m", "nobackfill", "fit", "--old", files["old"], "--new", files["new"],
        "--device", "cpu", "--json", "--overwrite", "-o", head,
    ]  # fmt: skip
    if seconds is not None:
        command += ["--seconds", str(seconds)]
    start, anonymous = time.perf_counter(), 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            anonymous = max(anonymous, held(process.pid))
            time.sleep(0.1)
        told = json.loads(process.stdout.read())
    if process.returncode:
        raise SystemExit(process.returncode)
    return {
        "seconds": time.perf_counter() - start,
        "peak_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
        "anonymous_mb": anonymous / 1024,
        "notes": told["notes"],
    }


def held(process):
    """The kilobytes of memory that a process holds of its own; 0 where the system does not tell."""
    try:
        with open(f"/proc/{process}/status", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("RssAnon")), 0)
    except OSError:
        return 0


def asked(head, world, classes):
    """The mAP of new queries on the old vectors of classes that no file had, and of others."""
    labels = classes + torch.arange(TEST_CLASSES * PER_TEST_CLASS) % TEST_CLASSES
    old, new = (nb.Vectors(torch.arange(len(labels)), part, labels)
                for part in world.seen(labels, seed=2))  # fmt: skip
    result = nb.evaluate(old, nb.CompatibleHead.from_pretrained(head).transform(new)).summary()
    raw = nb.evaluate(new, new).old_old.mean_average_precision
    return {key: result[key] for key in ("old_old", "new_old", "new_new")} | {"raw_new": raw}


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[1] / "src"))
    main()
