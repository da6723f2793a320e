from math import exp, log

import pytest
import torch

from nobackfill.methods.lwf import LwF
from nobackfill.methods.old_space import OldSpace


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


NEW, EMBEDDINGS, CLASSIFIER = random(6, 4, seed=0), random(9, 4, seed=1), random(3, 4, seed=2)
LABELS, ITEMS = torch.tensor([0, 1, 2, 3, 4, 4]), torch.tensor([8, 2, 5, 0, 1, 7])


def make(**options):
    return LwF(OldSpace(classifier=CLASSIFIER, embeddings=EMBEDDINGS), 5, **options).double()


def share(logits):
    """The softmax, one class at a time."""
    return [exp(z) / sum(exp(other) for other in logits) for z in logits]


def answer(vector, rows, temperature=1.0):
    """What a classifier says of one vector, as far as both are long."""
    pairs = [zip(vector.tolist(), row.tolist(), strict=False) for row in rows]
    return share([sum(x * w for x, w in pair) / temperature for pair in pairs])


def distance_by_hand(new, old, weight=1.0, temperature=2.0):
    total = 0.0
    for e, f in zip(new, old, strict=True):
        wanted, got = answer(f, CLASSIFIER, temperature), answer(e, CLASSIFIER, temperature)
        total -= sum(w * log(g) for w, g in zip(wanted, got, strict=True))
    return weight * total / len(new)


def classification_by_hand(new, labels, rows):
    answers = [answer(e, rows) for e in new]
    return -sum(log(a[y]) for a, y in zip(answers, labels.tolist(), strict=True)) / len(new)


@pytest.mark.parametrize(
    "options", [{}, {"weight": 0.3}, {"temperature": 0.5}, {"weight": 2.0, "temperature": 1.0}]
)
def test_both_terms_are_their_formulas_written_as_loops(options):
    method = make(**options)
    terms = method(NEW, LABELS, items=ITEMS)
    assert set(terms) == {"classification", "compatibility"}
    by_hand = distance_by_hand(NEW, EMBEDDINGS[ITEMS], **options)
    assert terms["compatibility"].item() == pytest.approx(by_hand, abs=1e-10)
    by_hand = classification_by_hand(NEW, LABELS, method.classifier.weight)
    assert terms["classification"].item() == pytest.approx(by_hand, abs=1e-10)


def test_the_old_embedding_itself_costs_the_entropy_of_its_answer_and_nothing_costs_less():
    old = EMBEDDINGS[ITEMS]
    new = old.clone().requires_grad_()
    least = make()(new, LABELS, items=ITEMS)["compatibility"]
    answers = [answer(f, CLASSIFIER, 2.0) for f in old]
    entropy = -sum(p * log(p) for a in answers for p in a) / len(old)
    assert least.item() == pytest.approx(entropy, abs=1e-10)
    least.backward()
    torch.testing.assert_close(new.grad, torch.zeros_like(new), rtol=0, atol=1e-12)
    for seed in range(5):
        elsewhere = old + 0.3 * random(6, 4, seed=10 + seed)
        assert make()(elsewhere, LABELS, items=ITEMS)["compatibility"] > least


def test_a_step_against_the_gradient_brings_the_answers_nearer():
    new = NEW.clone().requires_grad_()
    method = make()
    before = method(new, LABELS, items=ITEMS)["compatibility"]
    before.backward()
    after = method(new.detach() - new.grad, LABELS, items=ITEMS)["compatibility"]
    assert after < before


def test_classes_the_old_model_never_saw_take_part_like_all_others():
    strangers = torch.tensor([3, 4, 3, 4, 3, 4])
    method = make()
    of_strangers = method(NEW, strangers, items=ITEMS)["compatibility"]
    assert of_strangers == method(NEW, LABELS % 3, items=ITEMS)["compatibility"]
    by_hand = distance_by_hand(NEW, EMBEDDINGS[ITEMS])
    assert of_strangers.item() == pytest.approx(by_hand, abs=1e-10)


@pytest.mark.parametrize("dim", [3, 6])
def test_an_embedding_of_another_length_is_cut_or_filled_up_for_the_old_classifier(dim):
    method, new = make(dim=dim), random(6, dim, seed=5)
    terms = method(new, LABELS, items=ITEMS)
    by_hand = distance_by_hand(new, EMBEDDINGS[ITEMS])
    assert terms["compatibility"].item() == pytest.approx(by_hand, abs=1e-10)
    by_hand = classification_by_hand(new, LABELS, method.classifier.weight)
    assert terms["classification"].item() == pytest.approx(by_hand, abs=1e-10)


def test_only_the_new_side_is_moved():
    method = make()
    new, old = NEW.clone().requires_grad_(), random(6, 4, seed=5).requires_grad_()
    terms = method(new, LABELS, old=old)
    by_hand = distance_by_hand(NEW, old.detach())
    assert terms["compatibility"].item() == pytest.approx(by_hand, abs=1e-10)
    terms["compatibility"].backward()
    assert new.grad.any()
    assert old.grad is None
    assert [name for name, _ in method.named_parameters()] == ["classifier.weight"]
    assert method.classifier.weight.grad is None
