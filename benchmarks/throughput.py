"""Images per second of our loop beside a bare one, and what perturbation adds to an epoch.

    python benchmarks/throughput.py --device cuda

The bare loop has all images decoded on the GPU before the clock starts, cuts, mirrors and
normalises them there, and steps: ResNet-18 at 224 px, bfloat16, channels last, SGD. Ours loads the
same images from memory (cut by worker processes), and once more from JPEG files of 500 x 375
(decoded by them, too). Appends a JSON line for each number of classes to throughput.jsonl.

Leave OMP_NUM_THREADS alone: with one thread the copy into memory that the GPU can read by itself
becomes the narrow place (0.87 of the bare loop instead of 0.95).
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from nobackfill.core.config import Choice, ImagesConfig, TrainConfig
from nobackfill.data.collection import Collection
from nobackfill.data.file_collection import collect_files
from nobackfill.data.listing import Listing
from nobackfill.data.transforms import augment, cut, normalize
from nobackfill.methods import METHODS
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.perturbation import NeighborPerturbation, OptimizedPerturbation
from nobackfill.models import make_model
from nobackfill.training.loop import train
from nobackfill.training.precision import in_precision

IMAGES = ImagesConfig()
EPOCHS = {24_393: 470_369, 81_313: 1_580_470}  # images of the paper's, by classes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--images", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=8, help="over these images, in an epoch")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--classes", type=int, nargs="*", default=list(EPOCHS))
    parser.add_argument("--loops", nargs="*", default=["bare", "memory", "files"])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--architecture", default="resnet18")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    pixels = torch.randint(256, (options.images, 3, 256, 256), dtype=torch.uint8)
    with tempfile.TemporaryDirectory() as folder, options.output.open("a") as file:
        paths = write_files(Path(folder), options.images)
        for classes in options.classes:
            labels = torch.randint(classes, (len(pixels),))
            labels[0] = classes - 1
            loops = {
                "bare": lambda labels=labels: bare(pixels, labels, options),
                "memory": lambda labels=labels: ours(in_memory(pixels, labels, options), options),
                "files": lambda labels=labels: ours(
                    in_files(folder, paths, labels, options), options
                ),
            }
            rates = {name: [] for name in options.loops}
            for _ in range(options.turns):
                for name in rates:
                    rates[name].append(loops[name]())
            line = {
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "device": device_name(options.device),
                "classes": classes,
                "batch": options.batch,
                "precision": options.precision,
                "workers": options.workers,
                "images_per_second": rates,
                **costs(classes, max(rates.get("memory", rates[options.loops[0]])), options),
            }
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(json.dumps(line), flush=True)


def bare(pixels, labels, options):
    """Images per second with nothing in the way."""
    device = options.device
    model, method = model_and_method(int(labels.max()) + 1, options)
    parameters = [*model.parameters(), *method.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=5e-4)
    seeing = in_precision(model, options.precision).train()
    pixels, labels = pixels.to(device).permute(0, 2, 3, 1), labels.to(device)
    generator = torch.Generator().manual_seed(0)
    place = torch.arange(224, device=device)

    def epoch():
        order = torch.randperm(options.rounds * len(pixels), generator=generator) % len(pixels)
        for rows in order.split(options.batch):
            top, left = torch.randint(33, (2, len(rows), 1), generator=generator).to(
                device, non_blocking=True
            )
            rows = rows.to(device, non_blocking=True)
            window = rows[:, None, None], (top + place)[:, :, None], (left + place)[:, None, :]
            images = normalize(pixels[window].permute(0, 3, 1, 2), IMAGES)
            new = seeing(augment(images, generator, IMAGES))
            loss = F.cross_entropy(method.classifier(new), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        synchronize(device)

    epoch()
    start = time.perf_counter()
    epoch()
    return options.rounds * len(pixels) / (time.perf_counter() - start)


def ours(collection, options):
    """Images per second of `nobackfill.training.loop.train`, in its second epoch."""
    model, method = model_and_method(int(collection.labels.max()) + 1, options)
    config = TrainConfig(epochs=2, batch_size=options.batch, precision=options.precision)
    rows = torch.arange(len(collection.ids)).repeat(options.rounds)
    start = 0.0
    for epoch in train(model, method, collection, rows, config):
        synchronize(options.device)
        if epoch.epoch == 0:
            start = time.perf_counter()
    return len(rows) / (time.perf_counter() - start)


class InMemory:
    """Rows in, random parts of decoded images out."""

    def __init__(self, pixels):
        self.pixels = pixels

    def __call__(self, rows, generator):
        """Cuts and stacks."""
        return torch.stack([cut(self.pixels[row], IMAGES, generator) for row in rows.tolist()])


def in_memory(pixels, labels, options):
    return Collection(
        ids=[str(i) for i in range(len(pixels))],
        labels=labels,
        columns={"split": np.full(len(pixels), "train")},
        class_counts=(int(labels.max()) + 1,),
        load=InMemory(pixels),
        prepare=lambda images: normalize(images, IMAGES),
        augment=lambda images, generator: augment(images, generator, IMAGES),
        preprocessing="none",
        workers=options.workers,
    )


def write_files(folder, number):
    """JPEGs with as much detail as photographs, a few hundred of them many times over."""
    paths, generator = [], np.random.default_rng(0)
    for i in range(min(number, 256)):
        coarse = generator.integers(0, 256, (48, 64, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC)
        picture.save(folder / f"{i}.jpg", quality=90)
    for i in range(number):
        path = folder / f"{i}.jpg"
        if i >= 256:
            path.symlink_to(folder / f"{i % 256}.jpg")
        paths.append(path.name)
    return paths


def in_files(folder, paths, labels, options):
    listing = Listing(
        root=Path(folder),
        files=paths,
        classes=np.array([str(label) for label in labels.tolist()]),
        columns={"split": np.full(len(paths), "train")},
    )
    return replace(collect_files(listing, IMAGES, workers=options.workers), labels=labels)


def costs(classes, rate, options):
    """Seconds at the start of an epoch of the paper's length, and their share of it."""
    device = options.device
    generator = torch.Generator().manual_seed(0)
    group, own = (
        F.normalize(torch.randn(rows, 256, generator=generator), dim=1)
        for rows in (classes // 20 + 1, classes)
    )
    old = F.normalize(0.75 * group[torch.arange(classes) // 20] + 0.6 * own, dim=1).to(device)
    images = EPOCHS.get(classes, 20 * classes)
    found = {"epoch_images": images, "epoch_seconds": images / rate}
    for name, kind in (("ndpp", NeighborPerturbation), ("odpp", OptimizedPerturbation)):
        perturb = kind(old).to(device)
        perturb.update(old)
        synchronize(device)
        start = time.perf_counter()
        perturb.update(old)
        synchronize(device)
        found[f"{name}_seconds"] = time.perf_counter() - start
    found["pass_seconds"] = images / forward_rate(options)
    return found


def forward_rate(options):
    """Images per second of the pass for new prototypes, without loading."""
    model, _ = model_and_method(2, options)
    seeing = in_precision(model, options.precision).eval()
    images = torch.randn(options.batch, 3, 224, 224, device=options.device)
    turns = 10
    with torch.no_grad():
        seeing(images)
        synchronize(options.device)
        start = time.perf_counter()
        for _ in range(turns):
            seeing(images)
        synchronize(options.device)
    return turns * options.batch / (time.perf_counter() - start)


def model_and_method(classes, options):
    name = {"architecture": options.architecture} if options.architecture != "small" else {}
    choice = Choice("timm", name) if name else Choice("small", {"channels": 3})
    model = make_model(Choice(choice.name, {**choice.options, "embedding_dim": 256}), seed=0)
    method = METHODS["independent"](OldSpace(), classes, dim=256)
    return model.to(options.device), method.to(options.device)


def device_name(device):
    return torch.cuda.get_device_name() if device == "cuda" else device


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
