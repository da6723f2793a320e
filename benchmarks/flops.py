"""How much arithmetic each method adds to an epoch, counted, not timed.

    python benchmarks/flops.py

An epoch of the paper's GLDv2 at 30 %: 470,369 images of 24,393 classes, ResNet-18 at 224 pixels,
batches of 256, 256 dimensions. PyTorch counts the operations of matrix products and convolutions
(two for each multiplication with its addition); what is done element by element is not counted.
A step is forward, terms and backward. The start of an epoch is what perturbations cost; methods
that ask for new prototypes take a pass through all images for them. Wants timm. `render.py` makes
SPEED.md of it.
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

import torch
from step_time import make_backbone, make_method, new_dim, start_epoch
from torch.utils.flop_counter import FlopCounterMode

from nobackfill import METHODS
from nobackfill.models import Embedder

RESULTS = Path(__file__).parent / "flops.jsonl"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="*", default=None, help="all by default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backbone", default="resnet18", help="or `small`, to try it out")
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--classes", type=int, default=24_393)
    parser.add_argument("--images", type=int, default=470_369)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.manual_seed(0)
    with options.output.open("a") as file:
        for name in options.methods or METHODS:
            line = {
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "method": name,
                **count(name, options),
                **{
                    key: getattr(options, key)
                    for key in ("backbone", "side", "batch", "classes", "images", "dim")
                },
                "torch": torch.__version__,
            }
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(
                f"{name:24s}model {line['image'] / 1e9:.2f} G an image, method "
                f"{line['terms'] / 1e9:.2f} G a step, {line['start'] / 1e9:.1f} G an epoch"
                f"{', a pass' if line['passes'] else ''}",
                flush=True,
            )


def count(name, options):
    """Operations of one image, of the terms of a batch, and of the start of an epoch."""
    method, labels = make_method(name, options)
    asked = []

    class Noting(type(method)):
        """The same method, which tells whether it asked for a pass through the images."""

        def start_epoch(self, epoch, epochs, *, new_prototypes, new_embeddings):
            super().start_epoch(
                epoch,
                epochs,
                new_prototypes=lambda: asked.append(1) or new_prototypes(),
                new_embeddings=lambda: asked.append(1) or new_embeddings(),
            )

    method.__class__ = Noting
    with FlopCounterMode(display=False) as counter:
        start_epoch(name, method, options)
    start = counter.get_total_flops()

    dim = new_dim(name, options)
    model = Embedder(make_backbone(options.backbone), dim)
    images = torch.randn(2, 1 if options.backbone == "small" else 3, options.side, options.side)
    with FlopCounterMode(display=False) as counter:
        found = model(images)
        forward = counter.get_total_flops()
        found.sum().backward()
    both = counter.get_total_flops()

    items = torch.randperm(len(labels))[: options.batch]
    new = torch.randn(options.batch, dim, device=options.device, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        terms = method(new, labels[items], items=items.to(options.device))
        torch.stack(list(terms.values())).sum().backward()
    return {
        "image": both / len(images),
        "forward": forward / len(images),
        "terms": counter.get_total_flops(),
        "start": start,
        "passes": bool(asked),
    }


if __name__ == "__main__":
    main()
