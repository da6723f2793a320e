"""Two models of the same items, tiny: what training can better and what it cannot."""

import sys
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.head import fitting
from nobackfill.head import validation as heldout
from nobackfill.head.examples import Examples
from nobackfill.head.network import HeadNetwork
from nobackfill.head.schedule import FitConfig
from nobackfill.methods import METHODS
from nobackfill.methods.base import Method


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def head():
    """A head that takes a moment to fit."""

    def make(method="cross_supcon", **settings):
        quick = {"hidden": 16, "epochs": 3, "batch_size": 32, "learning_rate": 1e-2}
        if method == "cross_supcon":  # gentle, as there are few classes
            quick["options"] = {"temperature": 0.2}
        return nb.CompatibleHead(method, **{**quick, **settings})

    return make


@pytest.fixture(scope="session")
def fitted_once(items, head):
    data = items()
    done = head().fit(data.new, data.old, data.labels)
    assert done.progress_.best > 0
    return done


@pytest.fixture
def fitted(fitted_once):
    """One with a correction that does something."""
    return deepcopy(fitted_once)


@pytest.fixture
def parts(items):
    """Two thirds of the classes to fit on, one third held out."""
    data = items()
    away = data.labels >= 10
    return (
        Examples(data.new[~away], data.old[~away], data.labels[~away]),
        Examples(data.new[away], data.old[away], data.labels[away] - 10),
    )


@pytest.fixture
def network_for():
    """Makes a network of the dimensions of some examples."""

    def make(examples, *, hidden=8):
        torch.manual_seed(0)
        return HeadNetwork(examples.new.shape[1], examples.old.shape[1], hidden=hidden)

    return make


@pytest.fixture
def fit(network_for):
    """Fits from both parts; returns the network, how it went, and the number of steps."""
    quick = FitConfig(epochs=3, batch_size=16, learning_rate=1e-2)

    def run(parts, method="cross_supcon", config=quick, options=None, **more):
        network = network_for(parts[0])
        progress = fitting.choose_closed_form(network, *parts)
        steps = fitting.fit_network(
            network,
            *parts,
            config=replace(config, method=method, options=options),
            progress=progress,
            **more,
        )
        return network, progress, steps

    return run


class Recording(Method):
    """Sees what a method sees."""

    needs = frozenset({"embeddings"})

    def __init__(self, old, num_classes):
        super().__init__(old, num_classes)
        self.old_space, self.seen = old, []
        self.epochs, self.asked = [], []

    def start_epoch(self, epoch, epochs, *, new_prototypes, new_embeddings):
        self.epochs.append((epoch, epochs))
        self.asked.append((new_prototypes(), new_embeddings()))

    def forward(self, new, labels, *, items=None, old=None):
        self.seen.append((items, labels, new))
        return {"classification": new.square().sum(), "compatibility": new.mean()}


@pytest.fixture
def recording(monkeypatch):
    """Knows a method by the name of "recording"; a list of all that were made."""
    made = []

    def make(old, num_classes):
        made.append(Recording(old, num_classes))
        return made[-1]

    make.needs, make.same_kind, make.maps_queries = Recording.needs, False, False
    monkeypatch.setitem(METHODS, "recording", make)
    return made


@pytest.fixture
def in_place(monkeypatch):
    """Puts something in the place of a function of `heldout`, in every module that imported it."""

    def put(name, value):
        original = getattr(heldout, name)
        for place, module in list(sys.modules.items()):
            if place.startswith("nobackfill.") and vars(module).get(name) is original:
                monkeypatch.setattr(module, name, value)

    return put


@pytest.fixture
def clock(monkeypatch):
    """The time that a fit sees: it stands still until a test sets it."""
    now = SimpleNamespace(seconds=0.0)
    for place in ("fitting", "schedule", "head"):
        monkeypatch.setattr(f"nobackfill.head.{place}.monotonic", lambda: now.seconds)
    return now
