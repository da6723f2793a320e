"""Member contrast: its formula as loops, what it draws, and what its parts do."""

from math import exp, log, sqrt

import pytest
import torch
from torch import nn

from nobackfill.methods.independent import Independent
from nobackfill.methods.losses import cosine_logits
from nobackfill.methods.mapped_alignment import PrototypeAlignmentMapped
from nobackfill.methods.member_contrast import MemberContrast
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.prototypes import class_means


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


DIM, OLD_DIM, CLASSES = 5, 3, 5
OLD, NEW = random(12, OLD_DIM, seed=0), random(8, DIM, seed=1)
KNOWN = torch.tensor([0, 0, 2, 0, 0, 1, 1, 0, 1, 2, 3, 2])  # 3 has a single item, 4 none
ITEMS = torch.tensor([3, 8, 1, 0, 11, 6, 7, 10])
LABELS = KNOWN[ITEMS]


def make(labels=KNOWN, begun=True, embeddings=OLD, **options):
    torch.manual_seed(0)
    old = OldSpace(embeddings=embeddings, labels=labels)
    method = MemberContrast(old, CLASSES, **{"dim": DIM} | options).double()
    if begun:
        method.start_epoch(0, 1, new_prototypes=lambda: None, new_embeddings=lambda: None)
    return method


def call(method, new=NEW, seed=0, **given):
    """The terms, with members that the seed draws."""
    torch.manual_seed(seed)
    return method(new, LABELS, **given or {"items": ITEMS})


def drawn_by(seed):
    """The partners and the members that `call` draws; tested in test_item_index.py."""
    classes = make().classes
    torch.manual_seed(seed)
    partners = classes.others(ITEMS)
    return OLD[partners], classes.members(OLD)


def cosine(a, b):
    return (a @ b / (a.norm() * b.norm())).item()


def terms_by_hand(method, partners, members, *, own=None, weight=1.0, temperature=0.07):
    """Both terms of the docstring, one query, one positive and one class at a time."""
    own = OLD[ITEMS] if own is None else own
    scale = sqrt(2) * log(CLASSES)
    classification = contrast = 0.0
    for i, (e, y) in enumerate(zip(NEW, LABELS.tolist(), strict=True)):
        rows = method.classifier.weight
        scores = [
            exp(scale * cosine(e, row) if method.cosine else (e @ row).item()) for row in rows
        ]
        classification -= log(scores[y] / sum(scores)) / len(NEW)
        query = method.back.weight @ e + method.back.bias
        rest = sum(
            exp((cosine(query, members[c]) if members[c].any() else 0) / temperature)
            for c in range(CLASSES)
            if c != y
        )
        for positive in (own[i], partners[i]):
            near = exp(cosine(query, positive) / temperature)
            contrast -= log(near / (near + rest)) / 2 / len(NEW)
    return {"classification": classification, "compatibility": weight * contrast}


@pytest.mark.parametrize(
    "options", [{}, {"weight": 0.3}, {"temperature": 0.2}, {"share": 0.1}, {"cosine": False}]
)
def test_both_terms_are_their_formulas_written_as_loops(options):
    method, (partners, members) = make(**options), drawn_by(7)
    terms = {name: term.item() for name, term in call(method, seed=7).items()}
    given = {name: options[name] for name in ("weight", "temperature") if name in options}
    by_hand = terms_by_hand(method, partners, members, **given)
    assert terms == pytest.approx(by_hand, abs=1e-9)


def test_old_vectors_of_the_same_views_replace_the_own_ones_alone():
    view, (partners, members) = random(8, OLD_DIM, seed=5), drawn_by(3)
    terms = call(make(), seed=3, items=ITEMS, old=view)
    by_hand = terms_by_hand(make(), partners, members, own=view)
    assert terms["compatibility"].item() == pytest.approx(by_hand["compatibility"], abs=1e-9)


def test_each_step_draws_other_members():
    values = {call(make(), seed=seed)["compatibility"].item() for seed in range(5)}
    assert len(values) == 5


def gradients(method):
    """Gradients of the contrast alone, in the embedding and in the map."""
    new = NEW.clone().requires_grad_()
    call(method, new)["compatibility"].backward()
    return new.grad, method.back.weight.grad


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_map_learns_the_whole_contrast_and_the_model_its_share(share):
    whole, to_map = gradients(make(share=1.0))
    part, to_map_again = gradients(make(share=share))
    torch.testing.assert_close(part, share * whole)
    torch.testing.assert_close(to_map_again, to_map)
    assert to_map.abs().sum() > 0
    assert whole.abs().sum() > 0


def test_with_a_share_of_nothing_and_no_cosines_the_model_is_that_of_independent():
    method = make(share=0.0, cosine=False)
    new, same = NEW.clone().requires_grad_(), NEW.clone().requires_grad_()
    sum(call(method, new).values()).backward()
    alone = Independent(OldSpace(), CLASSES, dim=DIM).double()
    alone.classifier.load_state_dict(method.classifier.state_dict())
    alone(same, LABELS)["classification"].backward()
    assert torch.equal(new.grad, same.grad)


def test_where_all_items_of_a_class_are_alike_it_is_mapped_alignment_with_their_means():
    centres = random(CLASSES, OLD_DIM, seed=4)
    known = torch.cat([KNOWN, torch.tensor([4])])  # every class has an item
    method = make(labels=known, embeddings=centres[known])
    means = class_means(centres[known], known, CLASSES)
    aligned = PrototypeAlignmentMapped(
        OldSpace(prototypes=means), CLASSES, dim=DIM, cosine=True, share=0.25
    ).double()
    aligned.load_state_dict(method.state_dict(), strict=False)
    for name, term in call(method).items():
        torch.testing.assert_close(term, aligned(NEW, LABELS)[name])


def test_classes_are_collected_from_the_batches_for_the_next_epoch():
    method = make(labels=None)
    nothing = OLD.new_zeros(CLASSES, OLD_DIM)
    by_hand = terms_by_hand(method, OLD[ITEMS], nothing)  # each item is its own partner
    first = call(method)["compatibility"].item()
    assert first == pytest.approx(by_hand["compatibility"], abs=1e-9)
    assert method.classes.known[ITEMS].tolist() == LABELS.tolist()
    method.start_epoch(1, 2, new_prototypes=lambda: None, new_embeddings=lambda: None)
    members = method.classes.members(OLD)
    assert members[4].tolist() == [0.0, 0.0, 0.0]
    for c in range(4):
        assert any(torch.equal(members[c], OLD[i]) for i in ITEMS[c == LABELS])


def test_old_vectors_do_not_learn():
    view = random(8, OLD_DIM, seed=5).requires_grad_()
    method = make()
    sum(call(method, items=ITEMS, old=view).values()).backward()
    assert view.grad is None
    assert {name for name, _ in method.named_parameters()} == {
        "classifier.weight", "back.weight", "back.bias",
    }  # fmt: skip


def test_queries_are_mapped_and_stored_vectors_stay_as_they_are():
    method = make()
    assert torch.equal(method.gallery(NEW), NEW)
    torch.testing.assert_close(method.query(NEW), NEW @ method.back.weight.T + method.back.bias)
    sides = MemberContrast.sides(method.float().state_dict(), {})
    torch.testing.assert_close(sides.query(NEW.float()), method.query(NEW.float()))
    assert isinstance(sides.gallery, nn.Identity)


def test_the_dimension_is_taken_from_the_first_batch():
    method = make(dim=None)
    torch.manual_seed(1)
    terms = call(method)
    assert method.classifier.weight.shape == (CLASSES, DIM)
    scale = sqrt(2) * log(CLASSES)
    logits = [[scale * cosine(e, row) for row in method.classifier.weight] for e in NEW]
    expected = torch.nn.functional.cross_entropy(torch.tensor(logits), LABELS).item()
    assert terms["classification"].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("classes", [2, 200, 24393])
def test_the_scale_of_the_cosine_classifier(classes):
    weights = random(classes, 4, seed=0) * 7
    logits = cosine_logits(3 * weights[:1], weights)
    assert logits.max().item() == logits[0, 0].item()
    assert logits[0, 0].item() == pytest.approx(sqrt(2) * log(classes))
    assert logits[0, 1].item() == pytest.approx(sqrt(2) * log(classes) * cosine(*weights[:2]))


@pytest.mark.parametrize("name", ["prototype_alignment", "ndpp", "odpp", "ndpp_mapped"])
def test_the_methods_of_the_paper_may_have_a_cosine_classifier(name):
    from nobackfill.methods import METHODS

    def classification(**options):
        torch.manual_seed(0)
        old = OldSpace(prototypes=random(CLASSES, DIM, seed=3))
        method = METHODS[name](old, CLASSES, **options).double()
        return method(NEW, LABELS)["classification"].item(), method.classifier.weight

    value, weight = classification(cosine=True)
    logits = (
        torch.tensor([[cosine(e, row) for row in weight] for e in NEW]) * sqrt(2) * log(CLASSES)
    )
    expected = torch.nn.functional.cross_entropy(logits, LABELS).item()
    assert value == pytest.approx(expected, abs=1e-6)
    assert classification()[0] != pytest.approx(value)
