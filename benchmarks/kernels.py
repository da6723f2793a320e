"""Whole jobs on a GPU, with all kernels and without one group of them.

    python benchmarks/kernels.py -o benchmarks/kernels.jsonl
    python benchmarks/kernels.py -o benchmarks/kernels.jsonl --against OTHER/src evaluate

A kernel stays if a job that a user waits for takes at least 10 % longer without it. Jobs take
turns, with and without, so that a clock that drifts reaches both. `--against` compares this
checkout with another one, each in a process of its own, which prepares a job once and then waits
for its turns. Words select the jobs whose names contain one of them.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from unittest.mock import MagicMock, patch

import torch

# What each group patches: the name that decides whether the kernel, or the product, is used.
GROUPS = {
    "ranks": "nobackfill.ops.ranking.usable",
    "bf16x3_product": "nobackfill.ops.matmul.is_worthwhile",
    "softmax": "nobackfill.ops.softmax_contrast.usable",
    "softmax_stream": "nobackfill.ops.kernels.softmax_stream.fits",
    "threshold_mask": "nobackfill.methods.perturbation.crowding.usable",
    "masks_in_halves": "nobackfill.methods.perturbation.crowding.masks_in_halves",
}
AS_BEFORE = "threshold_mask+masks_in_halves+bf16x3_product"  # ODPP in float32, as torch multiplies
NOT_NEEDED = ("pyarrow", "PIL", "typer")  # imported, but no job here reads a file or an image


class StandIns:
    """Imports packages of `NOT_NEEDED` that are not installed as mocks."""

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in NOT_NEEDED else None

    def create_module(self, spec):
        return MagicMock(name=spec.name)

    def exec_module(self, module):
        pass


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
    warm_up = getattr(job, "warm_up", job)
    times = {}
    for group in ("", *groups):
        try:
            with without(*filter(None, group.split("+"))):
                warm_up()
            times[group] = []
        except Exception as error:  # the others go on
            print(f"{name:44} {group:34} failed: {type(error).__name__}: {error}", flush=True)
    for _ in range(turns):
        for group, collected in times.items():
            with without(*filter(None, group.split("+"))):
                collected.append(seconds(job))
    plain = times.pop("")
    for group, off in times.items():
        write_ratios(file, {"job": name, "without": group}, plain, plain, off)


def write_ratios(file, line, shown, below, above):
    """Writes and prints the ratios of turns, `above` divided by `below`."""
    ratios = sorted(b / a for a, b in zip(below, above, strict=True))
    line |= {
        "ratio": statistics.median(ratios),
        "lowest": ratios[0],
        "highest": ratios[-1],
        "seconds": statistics.median(shown),
        "turns": len(ratios),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }
    file.write(json.dumps(line) + "\n")
    file.flush()
    what, how = list(line.values())[:2]
    print(
        f"{what:44} {how:46} {line['ratio']:6.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        f"  {line['seconds'] * 1000:9.2f} ms",
        flush=True,
    )


def evaluation_job(queries=10_000, items=1_000_000, dim=256):
    import nobackfill as nb

    generator = torch.Generator("cuda").manual_seed(0)
    old, noise = (torch.randn(items, dim, device="cuda", generator=generator) for _ in range(2))
    old = torch.nn.functional.normalize(old, dim=1)
    new = torch.nn.functional.normalize(old + 0.05 * noise, dim=1)
    labels = torch.arange(items) % 50_000
    columns = {"is_query": torch.arange(items) < queries, "is_gallery": torch.ones(items).bool()}
    columns = {name: column.tolist() for name, column in columns.items()}
    files = [
        nb.Vectors(range(items), vectors.cpu(), labels, columns=columns) for vectors in (old, new)
    ]
    del old, new, noise
    torch.cuda.empty_cache()
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

    def __init__(
        self, method, classes, *, side, batch, dim=512, small=False, steps=10, dense=False
    ):
        import nobackfill as nb

        torch.manual_seed(0)
        # In a dense space all classes share a direction, and their cosines are about 0.6.
        common = torch.nn.functional.normalize(torch.randn(dim, device="cuda"), dim=0) * dense

        def prototypes():
            own = torch.nn.functional.normalize(torch.randn(classes, dim, device="cuda"), dim=1)
            return torch.nn.functional.normalize(own + 1.5**0.5 * common, dim=1)

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
        old = nb.OldSpace(prototypes=prototypes())
        self.method = nb.METHODS[method](old, num_classes=classes).cuda()
        self.new = prototypes()
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
    """The update of the prototypes, and as many steps as the images of an epoch need.

    Each epoch starts with the same prototypes. Without images, the job is the update alone.
    """
    steps = images // len(training.images)
    start = {name: value.clone() for name, value in training.method.state_dict().items()}

    def job(steps=steps):
        training.method.load_state_dict(start)
        training.start_epoch()
        training.steps = steps
        training()

    job.warm_up = lambda: job(min(steps, 5))
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
    """Function that prepares each job, and the groups that it is run without."""
    search = ["ranks", "bf16x3_product"]
    loss = ["softmax", "softmax_stream"]
    crowding = ["threshold_mask", AS_BEFORE]
    small = {"side": 40, "batch": 256, "dim": 128, "small": True}
    million = "prototype_alignment", 1_000_000

    def odpp(images, *, dense):
        return lambda: epoch_job(Training("odpp", 24_393, dense=dense, **small), images)

    return {
        "step 40 px, 1,000,000 classes": (lambda: Training(*million, **small), loss),
        "step ResNet-18 224 px, 1,000,000 classes": (
            lambda: Training(*million, side=224, batch=256, dim=256),
            loss,
        ),
        "update 24,393 classes, odpp": (odpp(0, dense=False), [AS_BEFORE]),
        "update 24,393 classes, odpp, dense": (
            odpp(0, dense=True),
            [*crowding, "threshold_mask+masks_in_halves"],
        ),
        "epoch 24,393 classes, 40 px in memory, odpp, dense": (
            odpp(170_751, dense=True),
            crowding,
        ),
        "epoch 24,393 classes, 40 px in memory, odpp": (odpp(170_751, dense=False), [AS_BEFORE]),
        "epoch 24,393 classes, 40 px in memory, ndpp": (
            lambda: epoch_job(Training("ndpp", 24_393, **small), 170_751),
            [*loss, "bf16x3_product"],
        ),
        "100 steps ResNet-18 224 px, 24,393, ndpp": (
            lambda: epoch_job(Training("ndpp", 24_393, side=224, batch=256), 25_600),
            [*loss, "bf16x3_product"],
        ),
        "retrieval 10,000 x 1,000,000": (retrieval_job, search),
        "fit 100,000 x 512": (fit_job, ["softmax", "bf16x3_product"]),
        "evaluate 10,000 x 1,000,000": (evaluation_job, search),
    }


def selected(words):
    """Name, function and groups of each selected job, for each precision it is run in."""
    for name, (make, groups) in jobs().items():
        if not words or any(word in name for word in words):
            for tf32 in precisions(name):
                yield name + (", TF32" if tf32 else ""), tf32, make, groups


def precisions(name):
    """Whether TF32 is allowed, in turn; only training allows it."""
    return (False, True) if name.startswith(("step", "update", "epoch")) else (False,)


def allow_tf32(allowed):
    torch.set_float32_matmul_precision("high" if allowed else "highest")


def with_and_without_groups(file, turns, words):
    """Writes a line for each job and group of kernels."""
    for name, tf32, make, groups in selected(words):
        allow_tf32(tf32)
        try:
            job = make()
        except Exception as error:  # the others go on
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            continue
        few = 3 if name.startswith(("evaluate", "epoch", "fit")) else turns
        compare(name, job, groups, few, file)
        del job
        torch.cuda.empty_cache()


def work(wanted):
    """Prepares one job, and runs it whenever a line comes in; the other end of `Worker`."""
    name, tf32, make, _ = next(job for job in selected([]) if job[0] == wanted)
    allow_tf32(tf32)
    job = make()
    seconds(job)  # warm
    print(json.dumps(name), flush=True)
    for _ in sys.stdin:
        print(json.dumps(seconds(job)), flush=True)


class Worker:
    """A process that has prepared one job with the package in `source`."""

    def __init__(self, source, name):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--work", name],
            env=os.environ | {"PYTHONPATH": str(source)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self):
        text = self.process.stdout.readline()
        if not text:
            raise RuntimeError(f"a worker ended with {self.process.wait()}")
        return json.loads(text)

    def seconds(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.line()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def against(other, file, turns, words):
    """Writes how much longer each job takes in this checkout than with the package in `other`."""
    here = Path(__file__).resolve().parents[1] / "src"
    for name, *_ in selected(words):
        workers = [Worker(source, name) for source in (here, other.resolve())]
        try:
            for worker in workers:
                worker.line()  # ready
            now, before = zip(*([w.seconds() for w in workers] for _ in range(turns)), strict=True)
        except RuntimeError as error:  # the others go on
            print(f"{name}: {error}", flush=True)
            continue
        finally:
            for worker in workers:
                worker.end()
        compared = {"job": name, "compared": f"this checkout / {other.parent.name}"}
        write_ratios(file, compared, now, before, now)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--against", type=Path, help="Folder `src` of another checkout.")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help="Only jobs whose name contains one of these.")
    options = parser.parse_args()
    sys.meta_path.append(StandIns())
    if options.work:
        work(options.work)
        return
    with options.output.open("a") as file:
        if options.against:
            against(options.against, file, options.turns, options.words)
        else:
            with_and_without_groups(file, options.turns, options.words)


if __name__ == "__main__":
    main()
