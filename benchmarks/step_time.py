"""What a training step costs with each method, relative to plain classification.

    python benchmarks/step_time.py --device cuda

ResNet-18 at 224 pixels, batch 256, 24,393 classes, 256 dimensions, images already on the device;
a step is forward, terms, backward and SGD. Each method takes turns with `independent`, so that both
see the same machine; the ratio is of the medians. What happens once an epoch (a pass for new
prototypes, the perturbation) is no part of a step. Wants timm. `render.py` makes SPEED.md of it.
"""

import argparse
import json
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

from nobackfill import METHODS, OldSpace
from nobackfill.models import Embedder
from nobackfill.models.backbones import Backbone, small

RESULTS = Path(__file__).parent / "step_time.jsonl"
ITEMS = 50_000  # of whom old vectors are stored


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="*", default=None, help="all by default")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--backbone", default="resnet18", help="or `small`, to try it out")
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--classes", type=int, default=24_393)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--steps", type=int, default=8, help="in a turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--precision", choices=["tf32", "bf16"], default="tf32")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True

    torch.manual_seed(0)
    plain = Step("independent", options)
    with options.output.open("a") as file:
        for name in options.methods or METHODS:
            step = Step(name, options)
            times = {plain: [], step: []}
            for turn in range(options.turns + 1):
                for one in (plain, step):
                    seconds = one.take(options.steps)
                    if turn:  # the first is for warming up
                        times[one].append(seconds)
            base, own = (statistics.median(times[one]) for one in (plain, step))
            spread = sorted(b / a for a, b in zip(times[plain], times[step], strict=True))
            line = {
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "method": name,
                "ratio": own / base,
                "lowest": spread[0],
                "highest": spread[-1],
                "step_ms": 1000 * own,
                "plain_ms": 1000 * base,
                **{key: getattr(options, key) for key in ("backbone", "side", "batch", "classes")},
                "dim": step.model.embedding_dim,
                "precision": options.precision,
                "turns": options.turns,
                "device": (
                    torch.cuda.get_device_name() if options.device == "cuda" else options.device
                ),
                "torch": torch.__version__,
            }
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(
                f"{name:24s}{line['ratio']:.3f}  ({spread[0]:.3f} to {spread[-1]:.3f})  "
                f"{line['step_ms']:.1f} ms",
                flush=True,
            )
            del step, times


class Step:
    """A model and a method in the middle of training, ready to take steps."""

    def __init__(self, name, options):
        device = self.device = torch.device(options.device)
        dim = new_dim(name, options)
        self.model = Embedder(make_backbone(options.backbone), dim)
        self.model = self.model.to(device, memory_format=torch.channels_last)
        self.method, labels = make_method(name, options)
        start_epoch(name, self.method, options)
        channels = 1 if options.backbone == "small" else 3
        self.images = torch.randn(
            options.batch, channels, options.side, options.side, device=device
        ).contiguous(memory_format=torch.channels_last)
        self.items = torch.randperm(ITEMS, device=device)[: options.batch]
        self.labels = labels[self.items]
        self.precision = options.precision
        parameters = [*self.model.parameters(), *self.method.parameters()]
        self.optimizer = torch.optim.SGD(parameters, lr=1e-4, momentum=0.9, weight_decay=5e-4)

    def take(self, steps):
        """Seconds per step."""
        self.wait()
        start = time.perf_counter()
        for _ in range(steps):
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                new = self.model(self.images)
            terms = self.method(new.float(), self.labels, items=self.items)
            self.optimizer.zero_grad()
            torch.stack(list(terms.values())).sum().backward()
            self.optimizer.step()
        self.wait()
        return (time.perf_counter() - start) / steps

    def wait(self):
        """Until all that was asked for is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def new_dim(name, options):
    """Of the new embedding: two methods have their own."""
    return {"bt2": 2 * options.dim, "cores": options.classes - 1}.get(name, options.dim)


def make_method(name, options):
    """A method that knows invented old vectors, and the class of each item."""
    device, dim = torch.device(options.device), new_dim(name, options)
    known = {
        "prototypes": torch.randn(options.classes, options.dim, device=device),
        "embeddings": torch.randn(ITEMS, options.dim, device=device),
        "classifier": torch.randn(int(0.3 * options.classes), options.dim, device=device),
        "independent": torch.randn(ITEMS, options.dim, device=device),
    }
    labels = torch.arange(ITEMS, device=device) % options.classes
    old = OldSpace(
        **{need: known[need] for need in METHODS[name].needs},
        labels=labels,
        known_classes=int(0.3 * options.classes),
    )
    keyword = {"dim": dim} if METHODS[name].dimension != "same" or name == "cores" else {}
    return METHODS[name](old, options.classes, **keyword).to(device), labels


def start_epoch(name, method, options):
    """In the middle of a training, where methods that wait have begun."""
    dim, device = new_dim(name, options), torch.device(options.device)
    method.start_epoch(
        15,
        30,
        new_prototypes=lambda: torch.randn(options.classes, dim, device=device),
        new_embeddings=lambda: torch.randn(ITEMS, dim, device=device),
    )


def make_backbone(name):
    if name == "small":
        return small()
    import timm

    return Backbone(timm.create_model(name, num_classes=0), 512)


if __name__ == "__main__":
    main()
