"""Times one update of NDPP, of ODPP by default, and of ODPP as printed, at the size of GLDv2 30 %.

    python benchmarks/odpp_cost.py --device cuda

24,393 prototypes of 256 dimensions in clusters of 20, and 470,369 images: the printed procedure is
50 epochs of as many random pairs, in batches of 1,024, which makes 23,000 updates before each epoch
of training. One line per procedure is appended to odpp_cost.jsonl.
"""

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from nobackfill import NeighborPerturbation, OptimizedPerturbation

RESULTS = Path(__file__).with_suffix(".jsonl")
PRINTED = {"optimizer": "sgd", "pairs": "sampled"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--classes", type=int, default=24_393)
    parser.add_argument("--images", type=int, default=470_369)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    old, new = (prototypes(options.classes, seed).to(options.device) for seed in (0, 1))
    makers = {
        "ndpp": lambda: NeighborPerturbation(old),
        "odpp": lambda: OptimizedPerturbation(old, steps=1),
        "odpp as printed": lambda: OptimizedPerturbation(
            old, steps=1, pairs_per_epoch=options.images, **PRINTED
        ),
    }
    for name, make in makers.items():
        perturb = make()
        steps = 0
        if name != "ndpp":  # all steps in the update that is timed
            perturb.steps, steps = options.steps, -int(perturb.counts[0])
        start = time.perf_counter()
        perturb.update(new)
        if options.device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        line = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "procedure": name,
            "device": options.device,
            "threads": torch.get_num_threads(),
            "classes": options.classes,
            "images": options.images,
            "updates": steps + int(perturb.counts[0]) if steps else 1,
            "seconds": round(seconds, 3),
            "degrees": round(mean_angle(perturb.moved, old), 3),
        }
        print(json.dumps(line), flush=True)
        with options.output.open("a") as file:
            file.write(json.dumps(line) + "\n")


def prototypes(classes, seed):
    """Unit prototypes in clusters of 20 around random centres, with one direction in common."""
    random = np.random.default_rng(seed)

    def unit(rows):
        return rows / np.linalg.norm(rows, axis=-1, keepdims=True)

    center = unit(random.standard_normal((-(-classes // 20), 256))).repeat(20, axis=0)[:classes]
    own, shared = unit(random.standard_normal((classes, 256))), unit(random.standard_normal(256))
    return torch.from_numpy(unit(0.75 * center + 0.6 * own + 0.15 * shared)).float()


def mean_angle(one, other):
    """Mean angle between rows, in degrees."""
    return torch.rad2deg(F.cosine_similarity(one, other).clamp(-1, 1).acos()).mean().item()


if __name__ == "__main__":
    main()
