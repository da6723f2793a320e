from math import exp, log

import pytest
import torch

from nobackfill.errors import SpaceMismatch
from nobackfill.methods.independent import Independent
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.rm import RM


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


DIM, OLD_DIM = 5, 3
OLD, NEW = random(12, OLD_DIM, seed=0), random(7, DIM, seed=1)
ITEMS, LABELS = torch.tensor([3, 0, 11, 7, 7, 1, 2]), torch.tensor([0, 1, 1, 2, 2, 2, 3])
DEFAULTS = {"mapping_weight": 1.0, "contrast_weight": 1.0, "temperature": 0.07}


def make(known_classes=None, **options):
    torch.manual_seed(0)
    old = OldSpace(embeddings=OLD, known_classes=known_classes)
    method = RM(old, 4, **{"dim": DIM, "hidden": 6} | options).double()
    with torch.no_grad():  # as if it had been trained
        method.map.norm.weight.copy_(torch.linspace(0.5, 2, method.map.norm.num_features))
        method.map.norm.bias.copy_(torch.linspace(-0.5, 0.5, method.map.norm.num_features))
    return method


def map_by_hand(layers, vectors, mean, variance):
    """Linear, BatchNorm, ReLU, Linear on the unit embedding, one item at a time."""
    mapped = []
    for vector in vectors:
        hidden = layers.first.weight @ (vector / vector.norm()) + layers.first.bias
        hidden = (hidden - mean) / (variance + 1e-5).sqrt() * layers.norm.weight + layers.norm.bias
        mapped.append(layers.last.weight @ hidden.clamp(min=0) + layers.last.bias)
    return torch.stack(mapped)


def map_of_batch(layers, vectors):
    hidden = [layers.first.weight @ (v / v.norm()) + layers.first.bias for v in vectors]
    mean = sum(hidden) / len(hidden)
    return map_by_hand(layers, vectors, mean, sum((h - mean) ** 2 for h in hidden) / len(hidden))


def cosine(a, b):
    return (a @ b / (a.norm() * b.norm())).item()


def terms_by_hand(method, old, mapping_weight, contrast_weight, temperature):
    """Every term, one item and one positive at a time."""
    mapped = map_of_batch(method.map, NEW)
    size, classification, mapping, contrast = len(NEW), 0.0, 0.0, 0.0
    for i, y in enumerate(LABELS.tolist()):
        scores = [exp((NEW[i] @ row).item()) for row in method.classifier.weight]
        classification -= log(scores[y] / sum(scores)) / size
        mapping += mapping_weight * (1 - cosine(mapped[i], old[i])) / size
        others = [j for j in range(size) if j != i]
        keys = [(old[j], LABELS[j]) for j in range(size)] + [(mapped[j], LABELS[j]) for j in others]
        near = [exp(cosine(mapped[i], key) / temperature) for key, _ in keys]
        own = [share for share, (_, label) in zip(near, keys, strict=True) if label == y]
        for share in own:
            contrast -= contrast_weight * log(share / sum(near)) / (len(own) * size)
    return {"classification": classification, "mapping": mapping, "contrast": contrast}


@pytest.mark.parametrize(
    "options", [{}, {"mapping_weight": 0.3}, {"contrast_weight": 0.2, "temperature": 0.5}]
)
def test_every_term_is_its_formula_written_as_loops(options):
    for old, given in ((OLD[ITEMS], {"items": ITEMS}), (OLD[:7], {"old": OLD[:7]})):
        method = make(**options)
        terms = {name: term.item() for name, term in method(NEW, LABELS, **given).items()}
        by_hand = terms_by_hand(method, old, **DEFAULTS | options)
        assert terms == pytest.approx(by_hand, abs=1e-10)
        exact = ("classification", "mapping")
        assert [terms[k] for k in exact] == pytest.approx([by_hand[k] for k in exact], abs=1e-10)


def test_queries_are_mapped_into_the_old_space_and_what_is_stored_stays():
    method = make()
    method(NEW, LABELS, items=ITEMS)
    method.eval()
    norm, others = method.map.norm, random(5, DIM, seed=2)
    expected = map_by_hand(method.map, others, norm.running_mean, norm.running_var)
    torch.testing.assert_close(method.query(others), expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(method.query(9 * others), expected, rtol=0, atol=1e-10)
    assert method.query(others).shape == (5, OLD_DIM)
    assert torch.equal(method.gallery(others), others)


def test_the_model_learns_what_the_independent_one_learns():
    method, alone = make(), Independent(OldSpace(), 4, dim=DIM).double()
    alone.load_state_dict({"classifier.weight": method.classifier.weight})
    new, same = NEW.clone().requires_grad_(), NEW.clone().requires_grad_()
    sum(method(new, LABELS, items=ITEMS).values()).backward()
    alone(same, LABELS)["classification"].backward()
    assert torch.equal(new.grad, same.grad)
    assert torch.equal(method.classifier.weight.grad, alone.classifier.weight.grad)


@pytest.mark.parametrize("term", ["classification", "mapping", "contrast"])
def test_what_trains_the_map_and_what_trains_the_model_are_apart(term):
    method = make()
    new, old = NEW.clone().requires_grad_(), OLD[:7].clone().requires_grad_()
    method(new, LABELS, old=old)[term].backward()
    moved = {name for name, part in method.named_parameters() if part.grad is not None}
    assert old.grad is None
    if term == "classification":
        assert moved == {"classifier.weight"}
    else:
        assert moved == {name for name, _ in method.named_parameters() if name.startswith("map.")}
        assert new.grad is None


def test_the_contrast_pulls_at_both_of_two_mapped_vectors():
    method = make(temperature=0.5)
    bias = method.map.last.bias
    (gradient,) = torch.autograd.grad(method(NEW, LABELS, items=ITEMS)["contrast"], bias)
    for i in range(OLD_DIM):  # the slope of the formula, no part of it taken as constant
        step = 1e-6 * torch.eye(OLD_DIM, dtype=torch.float64)[i]
        sides = []
        for moved in (bias.detach() + step, bias.detach() - step):
            method.map.last.bias = torch.nn.Parameter(moved)
            sides.append(method(NEW, LABELS, items=ITEMS)["contrast"].item())
        assert gradient[i].item() == pytest.approx((sides[0] - sides[1]) / 2e-6, abs=1e-7)


def test_training_brings_mapped_queries_to_their_old_vectors():
    method = make(hidden=32)
    optimizer = torch.optim.Adam(method.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        terms = method(NEW, LABELS, items=torch.arange(7))
        terms["mapping"].backward()
        optimizer.step()
    assert terms["mapping"] < 0.01


def test_new_classes_take_part_like_all_others():
    assert make(known_classes=1)(NEW, LABELS, items=ITEMS) == make()(NEW, LABELS, items=ITEMS)


@pytest.mark.parametrize(("dim", "hidden"), [(2, 512), (3, 8), (9, 4)])
def test_the_map_goes_from_any_dimension_to_the_old_one(dim, hidden):
    new = random(7, dim, seed=3).float()
    for options in ({"dim": dim}, {}):  # told, or found at the first batch
        given = {} if hidden == 512 else {"hidden": hidden}
        method = RM(OldSpace(embeddings=OLD.float()), 4, **options, **given)
        method(new, LABELS, items=ITEMS)
        assert method.map.first.weight.shape == (hidden, dim)
        sides = RM.sides(method.eval().state_dict(), {})
        assert sides.query.eval()(new).shape == (7, OLD_DIM)
        assert torch.equal(sides.query(new), method.query(new))
        assert torch.equal(sides.gallery(new), new)


def test_another_dimension_than_was_told_is_an_error_that_says_what_to_do():
    with pytest.raises(SpaceMismatch, match="5 dimensions.*got 4.*pass dim=4"):
        make()(NEW[:, :4], LABELS, items=ITEMS)
