"""Images per second of the training loop beside the bare passes, and what NDPP and ODPP add.

    nobackfill bench quality --suite han-4k --methods prototype_alignment --seeds 1
    python benchmarks/han_throughput.py bench-work/han-4k/as_it_is/0 --device cpu

Han characters, the networks and batches of recipes/han, on one thread of a CPU. *Bare* is forward,
loss and backward, without the optimiser's step, on batches that were drawn and distorted before the
clock starts. *Loop* is an epoch of `nobackfill.training.loop.train` on as many batches: it unpacks
and distorts them, and steps. They take turns; the medians count. On a CPU, seconds are those of the
process, which other processes disturb less than a clock.

`step_to_classification` is the time of the bare passes with a method relative to those of plain
classification (`independent`), on the same batches.

`added` is what `ndpp` and `odpp` do besides the Baseline, as a share of the epochs of a training:
the first move of the prototypes, by those of an untrained model, then moves by those of a trained
one, and adding up embeddings in each batch. Old and trained prototypes are those of the runs in the
given folder. `pass` is a forward pass over the training set, which running means save. One line per
setting is appended to han_throughput.jsonl.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

from nobackfill.core.config import read_recipe
from nobackfill.data.han import han
from nobackfill.data.loader import Batches
from nobackfill.methods import METHODS
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.prototypes import class_means
from nobackfill.models import make_model
from nobackfill.models.embed import embed
from nobackfill.training.loop import train
from nobackfill.training.new_prototypes import RunningMeans
from nobackfill.training.precision import in_precision
from nobackfill.training.run import Run

RESULTS = Path(__file__).with_suffix(".jsonl")
RECIPES = Path(__file__).parents[1] / "recipes/han"
BASELINE = "prototype_alignment"
METHODS_TIMED = ("ndpp", "odpp")
STEPS_TIMED = ("independent", "prototype_alignment", "member_contrast")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="runs of one seed")
    parser.add_argument("--settings", nargs="*", default=["4k", "24k"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batches", type=int, default=12, help="of a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for setting in options.settings:
        line = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": torch.cuda.get_device_name() if options.device == "cuda" else "one CPU core",
            "setting": setting,
            **measure(setting, options),
        }
        print(json.dumps(line), flush=True)
        with options.output.open("a") as file:
            file.write(json.dumps(line) + "\n")


def measure(setting, options):
    """Rates of both in turns, and the shares that perturbation adds to an epoch."""
    recipe = read_recipe(RECIPES / setting / "prototype_alignment.toml")
    collection = han(**recipe.data.options)
    rows = collection.training_rows(-1)
    size = recipe.train.batch_size
    some = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
    some = some[: options.batches * size]
    some[0] = rows[collection.labels[rows].argmax()]  # the last class makes the classifier whole
    parts = partial(model_and_method, recipe, collection, options.device)
    bare = {name: Bare(collection, some, recipe, partial(parts, name)) for name in STEPS_TIMED}
    turns = {"loop": Loop(collection, some, recipe, partial(parts, BASELINE)), **bare}
    times = {name: [] for name in turns}
    for _ in range(options.turns):
        for name, timed in turns.items():
            times[name].append(timed.turn())
    times["bare"] = times.pop(BASELINE)
    rates = {name: [round(len(some) / one, 1) for one in each] for name, each in times.items()}
    epoch_seconds = len(rows) / statistics.median(rates["loop"])
    spaces = {
        "old": prototypes_of(options.folder / "old", collection, options.device),
        "trained": prototypes_of(options.folder / BASELINE, collection, options.device),
    }
    model, _ = parts(BASELINE)
    device = torch.device(options.device)
    start = clock(device)
    embeddings = embed(in_precision(model, recipe.train.precision), collection, rows)
    pass_seconds = clock(device) - start
    spaces["untrained"] = class_means(embeddings, collection.labels[rows], len(spaces["old"]))
    return {
        "classes": collection.class_counts[-1],
        "epoch_images": len(rows),
        "batch": size,
        "images_per_second": rates,
        "loop_to_bare": median_ratio(times["loop"], times["bare"]),
        "step_to_classification": {
            BASELINE: median_ratio(times["bare"], times["independent"]),
            "member_contrast": median_ratio(times["member_contrast"], times["independent"]),
        },
        "epoch_seconds": epoch_seconds,
        "added": {
            name: cost(recipe, name, spaces, len(rows)) / epoch_seconds for name in METHODS_TIMED
        },
        "pass": pass_seconds / epoch_seconds,
    }


def median_ratio(times, others):
    """Median of the ratios of two lists of times, turn by turn."""
    return statistics.median(a / b for a, b in zip(times, others, strict=True))


def prototypes_of(folder, collection, device):
    """Class means of the training set by a trained model."""
    rows = collection.training_rows(-1)
    embeddings = Run.open(folder).embed(collection, rows, device=torch.device(device))
    return class_means(embeddings, collection.labels[rows], collection.class_counts[-1])


def model_and_method(recipe, collection, device, name):
    """A model, and a method with random vectors of the old model."""
    model = make_model(recipe.model, seed=0).to(device)
    generator = torch.Generator().manual_seed(0)
    classes = collection.class_counts[-1]
    labels = collection.labels[collection.training_rows(-1)]
    old = OldSpace(
        prototypes=torch.randn(classes, model.embedding_dim, generator=generator),
        embeddings=torch.randn(len(labels), model.embedding_dim, generator=generator),
        labels=labels,
    )
    method = METHODS[name](old, classes).to(device)
    method.start_epoch(0, 1, new_prototypes=lambda: old.prototypes, new_embeddings=lambda: None)
    return model, method


class Bare:
    """Forward, loss and backward on batches that are ready."""

    def __init__(self, collection, rows, recipe, parts):
        self.model, self.method = parts()
        self.device = next(self.model.parameters()).device
        self.seeing = in_precision(self.model, recipe.train.precision)
        generator = torch.Generator().manual_seed(0)
        self.batches = list(
            Batches(collection, rows, recipe.train.batch_size, generator, device=self.device)
        )
        self.turn()  # warms up

    def turn(self):
        """Seconds of one pass over the batches."""
        self.seeing.train()
        start = clock(self.device)
        for images, labels, items in self.batches:
            terms = self.method(self.seeing(images), labels, items=items)
            torch.stack(list(terms.values())).sum().backward()
            for one in (*self.model.parameters(), *self.method.parameters()):
                one.grad = None
        return clock(self.device) - start


class Loop:
    """The training loop, stopped after each epoch."""

    def __init__(self, collection, rows, recipe, parts):
        model, method = parts()
        self.device = next(model.parameters()).device
        config = replace(recipe.train, epochs=1000, learning_rate=1e-4, new_prototypes="pass")
        self.epochs = train(model, method, collection, rows, config)
        next(self.epochs)  # warms up

    def turn(self):
        """Seconds of one epoch."""
        start = clock(self.device)
        next(self.epochs)
        return clock(self.device) - start


def cost(recipe, name, spaces, images):
    """Seconds that a method adds to an epoch of the Baseline, on average over a training."""
    old, classes = spaces["old"], len(spaces["old"])
    device = old.device
    method = METHODS[name](OldSpace(prototypes=old), classes).to(device)
    means = RunningMeans(classes, old.shape[1]).to(device)
    generator, size = torch.Generator().manual_seed(1), recipe.train.batch_size
    labels = torch.randint(classes, (size,), generator=generator).to(device)
    new = torch.randn(size, old.shape[1], generator=generator).to(device)
    add = statistics.median(seconds_of(lambda: means.add(new, labels), device) for _ in range(20))
    first, *later = (
        seconds_of(lambda space=space: method.perturb.update(spaces[space]), device)
        for space in ("untrained", "trained", "trained")
    )
    epochs = recipe.train.epochs
    moves = (first + (epochs - 1) * statistics.mean(later)) / epochs
    return moves + add * images / size


def seconds_of(do, device):
    """Seconds of a call."""
    start = clock(device)
    do()
    return clock(device) - start


def clock(device):
    """Seconds so far: of this process on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


if __name__ == "__main__":
    main()
