"""Whole functions as a GPU runs them, kernels and all, against themselves as a CPU does."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed: torch does the same, slower")

import nobackfill as nb
from nobackfill.errors import DataError
from nobackfill.methods.perturbation import crowding
from nobackfill.methods.perturbation import ndpp as neighbor
from nobackfill.methods.perturbation.crowding import crowding_gradient, on_tensor_cores
from nobackfill.methods.perturbation.ndpp import repulsion
from nobackfill.ops import ranking

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def unit(rows, dim, seed):
    vectors = torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed))
    return F.normalize(vectors, dim=1).to(DEVICE)


def away_from(threshold, x, others):
    """Whether no product is so near the threshold that rounding decides."""
    return ((x.double() @ others.double().T - threshold).abs() > 1e-6).all()


@pytest.mark.parametrize(("classes", "dim"), [(2, 3), (16, 8), (127, 255), (50, 1)])
@pytest.mark.parametrize("block", [7, 64, 4096])
@pytest.mark.parametrize("threshold", [-0.31, 0.05, 0.4])
@pytest.mark.parametrize("among", [True, False])
def test_crowding_on_tensor_cores_is_that_of_double_precision(
    classes, dim, block, threshold, among
):
    x = unit(classes, dim, 0)
    others = x if among else unit(classes, dim, 1)
    assert away_from(threshold, x, others)
    double = x.double()
    expected = crowding_gradient(double, double if among else others.double(), threshold)
    found = on_tensor_cores(x, others, threshold, block)
    torch.testing.assert_close(found.double(), expected, atol=2e-6, rtol=1e-6)


@pytest.mark.parametrize("exact", [True, False])
def test_crowding_multiplies_exactly_where_it_may(monkeypatch, exact):
    """Products by thirds, or as torch makes them, as where it was told to round."""
    x = unit(40, 5, 0)
    asked = []
    monkeypatch.setattr(crowding, "pay", lambda rows, gallery: exact)
    original = crowding.inner_products
    monkeypatch.setattr(
        crowding, "inner_products", lambda *rest: asked.append(True) or original(*rest)
    )
    found = on_tensor_cores(x, x, 0.1, 16)
    assert bool(asked) is not exact
    double = x.double()
    torch.testing.assert_close(
        found.double(), crowding_gradient(double, double, 0.1), atol=2e-6, rtol=0
    )


def test_many_classes_take_tensor_cores_and_few_do_not(monkeypatch):
    taken = []
    monkeypatch.setattr(crowding, "usable", lambda x: True)
    monkeypatch.setattr(crowding, "sums_in_float32", lambda x: True)
    monkeypatch.setattr(crowding, "on_tensor_cores", lambda *rest: taken.append(rest) or rest[0])
    crowding_gradient(unit(9, 3, 0), unit(9, 3, 1), 0.5)
    assert not taken
    monkeypatch.setattr(crowding, "LEAST_PRODUCTS", 9 * 9 * 3)
    crowding_gradient(unit(9, 3, 0), unit(9, 3, 1), 0.5)
    assert len(taken) == 1
    crowding_gradient(unit(9, 3, 0).double(), unit(9, 3, 1).double(), 0.5)
    assert len(taken) == 1


@pytest.mark.parametrize("include_self", [True, False])
def test_repulsion_by_kernels_is_that_without(monkeypatch, include_self):
    x, p, n = (unit(30, 5, seed) for seed in range(3))
    expected = repulsion(x.double(), p.double(), n.double(), k=6, include_self=include_self)
    called = []
    monkeypatch.setattr(neighbor, "usable", lambda x: called.append(x) or True)
    found = repulsion(x, p, n, k=6, include_self=include_self)
    assert called
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_ndpp_by_kernels_moves_prototypes_as_without(monkeypatch, precision):
    old, new = unit(40, 6, 0), 3 * unit(40, 6, 1)
    options = {"neighbors": 7, "old_strength": 0.3, "new_strength": 0.2, "precision": precision}
    expected = nb.NeighborPerturbation(old, **options)
    expected.update(new)
    monkeypatch.setattr(neighbor, "usable", lambda x: True)
    found = nb.NeighborPerturbation(old, **options)
    found.update(new)
    torch.testing.assert_close(found.moved, expected.moved, atol=1e-6, rtol=0)


@pytest.mark.parametrize("longest", [None, 3, 4, 900])
def test_ranks_by_the_kernel_are_those_of_a_sort(monkeypatch, longest):
    """Rows have 3, 0, 1 and 2 items, and none at the end."""
    score = unit(5, 40, 0)
    row = torch.tensor([0, 0, 0, 2, 3, 3], device=DEVICE)
    item = torch.tensor([7, 2, 30, 0, 39, 5], device=DEVICE)
    start = ranking.row_starts(row, 5)
    expected = ranking.in_order(ranking.ranks_by_sorting(score, row, item), row, 40)
    monkeypatch.setattr(ranking, "usable", lambda x: True)
    monkeypatch.setattr(ranking, "ranks_by_sorting", None)
    assert ranking.ranks_on_gpu(score, row, item, start, longest).tolist() == expected.tolist()


def test_rows_of_too_many_items_are_sorted(monkeypatch):
    score = unit(2, 40, 0)
    row, item = torch.tensor([0, 1], device=DEVICE), torch.tensor([7, 2], device=DEVICE)
    monkeypatch.setattr(ranking, "usable", lambda x: True)
    asked = []
    original = ranking.ranks_by_sorting
    monkeypatch.setattr(
        ranking, "ranks_by_sorting", lambda *rest: asked.append(True) or original(*rest)
    )
    start = torch.arange(3, device=DEVICE)
    found = [ranking.ranks_on_gpu(score, row, item, start, longest) for longest in (1024, 1025)]
    assert len(asked) == 1
    assert found[0].tolist() == found[1].tolist()
    nothing = torch.empty(0, dtype=torch.int64, device=DEVICE)
    assert ranking.ranks_on_gpu(score, nothing, nothing, start * 0).equal(nothing)


@pytest.mark.parametrize(("most", "sorts"), [(1, True), (2, False)])
def test_how_many_items_the_longest_row_has_is_found_out(monkeypatch, most, sorts):
    asked = []
    monkeypatch.setattr(ranking, "usable", lambda x: True)
    monkeypatch.setattr(ranking, "ranks_by_sorting", lambda *rest: asked.append(True) or rest[1])
    monkeypatch.setattr("nobackfill.ops.kernels.ranks.MOST", most)
    row, item = (torch.tensor(some, device=DEVICE) for some in ([0, 2, 2], [7, 2, 9]))
    ranking.ranks_on_gpu(unit(3, 40, 0), row, item, ranking.row_starts(row, 3))
    assert bool(asked) is sorts


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_repulsion_by_kernels_is_for_single_precision_alone(monkeypatch, dtype):
    x, p, n = (unit(12, 5, seed).to(dtype) for seed in range(3))
    expected = repulsion(x, p, n, k=4)
    monkeypatch.setattr(neighbor, "usable", lambda x: True)
    found = repulsion(x, p, n, k=4)
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected, atol=1e-6 if dtype == torch.float32 else 0, rtol=0)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", [(0, 0), (3, 2), (8, 4)])
def test_new_prototypes_that_are_not_finite_are_refused(value, place):
    ndpp = nb.NeighborPerturbation(unit(9, 5, 0), neighbors=3)
    new = unit(9, 5, 1)
    new[place] = value
    with pytest.raises(DataError, match="diverged"):
        ndpp.update(new)
