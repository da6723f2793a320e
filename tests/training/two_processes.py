"""Run by test_distributed.py under torchrun: writes what each process came to."""

import sys
from pathlib import Path

import torch

from nobackfill.core import distributed
from nobackfill.core.config import Choice, PairsConfig, TrainConfig
from nobackfill.data.registry import make_collection
from nobackfill.methods import METHODS
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.prototypes import class_means
from nobackfill.models import make_dual, make_model
from nobackfill.models.embed import embed
from nobackfill.training.forward import ImageTextForwardPass
from nobackfill.training.loop import train

DATA = Choice("glyphs", {"train_classes": 10, "test_classes": 5, "images_per_class": 6, "side": 16})
TOLD = Choice("glyphs", {**DATA.options, "captions": 3})
TEXT = Choice("words", {"buckets": 256, "width": 8})
WITH_TEXTS = (("ndpp", "both"), ("mimic", "both"), ("ndpp", "text"), ("independent", "image"))
NAMES = ("independent", "ndpp", "bct", "ract", "rbcl", "cross_supcon", "advbct", "dual_tuning")


def main(output):
    torch.set_num_threads(1)
    device = distributed.start("cpu")
    collection = make_collection(DATA)
    rows = collection.training_rows(-1)
    labels = collection.labels[rows]
    model = make_model(Choice("small", {"width": 4, "embedding_dim": 8}), seed=0).to(device)
    old = embed(
        make_model(Choice("small", {"width": 4, "embedding_dim": 8}), seed=1), collection, rows
    )
    space = OldSpace(
        prototypes=class_means(old, labels, 10),
        embeddings=old,
        classifier=torch.randn(5, 8, generator=torch.Generator().manual_seed(2)),
        labels=labels,
        known_classes=5,
    )
    result = {"prototypes": class_means(embed(model, collection, rows), labels, 10)}
    for name in NAMES:
        result |= {f"{name} {k}": v for k, v in one_epoch(name, space, collection, rows).items()}
    for name, compatible in WITH_TEXTS:
        found = one_epoch_with_texts(name, PairsConfig(compatible=compatible))
        result |= {f"{name} {compatible} {key}": value for key, value in found.items()}
    rank, world = distributed.part()
    torch.save(result, Path(output) / f"{world}_{rank}.pt")


def one_epoch_with_texts(name, pairs):
    """The same of images and texts, and the embeddings of all items before."""
    collection = make_collection(TOLD)
    rows = collection.training_rows(-1)
    model, old_model = (
        make_dual(Choice("small", {"width": 4, "embedding_dim": 8}), TEXT, seed=seed)
        for seed in (0, 1)
    )
    forward_pass = ImageTextForwardPass.of(collection, rows, model, pairs)
    old, labels = forward_pass.embed(old_model), forward_pass.labels()
    space = OldSpace(prototypes=class_means(old, labels, 10), embeddings=old, labels=labels)
    before = {"embeddings": forward_pass.embed(model)}
    return before | one_epoch(name, space, collection, rows, model, forward_pass=forward_pass)


def one_epoch(name, space, collection, rows, model=None, **options):
    """Terms, weights and gradients' sum after an epoch without BatchNorm's batch statistics."""
    torch.manual_seed(3)
    model = model or make_model(Choice("small", {"width": 4, "embedding_dim": 8}), seed=0)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
            module.train = lambda mode=True, module=module: module  # stays in eval mode
            module.training = False
    method = METHODS[name](space, 10, **({"dim": 8} if name == "independent" else {}))
    config = TrainConfig(epochs=2, batch_size=15, learning_rate=0.01)
    plain = collection.__class__(
        **{**collection.__dict__, "augment": lambda images, generator: images}
    )
    terms = {}
    for epoch in train(model, method, plain, rows, config, **options):
        terms |= {f"{k} {epoch.epoch}": torch.tensor(v) for k, v in epoch.terms.items()}
    weights = {f"model {k}": v for k, v in model.state_dict().items()}
    weights |= {f"method {k}": v for k, v in method.state_dict().items()}
    return {**terms, **{k: v.double() for k, v in weights.items()}}


if __name__ == "__main__":
    main(sys.argv[1])
