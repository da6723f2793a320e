from math import exp, log

import pytest
import torch

from nobackfill.methods.dual_tuning import DualTuning
from nobackfill.methods.old_space import OldSpace


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


NEW, EMBEDDINGS = random(6, 4, seed=0), random(9, 4, seed=1)
CLASSIFIER, PROTOTYPES = random(3, 4, seed=2), random(5, 4, seed=3)
LABELS, ITEMS = torch.tensor([0, 1, 2, 3, 4, 1]), torch.tensor([8, 2, 5, 0, 1, 7])
OLD = EMBEDDINGS[ITEMS]
TERMS = ["classification", "compatibility", "old_classifier", "new_classifier"]


def make(**options):
    old = OldSpace(classifier=CLASSIFIER, embeddings=EMBEDDINGS, prototypes=PROTOTYPES)
    return DualTuning(old, 5, **options).double()


def dot(a, b):
    """The inner product, as far as both are long."""
    return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=False))


def cut(vector, dim=4):
    return torch.tensor((vector.tolist() + [0.0] * dim)[:dim], dtype=torch.float64)


def cosine(a, b):
    return dot(a, b) / (dot(a, a) * dot(b, b)) ** 0.5


def cost(logits, y, smoothing=0.0):
    """Cross entropy of one item; a share of the label is spread evenly over all classes."""
    total = 0.0
    for c, z in enumerate(logits):
        wanted = (1 - smoothing) * (c == y) + smoothing / len(logits)
        total -= wanted * (z - log(sum(exp(other) for other in logits)))
    return total


def terms_by_hand(
    new, labels, old, weight, *, prototype_weight=0.1, classifier_weight=0.2, temperature=0.07,
    smoothing=0.1,
):  # fmt: skip
    """The formula of the docstring, one item and one class at a time."""
    costs = {term: [] for term in TERMS}
    for e, f, y in zip(new, old, labels.tolist(), strict=True):
        costs["classification"].append(cost([dot(e, w) for w in weight], y, smoothing))
        cosines = [cosine(cut(e), p) / temperature for p in PROTOTYPES]
        costs["compatibility"].append(prototype_weight * cost(cosines, y))
        if y < len(CLASSIFIER):
            logits = [dot(e, w) for w in CLASSIFIER]
            costs["old_classifier"].append(classifier_weight * cost(logits, y))
        costs["new_classifier"].append(classifier_weight * cost([dot(f, w) for w in weight], y))
    return {term: sum(each) / max(len(each), 1) for term, each in costs.items()}


def check(terms, by_hand):
    assert list(terms) == TERMS
    for term in TERMS:
        assert terms[term].item() == pytest.approx(by_hand[term], abs=1e-10), term


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prototype_weight": 2.0},
        {"classifier_weight": 3.0},
        {"temperature": 0.5},
        {"smoothing": 0.4},
        {"smoothing": 0.0, "temperature": 1.0, "prototype_weight": 0.7, "classifier_weight": 0.3},
    ],
)
def test_every_term_is_its_formula_written_as_loops(options):
    method = make(**options)
    by_hand = terms_by_hand(NEW, LABELS, OLD, method.classifier.weight, **options)
    check(method(NEW, LABELS, items=ITEMS), by_hand)


@pytest.mark.parametrize("dim", [3, 6])
def test_embeddings_of_another_length_are_cut_or_filled_up(dim):
    method, new = make(dim=dim), random(6, dim, seed=5)
    by_hand = terms_by_hand(new, LABELS, OLD, method.classifier.weight)
    check(method(new, LABELS, items=ITEMS), by_hand)


def test_new_classes_take_no_part_under_the_old_classifier_and_in_all_other_terms_they_do():
    method, labels = make(), torch.tensor([3, 4, 3, 4, 4, 3])
    new = NEW.clone().requires_grad_()
    terms = method(new, labels, items=ITEMS)
    check(terms, terms_by_hand(NEW, labels, OLD, method.classifier.weight))
    assert terms["old_classifier"].item() == 0
    assert not torch.autograd.grad(terms["old_classifier"], new, retain_graph=True)[0].any()
    assert all(terms[term] > 0 for term in TERMS if term != "old_classifier")


MOVED = {
    "classification": {"new", "classifier"},
    "compatibility": {"new"},
    "old_classifier": {"new"},
    "new_classifier": {"classifier"},
}


@pytest.mark.parametrize("term", TERMS)
def test_each_term_moves_what_it_should_and_the_last_only_the_classifier(term):
    method = make()
    parts = {
        "new": NEW.clone().requires_grad_(),
        "old": OLD.clone().requires_grad_(),
        "classifier": method.classifier.weight,
    }
    loss = method(parts["new"], LABELS, old=parts["old"])[term]
    pulls = torch.autograd.grad(loss, list(parts.values()), allow_unused=True)
    moved = {part for part, pull in zip(parts, pulls, strict=True) if pull is not None}
    assert moved == MOVED[term]
    assert [name for name, _ in method.named_parameters()] == ["classifier.weight"]
    if only := DualTuning.moves_only.get(term):
        assert moved == {only}


def test_each_crossed_classifier_is_asked_about_the_other_models_vectors():
    method, elsewhere = make(), random(6, 4, seed=7)
    terms = method(NEW, LABELS, items=ITEMS)
    other_old, other_new = (
        method(NEW, LABELS, old=elsewhere),
        method(elsewhere, LABELS, items=ITEMS),
    )
    assert [t for t in TERMS if terms[t] != other_old[t]] == ["new_classifier"]
    assert [t for t in TERMS if terms[t] == other_new[t]] == ["new_classifier"]
    check(other_old, terms_by_hand(NEW, LABELS, elsewhere, method.classifier.weight))


@pytest.mark.parametrize(
    ("term", "towards"), [("compatibility", PROTOTYPES), ("old_classifier", CLASSIFIER)]
)
def test_turned_towards_its_class_in_the_old_space_an_embedding_costs_less(term, towards):
    near, far, labels = towards[:3], -towards[:3], LABELS[:3]
    assert make()(near, labels, items=ITEMS[:3])[term] < make()(far, labels, items=ITEMS[:3])[term]
