"""Heads on training classes of the suites that they were not fitted on.

    NOBACKFILL_DATA=... python benchmarks/head_folds.py cub200 --fold 1 --seed 1

A quarter of the training classes is searched; heads are fitted on the others. What `auto` tries was
chosen by these classes; those that the suites search were not looked at. Appends a JSON line for
each head to head_folds.jsonl: mAP on the searched classes, and the CPU time of the fit.
"""

import argparse
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

import nobackfill as nb
from nobackfill_bench.quality.features import backbone_features, parts

HEADS = ("auto", "auto+old", "cross_supcon", "prototype_alignment", "rbcl")
FOLDS = 4


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("collection", choices=("cub200", "landmarks50"))
    parser.add_argument("--fold", type=int, default=0, help="0 to 3")
    parser.add_argument("--seed", type=int, default=0, help="of the folds and of the heads")
    parser.add_argument("--heads", nargs="*", default=HEADS)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = Path(os.environ["NOBACKFILL_DATA"])
    old, new = (parts(side)[0] for side in backbone_features(options.collection)(data, 0))
    classes = np.unique(old.labels, return_inverse=True)[1]
    generator = torch.Generator().manual_seed(100 + options.seed)
    order = torch.randperm(int(classes.max()) + 1, generator=generator).numpy()
    searched = np.isin(classes, order[options.fold :: FOLDS])
    for name in options.heads:
        line = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "collection": options.collection,
            "fold": options.fold,
            "seed": options.seed,
            "head": name,
            **measured(name, old, new, searched, options.seed),
        }
        print(json.dumps(line), flush=True)
        with options.output.open("a") as file:
            file.write(json.dumps(line) + "\n")


def measured(name, old, new, searched, seed):
    """Fits a head on the classes that are not searched."""
    method, _, with_old = name.partition("+")
    head = nb.CompatibleHead(method, old_query=bool(with_old), test_share=0, seed=seed)
    fitted = [side.vectors[~searched] for side in (new, old)]
    begun = time.process_time()
    head.fit(*fitted, np.asarray(old.labels)[~searched])
    seconds = time.process_time() - begun
    labels = np.asarray(old.labels)[searched].tolist()
    gallery, progress = old.vectors[searched], head.progress_
    query = head.transform(new.vectors[searched], **({"old": gallery} if with_old else {}))

    def search(side):
        return nb.retrieval(side, gallery, labels, labels, exclude_self=True).mean_average_precision

    return {
        "old_old": search(gallery),
        "new_old": search(query),
        "cpu_seconds": seconds,
        "method": progress.method,
        "start": progress.start,
        "blend": progress.blend,
        "old_weight": progress.old_weight,
        "gain": progress.gain,
    }


if __name__ == "__main__":
    main()
