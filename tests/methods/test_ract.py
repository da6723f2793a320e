from math import log

import pytest
import torch

from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.ract import RACT, hardest_contrast


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


EMBEDDINGS, NEW = random(12, 4, seed=0), random(8, 4, seed=1)
LABELS, ITEMS = torch.tensor([0, 0, 1, 1, 2, 2, 3, 4]), torch.tensor([3, 8, 1, 0, 11, 6, 7, 2])
OLD = EMBEDDINGS[ITEMS]


def make(**options):
    return RACT(OldSpace(embeddings=EMBEDDINGS), 5, **options).double()


def cosine(a, b):
    return a @ b / (a.norm() * b.norm())


def contrast_by_hand(new, old, labels, weight=1.0, temperature=0.01, negatives=10):
    """The formula of the docstring, one item at a time; the gradient goes through e_i alone."""
    total = 0.0
    for i, e in enumerate(new):
        others = [k for k in range(len(new)) if labels[k] != labels[i]]
        to_old = sorted((cosine(e, old[k]) for k in others), reverse=True)[:negatives]
        to_new = sorted((cosine(e, new[k].detach()) for k in others), reverse=True)[:negatives]
        logits = torch.stack([cosine(e, old[i]), *to_old, *to_new]) / temperature
        highest = logits.max().detach()
        total -= logits[0] - highest - (logits - highest).exp().sum().log()
    return weight * total / len(new)


OPTIONS = [
    {},
    {"weight": 0.3},
    {"temperature": 0.2},
    {"negatives": 1, "temperature": 0.5},
    {"negatives": 3, "temperature": 1.0, "weight": 2.0},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_both_terms_are_their_formulas_written_as_loops(options):
    method = make(**options)
    terms = method(NEW, LABELS, items=ITEMS)
    assert set(terms) == {"classification", "compatibility"}
    by_hand = contrast_by_hand(NEW, OLD, LABELS, **options)
    torch.testing.assert_close(terms["compatibility"], by_hand, rtol=0, atol=1e-10)
    total = 0.0
    for e, y in zip(NEW, LABELS, strict=True):
        shares = [(e @ w).exp().item() for w in method.classifier.weight]
        total -= log(shares[y] / sum(shares))
    assert terms["classification"].item() == pytest.approx(total / 8, abs=1e-10)


@pytest.mark.parametrize("negatives", [1, 3, 10])
def test_gradients_go_through_the_item_alone(negatives):
    new, by_hand = NEW.clone().requires_grad_(), NEW.clone().requires_grad_()
    settings = {"temperature": 0.3, "negatives": negatives}
    hardest_contrast(new, OLD, LABELS, **settings).backward()
    contrast_by_hand(by_hand, OLD, LABELS, **settings).backward()
    torch.testing.assert_close(new.grad, by_hand.grad, rtol=0, atol=1e-10)


def pull_on_the_first(new=NEW, old=OLD, negatives=2):
    new = new.clone().requires_grad_()
    hardest_contrast(new, old, LABELS, temperature=0.5, negatives=negatives).backward()
    return new.grad[0]


def replaced(vectors, row, seed=7):
    vectors = vectors.clone()
    vectors[row] = random(4, seed=seed)
    return vectors


def test_the_only_positive_is_the_own_old_vector():
    pull = pull_on_the_first(negatives=8)
    torch.testing.assert_close(pull_on_the_first(old=replaced(OLD, 1), negatives=8), pull)
    torch.testing.assert_close(pull_on_the_first(new=replaced(NEW, 1), negatives=8), pull)
    assert not torch.allclose(pull_on_the_first(old=replaced(OLD, 0), negatives=8), pull)
    assert not torch.allclose(pull_on_the_first(old=replaced(OLD, 2), negatives=8), pull)
    assert not torch.allclose(pull_on_the_first(new=replaced(NEW, 2), negatives=8), pull)


def test_the_own_old_vector_attracts():
    new = NEW.clone().requires_grad_()
    hardest_contrast(new, OLD, LABELS, temperature=0.5, negatives=2).backward()
    moved = NEW - 0.05 * new.grad
    settings = {"temperature": 0.5, "negatives": 2}
    assert contrast_by_hand(moved, OLD, LABELS, **settings) < contrast_by_hand(
        NEW, OLD, LABELS, **settings
    )
    at_home = hardest_contrast(OLD, OLD, LABELS, **settings)
    elsewhere = hardest_contrast(-OLD, OLD, LABELS, **settings)
    assert at_home < elsewhere


@pytest.mark.parametrize("model", ["new", "old"])
@pytest.mark.parametrize(("negatives", "counts"), [(5, False), (6, True)])
def test_only_the_hardest_of_other_classes_count(model, negatives, counts):
    vectors = {"new": NEW.clone(), "old": OLD.clone()}
    vectors["new"][7] = vectors["old"][7] = -NEW[0]  # the easiest of the first item's six
    pull = pull_on_the_first(**vectors, negatives=negatives)
    vectors[model][7] += 0.1 * random(4, seed=8)
    moved = pull_on_the_first(**vectors, negatives=negatives)
    assert torch.allclose(moved, pull, rtol=0, atol=1e-12) != counts


def test_a_batch_of_one_class_has_no_negatives_and_costs_nothing():
    new = NEW.clone().requires_grad_()
    cost = make()(new, torch.full((8,), 4), items=ITEMS)["compatibility"]
    cost.backward()
    assert cost.item() == 0
    assert torch.equal(new.grad, torch.zeros_like(new))


def test_length_plays_no_part():
    stretched = make()(3 * NEW, LABELS, old=0.2 * OLD)["compatibility"]
    torch.testing.assert_close(stretched, make()(NEW, LABELS, items=ITEMS)["compatibility"])


def test_classes_the_old_model_never_saw_take_part_like_all_others():
    old = OldSpace(embeddings=EMBEDDINGS, known_classes=1)
    cost = RACT(old, 5).double()(NEW, LABELS, items=ITEMS)["compatibility"]
    assert torch.equal(cost, make()(NEW, LABELS, items=ITEMS)["compatibility"])


def test_old_vectors_are_not_moved():
    old = OLD.clone().requires_grad_()
    make()(NEW.clone().requires_grad_(), LABELS, old=old)["compatibility"].backward()
    assert old.grad is None
