"""Vectors of two Omniglot networks per seed: what the suite `omniglot-heads` fits heads to.

    NOBACKFILL_DATA=... python benchmarks/omniglot_vectors.py FOLDER --seeds 5 --device cuda

The old one is trained on 10 % of 964 characters, the new one on all of them, independently; 128
dimensions, ResNet-18 from scratch at 35 px, SGD 0.1 along half a cosine: 60 epochs in batches of 64
for the old one, 24 in batches of 128 for the new. Writes `omniglot_SEED.npz` with `old`, `new`
(float16, unit length), `labels` and `is_train`: all drawings of the 659 characters that are
searched, and 12 of 20 of each training character. All networks train side by side: on one GPU, use
NVIDIA's MPS (ten took 50 s on an H200).
"""

import argparse
import multiprocessing
import os
import tempfile
from pathlib import Path

import numpy as np

DRAWINGS = 12  # of each training character
SETTINGS = {
    "old": ["train.step=0", "train.batch_size=64", "train.epochs=60"],
    "new": ["train.step=1", "train.batch_size=128", "train.epochs=24"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", nargs="*", default=[], help="changes such as train.epochs=3")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as work, context.Pool(2 * options.seeds) as pool:
        tasks = [
            (name, seed, work, options.set, options.device)
            for seed in range(options.seeds)
            for name in SETTINGS
        ]
        found = {}
        for name, seed, vectors, labels, is_train in pool.imap_unordered(one_model, tasks):
            found[seed, name] = vectors
            if all((seed, one) in found for one in SETTINGS):
                np.savez(
                    options.folder / f"omniglot_{seed}.npz",
                    **{one: found[seed, one] for one in SETTINGS},
                    labels=labels,
                    is_train=is_train,
                )


def one_model(task):
    """Trains one network, and embeds what is kept."""
    import torch

    from nobackfill.data.registry import make_collection
    from nobackfill.models.embed import embed
    from nobackfill.training.pipeline import train_in_folder
    from nobackfill.training.run import Run
    from nobackfill_bench.quality.recipes import omniglot_recipe

    name, seed, work, changes, device = task
    torch.set_num_threads(1)
    told = [
        "model.embedding_dim=128",
        "train.schedule=cosine",
        "train.milestones=[]",
        f"train.seed={seed}",
        *SETTINGS[name],
        *changes,
    ]
    recipe = omniglot_recipe(
        "old",
        Path(work),
        seed=seed,
        data=Path(os.environ["NOBACKFILL_DATA"]),
        shares=[0.1, 1.0],
        step=0,
        changes=told,
    )
    run = Run.start(recipe, Path(work) / f"{seed}_{name}")
    collection = make_collection(run.recipe.data, run.recipe.images)
    device = torch.device(device)
    for _ in train_in_folder(run, collection, device=device):
        pass
    labels, is_train = collection.labels.numpy(), collection.columns["split"] == "train"
    kept = np.flatnonzero(~is_train | (place_in_class(labels) < DRAWINGS))
    vectors = embed(run.encoder(device), collection, torch.from_numpy(kept))
    unit = torch.nn.functional.normalize(vectors, dim=1).half().cpu().numpy()
    return name, seed, unit, labels[kept].astype(np.int16), is_train[kept]


def place_in_class(labels):
    """How many items of its class come before each item.

    Example:
        >>> place_in_class(np.array([7, 8, 7, 7])).tolist()
        [0, 0, 1, 2]
    """
    order = np.argsort(labels, kind="stable")
    first = np.searchsorted(labels[order], labels[order])
    place = np.empty(len(labels), dtype=np.int64)
    place[order] = np.arange(len(labels)) - first
    return place


if __name__ == "__main__":
    main()
