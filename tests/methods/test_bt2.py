from math import exp, log, sqrt

import pytest
import torch

from nobackfill.errors import DataError, OldSpaceError, SpaceMismatch
from nobackfill.methods.bt2 import BT2
from nobackfill.methods.old_space import OldSpace


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


ITEMS, LABELS = torch.tensor([3, 0, 8, 7, 7]), torch.tensor([0, 1, 2, 3, 3])
WEIGHTS = {"independent_weight": 1.0, "prototype_weight": 10.0, "mimic_weight": 5.0}
# of the independent model, of the old, beyond, of the model's embedding
SIZES = [(4, 6, 3, 10), (6, 4, 3, 6), (5, 5, 4, 12), (6, 2, 4, 9), (4, 7, 3, 11)]
every_size = pytest.mark.parametrize(("new_dim", "old_dim", "extra", "dim"), SIZES)


def make(new_dim=4, old_dim=6, extra=3, dim=10, *, known_classes=None, **options):
    old = OldSpace(
        prototypes=random(4, old_dim, seed=0),
        embeddings=random(9, old_dim, seed=1),
        independent=random(9, new_dim, seed=2),
        known_classes=known_classes,
    )
    torch.manual_seed(0)
    method = BT2(old, 4, **{"extra_dims": extra, "dim": dim} | options).double()
    rotate(method.basis.rotate_own, seed=7)  # in double precision, unlike what they start from
    rotate(method.basis.rotate_old, seed=8)
    return method, old


def rotate(layer, seed):
    layer.weight = torch.linalg.qr(random(*layer.weight.shape, seed=seed)).Q


def unit(vector):
    return vector / vector.norm()


def output_by_hand(basis, vector, new_dim, old_dim, scale=2.0):
    """[R_o z_1..D_old ; the rest of z] of one item, with z = [u ; R_p (c v)]."""
    v = unit(vector[:new_dim])
    u = unit(basis.old_like.weight @ vector.clamp(min=0) + basis.old_like.bias)
    z = torch.cat([u, basis.rotate_own.weight @ (scale * v)])
    return torch.cat([basis.rotate_old.weight @ z[:old_dim], z[old_dim:]])


def cross_entropy(logits, label):
    scores = [exp(logit.item()) for logit in logits]
    return -log(scores[label] / sum(scores))


def terms_by_hand(method, old, new, stored, scale, weights):
    """Every term of the docstring, one item at a time."""
    new_dim, old_dim = old.independent.shape[1], old.prototypes.shape[1]
    names = ("classification", "compatibility", "mimicry", "independent")
    terms = dict.fromkeys(names, 0.0)
    for h, f, item, y in zip(new, stored, ITEMS, LABELS.tolist(), strict=True):
        v = unit(h[:new_dim])
        o = unit(output_by_hand(method.basis, h, new_dim, old_dim, scale)[:old_dim])
        terms["classification"] += cross_entropy([w @ v for w in method.classifier.weight], y)
        by_prototypes = cross_entropy([o @ unit(p) for p in old.prototypes], y)
        terms["compatibility"] += weights["prototype_weight"] * by_prototypes
        terms["mimicry"] += weights["mimic_weight"] * (1 - (o @ unit(f)).item())
        like_independent = (v @ unit(old.independent[item])).item()
        terms["independent"] += weights["independent_weight"] * (1 - like_independent)
    return {name: total / len(new) for name, total in terms.items()}


@every_size
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"independent_weight": 0.3, "prototype_weight": 2.0, "mimic_weight": 0.7, "scale": 0.5},
    ],
)
def test_every_term_is_its_formula_written_as_loops(new_dim, old_dim, extra, dim, options):
    method, old = make(new_dim, old_dim, extra, dim, **options)
    new, view = random(5, dim, seed=3), random(5, old_dim, seed=4)
    scale = options.get("scale", 2.0)
    for stored, given in ((old.embeddings[ITEMS], {}), (view, {"old": view})):
        terms = {k: t.item() for k, t in method(new, LABELS, items=ITEMS, **given).items()}
        by_hand = terms_by_hand(method, old, new, stored, scale, WEIGHTS | options)
        assert terms == pytest.approx(by_hand, abs=1e-10)


@every_size
def test_both_sides_are_the_output_of_one_length_and_longer_by_the_extra_dimensions(
    new_dim, old_dim, extra, dim
):
    for scale in (2.0, 0.5):
        method, _ = make(new_dim, old_dim, extra, dim, scale=scale)
        new = random(5, dim, seed=3)
        rows = [output_by_hand(method.basis, h, new_dim, old_dim, scale) for h in new]
        torch.testing.assert_close(method.query(new), torch.stack(rows), rtol=0, atol=1e-10)
        assert torch.equal(method.gallery(new), method.query(new))
        assert method.query(new).shape == (5, new_dim + extra)
        expected = torch.full((5,), sqrt(1 + scale**2), dtype=torch.float64)
        torch.testing.assert_close(method.query(new).norm(dim=-1), expected)


def test_the_output_is_32_dimensions_longer_and_twice_the_independent_part_if_not_told():
    method = BT2(make()[1], 4).float()
    new = random(5, 10, seed=3).float()
    method(new, LABELS, items=ITEMS)
    assert method.query(new).shape == (5, 36)
    torch.testing.assert_close(method.query(new).norm(dim=-1), torch.full((5,), sqrt(5)))


@every_size
def test_rotations_do_not_change_how_new_vectors_compare(new_dim, old_dim, extra, dim):
    method, _ = make(new_dim, old_dim, extra, dim)
    new, basis = random(5, dim, seed=3), method.basis
    before = method.query(new)
    u = torch.nn.functional.normalize(basis.old_like(new.relu()), dim=-1)
    v = torch.nn.functional.normalize(new[:, :new_dim], dim=-1)
    torch.testing.assert_close(before @ before.T, u @ u.T + 4 * v @ v.T)
    rotate(basis.rotate_old, seed=5)
    after = method.query(new)
    torch.testing.assert_close(after @ after.T, before @ before.T)
    assert torch.equal(after[:, old_dim:], before[:, old_dim:])
    assert (after[:, :old_dim] - before[:, :old_dim]).abs().max() > 0.1
    rotate(basis.rotate_own, seed=6)
    turned = method.query(new)
    torch.testing.assert_close(turned @ turned.T, before @ before.T)
    assert not torch.allclose(turned, after)


def test_rotations_stay_rotations_and_learn_only_to_meet_the_old():
    method, _ = make()
    new = random(5, 10, seed=3).requires_grad_()
    terms = method(new, LABELS, items=ITEMS)
    for name, term in terms.items():
        method.zero_grad()
        new.grad = None
        term.backward(retain_graph=True)
        assert new.grad.any(dim=-1).all(), f"`{name}` does not move every item"
        rotated = method.basis.rotate_old.parametrizations.weight.original.grad
        meets_the_old = name in ("compatibility", "mimicry")
        assert (rotated is not None and bool(rotated.any())) == meets_the_old
    method.zero_grad()
    sum(method(new, LABELS, items=ITEMS).values()).backward()
    torch.optim.SGD(method.parameters(), lr=0.5).step()
    for rotation in (method.basis.rotate_own.weight, method.basis.rotate_old.weight):
        torch.testing.assert_close(rotation @ rotation.T, torch.eye(len(rotation)).double())


def test_nothing_of_the_old_or_the_independent_model_is_moved():
    method, _ = make()
    view = random(5, 6, seed=4).requires_grad_()
    sum(method(random(5, 10, seed=3), LABELS, items=ITEMS, old=view).values()).backward()
    assert view.grad is None
    moved = {name.split(".")[0] for name, _ in method.named_parameters()}
    assert moved == {"classifier", "basis"}


def test_new_classes_take_part_like_all_others():
    new = random(5, 10, seed=3)
    some_known = make(known_classes=2)[0](new, LABELS, items=ITEMS)
    assert some_known == make()[0](new, LABELS, items=ITEMS)


def test_what_is_served_is_rebuilt_from_the_saved_tensors_and_the_scale():
    method, _ = make(scale=0.5)
    sides = BT2.sides(method.float().state_dict(), {"scale": 0.5})
    new = random(5, 10, seed=3).float()
    assert torch.equal(sides.query(new), method.query(new))
    assert torch.equal(sides.gallery(new), method.gallery(new))


def test_what_cannot_be_is_an_error_that_says_what_to_do():
    with pytest.raises(SpaceMismatch, match="at least the 4.*best 10.*got 3 and 7. Raise"):
        make(dim=3)
    with pytest.raises(SpaceMismatch, match="the 8 of the old, but got 12 and 7.*extra_dims"):
        make(old_dim=8, dim=12)
    with pytest.raises(SpaceMismatch, match="at least the 4.*got 3. Raise embedding_dim to 4"):
        make(dim=None)[0](random(5, 3, seed=3), LABELS, items=ITEMS)
    with pytest.raises(DataError, match="`items=`"):
        make()[0](random(5, 10, seed=3), LABELS, old=random(5, 6, seed=4))
    with pytest.raises(OldSpaceError, match="each of the 5 training classes.*got 4"):
        BT2(make()[1], 5)


def test_wants_the_independent_vectors_of_the_same_items():
    old = OldSpace(
        prototypes=random(4, 6, seed=0),
        embeddings=random(9, 6, seed=1),
        independent=random(8, 4, seed=2),
    )
    with pytest.raises(OldSpaceError, match="same 9 training items, but got 8"):
        BT2(old, 4)
