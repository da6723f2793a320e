from math import exp, log, sqrt

import pytest
import torch

from nobackfill.errors import ConfigError, SpaceMismatch
from nobackfill.methods.cores import CoReS, simplex_logits
from nobackfill.methods.old_space import OldSpace


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def corners_by_hand(dim):
    """The unit vectors and s (1, ..., 1), moved by their mean, then made unit."""
    corners = [[float(i == j) for j in range(dim)] for i in range(dim)]
    corners.append([(1 - sqrt(1 + dim)) / dim] * dim)
    mean = [sum(column) / (dim + 1) for column in zip(*corners, strict=True)]
    moved = [[x - m for x, m in zip(row, mean, strict=True)] for row in corners]
    return [[x / sqrt(sum(y * y for y in row)) for x in row] for row in moved]


def classification_by_hand(new, labels):
    """Cross entropy over all corners, one item at a time."""
    total = 0.0
    for e, y in zip(new.tolist(), labels.tolist(), strict=True):
        corners = corners_by_hand(len(e))
        scores = [exp(sum(a * b for a, b in zip(e, t, strict=True))) for t in corners]
        total -= log(scores[y] / sum(scores))
    return total / len(new)


@pytest.mark.parametrize("dim", [1, 2, 3, 6, 9])
def test_simplex_logits_are_products_with_the_corners_built_one_by_one(dim):
    new, corners = random(5, dim, seed=0), torch.tensor(corners_by_hand(dim), dtype=torch.float64)
    torch.testing.assert_close(simplex_logits(new), new @ corners.T, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dim", [1, 2, 6, 99])
def test_the_corners_are_unit_and_all_equally_far_apart(dim):
    corners = simplex_logits(torch.eye(dim, dtype=torch.float64)).T
    assert corners.shape == (dim + 1, dim)
    expected = torch.full((dim + 1, dim + 1), -1 / dim, dtype=torch.float64).fill_diagonal_(1)
    torch.testing.assert_close(corners @ corners.T, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("options", [{}, {"dim": 6}])
def test_classification_is_its_formula_written_as_loops(options):
    new, labels = random(5, 6, seed=0), torch.tensor([0, 1, 2, 3, 3])
    method = CoReS(OldSpace(), 4, **options)
    terms = method(new, labels)
    assert list(terms) == ["classification"]
    by_hand = classification_by_hand(new, labels)
    assert terms["classification"].item() == pytest.approx(by_hand, abs=1e-10)


def test_a_corner_that_no_class_has_yet_is_a_negative():
    new, labels = torch.zeros(1, 6, dtype=torch.float64), torch.tensor([0])
    method = CoReS(OldSpace(), 4)
    assert method(new, labels)["classification"].item() == pytest.approx(log(7), abs=1e-10)
    new.requires_grad_()
    method(new, labels)["classification"].backward()
    towards = simplex_logits(-new.grad)[0]
    assert towards[0] > 0
    assert (towards[1:] < 0).all(), "unused corners drive away as the others do"


def test_new_classes_have_had_their_corner_all_along():
    new = random(3, 6, seed=0)
    labels = torch.tensor([0, 1, 2])
    before = CoReS(OldSpace(), 3)(new, labels)
    after = CoReS(OldSpace(), 7)(new, labels)
    assert before == after, "all that differs is which labels may come"
    assert CoReS(OldSpace(), 7)(new, torch.tensor([3, 5, 6]))["classification"].isfinite()


def test_every_version_has_the_same_classifier_and_trains_none():
    method = CoReS(OldSpace(), 7)
    assert not list(method.parameters())
    assert not method.state_dict()


def test_nothing_of_the_old_model_is_looked_at():
    new, labels = random(3, 6, seed=0), torch.tensor([0, 1, 2])
    known = OldSpace(embeddings=random(9, 2, seed=1), known_classes=2)
    assert CoReS(known, 7)(new, labels, items=labels, old=random(3, 2, seed=2)) == CoReS(
        OldSpace(), 7
    )(new, labels)


def test_too_few_corners_are_an_error_that_says_how_many_dimensions_are_needed():
    CoReS(OldSpace(), 7, dim=6)
    with pytest.raises(ConfigError, match="each of the 8 classes.*6 dimensions has 7.*dim to 7"):
        CoReS(OldSpace(), 8, dim=6)
    with pytest.raises(ConfigError, match="6 dimensions has 7. Set embedding_dim to 7"):
        CoReS(OldSpace(), 8)(random(3, 6, seed=0), torch.tensor([0, 1, 2]))
    with pytest.raises(SpaceMismatch, match="needs new embeddings of 6 dimensions.*got 9"):
        CoReS(OldSpace(), 7, dim=6)(random(3, 9, seed=0), torch.tensor([0, 1, 2]))
