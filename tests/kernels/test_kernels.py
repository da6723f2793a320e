"""Kernels against their slow twins: on a GPU where there is one, interpreted where not."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: torch does the same, slower")

from nobackfill.allclasses import class_sums, weights_by_torch
from nobackfill.kernels import exponents, largest, ranks, run_on, usable
from nobackfill.ranking import ranks_by_sorting
from nobackfill.search import best_by_topk

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def scores(rows, columns, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def equal_scores(rows, columns, values, seed=0):
    """Few different values, so that nearly all are tied."""
    return (scores(rows, columns, seed) * values).round().div(values)


def test_kernels_are_for_gpus_alone():
    assert not usable(torch.ones(2))


def test_whether_kernels_run_is_found_out_by_running_one(monkeypatch):
    device = torch.device(DEVICE)
    run_on.cache_clear()
    assert run_on(device)
    run_on.cache_clear()
    monkeypatch.setattr(exponents, "exponents_kernel", {})  # as where nothing can be compiled
    with pytest.warns(UserWarning, match="do not run on .* torch does the same"):
        assert not run_on(device)
    assert not run_on(device)  # told once
    run_on.cache_clear()


@pytest.mark.parametrize(
    ("k", "columns"), [(1, 4096), (2, 4097), (30, 5003), (100, 16_385), (127, 17_000)]
)
def test_the_largest_are_those_of_a_stable_sort(k, columns):
    score = scores(3, columns, seed=k)
    found, values, overflow = largest.largest(score, k)
    expected = score.sort(dim=1, descending=True, stable=True)
    assert not overflow.any()
    assert torch.equal(found, expected.indices[:, :k])
    assert torch.equal(values, expected.values[:, :k])


def test_ties_among_the_largest_come_in_the_order_of_columns_or_are_told():
    score = equal_scores(4, 4500, 20)
    score[1] = 0.0  # all equal
    score[2, ::2] = -0.0  # equal to 0 as a float
    score[2, 1::2] = 0.0
    found, _, overflow = largest.largest(score, 10)
    expected = score.sort(dim=1, descending=True, stable=True).indices[:, :10]
    assert overflow[1]
    assert overflow[2]
    assert torch.equal(found[~overflow], expected[~overflow])
    few = equal_scores(3, 4500, 2000, seed=1)
    found, _, overflow = largest.largest(few, 40)
    assert not overflow.any()
    assert torch.equal(found, few.sort(dim=1, descending=True, stable=True).indices[:, :40])


def test_the_largest_next_to_each_other_fit():
    score = scores(2, 6000)
    score[:, 700:1500] += 10  # a cluster: neighbours of neighbouring classes
    found, _, overflow = largest.largest(score, 100)
    assert not overflow.any()
    assert torch.equal(found, best_by_topk(score, 100))


def test_what_is_taken_out_is_never_among_the_largest():
    score = scores(3, 4200)
    score[:, :50] = -torch.inf
    score[0, 100:] = -torch.inf
    found, _, _ = largest.largest(score, 50)
    assert (found >= 50).all()


def test_rows_with_a_stride_are_read_right():
    wide = scores(3, 9000)
    found, _, _ = largest.largest(wide[:, :4300], 7)
    assert torch.equal(found, best_by_topk(wide[:, :4300], 7))


@pytest.mark.parametrize(
    ("k", "shape", "dtype", "does"),
    [
        (100, (1, 2048), torch.float32, True),
        (100, (1, 2047), torch.float32, False),  # too short
        (600, (1, 2**20), torch.float32, False),  # too many
        (100, (1, 4096), torch.float64, False),
    ],
)
def test_blocks_that_are_not_for_the_kernel_are_known(k, shape, dtype, does):
    assert largest.fits(torch.empty(shape, dtype=dtype, device="meta"), k) is does


def random_items(rows, columns, most, seed):
    generator = torch.Generator().manual_seed(seed)
    number = torch.randint(0, most + 1, (rows,), generator=generator)
    number[0], number[-1] = most, 1
    row = torch.arange(rows).repeat_interleave(number)
    item = torch.cat([torch.randperm(columns, generator=generator)[:some] for some in number])
    return row.to(DEVICE), item.to(DEVICE)


@pytest.mark.parametrize(
    ("rows", "columns", "most"),
    [(1, 1, 1), (2, 2, 2), (3, 127, 3), (4, 1025, 33), (3, 2500, 64), (2, 40_000, 5)],
)
@pytest.mark.parametrize("values", [None, 3])
def test_ranks_are_those_of_a_stable_sort(rows, columns, most, values):
    score = scores(rows, columns) if values is None else equal_scores(rows, columns, values)
    row, item = random_items(rows, columns, most, seed=columns)
    assert torch.equal(ranks.ranks(score, row, item), ranks_by_sorting(score, row, item))


def test_what_is_taken_out_comes_before_nothing():
    score = scores(2, 300)
    score[:, 5:100] = -torch.inf
    row, item = random_items(2, 5, 3, seed=1)
    assert torch.equal(ranks.ranks(score, row, item), ranks_by_sorting(score, row, item))


@pytest.mark.parametrize(("batch", "classes"), [(1, 1), (3, 2), (5, 127), (2, 20_000)])
def test_exponents_are_those_of_torch(batch, classes):
    generator = torch.Generator().manual_seed(classes)
    e = torch.nn.functional.normalize(torch.randn(batch, 5, generator=generator), dim=1).to(DEVICE)
    some = torch.randn(classes, 5, generator=generator).to(DEVICE)
    own = torch.randint(-2, classes + 2, (batch,), generator=generator).to(DEVICE)
    expected, sums = weights_by_torch(e, own, some, 0.07)
    product = e @ some.T
    found = exponents.exponents(product, own, some.norm(dim=1), 0.07)
    torch.testing.assert_close(found, sums)
    torch.testing.assert_close(product, expected)


@pytest.mark.skipif(DEVICE == "cpu", reason="wants a GPU")
def test_a_gpu_sums_over_classes_like_a_cpu():
    generator = torch.Generator().manual_seed(0)
    e = torch.nn.functional.normalize(torch.randn(70, 33, generator=generator), dim=1)
    classes = torch.randn(3001, 33, generator=generator)
    labels = torch.randint(3001, (70,), generator=generator)
    expected = class_sums(e.double(), labels, classes.double(), 0.07)
    found = class_sums(e.cuda(), labels.cuda(), classes.cuda(), 0.07, block=1000)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu().double(), other, rtol=1e-4, atol=1e-6)
