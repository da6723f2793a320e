from math import acos, cos, exp, log, pi, sin

import pytest
import torch

from nobackfill.errors import DataError
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.unibct import UniBCT, margin_logits


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


PROTOTYPES = random(5, 4, seed=0)
LABELS = torch.tensor([0, 1, 2, 3, 4, 1, 0])
NEW = random(7, 4, seed=1)
NEW[5] = -3 * PROTOTYPES[1] + 0.1 * random(4, seed=2)  # beyond the angle where the margin ends
NEW[6] = PROTOTYPES[0] + 0.1 * random(4, seed=3)
EITHER_WAY = {"rel": 0, "abs": 1e-10}


def make(prototypes=PROTOTYPES, known_classes=3, **options):
    old = OldSpace(prototypes=prototypes, known_classes=known_classes)
    return UniBCT(old, 5, **options).double()


def angle(a, b):
    return acos((a @ b / (a.norm() * b.norm())).item())


def logit_by_hand(theta, own, scale, margin):
    if not own:
        return scale * cos(theta)
    return scale * (
        cos(theta + margin) if theta + margin < pi else cos(theta) - margin * sin(margin)
    )


def contrast_by_hand(new, labels, prototypes, weight=1.0, scale=30.0, margin=0.3):
    """The formula of the docstring, one item and one class at a time; others are left out."""
    costs = []
    for e, y in zip(new, labels.tolist(), strict=True):
        if y < len(prototypes):
            z = [
                logit_by_hand(angle(e, p), c == y, scale, margin) for c, p in enumerate(prototypes)
            ]
            costs.append(-z[y] + log(sum(exp(other) for other in z)))
    return weight * sum(costs) / max(len(costs), 1)


@pytest.mark.parametrize("known_classes", [3, None])
@pytest.mark.parametrize(
    "options",
    [{}, {"weight": 0.3}, {"scale": 4.0}, {"margin": 0.7}, {"margin": 0.0, "weight": 2.0}],
)
def test_both_terms_are_their_formulas_written_as_loops(known_classes, options):
    assert angle(NEW[5], PROTOTYPES[1]) > pi - 0.3
    method = make(known_classes=known_classes, **options)
    terms = method(NEW, LABELS)
    assert set(terms) == {"classification", "compatibility"}
    by_hand = contrast_by_hand(NEW, LABELS, PROTOTYPES[:known_classes], **options)
    assert terms["compatibility"].item() == pytest.approx(by_hand, **EITHER_WAY)
    total = 0.0
    for e, y in zip(NEW, LABELS.tolist(), strict=True):
        z = [(e @ w).item() for w in method.classifier.weight]
        total -= z[y] - log(sum(exp(other) for other in z))
    assert terms["classification"].item() == pytest.approx(total / len(NEW), **EITHER_WAY)


def on_the_circle(*angles):
    return torch.tensor([[cos(a), sin(a)] for a in angles], dtype=torch.float64)


@pytest.mark.parametrize("margin", [0.1, 0.3, 1.0])
def test_turned_towards_its_prototype_an_embedding_costs_less_at_every_angle(margin):
    own = [
        margin_logits(
            on_the_circle(step * pi / 50),
            torch.tensor([0]),
            on_the_circle(0, pi / 2),
            scale=3.0,
            margin=margin,
        )[0, 0].item()
        for step in range(51)
    ]
    assert all(near > far for near, far in zip(own, own[1:], strict=False))


def test_a_step_against_the_gradient_costs_less_even_on_the_far_side():
    for row in (slice(0, 3), slice(5, 6)):
        new = NEW[row].clone().requires_grad_()
        method = make(scale=3.0)
        before = method(new, LABELS[row])["compatibility"]
        before.backward()
        after = method(new.detach() - 0.1 * new.grad, LABELS[row])["compatibility"]
        assert after < before


def test_the_margin_asks_for_more_and_of_the_own_prototype_only():
    new, labels = NEW[:3], LABELS[:3]
    plain = margin_logits(new, labels, PROTOTYPES, scale=2.0, margin=0.0)
    turned = margin_logits(new, labels, PROTOTYPES, scale=2.0, margin=0.3)
    own = torch.eye(3, 5, dtype=torch.bool)
    assert (turned[own] < plain[own]).all()
    assert torch.equal(turned[~own], plain[~own])


def test_new_classes_take_no_part_and_are_no_negatives():
    cost = make()(NEW, LABELS)["compatibility"]
    without, elsewhere = LABELS < 3, PROTOTYPES.clone()
    elsewhere[3:] = random(2, 4, seed=9)
    torch.testing.assert_close(make()(NEW[without], LABELS[without])["compatibility"], cost)
    assert torch.equal(make(elsewhere)(NEW, LABELS)["compatibility"], cost)
    assert not torch.equal(make(known_classes=None)(NEW, LABELS)["compatibility"], cost)


def test_a_batch_of_new_classes_only_costs_nothing_and_pulls_nowhere():
    new = NEW[3:5].clone().requires_grad_()
    terms = make()(new, LABELS[3:5])
    terms["compatibility"].backward()
    assert terms["compatibility"].item() == 0
    assert terms["classification"].item() > 0
    assert torch.equal(new.grad, torch.zeros_like(new))


def test_length_plays_no_part():
    stretched = PROTOTYPES * torch.tensor([[3.0], [0.2], [5.0], [1.0], [1.0]])
    cost = make(stretched)(7 * NEW, LABELS)["compatibility"]
    torch.testing.assert_close(cost, make()(NEW, LABELS)["compatibility"])


@pytest.mark.parametrize("direction", [1.0, -1.0])
def test_exactly_on_or_opposite_to_the_prototype_the_gradient_is_a_number(direction):
    new = (direction * PROTOTYPES[:1]).requires_grad_()
    make()(new, torch.tensor([0]))["compatibility"].backward()
    assert new.grad.isfinite().all()


def test_one_known_class_is_too_few():
    with pytest.raises(DataError, match="at least two classes"):
        make(known_classes=1)
