"""Two models of the same items, tiny: what training can better and what it cannot."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import nobackfill as nb


@pytest.fixture
def items():
    """Makes items of classes that the old model tells apart badly, and in a bent way."""

    def make(*, classes=15, per_class=6, new_dim=8, old_dim=6, seed=0):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.arange(classes * per_class) % classes
        centre = torch.randn(classes, new_dim, generator=generator)[labels]
        new = centre + 0.4 * torch.randn(centre.shape, generator=generator)
        bent = torch.tanh(2 * centre @ torch.randn(new_dim, old_dim, generator=generator))
        old = bent + 1.0 * torch.randn(bent.shape, generator=generator)
        ids = np.array([f"item {i}" for i in range(len(labels))])
        return SimpleNamespace(new=new, old=old, labels=labels, ids=ids)

    return make


@pytest.fixture
def head():
    """A head that takes a moment to fit."""

    def make(method="cross_supcon", **settings):
        quick = {"hidden": 16, "epochs": 3, "batch_size": 32, "learning_rate": 1e-2}
        return nb.CompatibleHead(method, **{**quick, **settings})

    return make


@pytest.fixture
def fitted(items, head):
    """One with a correction that does something."""
    data = items()
    done = head().fit(data.new, data.old, data.labels)
    assert done.progress_.best > 0
    return done
