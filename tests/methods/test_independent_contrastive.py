from math import exp, log

import pytest
import torch

from nobackfill.errors import SpaceMismatch
from nobackfill.methods.independent_contrastive import IndependentContrastive
from nobackfill.methods.old_space import OldSpace


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


CLASSES, DIM = 6, 4
BATCHES = [torch.tensor(labels) for labels in ([0, 1, 1, 2, 1], [2, 2, 0, 4, 4], [1, 4, 0, 2, 2])]


def make(old=None, **options):
    torch.manual_seed(0)
    method = IndependentContrastive(old or OldSpace(), CLASSES, **{"dim": DIM} | options)
    return method.double()


def cosine(a, b):
    """Of vectors; 0 where one of them is none."""
    lengths = (a.norm() * b.norm()).item()
    return (a @ b).item() / lengths if lengths else 0.0


def move_by_hand(running, new, labels, momentum):
    """m q + (1 - m) mean of the unit vectors, one class of the batch at a time."""
    for c in set(labels.tolist()):
        units = [e / e.norm() for e, y in zip(new, labels, strict=True) if y == c]
        running[c] = momentum * running[c] + (1 - momentum) * sum(units) / len(units)


def terms_by_hand(method, running, new, labels, weight=1.0, temperature=0.07):
    """Both terms of the docstring, one item and one class at a time."""
    classification = contrast = 0.0
    for e, y in zip(new, labels.tolist(), strict=True):
        scores = [exp((e @ row).item()) for row in method.classifier.weight]
        classification -= log(scores[y] / sum(scores)) / len(new)
        near = [exp(cosine(e, q) / temperature) for q in running]
        contrast -= weight * log(near[y] / sum(near)) / len(new)
    return {"classification": classification, "contrast": contrast}


@pytest.mark.parametrize(
    "options", [{}, {"weight": 0.3, "momentum": 0.2}, {"temperature": 0.5}, {"momentum": 0.0}]
)
def test_terms_and_prototypes_are_their_formulas_over_several_batches(options):
    method = make(**options)
    contrast = {key: value for key, value in options.items() if key != "momentum"}
    running = torch.zeros(CLASSES, DIM, dtype=torch.float64)
    for seed, labels in enumerate(BATCHES):
        new = random(5, DIM, seed=seed)
        terms = {name: term.item() for name, term in method(new, labels).items()}
        move_by_hand(running, new, labels, options.get("momentum", 0.9))
        torch.testing.assert_close(method.running, running, rtol=0, atol=1e-10)
        by_hand = terms_by_hand(method, running, new, labels, **contrast)
        assert terms == pytest.approx(by_hand, abs=1e-10)


def test_evaluation_leaves_the_prototypes_where_they_are():
    method = make()
    method(random(5, DIM, seed=0), BATCHES[0])
    before, new = method.running.clone(), random(5, DIM, seed=1)
    terms = method.eval()(new, BATCHES[1])
    assert torch.equal(method.running, before)
    by_hand = terms_by_hand(method, before, new, BATCHES[1])
    assert terms["contrast"].item() == pytest.approx(by_hand["contrast"], abs=1e-10)


def test_a_class_not_yet_seen_has_no_prototype_and_pushes_nobody():
    method = make(temperature=0.5)
    new = random(5, DIM, seed=0)
    new[:, 3] = 0.0
    new.requires_grad_()
    method(new, BATCHES[0])["contrast"].backward()  # sees classes 0, 1 and 2
    assert torch.equal(method.running.any(dim=-1), torch.tensor([True] * 3 + [False] * 3))
    assert new.grad[:, :3].any(dim=-1).all()
    assert not new.grad[:, 3].any(), "moved out of where the classes seen so far are"


def test_a_class_of_its_own_prototype_only_is_drawn_to_it():
    method, new = make(temperature=0.5), random(5, DIM, seed=0).requires_grad_()
    labels = torch.zeros(5, dtype=torch.int64)
    method(new, labels)["contrast"].backward()
    nearer = new.detach() - 0.1 * new.grad
    for before, after in zip(new.detach(), nearer, strict=True):
        assert cosine(after, method.running[0]) > cosine(before, method.running[0])


def test_the_next_batch_does_not_spoil_the_gradient_of_this_one():
    method, new = make(), random(5, DIM, seed=0).requires_grad_()
    (alone,) = torch.autograd.grad(make()(new, BATCHES[0])["contrast"], new)
    term = method(new, BATCHES[0])["contrast"]
    method(random(5, DIM, seed=1), BATCHES[1])
    assert torch.equal(torch.autograd.grad(term, new)[0], alone)


def test_the_gradient_takes_the_prototypes_as_they_are():
    method, new = make(), random(5, DIM, seed=0).requires_grad_()
    method(new, BATCHES[0])["contrast"].backward()
    assert not method.running.requires_grad
    same = new.detach().clone().requires_grad_()
    method.eval()(same, BATCHES[0])["contrast"].backward()  # prototypes already moved, as constants
    assert torch.equal(new.grad, same.grad)
    assert [name for name, _ in method.named_parameters()] == ["classifier.weight"]
    assert method.classifier.weight.grad is None


def test_the_old_space_is_never_looked_at():
    known = OldSpace(
        prototypes=random(CLASSES, 3, seed=5), embeddings=random(9, 3, seed=6), known_classes=2
    )
    new, labels = random(5, DIM, seed=0), BATCHES[0]
    terms = make(known)(new, labels, items=labels, old=random(5, 3, seed=7))
    assert terms == make()(new, labels)
    assert not IndependentContrastive.needs


def test_the_dimension_is_told_or_found_at_the_first_batch():
    found = make(dim=None).float()
    new = random(5, DIM, seed=0).float()
    found(new, BATCHES[0])
    assert found.running.shape == (CLASSES, DIM)
    told = make().float()
    told(new, BATCHES[0])
    torch.testing.assert_close(found.running, told.running)
    with pytest.raises(SpaceMismatch, match="4 dimensions.*got 3.*pass dim=3"):
        make()(random(5, 3, seed=0), BATCHES[0])


def test_prototypes_are_saved_and_go_on_from_there():
    method, other = make(), make()
    method(random(5, DIM, seed=0), BATCHES[0])
    other.load_state_dict(method.state_dict())
    new = random(5, DIM, seed=1)
    assert method(new, BATCHES[1]) == other(new, BATCHES[1])
    assert torch.equal(method.running, other.running)
