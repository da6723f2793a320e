"""Images per second of our loop beside a bare one, and what perturbation adds to an epoch.

python benchmarks/throughput.py --device cuda
"""

import argparse
import json
import time

import numpy as np
import torch
import torch.nn.functional as F

from nobackfill.config import Choice, ImagesConfig, TrainConfig
from nobackfill.data.collection import Collection
from nobackfill.data.views import augment, cut, normalize
from nobackfill.methods import METHODS
from nobackfill.models import make_model
from nobackfill.oldspace import OldSpace
from nobackfill.perturb import NeighborPerturbation, OptimizedPerturbation
from nobackfill.train.loop import train

CONFIG = ImagesConfig()


class InMemory:
    """Rows in, random parts of decoded images out."""

    def __init__(self, pixels):
        self.pixels = pixels

    def __call__(self, rows, generator):
        """Cuts and stacks."""
        return torch.stack([cut(self.pixels[row], CONFIG, generator) for row in rows.tolist()])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--images", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 8])
    parser.add_argument("-o", "--output", default=None)
    options = parser.parse_args()
    pixels = torch.randint(256, (options.images, 3, 256, 256), dtype=torch.uint8)
    for classes, length in ((24_393, 470_369), (81_313, 1_580_470)):
        report = {"classes": classes, **rates(pixels, classes, options)}
        report |= costs(classes, length, max(report["ours"]), options)
        print(json.dumps(report), flush=True)
        if options.output:
            with open(options.output, "a") as file:
                file.write(json.dumps(report) + "\n")


def rates(pixels, classes, options):
    labels = torch.randint(classes, (len(pixels),))
    labels[0] = classes - 1
    found = {"bare": [], "ours": []} | {f"ours_{w}": [] for w in options.workers}
    for _ in range(options.turns):
        found["bare"].append(bare(pixels, labels, classes, options))
        for workers in options.workers:
            found[f"ours_{workers}"].append(ours(pixels, labels, classes, options, workers))
    best = max(options.workers, key=lambda w: max(found[f"ours_{w}"]))
    found["ours"] = found[f"ours_{best}"]
    found["ratio"] = max(found["ours"]) / max(found["bare"])
    return found


def model_and_method(classes, device):
    model = make_model(Choice("timm", {"architecture": "resnet18", "embedding_dim": 256}), seed=0)
    method = METHODS["independent"](OldSpace(), classes, dim=256)
    return model.to(device), method.to(device)


def bare(pixels, labels, classes, options):
    """Everything on the GPU before the clock starts; the same augmentations, the same step."""
    device = options.device
    model, method = model_and_method(classes, device)
    parameters = [*model.parameters(), *method.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=5e-4)
    pixels, labels = pixels.to(device), labels.to(device)
    generator = torch.Generator().manual_seed(0)
    model.train()

    def epoch():
        for rows in torch.randperm(len(pixels)).split(options.batch):
            top, left = torch.randint(33, (2, len(rows), 1), generator=generator).to(device)
            place = torch.arange(224, device=device)
            chosen = pixels.permute(0, 2, 3, 1)[
                rows.to(device)[:, None, None],
                (top + place)[:, :, None],
                (left + place)[:, None, :],
            ].permute(0, 3, 1, 2)
            images = augment(normalize(chosen, CONFIG), generator, CONFIG)
            with torch.autocast(device, torch.bfloat16):
                new = model(images)
            loss = F.cross_entropy(method.classifier(new.float()), labels[rows.to(device)])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()

    epoch()
    start = time.perf_counter()
    epoch()
    return len(pixels) / (time.perf_counter() - start)


def ours(pixels, labels, classes, options, workers):
    collection = Collection(
        ids=[str(i) for i in range(len(pixels))], labels=labels,
        columns={"split": np.full(len(pixels), "train")}, class_counts=(classes,),
        load=InMemory(pixels), prepare=lambda p: normalize(p, CONFIG),
        augment=lambda i, g: augment(i, g, CONFIG), preprocessing="none", workers=workers,
    )  # fmt: skip
    model, method = model_and_method(classes, options.device)
    config = TrainConfig(epochs=2, batch_size=options.batch, precision="bfloat16")
    start = 0.0
    for epoch in train(model, method, collection, torch.arange(len(pixels)), config):
        torch.cuda.synchronize()
        if epoch.epoch == 0:
            start = time.perf_counter()
    return len(pixels) / (time.perf_counter() - start)


def costs(classes, length, rate, options):
    """Seconds of perturbation at the start of an epoch, and their share of it."""
    device = options.device
    generator = torch.Generator().manual_seed(0)
    group = torch.randn(classes // 20 + 1, 256, generator=generator)
    own = torch.randn(classes, 256, generator=generator)
    old = F.normalize(
        0.75 * F.normalize(group, dim=1)[torch.arange(classes) // 20]
        + 0.6 * F.normalize(own, dim=1),
        dim=1,
    ).to(device)
    found = {"epoch_seconds": length / rate}
    for name, kind in (("ndpp", NeighborPerturbation), ("odpp", OptimizedPerturbation)):
        perturb = kind(old).to(device)
        perturb.update(old)
        torch.cuda.synchronize()
        start = time.perf_counter()
        perturb.update(old)
        torch.cuda.synchronize()
        found[f"{name}_seconds"] = time.perf_counter() - start
        found[f"{name}_share"] = found[f"{name}_seconds"] / found["epoch_seconds"]
    model, _ = model_and_method(2, device)
    model.eval()
    images = torch.randn(256, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        for turn in range(11):
            if turn == 1:
                torch.cuda.synchronize()
                start = time.perf_counter()
            model(images)
        torch.cuda.synchronize()
    found["pass_seconds"] = length * (time.perf_counter() - start) / 2560
    found["pass_share"] = found["pass_seconds"] / found["epoch_seconds"]
    return found


if __name__ == "__main__":
    main()
