from math import exp, log

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from nobackfill.errors import SpaceMismatch
from nobackfill.methods.independent import Independent
from nobackfill.methods.janus import Janus
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.rbcl import RBCL


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


DIM, OLD_DIM, CLASSES = 5, 3, 5
OLD, NEW = random(12, OLD_DIM, seed=0), random(8, DIM, seed=1)
KNOWN = torch.tensor([0, 0, 2, 0, 0, 1, 1, 0, 1, 2, 3, 2])  # 3 has a single item
ITEMS = torch.tensor([3, 8, 1, 0, 11, 6, 7, 10])
LABELS = KNOWN[ITEMS]


def start(method):
    method.start_epoch(0, 1, new_prototypes=lambda: None, new_embeddings=lambda: None)
    return method


def make(labels=KNOWN, known_classes=None, begun=True, **options):
    torch.manual_seed(0)
    old = OldSpace(embeddings=OLD, labels=labels, known_classes=known_classes)
    method = Janus(old, CLASSES, **{"dim": DIM} | options).double()
    return start(method) if begun else method


def call(method, new=NEW, seed=0, **given):
    """The terms, with partners that the seed draws."""
    torch.manual_seed(seed)
    return method(new, LABELS, **given or {"items": ITEMS})


def partners_of(seed, number):
    """Those that `call` draws; that they are right is tested beside it."""
    classes = make().classes
    torch.manual_seed(seed)
    return [classes.others(ITEMS) for _ in range(number)]


def cosine(a, b):
    return (a @ b / (a.norm() * b.norm())).item()


def terms_by_hand(method, keys, key_labels, weight):
    """Every term of the docstring, one query, one positive and one other key at a time."""
    classification = precision = 0.0
    for e, y in zip(NEW, LABELS.tolist(), strict=True):
        scores = [exp((e @ row).item()) for row in method.classifier.weight]
        classification -= log(scores[y] / sum(scores)) / len(NEW)
        query = method.back.weight @ e + method.back.bias
        near = [cosine(query, key) for key in keys]
        own = [p for p, label in enumerate(key_labels) if label == y]
        for p in own:
            among_own = among_all = 1.0
            for j in range(len(keys)):
                if j != p:
                    ahead = 1 / (1 + exp(-(near[j] - near[p]) / 0.01))
                    among_all += ahead
                    among_own += ahead if key_labels[j] == y else 0
            precision += among_own / among_all / len(own) / len(NEW)
    return {"classification": classification, "ranking": weight * (1 - precision)}


@pytest.mark.parametrize("partners", [0, 1, 3])
@pytest.mark.parametrize("options", [{}, {"weight": 0.3}, {"share": 0.1}])
def test_both_terms_are_their_formulas_written_as_loops(options, partners):
    method = make(partners=partners, **options)
    drawn = partners_of(7, partners)
    keys = torch.cat([OLD[ITEMS], *(OLD[others] for others in drawn)])
    key_labels = LABELS.tolist() * (1 + partners)
    terms = {name: term.item() for name, term in call(method, seed=7).items()}
    by_hand = terms_by_hand(method, keys, key_labels, options.get("weight", 2.0))
    assert terms == pytest.approx(by_hand, abs=1e-9)


def test_old_vectors_of_the_same_views_are_ranked_beside_stored_partners():
    view = random(8, OLD_DIM, seed=5)
    (others,) = partners_of(3, 1)
    keys = torch.cat([view, OLD[others]])
    terms = call(make(), seed=3, items=ITEMS, old=view)
    by_hand = terms_by_hand(make(), keys, LABELS.tolist() * 2, 2.0)
    assert terms["ranking"].item() == pytest.approx(by_hand["ranking"], abs=1e-9)


def test_partners_are_of_the_same_class_and_never_the_item_itself_where_there_is_another():
    for seed in range(30):
        for others in partners_of(seed, 2):
            assert torch.equal(KNOWN[others], LABELS)
            assert ((others != ITEMS) | (LABELS == 3)).all()


def gradients(method, new=NEW, seed=0):
    """Of the ranking alone: what moves the embedding, and what moves the map."""
    new = new.clone().requires_grad_()
    call(method, new, seed)["ranking"].backward()
    return new.grad, method.back.weight.grad


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_map_learns_the_ranking_whole_and_the_model_its_share(share):
    whole, to_map = gradients(make(share=1.0))
    part, to_map_again = gradients(make(share=share))
    torch.testing.assert_close(part, share * whole)
    torch.testing.assert_close(to_map_again, to_map)
    assert to_map.abs().sum() > 0
    assert whole.abs().sum() > 0


def test_with_a_share_of_nothing_the_model_is_that_of_independent():
    method, new, same = make(share=0.0), NEW.clone().requires_grad_(), NEW.clone().requires_grad_()
    sum(call(method, new).values()).backward()
    alone = Independent(OldSpace(), CLASSES, dim=DIM).double()
    alone.classifier.load_state_dict(method.classifier.state_dict())
    alone(same, LABELS)["classification"].backward()
    assert torch.equal(new.grad, same.grad)
    assert torch.equal(method.classifier.weight.grad, alone.classifier.weight.grad)


def test_with_the_identity_as_its_map_and_no_partners_it_is_rbcl():
    old = OldSpace(embeddings=OLD, labels=KNOWN)
    method = Janus(old, CLASSES, weight=1.0, share=1.0, partners=0, dim=OLD_DIM).double()
    with torch.no_grad():
        method.back.weight.copy_(torch.eye(OLD_DIM))
        method.back.bias.zero_()
    rbcl = RBCL(old, CLASSES).double()
    rbcl.classifier.load_state_dict(method.classifier.state_dict())
    news = [NEW[:, :OLD_DIM].clone().requires_grad_() for _ in range(2)]
    for one, new in zip((method, rbcl), news, strict=True):
        sum(call(one, new).values()).backward()
    torch.testing.assert_close(news[0].grad, news[1].grad)
    terms, same = (call(one, NEW[:, :OLD_DIM]) for one in (method, rbcl))
    for name in terms:
        torch.testing.assert_close(terms[name], same[name])


def test_classes_that_nobody_told_are_learned_from_the_batches():
    method = make(labels=None)
    assert call(method)["ranking"] == call(make(partners=1, begun=False))["ranking"]  # all alone
    assert method.classes.known[ITEMS].tolist() == LABELS.tolist()
    start(method)
    torch.manual_seed(0)
    others = method.classes.others(ITEMS)
    assert torch.equal(KNOWN[others], LABELS)
    assert ((others != ITEMS) == (LABELS < 2)).all()  # one of each other class was seen
    assert set(others.tolist()) <= set(ITEMS.tolist())  # no other was seen yet


def test_without_an_epoch_begun_each_item_is_its_own_partner():
    twice = terms_by_hand(make(), OLD[ITEMS].repeat(2, 1), LABELS.tolist() * 2, 2.0)
    assert call(make(begun=False))["ranking"].item() == pytest.approx(twice["ranking"], abs=1e-9)


def test_classes_that_the_old_model_never_saw_take_part_like_all_others():
    for name, term in call(make(known_classes=1)).items():
        assert torch.equal(term, call(make())[name])


def test_nothing_of_the_old_is_moved():
    method, view = make(), random(8, OLD_DIM, seed=5).requires_grad_()
    sum(call(method, items=ITEMS, old=view).values()).backward()
    assert view.grad is None
    assert {name for name, _ in method.named_parameters()} == {
        "classifier.weight", "back.weight", "back.bias",
    }  # fmt: skip


def test_a_map_that_is_trained_ranks_better():
    method = make(share=0.0, partners=0)
    optimizer = torch.optim.Adam(method.parameters(), lr=0.05)
    before = call(method)["ranking"].item()
    for _ in range(60):
        optimizer.zero_grad()
        call(method)["ranking"].backward()
        optimizer.step()
    assert call(method)["ranking"].item() < 0.7 * before


@pytest.mark.parametrize("told", [True, False])
def test_the_map_asks_and_what_is_stored_stays_as_it_is(told):
    method = make(**{} if told else {"dim": None})
    call(method)
    assert torch.equal(method.gallery(NEW), NEW)
    expected = NEW @ method.back.weight.T + method.back.bias
    torch.testing.assert_close(method.query(NEW), expected)
    assert method.query(NEW).shape == (8, OLD_DIM)


def test_both_sides_are_rebuilt_from_what_is_saved():
    method = make().float()
    sides = Janus.sides(method.state_dict(), {})
    assert torch.equal(sides.query(NEW.float()), method.query(NEW.float()))
    assert torch.equal(sides.gallery(NEW.float()), NEW.float())
    assert isinstance(sides.gallery, nn.Identity)


def test_length_of_what_asks_plays_no_part_but_for_the_bias():
    method = make(partners=0)
    with torch.no_grad():
        method.back.bias.zero_()
    torch.testing.assert_close(call(method, 3 * NEW)["ranking"], call(method)["ranking"])
    unit = F.normalize(NEW, dim=1)
    torch.testing.assert_close(call(method, unit)["ranking"], call(method)["ranking"])


def test_another_dimension_than_was_told_is_an_error_that_says_what_to_do():
    with pytest.raises(SpaceMismatch, match="5 dimensions.*got 4.*pass dim=4"):
        call(make(), NEW[:, :4])
