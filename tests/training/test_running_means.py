from dataclasses import replace

import pytest
import torch

from nobackfill.core.config import Choice, OldConfig, Recipe, TrainConfig
from nobackfill.data.registry import make_collection
from nobackfill.methods import METHODS
from nobackfill.methods.old_space import OldSpace
from nobackfill.models import make_model
from nobackfill.models.embed import embed
from nobackfill.training.loop import train
from nobackfill.training.new_prototypes import RunningMeans
from nobackfill.training.pipeline import train_run

CPU = torch.device("cpu")
DATA = Choice("glyphs", {"train_classes": 10, "test_classes": 5, "images_per_class": 6, "side": 16})
MODEL = Choice("small", {"width": 4, "embedding_dim": 8})
CONFIG = TrainConfig(epochs=3, batch_size=16, learning_rate=0.05, new_prototypes="running")


def batches_of(seed, *sizes, classes=4, dim=3):
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            3 * torch.randn(size, dim, generator=generator),
            torch.randint(classes, (size,), generator=generator),
        )
        for size in sizes
    ]


def means_by_hand(batches, classes, before):
    """The formula of the docstring, one item at a time, in float64."""
    means = before.double().clone()
    for c in range(classes):
        m = torch.zeros(means.shape[1], dtype=torch.float64)
        seen = False
        for new, labels in batches:
            for e, y in zip(new.double(), labels.tolist(), strict=True):
                if y == c:
                    m += e / (e @ e).sqrt()
                    seen = True
        if seen:
            means[c] = m / (m @ m).sqrt()
    return means


def test_running_means_are_the_formula_written_as_loops():
    running, before = RunningMeans(4, 3), torch.zeros(4, 3)
    for seed in range(3):  # three epochs: each forgets the batches of the one before
        batches = batches_of(seed, 7, 5, 8)
        for new, labels in batches:
            running.add(new, labels)
        taken = running.take()
        expected = means_by_hand(batches, 4, before)
        torch.testing.assert_close(taken.double(), expected, atol=1e-6, rtol=0)
        before = taken


def test_a_class_that_was_not_seen_keeps_its_mean():
    running = RunningMeans(3, 2)
    running.add(torch.tensor([[3.0, 0.0], [0.0, 2.0], [-1.0, 0.0]]), torch.tensor([0, 1, 2]))
    running.take()
    running.add(torch.tensor([[0.0, 5.0]]), torch.tensor([0]))
    assert running.take().tolist() == [[0, 1], [0, 1], [-1, 0]]
    assert running.take().tolist() == [[0, 1], [0, 1], [-1, 0]]  # an epoch without any batch


def test_nothing_is_known_before_every_class_was_seen_once():
    running = RunningMeans(2, 2)
    assert running.take() is None
    running.add(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    assert running.take() is None
    running.add(torch.tensor([[0.0, 1.0]]), torch.tensor([1]))
    assert running.take().tolist() == [[1, 0], [0, 1]]


def test_what_was_taken_stays_as_it_is():
    running = RunningMeans(1, 2)
    running.add(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    taken = running.take()
    running.add(torch.tensor([[0.0, 1.0]]), torch.tensor([0]))
    running.take()
    assert taken.tolist() == [[1, 0]]


def test_adding_costs_no_gradient_and_gives_none():
    running = RunningMeans(1, 2)
    new = torch.tensor([[1.0, 0.0]], requires_grad=True)
    running.add(new, torch.tensor([0]))
    assert not running.sums.requires_grad
    (2 * new).sum().backward()
    assert new.grad.tolist() == [[2, 2]]


@pytest.fixture(scope="module")
def collection():
    return make_collection(DATA)


class Curious(METHODS["independent"]):
    """Asks for the new prototypes before every epoch."""

    def __init__(self):
        super().__init__(OldSpace(), 10, dim=8)
        self.given, self.batches = [], []

    def start_epoch(self, epoch, epochs, *, new_prototypes, new_embeddings):
        self.given.append(new_prototypes())
        self.batches.append([])

    def forward(self, new, labels, *, items=None, old=None):
        self.batches[-1].append((new.detach(), labels))
        return super().forward(new, labels, items=items)


def count_passes(monkeypatch):
    def counted(*arguments, **options):
        passes.append(arguments)
        return embed(*arguments, **options)

    passes = []
    monkeypatch.setattr("nobackfill.training.forward.embed", counted)
    return passes


def test_in_the_loop_no_pass_is_made_after_the_first_epoch(collection, monkeypatch):
    passes = count_passes(monkeypatch)
    method, rows = Curious(), collection.training_rows(-1)
    running = RunningMeans(10, 8)
    model = make_model(MODEL, seed=0)
    list(train(model, method, collection, rows, CONFIG, running_means=running))
    assert len(passes) == 1
    for epoch in (1, 2):
        expected = means_by_hand(method.batches[epoch - 1], 10, torch.zeros(10, 8))
        torch.testing.assert_close(method.given[epoch].double(), expected, atol=1e-6, rtol=0)
    list(train(model, method, collection, rows, CONFIG))
    assert len(passes) == 1 + 3  # without them, a pass before each epoch


def test_batches_that_leave_a_class_out_do_not_lose_it(collection, monkeypatch):
    """Batches by class: an epoch is one batch of two classes."""
    passes = count_passes(monkeypatch)
    config = replace(CONFIG, epochs=6, batch_size=32, items_per_class=16)
    method, rows = Curious(), collection.training_rows(-1)
    list(
        train(
            make_model(MODEL, seed=0),
            method,
            collection,
            rows,
            config,
            running_means=RunningMeans(10, 8),
        )
    )
    held = [set(torch.cat([y for _, y in epoch]).tolist()) for epoch in method.batches]
    assert all(len(classes) == 2 for classes in held)
    known, expected = set(), 0
    for epoch in range(6):
        expected += len(known) < 10
        known |= held[epoch]
    assert len(passes) == expected
    assert all(given.norm(dim=-1).min() > 0 for given in method.given)


@pytest.fixture(scope="module")
def old_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "old"
    recipe = Recipe(data=DATA, model=MODEL, train=replace(CONFIG, step=0, epochs=1))
    list(train_run(recipe, folder, device=CPU))
    return folder


def ndpp(old_run, **changes):
    return Recipe(
        data=DATA,
        model=MODEL,
        method=Choice("ndpp", {"new_strength": 0.3}),
        old=OldConfig(run=str(old_run)),
        train=replace(CONFIG, epochs=4, **changes),
    )


@pytest.mark.parametrize("killed_after", [1, 3])
def test_a_resumed_run_equals_one_that_was_never_stopped(old_run, tmp_path, killed_after):
    recipe = ndpp(old_run)
    list(train_run(recipe, tmp_path / "whole", device=CPU))
    epochs = train_run(recipe, tmp_path / "stopped", device=CPU)
    for _ in range(killed_after):
        next(epochs)
    epochs.close()
    list(train_run(recipe, tmp_path / "stopped", device=CPU, resume=True))
    for name in ("model.safetensors", "metrics.jsonl", "evaluation.json"):
        one, other = ((tmp_path / run / name).read_bytes() for run in ("whole", "stopped"))
        assert one == other


def test_the_settings_decide_which_prototypes_a_run_gets(old_run, tmp_path, monkeypatch):
    passes = count_passes(monkeypatch)
    list(train_run(ndpp(old_run), tmp_path / "running", device=CPU))
    without = len(passes)
    list(train_run(ndpp(old_run, new_prototypes="pass"), tmp_path / "pass", device=CPU))
    assert without <= 1 < 3 <= len(passes) - without
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("running", "pass")]
    assert weights[0] != weights[1]
