from math import exp, log

import pytest
import torch

from nobackfill.errors import OldSpaceError, SpaceMismatch
from nobackfill.methods.mimic import Mimic
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.prototype_alignment import PrototypeAlignment
from nobackfill.methods.prototype_mimic import PrototypeMimic


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


OLD, PROTOTYPES, NEW = random(12, 4, seed=0), random(6, 4, seed=1), random(7, 4, seed=2)
ITEMS, LABELS = torch.tensor([3, 0, 11, 7, 7, 1, 2]), torch.tensor([0, 1, 2, 3, 4, 5, 5])
DEFAULTS = {"weight": 1.0, "temperature": 0.07, "mimic_weight": 1.0}
every_weight = pytest.mark.parametrize(
    "options", [{}, {"weight": 0.5, "temperature": 0.3}, {"mimic_weight": 3.0}]
)


def make(method=PrototypeMimic, known_classes=None, **options):
    old = OldSpace(prototypes=PROTOTYPES, embeddings=OLD, known_classes=known_classes)
    torch.manual_seed(0)
    return method(old, 6, **options).double()


def cosine(a, b):
    return (a @ b / (a.norm() * b.norm())).item()


def terms_by_hand(method, old, weight, temperature, mimic_weight):
    """Every term of the docstring, one item and one class at a time."""
    classification = contrast = mimicry = 0.0
    for e, f, y in zip(NEW, old, LABELS.tolist(), strict=True):
        scores = [exp((e @ row).item()) for row in method.classifier.weight]
        near = [exp(cosine(e, p) / temperature) for p in PROTOTYPES]
        classification -= log(scores[y] / sum(scores)) / len(NEW)
        contrast -= weight * log(near[y] / sum(near)) / len(NEW)
        mimicry += mimic_weight * (1 - cosine(e, f)) / len(NEW)
    return {"classification": classification, "compatibility": contrast, "mimicry": mimicry}


@every_weight
def test_every_term_is_its_formula_written_as_loops(options):
    method = make(**options)
    for old, given in ((OLD[ITEMS], {"items": ITEMS}), (OLD[:7], {"old": OLD[:7]})):
        terms = {name: term.item() for name, term in method(NEW, LABELS, **given).items()}
        by_hand = terms_by_hand(method, old, **DEFAULTS | options)
        assert terms == pytest.approx(by_hand, abs=1e-10)


@every_weight
def test_is_the_baseline_and_mimicry(options):
    terms = make(**options)(NEW, LABELS, items=ITEMS)
    share = (DEFAULTS | options)["mimic_weight"]
    baseline = {key: value for key, value in options.items() if key != "mimic_weight"}
    expected = make(PrototypeAlignment, **baseline)(NEW, LABELS)
    mimicry = share * make(Mimic)(NEW, LABELS, items=ITEMS)["mimicry"]
    assert terms == expected | {"mimicry": mimicry}


def test_new_classes_take_part_like_all_others():
    some_known = make(known_classes=2)
    terms = some_known(NEW, LABELS, items=ITEMS)
    assert terms == make()(NEW, LABELS, items=ITEMS)
    by_hand = terms_by_hand(some_known, OLD[ITEMS], **DEFAULTS)
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(by_hand)


def test_nothing_of_the_old_is_moved():
    method, old = make(), OLD[:7].clone().requires_grad_()
    sum(method(NEW, LABELS, old=old).values()).backward()
    assert old.grad is None
    assert [name for name, _ in method.named_parameters()] == ["classifier.weight"]


def test_what_cannot_be_is_an_error_that_says_what_to_do():
    with pytest.raises(SpaceMismatch, match="4 dimensions.*got 3.*projection to 4"):
        make()(NEW[:, :3], LABELS, items=ITEMS)
    with pytest.raises(OldSpaceError, match="each of the 7 training classes.*got 6"):
        PrototypeMimic(OldSpace(prototypes=PROTOTYPES, embeddings=OLD), 7)
