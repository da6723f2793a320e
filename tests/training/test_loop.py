import weakref
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from nobackfill.core.config import Choice, OldConfig, Recipe, TrainConfig
from nobackfill.data.loader import Batch, Batches
from nobackfill.data.registry import make_collection
from nobackfill.errors import ConfigError, TrainingDiverged
from nobackfill.methods import METHODS
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.prototypes import class_means
from nobackfill.models import make_model
from nobackfill.models.embed import embed
from nobackfill.training.loop import (
    check_finite,
    embed_old_view,
    step_of,
    train,
)
from nobackfill.training.pipeline import train_run
from nobackfill.training.run import Run
from nobackfill.training.schedule import learning_rate, make_optimizer, warmup

CPU = torch.device("cpu")
DATA = Choice("glyphs", {"train_classes": 10, "test_classes": 5, "images_per_class": 6, "side": 16})
MODEL = Choice("small", {"width": 4, "embedding_dim": 8})
CONFIG = TrainConfig(epochs=3, batch_size=16, learning_rate=0.05)


@pytest.fixture(scope="module")
def collection():
    return make_collection(DATA)


def make(name="independent", seed=0):
    torch.manual_seed(1)
    old = OldSpace(prototypes=torch.randn(10, 8))
    options = {"dim": 8} if name == "independent" else {}
    return make_model(MODEL, seed=seed), METHODS[name](old, 10, **options)


def weights(model):
    return torch.cat([value.flatten().double() for value in model.state_dict().values()])


def test_the_loss_falls(collection):
    model, method = make()
    epochs = list(train(model, method, collection, collection.training_rows(-1), CONFIG))
    assert [epoch.epoch for epoch in epochs] == [0, 1, 2]
    assert epochs[-1].terms["classification"] < epochs[0].terms["classification"]


def test_two_runs_are_identical_and_another_seed_is_not(collection):
    results = []
    for seed in (0, 0, 1):
        model, method = make("odpp")
        rows = collection.training_rows(-1)
        list(train(model, method, collection, rows, replace(CONFIG, seed=seed)))
        results.append(weights(model))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_every_training_item_is_seen_once_an_epoch_with_its_label(collection):
    class Spy(METHODS["independent"]):
        def forward(self, new, labels, *, items=None):
            seen.append((items, labels))
            return super().forward(new, labels, items=items)

    seen = []
    model, _ = make()
    rows = collection.training_rows(-1)
    list(train(model, Spy(OldSpace(), 10, dim=8), collection, rows, replace(CONFIG, epochs=1)))
    items = torch.cat([items for items, _ in seen])
    labels = torch.cat([labels for _, labels in seen])
    assert torch.equal(items.sort().values, torch.arange(len(rows)))
    assert torch.equal(labels, collection.labels[rows][items])
    assert not torch.equal(items, torch.arange(len(rows)))  # in random order


def test_new_prototypes_are_those_of_the_model_in_eval_mode(collection):
    class Spy(METHODS["independent"]):
        def start_epoch(self, epoch, epochs, *, new_prototypes, new_embeddings):
            got.append((epoch, epochs, new_prototypes(), new_embeddings(), model.training))

    got = []
    model, _ = make()
    rows = collection.training_rows(-1)
    model.eval()
    with torch.no_grad():
        expected = model(collection.view(rows))
    model.train()
    next(train(model, Spy(OldSpace(), 10, dim=8), collection, rows, CONFIG))
    epoch, epochs, prototypes, embeddings, training = got[0]
    assert (epoch, epochs, training) == (0, 3, True)
    torch.testing.assert_close(embeddings, expected)
    torch.testing.assert_close(prototypes, class_means(expected, collection.labels[rows], 10))


def test_the_old_model_is_trained_on_the_first_classes_only(collection):
    assert collection.class_counts == (3, 10)
    rows = collection.training_rows(0)
    assert collection.labels[rows].unique().tolist() == [0, 1, 2]
    assert len(collection.training_rows(-1)) == 60
    with pytest.raises(ConfigError, match="`step` in .train. must be below 2"):
        collection.training_rows(2)


def test_learning_rate_schedules():
    steps = TrainConfig(schedule="steps", learning_rate=1.0, milestones=(2, 4), epochs=6)
    rates = [learning_rate(epoch, steps) for epoch in range(6)]
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    cosine = TrainConfig(learning_rate=1.0, epochs=4)
    assert [learning_rate(epoch, cosine) for epoch in (0, 2)] == pytest.approx([1, 0.5])


def test_a_loss_that_is_no_number_stops_the_training(collection):
    model, method = make()
    wild = replace(CONFIG, learning_rate=1e6)
    with pytest.raises(TrainingDiverged, match="Lower `learning_rate`"):
        list(train(model, method, collection, collection.training_rows(-1), wild))


def test_weights_that_are_no_numbers_stop_it_too(collection):
    """One step, whose loss is still finite, and whose weights are not."""
    model, method = make()
    config = replace(CONFIG, epochs=1, batch_size=1000)
    optimizer = torch.optim.SGD([*model.parameters(), *method.parameters()], lr=1.0)
    step = optimizer.step
    optimizer.step = lambda: (step(), next(model.parameters()).data.fill_(torch.nan))
    rows = collection.training_rows(-1)
    with pytest.raises(TrainingDiverged, match="weights are"):
        list(train(model, method, collection, rows, config, optimizer=optimizer))


@pytest.mark.parametrize(
    ("mean", "weight", "says"),
    [(torch.nan, 1.0, "weights are finite"), (0.5, torch.inf, "weights are not finite")],
)
def test_what_is_not_finite_is_told_with_the_epoch_and_the_learning_rate(mean, weight, says):
    check_finite({"loss": 0.5}, [torch.ones(2)], epoch=3, learning_rate=0.25)
    weights = [torch.ones(2), torch.tensor([1.0, weight])]
    with pytest.raises(TrainingDiverged, match=f"in epoch 4: .*{says}.*now 0.25"):
        check_finite({"loss": 0.5, "other": mean}, weights, epoch=3, learning_rate=0.25)


def test_an_epoch_is_the_plain_loop(collection):
    """Augmented batches in the order of the seed, one step on the sum of the terms for each."""
    rows = collection.training_rows(-1)
    (model, method), (other, terms_of) = make("prototype_alignment"), make("prototype_alignment")
    config = replace(CONFIG, momentum=0.7, weight_decay=0.01)
    epoch = next(train(model, method, collection, rows, config))
    parameters = [*other.parameters(), *terms_of.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.7, weight_decay=0.01)
    history = []
    for batch in Batches(collection, rows, 16, torch.Generator().manual_seed(0)):
        terms = terms_of(other(batch.images), batch.labels)
        optimizer.zero_grad()
        sum(terms.values()).backward()
        optimizer.step()
        history.append(terms["compatibility"].item())
    torch.testing.assert_close(weights(model), weights(other))
    torch.testing.assert_close(weights(method), weights(terms_of))
    assert epoch.terms["compatibility"] == pytest.approx(sum(history) / len(history))


def test_each_epoch_has_its_order_and_its_learning_rate(collection):
    def watch(batches):
        orders.append([])
        for batch in batches:
            orders[-1] += batch.items.tolist()
            yield batch

    orders = []
    model, method = make()
    optimizer = make_optimizer(model, method, CONFIG)
    rows = collection.training_rows(-1)
    for epoch in train(model, method, collection, rows, CONFIG, optimizer=optimizer, watch=watch):
        assert epoch.learning_rate == learning_rate(epoch.epoch, CONFIG)
        assert optimizer.param_groups[0]["lr"] == epoch.learning_rate
    assert len({tuple(order) for order in orders}) == 3


def test_adam_if_asked():
    config = replace(CONFIG, optimizer="adam", weight_decay=0.01)
    optimizer = make_optimizer(*make(), config)
    assert type(optimizer) is torch.optim.Adam
    assert optimizer.param_groups[0]["weight_decay"] == 0.01


def test_the_old_model_sees_the_very_images_of_the_new_one_and_learns_nothing(collection):
    class Spy(METHODS["independent"]):
        def forward(self, new, labels, *, items=None, old=None):
            seen.append(old)
            return super().forward(new, labels, items=items)

    class Watched(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, images):
            shown.append(images)
            return self.model(images)

    seen, shown = [], []
    old_model = make_model(MODEL, seed=5)
    before = weights(old_model)
    method = Spy(OldSpace(), 10, dim=8)
    rows = collection.training_rows(-1)
    model = Watched(make_model(MODEL, seed=0))
    list(train(model, method, collection, rows, replace(CONFIG, epochs=1), old_model=old_model))
    assert len(seen) == len(shown) == 4
    with torch.no_grad():
        for old, images in zip(seen, shown, strict=True):
            assert torch.equal(old, old_model.eval()(images))
    assert torch.equal(weights(old_model), before)


def test_what_the_old_model_sees_carries_no_gradient(collection):
    old_model = make_model(MODEL, seed=5).train()
    batch = Batch(collection.view(torch.arange(4)), torch.zeros(4).long(), torch.arange(4))
    seen = embed_old_view(old_model, batch)["old"]
    assert not seen.requires_grad
    assert not old_model.training


def test_the_pass_over_the_training_set_is_made_once_an_epoch_and_only_if_asked(
    collection, monkeypatch
):
    class Spy(METHODS["independent"]):
        def start_epoch(self, epoch, epochs, *, new_prototypes, new_embeddings):
            if epoch > 0:
                got.append((new_embeddings(), new_prototypes(), new_embeddings()))

    def counted(*arguments, **options):
        passes.append(arguments)
        return embed(*arguments, **options)

    got, passes = [], []
    monkeypatch.setattr("nobackfill.training.forward.embed", counted)
    model, _ = make()
    rows = collection.training_rows(-1)
    list(train(model, Spy(OldSpace(), 10, dim=8), collection, rows, CONFIG))
    assert len(passes) == 2
    assert not torch.equal(got[0][0], got[1][0])  # each epoch anew


def test_new_embeddings_are_let_go_before_the_batches(collection):
    class Spy(METHODS["independent"]):
        def start_epoch(self, epoch, epochs, *, new_prototypes, new_embeddings):
            kept.append(weakref.ref(new_embeddings()))

        def forward(self, new, labels, *, items=None, old=None):
            assert kept[-1]() is None
            return super().forward(new, labels, items=items)

    kept = []
    model, _ = make()
    rows = collection.training_rows(-1)
    next(train(model, Spy(OldSpace(), 10, dim=8), collection, rows, CONFIG))
    assert len(kept) == 1


def rates_of(collection, config):
    """The learning rate of every step that the optimiser really makes."""
    model, method = make()
    optimizer, rates = make_optimizer(model, method, config), []
    optimizer.register_step_pre_hook(lambda o, *_: rates.append(o.param_groups[0]["lr"]))
    rows = collection.training_rows(-1)
    epochs = list(train(model, method, collection, rows, config, optimizer=optimizer))
    return rates, epochs


def test_the_learning_rate_rises_with_the_first_steps(collection):
    config = replace(CONFIG, warmup_steps=6, warmup_factor=0.25)
    rates, epochs = rates_of(collection, config)
    by_hand = []
    for step in range(3 * 4):  # three epochs of four batches
        rise = 0.25 + 0.75 * min(1, step / 6)
        by_hand.append(rise * learning_rate(step // 4, config))
    assert rates == pytest.approx(by_hand)
    told = [epoch.learning_rate for epoch in epochs]
    assert told == [learning_rate(epoch, config) for epoch in range(3)]


def test_without_warmup_steps_the_factor_does_not_matter():
    assert warmup(0, replace(CONFIG, warmup_steps=0, warmup_factor=0.0)) == 1
    assert warmup(0, replace(CONFIG, warmup_steps=5, warmup_factor=0.0)) == 0


def test_warmup_counts_steps_and_not_batches(collection):
    config = replace(CONFIG, accumulate=2, warmup_steps=4, warmup_factor=0.0)
    rates, _ = rates_of(collection, config)
    by_hand = [step / 4 * learning_rate(step // 2, config) for step in range(4)]
    assert rates[:4] == pytest.approx(by_hand)
    assert len(rates) == 6


def test_warmup_counts_the_short_step_at_the_end_of_an_epoch_too(collection):
    config = replace(CONFIG, accumulate=3, warmup_steps=100, warmup_factor=0.0)
    rates, _ = rates_of(collection, config)
    scales = [learning_rate(epoch, config) for epoch in range(3) for _ in range(2)]
    steps = [100 * rate / scale for rate, scale in zip(rates, scales, strict=True)]
    assert steps == pytest.approx([0, 1, 2, 3, 4, 5])


def in_eval_mode(model):
    """The same model, whose BatchNorm stays as it is: a batch is then the sum of its items."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval().train = lambda mode=True, module=module: module
    return model


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("k", [2, 4])
def test_k_batches_make_the_step_of_one_that_is_k_times_as_large(collection, k, optimizer):
    still = replace(collection, augment=lambda images, generator: images)
    rows, results = still.training_rows(-1), []
    for config in (
        replace(CONFIG, batch_size=15, accumulate=k, optimizer=optimizer, learning_rate=0.01),
        replace(CONFIG, batch_size=15 * k, optimizer=optimizer, learning_rate=0.01),
    ):
        model, method = make()
        in_eval_mode(model)
        epochs = list(train(model, method, still, rows, config))
        results.append((weights(model), weights(method), [epoch.terms for epoch in epochs]))
    (model, method, terms), (large, of_large, large_terms) = results
    torch.testing.assert_close(model, large, atol=2e-5, rtol=0)
    torch.testing.assert_close(method, of_large, atol=2e-5, rtol=0)
    if k == 4:  # the loss of single batches, the weights being those of the epoch's start
        first, first_large = terms[0]["classification"], large_terms[0]["classification"]
        assert first == pytest.approx(first_large, rel=1e-5)


@pytest.mark.parametrize("accumulate", [1, 2, 3, 9])
@pytest.mark.parametrize("batches", [1, 5, 6])
def test_steps_are_batches_counted_by_hand(batches, accumulate):
    number = 0
    for epoch in range(3):
        left = list(range(batches))
        while left:
            group, left = left[:accumulate], left[accumulate:]
            for batch in group:
                found = step_of(batch, batches, epoch=epoch, accumulate=accumulate)
                assert found == (number, len(group), batch == group[-1])
            number += 1


def test_an_incomplete_step_is_made_at_the_end_of_an_epoch(collection):
    """Nothing is left for the next epoch, and no gradient of this one is in its steps."""
    rates, _ = rates_of(collection, replace(CONFIG, accumulate=3))
    assert len(rates) == 3 * 2
    rates, _ = rates_of(collection, replace(CONFIG, accumulate=100))
    assert len(rates) == 3


def test_a_step_is_on_the_mean_of_its_batches_however_many_are_left(collection):
    """Of four batches three make the first step, and one the second, written as a loop."""
    rows, config = collection.training_rows(-1), replace(CONFIG, epochs=1, accumulate=3)
    (model, method), (other, terms_of) = make(), make()
    list(train(model, method, collection, rows, config))
    optimizer = make_optimizer(other, terms_of, config)
    batches = list(Batches(collection, rows, 16, torch.Generator().manual_seed(0)))
    for group in (batches[:3], batches[3:]):
        losses = [terms_of(other(b.images), b.labels)["classification"] for b in group]
        optimizer.zero_grad()
        (sum(losses) / len(group)).backward()
        optimizer.step()
    torch.testing.assert_close(weights(model), weights(other))
    torch.testing.assert_close(weights(method), weights(terms_of))


def test_items_per_class_reach_the_batches(collection):
    class Spy(METHODS["independent"]):
        def forward(self, new, labels, *, items=None, old=None):
            seen.append((labels, items))
            return super().forward(new, labels, items=items)

    seen = []
    model, _ = make()
    rows = collection.training_rows(-1)
    config = replace(CONFIG, batch_size=12, items_per_class=3)
    list(train(model, Spy(OldSpace(), 10, dim=8), collection, rows, config))
    assert len(seen) == 3 * (60 // 12)
    for labels, items in seen:
        classes, count = labels.unique(return_counts=True)
        assert (len(classes), count.tolist()) == (4, [3] * 4)
        assert torch.equal(collection.labels[rows][items], labels)
        assert len(items.unique()) == 12


class Dropping(nn.Module):
    """A model with dropout, which notes what it left."""

    def __init__(self):
        super().__init__()
        self.model, self.drop = make_model(MODEL, seed=0), nn.Dropout(0.5)
        self.left = []

    def forward(self, images):
        embedding = self.model(images)
        if self.training:
            left = self.drop(torch.ones_like(embedding))
            self.left.append(left)
            embedding = embedding * left
        return embedding


def test_layers_that_drop_draw_from_the_seed_of_the_epoch(collection):
    rows = collection.training_rows(-1)

    def dropped(seed, elsewhere, start=0):
        model, method = Dropping(), make()[1]
        torch.manual_seed(elsewhere)
        before = torch.get_rng_state()
        epochs = train(model, method, collection, rows, replace(CONFIG, seed=seed), start=start)
        for _ in epochs:
            assert torch.equal(torch.get_rng_state(), before)  # also while the caller works
        return model.left, weights(model)

    (left, trained), (again, trained_again) = dropped(0, elsewhere=1), dropped(0, elsewhere=2)
    assert len(left) == 3 * 4
    assert all(torch.equal(one, other) for one, other in zip(left, again, strict=True))
    assert torch.equal(trained, trained_again)
    assert not torch.equal(left[0], left[1])
    assert not torch.equal(left[0], left[4])  # the first batches of two epochs
    assert not torch.equal(left[0], dropped(1, elsewhere=1)[0][0])
    resumed, _ = dropped(0, elsewhere=3, start=2)
    assert all(torch.equal(one, other) for one, other in zip(left[8:], resumed, strict=True))


def smoothed_by_hand(logits, labels, smoothing):
    """Cross entropy with a share of the label spread over all classes, one item at a time."""
    total = 0.0
    for row, label in zip(logits.double(), labels.tolist(), strict=True):
        log_p = row - row.exp().sum().log()
        wanted = torch.full_like(log_p, smoothing / len(row))
        wanted[label] += 1 - smoothing
        total -= (wanted * log_p).sum().item()
    return total / len(labels)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_smoothing_reaches_the_loss_of_a_run(collection, tmp_path, smoothing):
    """With a learning rate of 0, the epoch's loss is that of the first weights."""
    config = replace(CONFIG, epochs=1, learning_rate=0.0, smoothing=smoothing, weights_seed=0)
    recipe = Recipe(data=DATA, model=MODEL, train=config)
    (epoch,) = train_run(recipe, tmp_path / "run", device=CPU)
    model, classifier = make_model(MODEL, seed=0).train(), Run.open(tmp_path / "run").classifier()
    rows, losses = collection.training_rows(-1), []
    for batch in Batches(collection, rows, 16, torch.Generator().manual_seed(0)):
        logits = F.linear(model(batch.images), classifier).detach()
        losses.append(smoothed_by_hand(logits, batch.labels, smoothing))
    assert epoch.terms["classification"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)


@pytest.fixture(scope="module")
def old_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "old"
    recipe = Recipe(data=DATA, model=MODEL, train=replace(CONFIG, step=0, epochs=1))
    list(train_run(recipe, folder, device=CPU))
    return folder


@pytest.mark.parametrize(
    "own",
    [
        0.1,
        pytest.param(0.0),
    ],
)
def test_a_method_with_a_smoothing_of_its_own_keeps_it(old_run, tmp_path, own):
    losses = []
    for smoothing in (0.0, 0.3):
        recipe = Recipe(
            data=DATA,
            model=MODEL,
            method=Choice("dual_tuning", {"smoothing": own}),
            old=OldConfig(run=str(old_run)),
            train=replace(CONFIG, epochs=1, smoothing=smoothing),
        )
        (epoch,) = train_run(recipe, tmp_path / str(smoothing), device=CPU)
        losses.append(epoch.terms)
    assert losses[0] == losses[1]
