"""The contrast with all classes in blocks equals the plain formula, loss and gradient."""

import pytest
import torch
import torch.nn.functional as F

from nobackfill.methods import losses
from nobackfill.methods.losses import class_contrast, prototype_loss
from nobackfill.ops.softmax_contrast import SHARPEST, before_normalizing, class_sums


def case(batch=9, classes=127, dim=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    new = torch.randn(batch, dim, generator=generator, dtype=dtype)
    old = torch.randn(classes, dim, generator=generator, dtype=dtype) * 3
    moved = old + 0.3 * torch.randn(classes, dim, generator=generator, dtype=dtype)
    return new, torch.randint(classes, (batch,), generator=generator), moved, old


def by_loops(new, labels, moved, old, temperature):
    """The formula, term by term."""
    total = 0.0
    for e, label in zip(new, labels.tolist(), strict=True):
        own = torch.exp(F.cosine_similarity(e, moved[label], dim=0) / temperature)
        rest = sum(
            torch.exp(F.cosine_similarity(e, p, dim=0) / temperature)
            for c, p in enumerate(old)
            if c != label
        )
        total = total - torch.log(own / (own + rest))
    return total / len(new)


@pytest.mark.parametrize(
    ("batch", "classes", "dim"), [(1, 1, 1), (2, 2, 1), (3, 127, 3), (5, 65, 255), (2, 1025, 3)]
)
@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_blocks_equal_the_formula(monkeypatch, batch, classes, dim, temperature):
    new, labels, moved, old = case(batch, classes, dim, seed=classes)
    new.requires_grad_()
    expected = by_loops(new, labels, moved, old, temperature)
    (gradient,) = torch.autograd.grad(expected, new)
    monkeypatch.setattr(losses, "MANY", 1)
    monkeypatch.setattr("nobackfill.ops.softmax_contrast.BLOCK_BYTES", {"cpu": 8 * batch * 50})
    found = prototype_loss(new, labels, moved, old, temperature=temperature)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(3 * found, new)[0], 3 * gradient)


@pytest.mark.parametrize("positives", [1, 2, 3])
@pytest.mark.parametrize("many", [1, 2**20])
def test_several_positives_take_turns(monkeypatch, positives, many):
    """In blocks and at once; equal to one loss for each positive, and not to one for their sum."""
    new, labels, _, old = case(5, 20, 4)
    new.requires_grad_()
    own = torch.randn(positives, 5, 4, dtype=new.dtype)
    targets = [old.clone().repeat(5, 1, 1) for _ in own]  # (item, class, dim)
    expected = 0.0
    for target, positive in zip(targets, own, strict=True):
        for i, label in enumerate(labels.tolist()):
            target[i, label] = positive[i]
            single = by_loops(new[i : i + 1], labels[i : i + 1], target[i], old, 0.1)
            expected = expected + single / (5 * positives)
    (gradient,) = torch.autograd.grad(expected, new)
    monkeypatch.setattr(losses, "MANY", many)
    measured = class_contrast(new, labels, own, old, temperature=0.1)
    torch.testing.assert_close(measured, expected)
    torch.testing.assert_close(torch.autograd.grad(measured, new)[0], gradient)


@pytest.mark.parametrize("block", [1, 7, 126, 127, 500])
def test_sums_do_not_depend_on_the_block(block):
    new, labels, _, old = case()
    e = F.normalize(new, dim=1)
    whole, parts = class_sums(e, labels, old, 0.1), class_sums(e, labels, old, 0.1, block=block)
    torch.testing.assert_close(parts[0], whole[0])
    torch.testing.assert_close(parts[1], whole[1])


def test_the_gradient_is_right_by_differences(monkeypatch):
    monkeypatch.setattr(losses, "MANY", 1)
    new, labels, moved, old = case(3, 20, 4)
    new.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: prototype_loss(x, labels, moved, old), (new,))


@pytest.mark.parametrize("length", [0.0, 0.9e-12, 1.1e-12, 1e-3, 1.0, 1e6])
def test_gradients_before_normalizing_are_those_of_autograd(length):
    new = case(3)[0]
    new[1] = F.normalize(new[1], dim=0) * length
    new.requires_grad_()
    e = F.normalize(new, dim=1)
    g = torch.randn_like(e)
    (expected,) = torch.autograd.grad(e, new, g)
    torch.testing.assert_close(before_normalizing(g, new.detach(), e.detach()), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_embeddings_have_a_gradient_in_half_precision(monkeypatch, dtype):
    new, labels, moved, old = case(dtype=torch.float32)
    new = new.to(dtype).requires_grad_()
    (plain,) = torch.autograd.grad(prototype_loss(new, labels, moved, old), new)
    monkeypatch.setattr(losses, "MANY", 1)
    (gradient,) = torch.autograd.grad(prototype_loss(new, labels, moved, old), new)
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient, plain, rtol=0, atol=0.05 * plain.abs().max().item())


def test_nobody_finds_a_gradient_that_nobody_wants(monkeypatch):
    monkeypatch.setattr(losses, "MANY", 1)
    monkeypatch.setattr("nobackfill.ops.softmax_contrast.before_normalizing", None)  # is not called
    new, labels, moved, old = case()
    expected = by_loops(new, labels, moved, old, 0.07)
    torch.testing.assert_close(prototype_loss(new, labels, moved, old), expected)
    new.requires_grad_()
    with torch.no_grad():
        torch.testing.assert_close(prototype_loss(new, labels, moved, old), expected)


@pytest.mark.parametrize("learns", ["old", "moved"])
def test_prototypes_that_learn_take_the_plain_way(monkeypatch, learns):
    monkeypatch.setattr(losses, "MANY", 1)
    new, labels, moved, old = case()
    learned = {"old": old, "moved": moved}[learns].requires_grad_()
    prototype_loss(new, labels, moved, old).backward()
    assert learned.grad.any()


def test_prototypes_that_learn_take_blocks_while_nothing_does(monkeypatch):
    monkeypatch.setattr(losses, "MANY", 1)
    monkeypatch.setattr(losses, "contrast_with_all", lambda *given: torch.tensor(7.0))
    new, labels, moved, old = case()
    moved.requires_grad_()
    with torch.no_grad():
        assert prototype_loss(new, labels, moved, old) == 7


@pytest.mark.parametrize("temperature", [0.005, SHARPEST])
def test_the_sharpest_contrast_of_the_farthest_class_is_finite(monkeypatch, temperature):
    monkeypatch.setattr(losses, "MANY", 1)
    old = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    new = torch.tensor([[-1.0, 0.0]], requires_grad=True)
    loss = prototype_loss(new, torch.tensor([0]), old, old, temperature=temperature)
    torch.testing.assert_close(loss, torch.tensor(2.0).log())
    loss.backward()
    assert new.grad.isfinite().all()


def test_a_class_that_is_certain_costs_its_small_rest(monkeypatch):
    """Not 0, as it would be where a sum has swallowed it."""
    monkeypatch.setattr(losses, "MANY", 1)
    old = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    loss = prototype_loss(torch.tensor([[1.0, 0.0]]), torch.tensor([0]), old, old, temperature=0.1)
    torch.testing.assert_close(loss, torch.tensor(-20.0).exp(), rtol=1e-4, atol=0)


def test_half_precision_prototypes_are_taken(monkeypatch):
    new, labels, moved, old = case(dtype=torch.float32)
    plain = prototype_loss(new, labels, moved.half(), old.half())
    monkeypatch.setattr(losses, "MANY", 1)
    torch.testing.assert_close(prototype_loss(new, labels, moved.half(), old.half()), plain)


def test_batch_times_classes_is_never_held(monkeypatch):
    """All that torch makes on the way is smaller."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                self.size = max(self.size, out.numel())
            return out

    monkeypatch.setattr(losses, "MANY", 1)
    monkeypatch.setattr("nobackfill.ops.softmax_contrast.BLOCK_BYTES", {"cpu": 4 * 64 * 100})
    new, labels, moved, old = case(64, 2000, 3, dtype=torch.float32)
    new.requires_grad_()
    with Largest() as seen:
        prototype_loss(new, labels, moved, old).backward()
    assert seen.size <= max(64 * 100, old.numel())
