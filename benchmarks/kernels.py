"""Whole jobs on a GPU, with all kernels and without one group of them.

    python benchmarks/kernels.py -o benchmarks/kernels.jsonl
    python benchmarks/kernels.py -o benchmarks/kernels.jsonl --against OTHER/src

A kernel stays if a job that a user waits for takes at least 10 % longer without it. Jobs take
turns, with and without, so that a clock that drifts reaches both. `--against` compares this
checkout with another one, whose kernels may differ; each runs in processes of its own, in turns.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import torch

# What each group patches: the name that decides whether the kernel runs.
GROUPS = {
    "ranks": "nobackfill.ops.ranking.usable",
    "topk": "nobackfill.ops.nearest.usable",
    "bf16x3_product": "nobackfill.ops.matmul.is_worthwhile",
    "bf16x3_kernel": "nobackfill.ops.bf16x3.usable",
    "softmax": "nobackfill.ops.softmax_contrast.usable",
    "ndpp_fused": "nobackfill.methods.perturbation.ndpp_fused.usable",
    "ndpp_pushes": "nobackfill.methods.perturbation.ndpp.usable",
    "threshold_mask": "nobackfill.methods.perturbation.crowding.usable",
}


@contextmanager
def without(*groups):
    """Runs a job as if these kernels did not exist."""
    with ExitStack() as stack:
        for group in groups:
            module, name = GROUPS[group].rsplit(".", 1)
            if not hasattr(importlib.import_module(module), name):
                raise LookupError(f"{group} is gone")
            stack.enter_context(patch(GROUPS[group], lambda *_, **__: False))
        yield


def seconds(job):
    torch.cuda.synchronize()
    start = time.perf_counter()
    job()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def compare(name, job, groups, turns, file):
    """Times a job with all kernels and without each group, in turns."""
    for group in groups:
        try:
            with without(*group.split("+")):
                job()
            job()
            plain, off = [], []
            for _ in range(turns):
                plain.append(seconds(job))
                with without(*group.split("+")):
                    off.append(seconds(job))
        except Exception as error:  # the other jobs go on
            print(f"{name:44} {group:34} failed: {type(error).__name__}: {error}", flush=True)
            continue
        ratios = sorted(b / a for a, b in zip(plain, off, strict=True))
        line = {
            "job": name,
            "without": group,
            "ratio": statistics.median(ratios),
            "lowest": ratios[0],
            "highest": ratios[-1],
            "seconds": statistics.median(plain),
            "turns": turns,
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
        }
        file.write(json.dumps(line) + "\n")
        file.flush()
        print(
            f"{name:44} {group:34} {line['ratio']:6.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
            f"  {line['seconds'] * 1000:9.2f} ms",
            flush=True,
        )


def evaluation_job(queries=10_000, items=1_000_000, dim=256):
    import nobackfill as nb

    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(items) % 50_000
    old = torch.nn.functional.normalize(torch.randn(items, dim, generator=generator), dim=1)
    new = torch.nn.functional.normalize(old + 0.05 * torch.randn(items, dim), dim=1)
    columns = {"is_query": torch.arange(items) < queries, "is_gallery": torch.ones(items).bool()}
    columns = {name: column.tolist() for name, column in columns.items()}
    files = [nb.Vectors(range(items), vectors, labels, columns=columns) for vectors in (old, new)]
    return lambda: nb.evaluate(*files, device="cuda")


def retrieval_job(queries=10_000, items=1_000_000, dim=256):
    import nobackfill as nb

    generator = torch.Generator("cuda").manual_seed(0)
    gallery = torch.randn(items, dim, device="cuda", generator=generator)
    query = torch.randn(queries, dim, device="cuda", generator=generator)
    labels = torch.arange(items) % 50_000
    return lambda: nb.retrieval(query, gallery, labels[:queries], labels)


class Training:
    """A network, a method and a batch; one call is a few steps."""

    def __init__(self, method, classes, *, side, batch, dim=512, small=False, steps=10):
        import nobackfill as nb

        torch.manual_seed(0)
        if small:  # stride-4 stem, four residual-like blocks: the net of small drawings
            width = 48
            blocks = [
                layer
                for _ in range(8)
                for layer in (
                    torch.nn.Conv2d(width, width, 3, padding=1, bias=False),
                    torch.nn.BatchNorm2d(width),
                    torch.nn.ReLU(),
                )
            ]
            stem = torch.nn.Conv2d(1, width, 8, stride=4)
            tail = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(width, dim)]
            self.model = torch.nn.Sequential(stem, *blocks, *tail)
        else:
            from torchvision.models import resnet18

            self.model = resnet18(num_classes=dim)
        self.model = self.model.cuda().to(memory_format=torch.channels_last)
        old = torch.nn.functional.normalize(torch.randn(classes, dim, device="cuda"), dim=1)
        self.method = nb.METHODS[method](nb.OldSpace(prototypes=old), num_classes=classes).cuda()
        self.new = torch.nn.functional.normalize(torch.randn(classes, dim, device="cuda"), dim=1)
        images = torch.randn(batch, 1 if small else 3, side, side, device="cuda")
        self.images = images.contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(classes, (batch,), device="cuda")
        parameters = [*self.model.parameters(), *self.method.parameters()]
        self.optimizer = torch.optim.SGD(parameters, lr=1e-4, momentum=0.9)
        self.steps = steps

    def __call__(self):
        for _ in range(self.steps):
            with torch.autocast("cuda", torch.bfloat16):
                new = self.model(self.images)
            terms = self.method(new.float(), self.labels)
            self.optimizer.zero_grad()
            torch.stack(list(terms.values())).sum().backward()
            self.optimizer.step()

    def start_epoch(self):
        self.method.start_epoch(
            1, 3, new_prototypes=lambda: self.new, new_embeddings=lambda: self.new
        )


def epoch_job(training, images):
    """An epoch: as many steps as its images need, and the update of the prototypes."""
    training.steps = max(1, images // len(training.images))

    def job():
        training.start_epoch()
        training()

    return job


def fit_job(rows=100_000, dim=512):
    import nobackfill as nb

    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) % 5_000
    centres = torch.randn(5_000, dim, generator=generator)
    old, new = (centres[labels] + torch.randn(rows, dim, generator=generator) for _ in range(2))
    files = [nb.Vectors(range(rows), vectors, labels) for vectors in (new, old)]
    return lambda: nb.CompatibleHead(epochs=3, device="cuda").fit(*files)


def jobs():
    """Function that prepares each job, and the groups of kernels that it may use."""
    training = ["softmax", "ndpp_fused+ndpp_pushes", "topk", "bf16x3_product", "threshold_mask"]
    search = ["ranks", "topk", "bf16x3_product", "bf16x3_kernel"]
    small = {"side": 40, "batch": 256, "dim": 128, "small": True}
    return {
        "retrieval 10,000 x 1,000,000": (retrieval_job, search),
        "epoch 24,393 classes, 40 px in memory, ndpp": (
            lambda: epoch_job(Training("ndpp", 24_393, **small), 170_751),
            training,
        ),
        "epoch 24,393 classes, 40 px in memory, odpp": (
            lambda: epoch_job(Training("odpp", 24_393, **small), 170_751),
            training,
        ),
        "100 steps ResNet-18 224 px, 24,393, ndpp": (
            lambda: epoch_job(Training("ndpp", 24_393, side=224, batch=256), 25_600),
            training,
        ),
        "step ResNet-18 224 px, 1,000,000 classes": (
            lambda: Training("prototype_alignment", 1_000_000, side=224, batch=256, dim=256),
            ["softmax"],
        ),
        "step 40 px, 1,000,000 classes": (
            lambda: Training("prototype_alignment", 1_000_000, **small),
            ["softmax"],
        ),
        "fit 100,000 x 512": (fit_job, ["softmax", "topk", "bf16x3_product"]),
        "evaluate 10,000 x 1,000,000": (evaluation_job, search),
    }


def precisions(name):
    """Whether TF32 is allowed, in turn; only training allows it."""
    return (False, True) if name.startswith(("step", "epoch")) else (False,)


def allow_tf32(allowed):
    torch.set_float32_matmul_precision("high" if allowed else "highest")


def with_and_without_groups(file, turns):
    """Writes a line for each job and group of kernels."""
    for name, (make, groups) in jobs().items():
        for tf32 in precisions(name):
            allow_tf32(tf32)
            try:
                job = make()
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
                continue
            few = 3 if name.startswith(("evaluate", "epoch", "fit")) else turns
            compare(name + (", TF32" if tf32 else ""), job, groups, few, file)
            del job
            torch.cuda.empty_cache()


def print_medians(words):
    """Prints the median time of each job as one JSON line; the work of one turn of `--against`."""
    for name, (make, _) in jobs().items():
        if words and not any(word in name for word in words):
            continue
        for tf32 in precisions(name):
            allow_tf32(tf32)
            job = make()
            job()
            median = statistics.median(seconds(job) for _ in range(3))
            print(json.dumps([name + (", TF32" if tf32 else ""), median]), flush=True)
            del job
            torch.cuda.empty_cache()


def against(other, file, turns, words):
    """Writes how much longer each job takes in this checkout than with the package in `other`."""
    here = Path(__file__).resolve().parents[1] / "src"
    medians = {here: defaultdict(list), other.resolve(): defaultdict(list)}
    for _ in range(turns):
        for source, collected in medians.items():
            command = [sys.executable, __file__, "--medians", *words]
            environment = os.environ | {"PYTHONPATH": str(source)}
            process = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
            for line in process.stdout.splitlines():
                name, median = json.loads(line)
                collected[name].append(median)
                print(f"{name:50} {median:8.4f} s  {source}", flush=True)
    now, before = medians.values()
    for name in now:
        ratios = sorted(b / a for a, b in zip(before[name], now[name], strict=False))
        if not ratios:
            continue
        line = {
            "job": name,
            "compared": "this checkout / other checkout",
            "ratio": statistics.median(ratios),
            "lowest": ratios[0],
            "highest": ratios[-1],
            "seconds": statistics.median(now[name]),
            "turns": len(ratios),
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
        }
        file.write(json.dumps(line) + "\n")
        file.flush()
        print(f"{name:50} {line['ratio']:6.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--against", type=Path, help="Folder `src` of another checkout.")
    parser.add_argument("--medians", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help="Only jobs whose name contains one of these.")
    options = parser.parse_args()
    if options.medians:
        print_medians(options.words)
        return
    with options.output.open("a") as file:
        if options.against:
            against(options.against, file, options.turns, options.words)
        else:
            with_and_without_groups(file, options.turns)


if __name__ == "__main__":
    main()
