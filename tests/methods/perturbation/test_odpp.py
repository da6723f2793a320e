import pytest
import torch
import torch.nn.functional as F

from nobackfill.errors import ConfigError, DataError
from nobackfill.methods.perturbation import OptimizedPerturbation
from nobackfill.methods.perturbation.odpp import adam_step


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def crowded(rows, dim, seed):
    """Unit rows that all lie on one side."""
    return F.normalize(random(rows, dim, seed=seed) + 2, dim=-1)


def hinge_by_hand(p, r, q, *, old_threshold, new_threshold, new_weight, cosine):
    """The objective of the docstring, one ordered pair at a time."""
    x = p + r
    if cosine:
        x = x / x.norm(dim=1, keepdim=True)
    total = r.new_zeros(())
    for c in range(len(x)):
        for j in range(len(x)):
            if j != c:
                total = total + (x[c] @ x[j] - old_threshold).clamp(min=0)
                if q is not None:
                    total = total + new_weight * (x[c] @ q[j] - new_threshold).clamp(min=0)
    return total


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("hinge", ["inner", "cosine"])
def test_all_pairs_is_torchs_optimiser_on_the_loops(optimizer, hinge):
    p, epochs = crowded(7, 4, seed=0), [crowded(7, 4, seed=1), crowded(7, 4, seed=2)]
    options = {"old_threshold": 0.7, "new_threshold": 0.6, "new_weight": 0.5}
    perturb = OptimizedPerturbation(
        3 * p, steps=4, learning_rate=0.01, optimizer=optimizer, hinge=hinge, **options
    )
    r = torch.zeros_like(p, requires_grad=True)
    kind = torch.optim.Adam if optimizer == "adam" else torch.optim.SGD
    by_hand = kind([r], lr=0.01)
    for q in [None, *epochs]:
        if q is not None:
            perturb.update(5 * q)
        for _ in range(4):
            by_hand.zero_grad()
            hinge_by_hand(p, r, q, cosine=hinge == "cosine", **options).backward()
            by_hand.step()
        torch.testing.assert_close(perturb.moved, p + r.detach(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("keep_state", [True, False])
@pytest.mark.parametrize("accumulate", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
def test_the_perturbation_is_kept_or_begins_again(accumulate, keep_state, normalize):
    """Algorithm 2 continues from the last epoch; the other reading begins each at r = 0."""
    p, epochs = crowded(7, 4, seed=0) * 1.1, [crowded(7, 4, seed=1), crowded(7, 4, seed=2) * 0.9]
    unit = (lambda x: x / x.norm(dim=1, keepdim=True)) if normalize else (lambda x: x)
    options = {"old_threshold": 0.7, "new_threshold": 0.6, "new_weight": 0.5}
    perturb = OptimizedPerturbation(
        p, steps=4, learning_rate=0.01, accumulate=accumulate, keep_state=keep_state,
        normalize=normalize, **options,
    )  # fmt: skip
    r = torch.zeros_like(p, requires_grad=True)
    by_hand = torch.optim.Adam([r], lr=0.01)
    for q in [None, *epochs]:
        if q is not None:
            perturb.update(q)
        if not accumulate:
            r.data.zero_()
        if not keep_state:
            by_hand = torch.optim.Adam([r], lr=0.01)
        for _ in range(4):
            by_hand.zero_grad()
            new = None if q is None else unit(q)
            hinge_by_hand(unit(p), r, new, cosine=False, **options).backward()
            by_hand.step()
        torch.testing.assert_close(perturb.moved, unit(p) + r.detach(), rtol=0, atol=1e-10)


def test_adam_step_is_torchs():
    parameter = random(3, 2, seed=0).requires_grad_()
    moved, first, second = parameter.detach().clone(), torch.zeros(3, 2), torch.zeros(3, 2)
    first, second = first.double(), second.double()
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    for step in range(1, 6):
        parameter.grad = random(3, 2, seed=step)
        optimizer.step()
        moved -= 0.1 * adam_step(parameter.grad, first, second, step)
    torch.testing.assert_close(moved, parameter.detach(), rtol=0, atol=1e-12)


def count_near(x, threshold):
    x = F.normalize(x, dim=-1)
    return int((x @ x.T > threshold).triu(1).sum())


def test_crowded_prototypes_are_moved_until_they_are_not():
    p = crowded(20, 16, seed=0)
    perturb = OptimizedPerturbation(p, hinge="cosine", steps=300, learning_rate=1e-2)
    assert count_near(p, 0.6) > 100
    assert count_near(perturb.moved, 0.601) == 0


def test_prototypes_with_room_stay_where_they_are():
    p = torch.eye(5)
    perturb = OptimizedPerturbation(p)
    perturb.update(p)
    assert torch.equal(perturb.moved, p)


def test_new_prototypes_of_other_classes_push_and_the_own_does_not():
    p = torch.eye(4, dtype=torch.float64)
    perturb = OptimizedPerturbation(p, steps=5)
    perturb.update(p)  # every class has its own new prototype where it is itself
    assert torch.equal(perturb.moved, p)
    perturb.update(p[[1, 0, 2, 3]])  # the new prototypes of classes 0 and 1 have changed places
    assert (perturb.moved[:2] != p[:2]).any(dim=1).all()
    assert torch.equal(perturb.moved[2:], p[2:])


def test_blocks_make_no_difference():
    """More classes than one block of rows holds."""
    p = crowded(1500, 8, seed=0)
    perturb = OptimizedPerturbation(p, steps=1, optimizer="sgd", learning_rate=1e-4)
    near = p @ p.T > 0.6
    near.fill_diagonal_(False)
    expected = p - 1e-4 * 2 * (near.double() @ p)
    torch.testing.assert_close(perturb.moved, expected, rtol=0, atol=1e-10)


def sampled_by_hand(p, q, *, steps, per_epoch, batch, seed, lr, cosine):
    """The printed procedure with plain SGD, pair by pair."""
    x = p.clone()
    generator = torch.Generator().manual_seed(seed)
    classes = len(p)
    for _ in range(steps):
        left = per_epoch
        while left:
            size = min(batch, left)
            left -= size
            rows = torch.randint(classes, (size,), generator=generator)
            others = torch.randint(classes - 1, (size,), generator=generator)
            others = others + (others >= rows)
            leaf = x.clone().requires_grad_()
            at = leaf / leaf.norm(dim=1, keepdim=True) if cosine else leaf
            loss = sum(
                (at[i] @ at[j] - 0.7).clamp(min=0) for i, j in zip(rows, others, strict=True)
            )
            if q is not None:
                news = torch.randint(classes - 1, (size,), generator=generator)
                news = news + (news >= rows)
                loss = loss + 0.5 * sum(
                    (at[i] @ q[j] - 0.6).clamp(min=0) for i, j in zip(rows, news, strict=True)
                )
            loss.backward()
            x = x - lr * leaf.grad
    return x


@pytest.mark.parametrize("hinge", ["inner", "cosine"])
def test_sampled_pairs_are_the_printed_procedure(hinge):
    p, q = crowded(9, 4, seed=0), crowded(9, 4, seed=1)
    by_hand = {"steps": 3, "per_epoch": 10, "batch": 4, "lr": 0.01, "cosine": hinge == "cosine"}
    perturb = OptimizedPerturbation(
        p, pairs="sampled", pairs_per_epoch=10, batch_size=4, steps=3, optimizer="sgd",
        learning_rate=0.01, hinge=hinge, old_threshold=0.7, new_threshold=0.6, new_weight=0.5,
        generator=torch.Generator().manual_seed(5),
    )  # fmt: skip
    expected = sampled_by_hand(p, None, seed=5, **by_hand)
    torch.testing.assert_close(perturb.moved, expected, rtol=0, atol=1e-10)
    perturb.generator = torch.Generator().manual_seed(6)
    perturb.update(q)
    expected = sampled_by_hand(expected, q, seed=6, **by_hand)
    torch.testing.assert_close(perturb.moved, expected, rtol=0, atol=1e-10)


def test_a_pair_is_never_a_class_with_itself():
    perturb = OptimizedPerturbation(torch.eye(2), pairs="sampled")
    rows = torch.arange(1000) % 2
    others = perturb._draw_others(rows, torch.Generator().manual_seed(0))
    assert others.equal(1 - rows)


def test_a_batch_of_all_classes_is_all_pairs():
    p, q = crowded(9, 4, seed=0), crowded(9, 4, seed=1)
    inbatch, whole = (OptimizedPerturbation(p, pairs=kind, steps=3) for kind in ("inbatch", "all"))
    torch.testing.assert_close(inbatch.moved, whole.moved)
    inbatch.update(q)
    whole.update(q)
    torch.testing.assert_close(inbatch.moved, whole.moved)


def test_a_batch_of_some_classes_moves_only_those():
    p = crowded(9, 4, seed=0)
    perturb = OptimizedPerturbation(
        p, pairs="inbatch", batch_size=3, pairs_per_epoch=3, steps=1, optimizer="sgd"
    )
    assert (perturb.moved != perturb.old).any(dim=1).sum() == 3


@pytest.mark.parametrize("pairs", ["all", "sampled", "inbatch"])
def test_goes_on_where_its_state_was_saved(pairs):
    p, q = crowded(9, 4, seed=0), crowded(9, 4, seed=1)
    one, other = (OptimizedPerturbation(p, pairs=pairs, steps=3) for _ in range(2))
    one.update(q)
    other.load_state_dict(one.state_dict())
    one.update(q)
    other.update(q)
    assert torch.equal(one.moved, other.moved)


def test_forgetting_the_optimisers_state_keeps_the_perturbation():
    p, q = crowded(9, 4, seed=0), crowded(9, 4, seed=1)
    kept, forgot = (OptimizedPerturbation(p, steps=5, keep_state=keep) for keep in (True, False))
    assert torch.equal(kept.moved, forgot.moved)
    before = forgot.moved
    kept.update(q)
    forgot.update(q)
    assert not torch.equal(kept.moved, forgot.moved)
    assert (forgot.moved - before).abs().max() < 5 * 1.01e-3  # five first steps of Adam


def test_is_no_parameter_of_the_model():
    assert not list(OptimizedPerturbation(torch.eye(3)).parameters())


def test_says_what_is_wrong():
    p = torch.eye(3)
    for options in ({"pairs": "some"}, {"optimizer": "lion"}, {"hinge": "l2"}):
        with pytest.raises(ConfigError, match="must be one of"):
            OptimizedPerturbation(p, **options)
    for options in ({"steps": 0}, {"batch_size": 0}, {"pairs_per_epoch": 0}):
        with pytest.raises(ConfigError, match="must be at least 1"):
            OptimizedPerturbation(p, **options)
    with pytest.raises(DataError, match="at least two classes"):
        OptimizedPerturbation(p[:1])
    with pytest.raises(DataError, match="2 classes"):
        OptimizedPerturbation(p).update(p[:2])


def test_every_update_draws_anew():
    p = crowded(9, 4, seed=0)
    perturb = OptimizedPerturbation(
        p, pairs="inbatch", batch_size=3, pairs_per_epoch=3, steps=1, optimizer="sgd"
    )
    before = perturb.moved
    perturb.update(p)
    assert not torch.equal(before != perturb.old, perturb.moved != before)


def test_prototypes_are_made_unit_only_if_asked():
    p = 3 * torch.eye(4, dtype=torch.float64)
    assert torch.equal(OptimizedPerturbation(p, normalize=False).moved, p)
    assert torch.equal(OptimizedPerturbation(p).moved, p / 3)


def test_the_cosine_hinge_knows_no_length():
    p, q = crowded(7, 4, seed=0), crowded(7, 4, seed=1)
    one, other = (OptimizedPerturbation(p, hinge="cosine", normalize=False) for _ in range(2))
    one.update(q)
    other.update(5 * q)
    torch.testing.assert_close(one.moved, other.moved)
