from math import exp, log

import pytest
import torch

from nobackfill.errors import SpaceMismatch
from nobackfill.methods.cross_supcon import CrossSupCon
from nobackfill.methods.old_space import OldSpace


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


OLD, NEW = random(12, 4, seed=0), random(7, 4, seed=1)
ITEMS = torch.tensor([3, 0, 11, 7, 7, 1, 2])
LABELS = torch.tensor([0, 5, 4, 5, 4, 5, 5])  # one, two and four of a class: exact shares


def make(known_classes=None, **options):
    torch.manual_seed(0)
    return CrossSupCon(OldSpace(embeddings=OLD, known_classes=known_classes), 6, **options).double()


def cosine(a, b):
    return (a @ b / (a.norm() * b.norm())).item()


def terms_by_hand(method, old, labels, weight=1.0, temperature=0.07):
    """Every term of the docstring, one item and one positive at a time."""
    classification = contrast = 0.0
    for e, y in zip(NEW, labels.tolist(), strict=True):
        scores = [exp((e @ row).item()) for row in method.classifier.weight]
        classification -= log(scores[y] / sum(scores)) / len(NEW)
        near = [exp(cosine(e, f) / temperature) for f in old]
        own = [p for p, label in enumerate(labels.tolist()) if label == y]
        for p in own:
            contrast -= weight * log(near[p] / sum(near)) / (len(own) * len(NEW))
    return {"classification": classification, "compatibility": contrast}


@pytest.mark.parametrize("options", [{}, {"weight": 0.25}, {"temperature": 0.4}])
def test_every_term_is_its_formula_written_as_loops(options):
    method = make(**options)
    for old, given in ((OLD[ITEMS], {"items": ITEMS}), (OLD[:7], {"old": OLD[:7]})):
        terms = {name: term.item() for name, term in method(NEW, LABELS, **given).items()}
        by_hand = terms_by_hand(method, old, LABELS, **options)
        assert terms == pytest.approx(by_hand, abs=1e-10)


def test_three_of_a_class_share_the_pull_too():
    labels = torch.tensor([0, 1, 1, 1, 2, 2, 2])
    compatibility = make()(NEW, labels, items=ITEMS)["compatibility"].item()
    by_hand = terms_by_hand(make(), OLD[ITEMS], labels)["compatibility"]
    assert compatibility == pytest.approx(by_hand, abs=1e-10)


def compatibility(old, new=NEW):
    return make()(new, LABELS, old=old)["compatibility"]


def test_the_own_class_attracts_equally_and_the_own_old_vector_no_more():
    swapped = OLD[ITEMS][[0, 5, 4, 6, 2, 3, 1]]  # each within its class
    torch.testing.assert_close(compatibility(swapped), compatibility(OLD[ITEMS]))
    across = OLD[ITEMS][[1, 0, 2, 3, 4, 5, 6]]
    assert (compatibility(across) - compatibility(OLD[ITEMS])).abs() > 0.01


def test_an_old_vector_of_the_class_draws_near_and_a_foreign_one_drives_away():
    for item, draws in ((0, True), (1, False)):  # of class 0, to which only the first belongs
        new = torch.eye(4)[0].double().repeat(7, 1).requires_grad_()
        old = torch.eye(4)[1].double().repeat(7, 1)
        old[item] = torch.eye(4)[2]
        compatibility(old, new).backward()
        step = -new.grad[0]
        assert (step[2] > 0) == draws
        assert (step[1] < 0) == draws


def test_new_classes_take_part_like_all_others():
    assert make(known_classes=2)(NEW, LABELS, items=ITEMS) == make()(NEW, LABELS, items=ITEMS)
    new = NEW.clone().requires_grad_()
    make(known_classes=2)(new, LABELS, items=ITEMS)["compatibility"].backward()
    assert new.grad.any(dim=-1).all()


def test_nothing_of_the_old_is_moved():
    method, old = make(), OLD[:7].clone().requires_grad_()
    terms = method(NEW.clone().requires_grad_(), LABELS, old=old)
    terms["compatibility"].backward()
    assert old.grad is None
    assert method.classifier.weight.grad is None
    assert [name for name, _ in method.named_parameters()] == ["classifier.weight"]


def test_another_dimension_than_the_old_is_an_error_that_says_what_to_do():
    with pytest.raises(SpaceMismatch, match="4 dimensions.*got 3.*projection to 4"):
        make()(NEW[:, :3], LABELS, items=ITEMS)


KNOWN = torch.tensor([5, 5, 5, 0, 4, 4, 1, 5, 0, 2, 2, 4])  # of all stored items


def make_known(labels=KNOWN, **options):
    torch.manual_seed(0)
    method = CrossSupCon(OldSpace(embeddings=OLD, labels=labels), 6, **options).double()
    method.start_epoch(0, 1, new_prototypes=lambda: None, new_embeddings=lambda: None)
    return method


@pytest.mark.parametrize("partners", [1, 2])
def test_partners_are_contrasted_below_the_batch(partners):
    items = torch.tensor([3, 0, 11, 7, 4, 1, 2])
    method = make_known(partners=partners)
    torch.manual_seed(3)
    others = [method.classes.others(items) for _ in range(partners)]
    for one in others:
        assert torch.equal(KNOWN[one], KNOWN[items])
        assert (one != items).all()
    keys = torch.cat([OLD[items], *(OLD[one] for one in others)])
    torch.manual_seed(3)
    found = method(NEW, KNOWN[items], items=items)["compatibility"].item()
    total, key_labels = 0.0, KNOWN[items].tolist() * (1 + partners)
    for e, y in zip(NEW, KNOWN[items].tolist(), strict=True):
        near = [exp(cosine(e, key) / 0.07) for key in keys]
        own = [p for p, label in enumerate(key_labels) if label == y]
        total -= sum(log(near[p] / sum(near)) for p in own) / len(own) / len(NEW)
    assert found == pytest.approx(total, abs=1e-9)


def test_by_default_there_are_no_partners_and_nothing_is_looked_up():
    method = make_known()
    assert method.partners == 0
    assert method.classes.index is None
    torch.manual_seed(3)
    state = torch.get_rng_state()
    method(NEW, LABELS, items=ITEMS)
    assert torch.equal(torch.get_rng_state(), state)  # nor drawn


def test_partners_of_classes_that_nobody_told_are_learned_from_the_batches():
    method = make_known(labels=None, partners=1)
    items = torch.tensor([3, 0, 11, 7, 4, 1, 2])
    alone = method(NEW, KNOWN[items], items=items)["compatibility"]
    twice = torch.cat([OLD[items], OLD[items]])
    total = 0.0
    for e, y in zip(NEW, KNOWN[items].tolist(), strict=True):
        near = [exp(cosine(e, key) / 0.07) for key in twice]
        own = [p for p, label in enumerate(KNOWN[items].tolist() * 2) if label == y]
        total -= sum(log(near[p] / sum(near)) for p in own) / len(own) / len(NEW)
    assert alone.item() == pytest.approx(total, abs=1e-9)  # each its own partner at first
    method.start_epoch(1, 2, new_prototypes=lambda: None, new_embeddings=lambda: None)
    assert torch.equal(KNOWN[method.classes.others(items)], KNOWN[items])
    assert method.classes.others(torch.tensor([11])).tolist() == [4]
