import pytest
import torch

from nobackfill.errors import DataError
from nobackfill.methods.checks import check_same_classes


def test_finite_new_prototypes_of_the_same_shape_pass():
    check_same_classes(torch.ones(3, 2), torch.full((3, 2), 3e38))


@pytest.mark.parametrize(("shape", "got"), [((4, 2), "4 classes"), ((3, 5), "5 dimensions")])
def test_other_classes_or_dimensions_are_refused(shape, got):
    with pytest.raises(DataError, match=f"3 classes and 2 dimensions, but .*{got}"):
        check_same_classes(torch.ones(3, 2), torch.full(shape, torch.nan))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_numbers_that_are_none_are_refused(value):
    new = torch.ones(3, 2)
    new[2, 0] = value
    with pytest.raises(DataError, match="diverged"):
        check_same_classes(torch.ones(3, 2), new)
