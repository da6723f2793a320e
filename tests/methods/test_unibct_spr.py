from math import acos, cos, exp, log, pi

import pytest
import torch

from nobackfill.errors import ConfigError, DataError
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.unibct_spr import UniBCTSPR, refined_prototypes

# Class 1 has one item, class 3 none, classes 0 and 4 as many as each other.
item_classes = torch.tensor([2, 0, 4, 1, 0, 2, 4, 2, 0, 2, 4])
EPOCHS = 35


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


OLD, FIRST, SECOND = random(11, 4, seed=0), 0.3 * random(11, 4, seed=1), 0.3 * random(11, 4, seed=2)
NEW, ITEMS = random(5, 4, seed=3), torch.tensor([1, 3, 0, 5, 10])
LABELS = item_classes[ITEMS]


def make(labels=item_classes, **options):
    torch.manual_seed(0)
    return UniBCTSPR(OldSpace(embeddings=OLD, labels=labels), 5, **options).double()


def start(method, epoch, embeddings=FIRST, epochs=EPOCHS):
    """Starts an epoch, and says how often the new model had to embed all items."""
    asked = []

    def embed():
        asked.append(embeddings)
        return embeddings

    method.start_epoch(epoch, epochs, new_prototypes=pytest.fail, new_embeddings=embed)
    return len(asked)


def prototypes_by_hand(new, old, spread=0.9, temperature=0.05, transition="rows"):
    """The formula of the docstring, one class and one item at a time."""
    prototypes = torch.zeros(5, old.shape[1], dtype=torch.float64)
    for c in range(5):
        members = (item_classes == c).nonzero().flatten().tolist()
        n = len(members)
        a = torch.zeros(n, n, dtype=torch.float64)
        for i in range(n):
            alike = [exp((new[members[i]] @ new[k]).item() / temperature) for k in members]
            alike[i] = 0.0
            for j in range(n):
                place = (i, j) if transition == "rows" else (j, i)
                a[place] = alike[j] / (sum(alike) or 1.0)
        if n == 1:
            prototypes[c] = old[members[0]]
        elif n > 1:
            s = (1 - spread) * torch.linalg.inv(torch.eye(n, dtype=torch.float64) - spread * a)
            for i in range(n):
                for j in range(n):
                    prototypes[c] += s[i, j] * old[members[j]] / n
    return prototypes


def contrast_by_hand(new, labels, prototypes, weight=1.0, scale=30.0, margin=0.3):
    total = 0.0
    for e, y in zip(new, labels.tolist(), strict=True):
        z = []
        for c, p in enumerate(prototypes):
            theta = acos((e @ p / (e.norm() * p.norm()).clamp(min=1e-12)).item())
            assert theta + margin < pi
            z.append(scale * cos(theta + margin if c == y else theta))
        total += log(sum(exp(other) for other in z)) - z[y]
    return weight * total / len(new)


REFINING = [{}, {"spread": 0.5}, {"temperature": 0.4}, {"transition": "columns"}]


@pytest.mark.parametrize("options", REFINING)
def test_refined_prototypes_are_their_formula_written_as_loops(options):
    settings = {"spread": 0.9, "temperature": 0.05} | options
    refined = refined_prototypes(FIRST, OLD, item_classes, 5, **settings)
    torch.testing.assert_close(
        refined, prototypes_by_hand(FIRST, OLD, **options), rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("refining", REFINING)
@pytest.mark.parametrize("options", [{}, {"weight": 0.3}, {"scale": 4.0}, {"margin": 0.1}])
def test_both_terms_are_their_formulas_written_as_loops(refining, options):
    method = make(**refining, **options)
    start(method, 10)
    terms = method(NEW, LABELS, items=ITEMS)
    assert set(terms) == {"classification", "compatibility"}
    by_hand = contrast_by_hand(NEW, LABELS, prototypes_by_hand(FIRST, OLD, **refining), **options)
    assert terms["compatibility"].item() == pytest.approx(by_hand, abs=1e-10)
    logits = [[(e @ w).item() for w in method.classifier.weight] for e in NEW]
    costs = [
        log(sum(exp(other) for other in z)) - z[y]
        for z, y in zip(logits, LABELS.tolist(), strict=True)
    ]
    assert terms["classification"].item() == pytest.approx(sum(costs) / 5, abs=1e-10)


def plain_means():
    rows = [OLD[item_classes == c] for c in range(5)]
    return torch.stack([r.mean(dim=0) if len(r) else torch.zeros_like(OLD[0]) for r in rows])


def test_an_old_vector_that_the_new_model_sees_far_from_its_class_counts_for_little():
    new, apart = torch.tensor([[1.0, 0.0], [0.9, 0.1], [1.0, 0.2], [-1.0, 0.5]]), torch.eye(4)
    labels = torch.zeros(4, dtype=torch.int64)
    (weights,) = refined_prototypes(new, apart, labels, 1, spread=0.9, temperature=0.05)
    assert weights.sum().item() == pytest.approx(1, abs=1e-5)
    assert weights[3] < 0.05
    assert weights[:3].min() > 2 * weights[3]
    (even,) = refined_prototypes(
        new, apart, labels, 1, spread=0.9, temperature=0.05, transition="columns"
    )
    torch.testing.assert_close(even, torch.full((4,), 0.25))


def test_with_columns_that_sum_to_one_the_prototypes_are_the_plain_means():
    method = make(transition="columns")
    start(method, 10)
    torch.testing.assert_close(method.old, plain_means(), rtol=0, atol=1e-12)
    method = make()
    start(method, 10)
    assert not torch.allclose(method.old, plain_means(), atol=1e-2)


def test_refines_at_ten_and_at_twenty_of_thirty_five_epochs_and_is_silent_before():
    method, asked, silent = make(), [], []
    for epoch in range(EPOCHS):
        if start(method, epoch, FIRST if epoch < 20 else SECOND):
            asked.append(epoch)
        if method(NEW, LABELS, items=ITEMS)["compatibility"] == 0:
            silent.append(epoch)
        now = prototypes_by_hand(FIRST if epoch < 20 else SECOND, OLD) * (epoch >= 10)
        torch.testing.assert_close(method.old, now, rtol=0, atol=1e-10)
    assert asked == [10, 20]
    assert silent == list(range(10))


@pytest.mark.parametrize(
    ("refine_at", "epochs", "due"),
    [((0.0,), 4, [0]), ((0.25, 0.5, 0.75), 4, [1, 2, 3]), ((10 / 35, 20 / 35), 7, [2, 4])],
)
def test_refines_when_it_is_told_to(refine_at, epochs, due):
    method = make(refine_at=refine_at)
    assert [epoch for epoch in range(epochs) if start(method, epoch, epochs=epochs)] == due


@pytest.mark.parametrize("epoch", [12, 25])
def test_who_starts_after_the_first_refinement_makes_up_for_it(epoch):
    method = make()
    assert start(method, epoch) == 1
    assert start(method, epoch + 1) == 0
    torch.testing.assert_close(method.old, prototypes_by_hand(FIRST, OLD))


def seen(method):
    """The method after batches of all items."""
    for items in torch.arange(11).split(4):
        method(random(len(items), 4, seed=5), item_classes[items], items=items)
    return method


def test_classes_learned_from_the_batches_lead_to_the_same_prototypes():
    told, learned = make(), make(labels=None)
    for method in (told, learned):
        start(method, 9)
        seen(method)
        start(method, 10)
    terms = learned(NEW, LABELS, items=ITEMS)
    assert torch.equal(learned.old, told.old)
    assert terms == told(NEW, LABELS, items=ITEMS)


def test_before_all_items_were_seen_the_first_batch_tells_what_it_can():
    method = make(labels=None)
    start(method, 10)
    seen(method)
    expected = refined_prototypes(
        FIRST[:4], OLD[:4], item_classes[:4], 5, spread=0.9, temperature=0.05
    )
    torch.testing.assert_close(method.old, expected)


@pytest.mark.parametrize("labels", [item_classes, None])
def test_refining_is_not_paid_for_with_every_batch(labels, monkeypatch):
    method, refined = make(labels), []
    refine = method.refine
    monkeypatch.setattr(method, "refine", lambda: refined.append(1) or refine())
    start(method, 10)
    seen(method)
    assert refined == [1]


@pytest.mark.parametrize("labels", [item_classes, None])
@pytest.mark.parametrize("epoch", [5, 9, 10, 15, 19, 20])
def test_goes_on_from_its_saved_state(labels, epoch):
    one, other = make(labels), make(labels)
    for t in range(epoch + 1):
        start(one, t)
        seen(one)
    other.load_state_dict(one.state_dict())
    for t in range(epoch + 1, 22):
        assert start(one, t, SECOND) == start(other, t, SECOND)
        assert one(NEW, LABELS, items=ITEMS) == other(NEW, LABELS, items=ITEMS)
        assert torch.equal(one.old, other.old)


def test_every_class_takes_part_whatever_the_old_model_knew():
    old = OldSpace(embeddings=OLD, labels=item_classes, known_classes=2)
    torch.manual_seed(0)
    limited, method = UniBCTSPR(old, 5).double(), make()
    start(limited, 10), start(method, 10)
    assert limited(NEW, LABELS, items=ITEMS) == method(NEW, LABELS, items=ITEMS)
    assert method(NEW[[2, 4]], LABELS[[2, 4]], items=ITEMS[[2, 4]])["compatibility"] > 0


def test_without_labels_it_must_know_the_items():
    method = make(labels=None)
    start(method, 10)
    with pytest.raises(DataError, match="Pass `items=`"):
        method(NEW, LABELS)


def test_knows_only_rows_and_columns():
    with pytest.raises(ConfigError, match='"rows" or "columns".*diagonal'):
        make(transition="diagonal")
