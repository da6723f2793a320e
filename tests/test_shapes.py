import pytest
import torch
from jaxtyping import TypeCheckError

from nobackfill.methods.losses import prototype_loss


def test_shapes_are_checked_while_testing():
    new, old = torch.randn(2, 3), torch.randn(5, 4)
    with pytest.raises(TypeCheckError):
        prototype_loss(new, torch.tensor([0, 1]), old, old)
