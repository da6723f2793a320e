import jaxtyping
import pytest
import torch
from beartype import beartype
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from nobackfill.core.suggest import suggest
from nobackfill.methods.losses import prototype_loss


def test_shapes_are_checked_while_testing():
    new, old = torch.randn(2, 3), torch.randn(5, 4)
    with pytest.raises(TypeCheckError):
        prototype_loss(new, torch.tensor([0, 1]), old, old)


def test_types_without_shapes_are_checked():
    with pytest.raises(TypeCheckError):
        suggest(5, [])


def test_sizes_from_arguments_are_checked():
    @jaxtyping.jaxtyped(typechecker=beartype)
    def first(rows: Float[Tensor, "a b"], dim: int) -> Float[Tensor, "a {dim}"]:
        return rows[:, :dim]

    assert first(torch.randn(2, 3), 2).shape == (2, 2)
    with pytest.raises(TypeCheckError):
        first(torch.randn(2, 3), 5)


def test_results_are_checked_and_each_call_has_axes_of_its_own():
    @jaxtyping.jaxtyped(typechecker=beartype)
    def turned(rows: Float[Tensor, "a b"]) -> Float[Tensor, "b a"]:
        small = rows.shape[0] < 3
        return turned(torch.randn(4, 4)) if small else rows

    assert turned(torch.randn(3, 3)).shape == (3, 3)
    with pytest.raises(TypeCheckError):
        turned(torch.randn(3, 5))
    with pytest.raises(TypeCheckError):
        turned(torch.randn(2, 2))  # the inner call may have another size, its result may not
