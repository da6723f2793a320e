import pytest
import torch

from nobackfill.errors import SpaceMismatch
from nobackfill.methods.mimic import Mimic
from nobackfill.methods.old_space import OldSpace


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


OLD, NEW = random(12, 4, seed=0), random(5, 4, seed=1)
ITEMS, LABELS = torch.tensor([3, 0, 11, 7, 7]), torch.tensor([0, 1, 2, 3, 3])
METHOD = Mimic(OldSpace(embeddings=OLD), 4)


def mimicry_by_hand(new, old):
    """One less the cosine, one item at a time."""
    total = 0.0
    for e, f in zip(new, old, strict=True):
        inner = sum(a * b for a, b in zip(e.tolist(), f.tolist(), strict=True))
        total += 1 - inner / (e.norm() * f.norm()).item()
    return total / len(new)


def test_mimicry_is_its_formula_written_as_loops():
    terms = METHOD(NEW, LABELS, items=ITEMS)
    assert list(terms) == ["mimicry"]
    assert terms["mimicry"].item() == pytest.approx(mimicry_by_hand(NEW, OLD[ITEMS]), abs=1e-10)
    given = METHOD(NEW, LABELS, old=OLD[:5])["mimicry"]
    assert given.item() == pytest.approx(mimicry_by_hand(NEW, OLD[:5]), abs=1e-10)


def test_at_best_it_becomes_the_old_model_up_to_length():
    assert METHOD(9 * OLD[ITEMS], LABELS, items=ITEMS)["mimicry"].item() == pytest.approx(0)
    assert METHOD(-OLD[ITEMS], LABELS, items=ITEMS)["mimicry"].item() == pytest.approx(2)


def test_classes_are_not_looked_at_new_ones_least_of_all():
    assert METHOD(NEW, LABELS, items=ITEMS) == METHOD(NEW, LABELS - 4, items=ITEMS)


def test_nothing_but_the_new_embedding_is_moved():
    new, old = NEW.clone().requires_grad_(), OLD[:5].clone().requires_grad_()
    METHOD(new, LABELS, old=old)["mimicry"].backward()
    assert new.grad.any()
    assert old.grad is None
    assert not list(METHOD.parameters())


def test_another_dimension_than_the_old_is_an_error_that_says_what_to_do():
    with pytest.raises(SpaceMismatch, match="4 dimensions.*got 3.*projection to 4"):
        METHOD(NEW[:, :3], LABELS, items=ITEMS)
