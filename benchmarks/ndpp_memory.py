"""How much memory one update of NDPP takes for very many classes, and how long, on a CPU.

    python benchmarks/ndpp_memory.py --classes 300000

Its peers would take as long again, so it is not in `nobackfill bench speed`. Appends a JSON line to
`ndpp_memory.jsonl`: the seconds, and the most that the process held at any time, torch included.
"""

import argparse
import json
import resource
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

import nobackfill as nb
from nobackfill_bench.speed.inputs import crowded

RESULTS = Path(__file__).with_suffix(".jsonl")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, default=300_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    cpu = torch.device("cpu")
    old, new = (crowded(options.classes, options.dim, cpu, seed=seed) for seed in range(2))
    perturbation = nb.NeighborPerturbation(old[:2])  # made of two classes, as that costs nothing
    perturbation.old = perturbation.start = perturbation.moved = old
    begun = time.perf_counter()
    perturbation.update(new)
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "classes": options.classes,
        "dim": options.dim,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "seconds": round(time.perf_counter() - begun, 1),
        "process_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
    print(json.dumps(line))
    with options.output.open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
