"""PyTorch Metric Learning: a triplet loss with a miner, made compatible with an old model.

    python examples/metric_learning.py

Drawn characters. The old model knew 30 % of them. Two new models see all: one is trained by the
triplet loss alone, one by the triplet loss plus NDPP. Both search other characters, by the vectors
that the old model stored. Takes half a minute.
"""

import torch
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from pytorch_metric_learning.samplers import MPerClassSampler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import nobackfill as nb
from nobackfill.core.config import Choice
from nobackfill.data.registry import make_collection
from nobackfill.integrations.metric_learning import CompatibleLoss
from nobackfill.models.backbones import small
from nobackfill.models.embed import embed, to_vectors

DATA = make_collection(
    Choice("glyphs", {"train_classes": 100, "test_classes": 50, "variation": 1.4})
)
TEST = DATA.validation_rows()


def make_model(seed):
    torch.manual_seed(seed)
    return nn.Sequential(small(), nn.Linear(128, 64), nn.BatchNorm1d(64))


def train(model, loss, rows, epochs=12):
    images, labels = DATA.view(rows), DATA.labels[rows]
    sampler = MPerClassSampler(labels, m=4, batch_size=64, length_before_new_iter=len(rows))
    loader = DataLoader(TensorDataset(images, labels), batch_size=64, sampler=sampler)
    miner = MultiSimilarityMiner()
    optimizer = torch.optim.AdamW([*model.parameters(), *loss.parameters()], lr=3e-3)
    for epoch in range(epochs):
        if isinstance(loss, CompatibleLoss):  # NDPP moves its targets once an epoch
            loss.start_epoch(epoch, epochs, lambda: (embed(model, DATA, rows), labels))
        for batch_images, batch_labels in loader:
            embeddings = model(batch_images)
            pairs = miner(embeddings, batch_labels)
            optimizer.zero_grad()
            loss(embeddings, batch_labels, pairs).backward()
            optimizer.step()
    return model


def main():
    """Returns the evaluation of the model trained without and with NDPP."""
    triplets = TripletMarginLoss(margin=0.1)
    old_model = train(make_model(0), triplets, DATA.training_rows(0))
    stored = to_vectors(embed(old_model, DATA, TEST), DATA, TEST)

    rows = DATA.training_rows(-1)
    classes, labels = DATA.class_counts[-1], DATA.labels[rows]
    old = nb.OldSpace(prototypes=nb.class_means(embed(old_model, DATA, rows), labels, classes))
    losses = {
        "triplets": triplets,
        "triplets + ndpp": CompatibleLoss(triplets, nb.METHODS["ndpp"](old, classes)),
    }
    results = {}
    for name, loss in losses.items():
        new_model = train(make_model(1), loss, rows)
        new = to_vectors(embed(new_model, DATA, TEST), DATA, TEST)
        results[name] = nb.evaluate(stored, new)
        print(f"{name}\n{results[name]}\n")
    return results


if __name__ == "__main__":
    main()
