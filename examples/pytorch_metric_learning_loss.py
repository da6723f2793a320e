"""PyTorch Metric Learning: a loss and a miner that people use, made compatible with an old model.

    python examples/pytorch_metric_learning_loss.py

Drawn characters. The old model knew 15 % of them; two new models see all. One is trained by SupCon
alone, one by SupCon and NDPP. Both search other characters, by the vectors that the old model
stored. Takes half a minute.
"""

import torch
from pytorch_metric_learning.losses import SupConLoss
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

DATA = make_collection(Choice("glyphs", {"shares": [0.15, 1.0], "variation": 1.4}))
TEST = DATA.validation_rows()


def make_model(seed):
    torch.manual_seed(seed)
    return nn.Sequential(small(), nn.Linear(128, 64), nn.BatchNorm1d(64))


def train(model, loss, rows, epochs):
    images, labels = DATA.view(rows), DATA.labels[rows]
    sampler = MPerClassSampler(labels, m=2, batch_size=60, length_before_new_iter=len(rows))
    loader = DataLoader(TensorDataset(images, labels), batch_size=60, sampler=sampler)
    optimizer = torch.optim.AdamW([*model.parameters(), *loss.parameters()], lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    miner, generator = MultiSimilarityMiner(), torch.Generator().manual_seed(0)
    for epoch in range(epochs):
        if isinstance(loss, CompatibleLoss):  # NDPP moves its targets once an epoch
            loss.start_epoch(epoch, epochs, lambda: (embed(model, DATA, rows), labels))
        for batch_images, batch_labels in loader:
            embeddings = model(DATA.augment(batch_images, generator))
            pairs = miner(embeddings, batch_labels)
            optimizer.zero_grad()
            loss(embeddings, batch_labels, pairs).backward()
            optimizer.step()
            schedule.step()
    return model


def main(epochs=12):
    """Returns the evaluation of the model trained without and with NDPP."""
    old_model = train(make_model(0), SupConLoss(), DATA.training_rows(0), epochs)
    stored = to_vectors(embed(old_model, DATA, TEST), DATA, TEST)

    rows, classes = DATA.training_rows(-1), DATA.class_counts[-1]
    means = nb.class_means(embed(old_model, DATA, rows), DATA.labels[rows], classes)
    method = nb.METHODS["ndpp"](nb.OldSpace(prototypes=means), classes)
    results = {}
    for name, loss in {"alone": SupConLoss(), "ndpp": CompatibleLoss(SupConLoss(), method)}.items():
        new_model = train(make_model(1), loss, rows, epochs)
        results[name] = nb.evaluate(stored, to_vectors(embed(new_model, DATA, TEST), DATA, TEST))
        print(f"{name}\n{results[name]}\n")
    return results


if __name__ == "__main__":
    main()
