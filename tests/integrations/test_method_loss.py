import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import nobackfill as nb
from nobackfill.errors import ConfigError
from nobackfill.integrations.method_loss import MethodLoss
from nobackfill.integrations.training_pass import embed_all, in_order
from nobackfill.models.evaluating import evaluating

CLASSES, DIM, ITEMS = 5, 4, 30


def old_space(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return nb.OldSpace(
        prototypes=torch.randn(CLASSES, DIM, generator=generator),
        embeddings=torch.randn(ITEMS, DIM, generator=generator),
        labels=torch.arange(ITEMS) % CLASSES,
    )


def make(name, *, running_means=False, **options):
    torch.manual_seed(1)
    return MethodLoss(
        nb.METHODS[name](old_space(), CLASSES, **options), running_means=running_means
    )


def batch(seed=2, size=12):
    generator = torch.Generator().manual_seed(seed)
    items = torch.randint(ITEMS, (size,), generator=generator)
    return torch.randn(size, DIM, generator=generator), items % CLASSES, items


def new_items(seed=3):
    new = torch.randn(ITEMS, DIM, generator=torch.Generator().manual_seed(seed))
    return new, torch.arange(ITEMS) % CLASSES


def never():
    raise AssertionError("no pass was needed")


def test_it_is_the_sum_of_cross_entropy_and_contrast_by_loops():
    loss = make("prototype_alignment", weight=0.7, temperature=0.3)
    new, labels, _ = batch()
    weights, old = loss.method.classifier.weight.detach().double(), loss.method.old.double()
    total = 0.0
    for e, y in zip(new.double(), labels.tolist(), strict=True):
        logits = [float(w @ e) for w in weights]
        cosines = [float(e @ p / (e.norm() * p.norm())) / 0.3 for p in old]
        for scores, weight in ((logits, 1.0), (cosines, 0.7)):
            total -= weight * (scores[y] - math.log(sum(math.exp(s) for s in scores)))
    assert loss(new, labels).item() == pytest.approx(total / len(new), rel=1e-5)
    assert sum(loss.terms.values()).item() == pytest.approx(total / len(new), rel=1e-5)
    assert not any(term.requires_grad for term in loss.terms.values())


def test_items_and_old_vectors_reach_the_method():
    loss = make("mimic")
    new, labels, items = batch()
    own = old_space().embeddings[items]
    assert loss(new, labels, items=items) == loss(new, labels, old=own)
    assert loss(new, labels, items=items) != loss(new, labels, items=items.flip(0))


def test_it_computes_in_float32_under_autocast():
    loss = make("ndpp")
    new, labels, _ = batch()
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(new.bfloat16(), labels)
    assert value == loss(new.bfloat16().float(), labels)


def test_a_free_dimension_must_be_set():
    with pytest.raises(ConfigError, match="Pass `dim=`"):
        make("janus")
    assert make("janus", dim=7).method.back.in_features == 7


def test_an_epoch_gives_the_method_prototypes_of_a_pass():
    loss, by_hand = make("ndpp"), nb.METHODS["ndpp"](old_space(), CLASSES)
    new, labels = new_items()
    loss.start_epoch(0, 3, lambda: (new, labels))
    by_hand.start_epoch(
        0,
        3,
        new_prototypes=lambda: nb.class_means(new, labels, CLASSES),
        new_embeddings=never,
    )
    assert torch.equal(loss.method.perturb.moved, by_hand.perturb.moved)


def test_a_mapped_method_gets_prototypes_of_what_it_compares():
    loss = make("ndpp_mapped", dim=DIM)
    new, labels = new_items()
    seen = []
    loss.method.perturb.update = seen.append
    loss.start_epoch(0, 3, lambda: (new, labels))
    expected = nb.class_means(loss.method.back(new).detach(), labels, CLASSES)
    torch.testing.assert_close(seen[0], expected)


def test_a_method_without_new_prototypes_costs_no_pass():
    make("prototype_alignment").start_epoch(0, 3, never)
    make("janus", dim=DIM).start_epoch(0, 3, never)


def test_running_means_are_those_of_the_last_epoch_and_the_first_come_from_a_pass():
    loss = make("ndpp", running_means=True)
    seen = []
    loss.method.perturb.update = seen.append
    passes = []

    def embed():
        passes.append(1)
        return new_items()

    loss.start_epoch(0, 3, embed)
    new, labels = new_items(seed=8)
    loss(new[:20], labels[:20])
    loss(new[20:], labels[20:])
    loss.eval()
    loss(*new_items(seed=9))  # an evaluation is no part of the epoch
    loss.train()
    loss.start_epoch(1, 3, embed)
    assert len(passes) == 1
    torch.testing.assert_close(seen[0], nb.class_means(*new_items(), CLASSES))
    torch.testing.assert_close(seen[1], nb.class_means(new, labels, CLASSES))


def test_methods_without_new_prototypes_have_no_running_means():
    assert make("prototype_alignment", running_means=True).means is None
    assert make("mimic", running_means=True).means is None


@pytest.mark.parametrize("running_means", [False, True])
@pytest.mark.parametrize("name", ["ndpp", "odpp", "cross_supcon"])
def test_an_epoch_that_goes_on_is_not_started_twice(name, running_means):
    options = {"partners": 1} if name == "cross_supcon" else {}
    whole = make(name, running_means=running_means, **options)
    resumed = make(name, running_means=running_means, **options)
    new, labels = new_items()

    whole.start_epoch(0, 3, lambda: (new, labels))
    whole(new[:20], labels[:20], items=torch.arange(20))
    resumed.load_state_dict(whole.state_dict())
    resumed.start_epoch(0, 3, lambda: (new + 1, labels))  # the same epoch, after a kill

    for loss in (whole, resumed):
        torch.manual_seed(5)
        loss(new[20:], labels[20:], items=torch.arange(20, ITEMS))
        loss.start_epoch(1, 3, lambda: (new, labels))
    for (key, expected), value in zip(
        whole.state_dict().items(), resumed.state_dict().values(), strict=True
    ):
        assert torch.equal(expected, value), key
    torch.manual_seed(6)
    expected = whole(new, labels, items=torch.arange(ITEMS))
    torch.manual_seed(6)
    assert resumed(new, labels, items=torch.arange(ITEMS)) == expected


def test_starting_an_epoch_leaves_the_random_numbers_of_the_loop_alone():
    loss, drawn = make("ndpp"), []

    def draw():
        drawn.append(torch.rand(1))
        return new_items()

    torch.manual_seed(3)
    expected = torch.rand(3)
    for seed in (3, 4):
        loss.started.zero_()
        torch.manual_seed(seed)
        loss.start_epoch(0, 3, draw)
        assert torch.equal(torch.rand(3), expected) == (seed == 3)
    loss.started.zero_()
    loss.start_epoch(1, 3, draw)
    assert drawn[0] == drawn[1] != drawn[2]  # by the number of the epoch, in a resumed run too


def test_a_pass_is_in_eval_mode_and_restores_each_module():
    model = nn.Sequential(nn.Linear(3, DIM), nn.Dropout(0.5))
    model.train()
    model[1].eval()  # frozen by its owner
    with evaluating(model):
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
    assert [module.training for module in model] == [True, False]


def test_a_pass_embeds_every_item_once_and_in_order():
    rows = torch.arange(10.0)[:, None]
    loader = DataLoader(TensorDataset(rows, torch.arange(10)), 3, shuffle=True, drop_last=True)
    embeddings, labels = embed_all(nn.Linear(1, 1), in_order(loader), lambda batch: tuple(batch))
    assert torch.equal(embeddings, rows)
    assert torch.equal(labels, torch.arange(10))


def test_a_stream_has_no_order():
    class Stream(IterableDataset):
        def __iter__(self):
            yield torch.zeros(1)

    with pytest.raises(ConfigError, match="no data set of known length. Pass `loader=`"):
        in_order(DataLoader(Stream()))
