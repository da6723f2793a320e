"""Heads trained on frozen features from scratch: no closed form to begin with, no early stop."""

import numpy as np
import torch
from torch import nn

from nobackfill import METHODS, OldSpace, class_means
from nobackfill.data.splits import order_classes

EPOCHS, BATCH, LEARNING_RATE, HIDDEN, DIM = 60, 256, 2e-3, 1024, 256
OLD_SHARE = 0.3  # of the training classes, for the old head


def network(dim):
    return nn.Sequential(
        nn.Dropout(0.3),
        nn.Linear(dim, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, DIM),
        nn.BatchNorm1d(DIM),
    )


def numbered(labels, seed):
    """The class of each training item, those that the old head knows first; and how many these are.

    Args:
        labels: Of the training items.
        seed: Of the choice.
    """
    original = torch.from_numpy(np.unique(labels, return_inverse=True)[1])
    order = order_classes(
        int(original.max()) + 1, (OLD_SHARE, 1.0), generator=torch.Generator().manual_seed(seed)
    )
    return order.label_of[original], order.counts[0]


def old_space(old, classes, known):
    """What a method is told of the old head: its vectors, and how many classes it knows."""
    prototypes = class_means(old, classes, int(classes.max()) + 1)
    return OldSpace(prototypes=prototypes, embeddings=old, labels=classes, known_classes=known)


def train(features, classes, *, method="independent", space=None, seed, epochs=EPOCHS):
    """A network trained by classification and the terms of a method.

    Args:
        features: Of the training items, on the device to train on.
        classes: Of them, from 0 on.
        method: A name of `METHODS`.
        space: What it is told of the old head.
        seed: Of all that is random.
        epochs: How many.
    """
    torch.manual_seed(seed)
    device, number = features.device, int(classes.max()) + 1
    trained = network(features.shape[1]).to(device)
    terms_of = METHODS[method](space or OldSpace(), number).to(device)

    def embeddings():
        return embedded(trained, features)

    def prototypes():
        return class_means(embeddings(), classes, number)

    parameters = [*trained.parameters(), *terms_of.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in range(epochs):
        terms_of.start_epoch(epoch, epochs, new_prototypes=prototypes, new_embeddings=embeddings)
        for rows in torch.randperm(len(features)).to(device).split(BATCH):
            if len(rows) == 1:
                continue  # BatchNorm knows no spread of one
            terms = terms_of(trained(features[rows]), classes[rows], items=rows)
            loss = torch.stack(list(terms.values())).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return trained.eval()


@torch.no_grad()
def embedded(trained, features):
    """What the network makes of features, without dropout."""
    was_training = trained.training
    found = trained.eval()(features)
    trained.train(was_training)
    return found
