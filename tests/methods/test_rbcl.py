from math import exp, log

import pytest
import torch
import torch.nn.functional as F

from nobackfill.methods.losses import same_class, smooth_average_precision
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.rbcl import RBCL


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


EMBEDDINGS, NEW = random(12, 4, seed=0), random(8, 4, seed=1)
LABELS, ITEMS = torch.tensor([0, 1, 0, 0, 2, 1, 0, 4]), torch.tensor([3, 8, 1, 0, 11, 6, 7, 2])
OLD = EMBEDDINGS[ITEMS]


def make(**options):
    return RBCL(OldSpace(embeddings=EMBEDDINGS), 5, **options).double()


def cosine(a, b):
    return a @ b / (a.norm() * b.norm())


def precision_by_hand(new, labels, old, before):
    """The mean average precision, one anchor, one positive and one other item at a time.

    `before(x)` says how far an item whose cosine is larger by x is ranked before another.
    """
    total = 0.0
    for i, e in enumerate(new):
        positives = [p for p in range(len(new)) if labels[p] == labels[i]]
        for p in positives:
            among_positives, among_all = 1, 1
            for j in range(len(new)):
                if j != p:
                    ahead = before(cosine(e, old[j]) - cosine(e, old[p]))
                    among_all += ahead
                    among_positives += ahead if labels[j] == labels[i] else 0
            total += among_positives / among_all / len(positives)
    return total / len(new)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight": 0.3},
        {"temperature": 0.3},
        {"temperature": 0.1, "weight": 2.0},
        {"gradient_temperature": 1.0},
    ],
)
def test_both_terms_are_their_formulas_written_as_loops(options):
    weight, steep = options.get("weight", 1.0), options.get("temperature", 0.01)
    gentle = options.get("gradient_temperature", 0.1)
    method, new = make(**options), NEW.clone().requires_grad_()
    terms = method(new, LABELS, items=ITEMS)
    assert set(terms) == {"classification", "ranking"}
    by_hand = precision_by_hand(NEW, LABELS, OLD, lambda x: 1 / (1 + exp(-x / steep)))
    assert terms["ranking"].item() == pytest.approx(weight * (1 - by_hand), abs=1e-10)
    total = 0.0
    for e, y in zip(NEW, LABELS, strict=True):
        shares = [(e @ w).exp().item() for w in method.classifier.weight]
        total -= log(shares[y] / sum(shares))
    assert terms["classification"].item() == pytest.approx(total / 8, abs=1e-10)

    counted, taught = [], []  # the steep counts as leaves, and the gentle ones in their place

    def count(x):
        counted.append((x.detach() / steep).sigmoid().requires_grad_())
        taught.append((x / gentle).sigmoid())
        return counted[-1]

    again = NEW.clone().requires_grad_()
    precision_by_hand(again, LABELS, OLD, count).backward()
    slopes = [c.grad for c in counted]
    expected = torch.autograd.grad(taught, again, grad_outputs=slopes)[0]
    (pull,) = torch.autograd.grad(terms["ranking"], new)
    torch.testing.assert_close(pull, -weight * expected, rtol=0, atol=1e-10)


def test_a_class_of_three_is_as_exact_as_one_of_four():
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
    by_hand = precision_by_hand(NEW, labels, OLD, lambda x: 1 / (1 + exp(-x / 0.01)))
    cost = make()(NEW, labels, items=ITEMS)["ranking"]
    assert cost.item() == pytest.approx(1 - by_hand, abs=1e-10)


def average_precision(scores, relevant):
    """As it is counted: how many of those ranked so far are relevant, at each that is."""
    order = sorted(range(len(scores)), key=lambda j: -scores[j])
    found, total = 0, 0.0
    for rank, j in enumerate(order, start=1):
        if relevant[j]:
            found += 1
            total += found / rank
    return total / found


def test_well_separated_scores_cost_one_minus_the_average_precision():
    angles = torch.tensor([0.3, 1.0, 1.6, 2.2, 2.8], dtype=torch.float64)
    old = torch.stack([angles.cos(), angles.sin()], dim=1)
    new = torch.tensor([[1.0, 0.0], [0.0, -1.0], [-1.0, 0.0], [1.0, -0.4], [-1.0, -0.3]]).double()
    labels = torch.tensor([0, 1, 0, 1, 2])
    scores = F.normalize(new, dim=-1) @ old.T
    by_hand = sum(average_precision(scores[i], labels == labels[i]) for i in range(5)) / 5
    method = RBCL(OldSpace(embeddings=old), 3, temperature=0.001).double()
    cost = method(new, labels, items=torch.arange(5))["ranking"]
    assert 0.1 < by_hand < 0.9
    assert cost.item() == pytest.approx(1 - by_hand, abs=1e-10)


def test_a_perfect_ranking_costs_nothing():
    old = torch.eye(4, dtype=torch.float64)[[0, 0, 1, 2]]
    labels = torch.tensor([0, 0, 1, 2])
    settings = {"temperature": 0.01, "gradient_temperature": 0.1}
    assert smooth_average_precision(
        old, old, same_class(labels), **settings
    ).item() == pytest.approx(1)


def test_the_gradient_is_alive_where_the_steep_sigmoid_is_flat():
    new = torch.tensor([[0.2, 1.0], [0.0, 1.0]]).double().requires_grad_()
    old, labels = torch.eye(2, dtype=torch.float64), torch.tensor([0, 1])

    def pull(gradient_temperature):
        precision = smooth_average_precision(
            new, old, same_class(labels), gradient_temperature=gradient_temperature
        )
        return torch.autograd.grad(precision, new)[0]

    assert pull(0.01).norm() < 1e-12
    assert pull(0.1)[0].norm() > 1e-5
    assert pull(0.5)[0, 0] > 0.01  # towards the own old vector
    assert pull(0.5)[0, 1] < 0  # and away from the other


def test_a_step_against_the_gradient_ranks_better():
    method, new = make(temperature=0.2, gradient_temperature=0.2), NEW.clone().requires_grad_()
    before = method(new, LABELS, items=ITEMS)["ranking"]
    before.backward()
    assert method(NEW - 0.5 * new.grad, LABELS, items=ITEMS)["ranking"] < before


def test_length_plays_no_part():
    stretched = make()(3 * NEW, LABELS, old=0.2 * OLD)["ranking"]
    torch.testing.assert_close(stretched, make()(NEW, LABELS, items=ITEMS)["ranking"])


def test_classes_the_old_model_never_saw_take_part_like_all_others():
    old = OldSpace(embeddings=EMBEDDINGS, known_classes=1)
    cost = RBCL(old, 5).double()(NEW, LABELS, items=ITEMS)["ranking"]
    assert torch.equal(cost, make()(NEW, LABELS, items=ITEMS)["ranking"])
    assert make()(NEW, 4 - LABELS, items=ITEMS)["ranking"] == pytest.approx(cost.item())


def test_old_vectors_are_not_moved():
    old = OLD.clone().requires_grad_()
    make()(NEW.clone().requires_grad_(), LABELS, old=old)["ranking"].backward()
    assert old.grad is None


def test_with_a_memory_the_nearest_old_vectors_are_ranked_too():
    known = torch.tensor([0, 1, 0, 0, 2, 1, 0, 4, 1, 3, 2, 2])
    labels = known[ITEMS]
    old = OldSpace(embeddings=EMBEDDINGS, labels=known)
    method = RBCL(old, 5, neighbors=2).double()
    unit = [row / row.norm() for row in EMBEDDINGS]
    near = set()
    for item in ITEMS.tolist():
        others = sorted((-(unit[item] @ unit[j]).item(), j) for j in range(12) if j != item)
        near |= {j for _, j in others[:2]}
    context = sorted(near - set(ITEMS.tolist()))
    assert 0 < len(context) < 12 - len(ITEMS) + 1
    keys = torch.cat([OLD, EMBEDDINGS[context]])
    positive = labels[:, None] == torch.cat([labels, known[context]])[None, :]
    expected = 1 - smooth_average_precision(NEW, keys, positive)
    found = method(NEW, labels, items=ITEMS)["ranking"]
    torch.testing.assert_close(found, expected)
    without = RBCL(old, 5).double()(NEW, labels, items=ITEMS)["ranking"]
    assert not torch.isclose(found, without)


def test_neighbours_of_unknown_class_are_left_out_until_a_batch_has_told_it():
    method = make(neighbors=11)
    first = method(NEW, LABELS, items=ITEMS)["ranking"]  # no class outside the batch is known
    torch.testing.assert_close(first, make()(NEW, LABELS, items=ITEMS)["ranking"])
    rest = torch.tensor([4, 5, 9, 10])
    method(NEW[:4], LABELS[:4], items=rest)
    assert sorted(method.context(ITEMS, LABELS).tolist()) == sorted(rest.tolist())
    assert method(NEW, LABELS, items=ITEMS)["ranking"] != first


def test_without_a_memory_nothing_of_single_items_is_saved():
    assert not any(key.startswith("classes.") for key in make().state_dict())
