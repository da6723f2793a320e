"""Time and peak memory of NDPP and ODPP updates, at the paper's numbers of classes.

    python benchmarks/perturbation.py --classes 24393 --steps 2

Appends one JSON line per measurement to `perturbation.jsonl`. The peak on a CPU is that of the
whole process above what it held before; on a GPU, of the allocator.
"""

import argparse
import json
import resource
import time
from datetime import UTC, datetime
from pathlib import Path

import torch
import torch.nn.functional as F

import nobackfill as nb

RESULTS = Path(__file__).with_suffix(".jsonl")


def prototypes(classes, dim, device):
    """Unit rows in clusters of twenty, as crowded as class means are."""
    generator = torch.Generator().manual_seed(0)
    centre = F.normalize(torch.randn(-(-classes // 20), dim, generator=generator), dim=-1)
    own = F.normalize(torch.randn(classes, dim, generator=generator), dim=-1)
    rows = 0.75 * centre.repeat_interleave(20, dim=0)[:classes] + 0.6 * own
    return F.normalize(rows, dim=-1).to(device)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, nargs="+", default=[24_393])
    parser.add_argument("--steps", type=int, default=50, help="of ODPP")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--double", action="store_true", help="float64")
    options = parser.parse_args()
    for classes in options.classes:
        old = prototypes(classes, 256, options.device)
        old = old.double() if options.double else old
        makers = {
            "ndpp": lambda old=old: nb.NeighborPerturbation(old),
            "odpp": lambda old=old: nb.OptimizedPerturbation(old, steps=options.steps),
        }
        for name, make in makers.items():
            line = measure(name, make, old, options)
            print(line)
            with RESULTS.open("a") as file:
                file.write(json.dumps(line) + "\n")


def measure(name, make, old, options):
    """The constructor and one update of one perturbation."""
    before = peak_mb(options.device)
    perturbation, made = timed(make, options.device)
    _, updated = timed(lambda: perturbation.update(old), options.device)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "method": name,
        "classes": len(old),
        "dim": old.shape[1],
        "dtype": str(old.dtype).removeprefix("torch."),
        "steps": options.steps if name == "odpp" else None,
        "device": torch.cuda.get_device_name() if old.is_cuda else "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "constructor_s": round(made, 4),
        "update_s": round(updated, 4),
        "peak_mb": round(peak_mb(options.device) - before, 1),
        "process_peak_mb": round(peak_mb("cpu"), 1),
    }


def timed(function, device):
    if device != "cpu":
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = function()
    if device != "cpu":
        torch.cuda.synchronize()
    return result, time.perf_counter() - start


def peak_mb(device):
    if device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return torch.cuda.max_memory_allocated() / 2**20


if __name__ == "__main__":
    main()
