from math import exp, log

import pytest
import torch
import torch.nn.functional as F

from nobackfill.losses import first_dims, known_class_loss, prototype_loss


def cosine(a, b):
    return (a @ b / (a.norm() * b.norm())).item()


def prototype_loss_by_hand(new, labels, moved, old, temperature):
    """The formula of the docstring, one item and one class at a time."""
    total = 0.0
    for e, y in zip(new, labels.tolist(), strict=True):
        own = exp(cosine(e, moved[y]) / temperature)
        others = sum(exp(cosine(e, old[c]) / temperature) for c in range(len(old)) if c != y)
        total -= log(own / (own + others))
    return total / len(new)


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_prototype_loss_is_its_formula_written_as_loops(temperature):
    new, moved, old = random(6, 4, seed=0), random(5, 4, seed=1), random(5, 4, seed=2)
    labels = torch.tensor([0, 1, 2, 3, 4, 4])
    loss = prototype_loss(new, labels, moved, old, temperature=temperature)
    assert loss.item() == pytest.approx(
        prototype_loss_by_hand(new, labels, moved, old, temperature), abs=1e-10
    )


def test_only_the_own_prototype_is_moved():
    new, old = random(1, 4, seed=0), random(5, 4, seed=1)
    labels, elsewhere = torch.tensor([2]), old.clone()
    elsewhere[[0, 1, 3, 4]] = random(4, 4, seed=2)
    as_it_was = prototype_loss(new, labels, old, old)
    assert torch.equal(prototype_loss(new, labels, elsewhere, old), as_it_was)
    assert not torch.equal(prototype_loss(new, labels, old, elsewhere), as_it_was)


def test_length_plays_no_part():
    new, old = random(3, 4, seed=0), random(5, 4, seed=1)
    labels = torch.tensor([0, 1, 2])
    torch.testing.assert_close(
        prototype_loss(5 * new, labels, 0.2 * old, 7 * old), prototype_loss(new, labels, old, old)
    )


def test_known_class_loss_is_the_mean_over_known_classes():
    logits, labels = random(4, 3, seed=0), torch.tensor([0, 5, 2, 3])
    expected = F.cross_entropy(logits[[0, 2]], labels[[0, 2]])
    torch.testing.assert_close(known_class_loss(logits, labels), expected)


def test_known_class_loss_of_strangers_only_is_zero_and_has_a_gradient():
    logits = torch.randn(2, 3, requires_grad=True)
    loss = known_class_loss(logits, torch.tensor([3, 4]))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(logits.grad, torch.zeros(2, 3))


def test_first_dims_passes_the_gradient():
    vectors = torch.ones(1, 3, requires_grad=True)
    first_dims(vectors, 2).sum().backward()
    assert torch.equal(vectors.grad, torch.tensor([[1.0, 1.0, 0.0]]))
