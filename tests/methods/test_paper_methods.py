"""Baseline, NDPP and ODPP: the same loss towards other targets."""

import pytest
import torch
import torch.nn.functional as F

from nobackfill.core.config import resolve_options
from nobackfill.errors import OldSpaceError
from nobackfill.methods import METHODS
from nobackfill.methods.losses import known_class_loss, prototype_loss
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.perturbation import NeighborPerturbation, OptimizedPerturbation

PROTOTYPES = F.normalize(torch.randn(6, 5, generator=torch.Generator().manual_seed(0)) + 1, dim=-1)
NEW = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
Q = torch.randn(6, 5, generator=torch.Generator().manual_seed(2)) + 1
LABELS = torch.arange(6)

TARGETS = {
    "prototype_alignment": lambda: PROTOTYPES,
    "ndpp_old": lambda: NeighborPerturbation(PROTOTYPES).moved,
    "ndpp": lambda: updated(NeighborPerturbation(PROTOTYPES)),
    "odpp_old": lambda: OptimizedPerturbation(PROTOTYPES).moved,
    "odpp": lambda: updated(OptimizedPerturbation(PROTOTYPES)),
}


def updated(perturbation):
    perturbation.update(Q)
    return perturbation.moved


def start(method, epoch=0):
    method.start_epoch(epoch, 9, new_prototypes=lambda: Q, new_embeddings=lambda: Q)


@pytest.mark.parametrize("name", TARGETS)
def test_draws_to_its_target_and_away_from_the_others_as_they_were(name):
    method = METHODS[name](OldSpace(prototypes=PROTOTYPES), 6)
    start(method)
    expected = prototype_loss(NEW, LABELS, TARGETS[name](), PROTOTYPES, temperature=0.07)
    terms = method(NEW, LABELS)
    torch.testing.assert_close(terms["compatibility"], expected)
    by_hand = F.cross_entropy(NEW @ method.classifier.weight.T, LABELS)
    torch.testing.assert_close(terms["classification"], by_hand)


def test_weight_and_temperature_are_those_of_the_contrast():
    method = METHODS["prototype_alignment"](
        OldSpace(prototypes=PROTOTYPES), 6, weight=0.5, temperature=0.2
    )
    expected = prototype_loss(NEW, LABELS, PROTOTYPES, PROTOTYPES, temperature=0.2)
    torch.testing.assert_close(method(NEW, LABELS)["compatibility"], 0.5 * expected)


def test_the_five_targets_differ():
    targets = [make() for make in TARGETS.values()]
    for i, one in enumerate(targets):
        assert not any(torch.equal(one, other) for other in targets[:i])


@pytest.mark.parametrize("name", ["prototype_alignment", "ndpp_old", "odpp_old"])
def test_who_does_not_ask_for_new_prototypes_does_not_pay(name):
    def never():
        raise AssertionError("a pass over the training set was paid for nothing")

    method = METHODS[name](OldSpace(prototypes=PROTOTYPES), 6)
    method.start_epoch(0, 9, new_prototypes=never, new_embeddings=never)


@pytest.mark.parametrize("name", ["ndpp", "odpp"])
def test_the_new_model_pushes_each_epoch_after_its_warm_up(name):
    method = METHODS[name](OldSpace(prototypes=PROTOTYPES), 6, warmup_epochs=1)
    before = method.target.clone()
    start(method, 0)
    assert torch.equal(method.target, before)
    start(method, 1)
    assert not torch.equal(method.target, before)


@pytest.mark.parametrize("name", TARGETS)
def test_wants_a_prototype_of_every_class(name):
    with pytest.raises(OldSpaceError, match="each of the 7 training classes.*got 6"):
        METHODS[name](OldSpace(prototypes=PROTOTYPES), 7)


def test_bct_is_the_old_classifiers_loss_on_the_classes_it_knows():
    classifier = torch.randn(3, 5)
    method = METHODS["bct"](OldSpace(classifier=classifier), 6, weight=0.5)
    expected = F.cross_entropy(NEW[:3] @ classifier.T, LABELS[:3])
    torch.testing.assert_close(method(NEW, LABELS)["compatibility"], 0.5 * expected)


@pytest.mark.parametrize("dim", [3, 8])
def test_bct_cuts_or_fills_up_an_embedding_of_another_length(dim):
    classifier = torch.randn(3, 5)
    method = METHODS["bct"](OldSpace(classifier=classifier), 6, dim=dim)
    new = torch.randn(6, dim)
    shared = min(dim, 5)
    logits = new[:, :shared] @ classifier[:, :shared].T
    torch.testing.assert_close(
        method(new, LABELS)["compatibility"], known_class_loss(logits, LABELS)
    )


def test_independent_knows_nothing_of_the_old():
    method = METHODS["independent"](OldSpace(), 6)
    assert list(method(NEW, LABELS)) == ["classification"]


PERTURBATIONS = {
    "ndpp_old": NeighborPerturbation,
    "ndpp": NeighborPerturbation,
    "odpp_old": OptimizedPerturbation,
    "odpp": OptimizedPerturbation,
}
OTHER_THAN_DEFAULT = {
    "weight": 0.5, "temperature": 0.2, "warmup_epochs": 3, "normalize": False,
    "neighbors": 2, "old_strength": 0.3, "new_strength": 0.2,
    "accumulate": False, "include_self": True, "precision": "tf32",
    "seek_from": "moved", "clamp_weights": False, "unit_items": False, "cosine": True,
    "old_threshold": 0.5, "new_threshold": 0.4, "new_weight": 0.3, "steps": 4,
    "learning_rate": 0.02, "optimizer": "sgd", "hinge": "cosine", "pairs": "inbatch",
    "pairs_per_epoch": 5, "batch_size": 2, "keep_state": False,
}  # fmt: skip


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_every_option_reaches_what_it_is_for(name):
    known = resolve_options(METHODS[name], {}, where="method")
    options = {key: OTHER_THAN_DEFAULT[key] for key in known}
    own = ("weight", "temperature", "warmup_epochs", "cosine", "unit_items")
    method = METHODS[name](OldSpace(prototypes=2 * PROTOTYPES), 6, **options)
    perturb = PERTURBATIONS[name](
        2 * PROTOTYPES, **{key: value for key, value in options.items() if key not in own}
    )
    for key, value in options.items():
        assert getattr(method if key in own else method.perturb, key, value) == value
    assert method.averaging == {"unit_items": False, "normalize": False}
    assert torch.equal(method.perturb.moved, perturb.moved)
    expected = prototype_loss(NEW, LABELS, perturb.moved, PROTOTYPES, temperature=0.2)
    torch.testing.assert_close(method(NEW, LABELS)["compatibility"], 0.5 * expected)


@pytest.mark.parametrize("name", ["odpp", "odpp_old"])
def test_sampled_pairs_are_as_many_as_training_items(name):
    labels = torch.arange(6).repeat(7)
    items = torch.randn(42, 5)
    for old in (
        OldSpace(prototypes=PROTOTYPES, labels=labels),
        OldSpace(prototypes=PROTOTYPES, embeddings=items),
    ):
        method = METHODS[name](old, 6, pairs="sampled", steps=1)
        assert method.perturb.pairs_per_epoch == 42
        assert METHODS[name](old, 6, pairs_per_epoch=9).perturb.pairs_per_epoch == 9
    without = METHODS[name](OldSpace(prototypes=PROTOTYPES), 6, pairs="sampled", steps=1)
    assert without.perturb.pairs_per_epoch == 6
