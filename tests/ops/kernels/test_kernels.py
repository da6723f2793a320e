"""Kernels against their slow twins: on a GPU where there is one, interpreted where not."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: torch does the same, slower")

from nobackfill.methods.perturbation import crowding
from nobackfill.ops import softmax_contrast
from nobackfill.ops.kernels import ranks, run_on, threshold_mask, usable
from nobackfill.ops.kernels import softmax_terms as exponents
from nobackfill.ops.ranking import ranks_by_sorting, row_starts, sort_within_rows
from nobackfill.ops.softmax_contrast import class_sums, weights_by_torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def scores(rows, columns, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def equal_scores(rows, columns, values, seed=0):
    """Few different values, so that nearly all are tied."""
    return (scores(rows, columns, seed) * values).round().div(values)


def test_kernels_are_for_gpus_alone():
    assert not usable(torch.ones(2))


class OnGPU(torch.Tensor):
    """A tensor that says that it is on the second GPU."""

    is_cuda = True
    device = torch.device("cuda:1")

    def get_device(self):
        return 1


@pytest.mark.parametrize(("current", "does"), [(1, True), (0, False)])
def test_kernels_are_for_the_current_gpu_alone(monkeypatch, current, does):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr("nobackfill.ops.kernels.run_on", lambda device: True)
    assert usable(torch.ones(2).as_subclass(OnGPU)) is does


def test_whether_kernels_run_is_found_out_by_running_one(monkeypatch):
    device = torch.device(DEVICE)
    run_on.cache_clear()
    assert run_on(device)
    run_on.cache_clear()
    monkeypatch.setattr(exponents, "exponents_kernel", {})  # as where nothing can be compiled
    with pytest.warns(UserWarning, match="do not run on .* torch computes the same"):
        assert not run_on(device)
    assert not run_on(device)  # told once
    run_on.cache_clear()


def random_items(rows, columns, most, seed):
    generator = torch.Generator().manual_seed(seed)
    number = torch.randint(0, most + 1, (rows,), generator=generator)
    number[0], number[-1] = most, 1
    row = torch.arange(rows).repeat_interleave(number)
    item = torch.cat([torch.randperm(columns, generator=generator)[:some] for some in number])
    return row.to(DEVICE), item.to(DEVICE)


def counted(score, row, item):
    start = row_starts(row, len(score))
    return ranks.ascending_ranks(score, item, start, int(start.diff().max())).long()


def sorted_whole(score, row, item):
    return sort_within_rows(ranks_by_sorting(score, row, item), row, score.shape[1])


@pytest.mark.parametrize(
    ("rows", "columns", "most"),
    [(1, 1, 1), (2, 2, 2), (3, 127, 3), (4, 1025, 33), (3, 2500, 64), (2, 40_000, 5)],
)
@pytest.mark.parametrize("values", [None, 3])
def test_ranks_are_those_of_a_stable_sort(rows, columns, most, values):
    score = scores(rows, columns) if values is None else equal_scores(rows, columns, values)
    row, item = random_items(rows, columns, most, seed=columns)
    assert torch.equal(counted(score, row, item), sorted_whole(score, row, item))


@pytest.mark.parametrize("item", [0, 1, 511, 2047, 2048, 2049, 16_384, 20_000])
def test_equal_scores_count_before_an_item_and_not_after(item):
    """In its chunk of columns, in others of the same program, and in other programs."""
    score = torch.zeros(2, 20_001, device=DEVICE)
    score[1, ::3] = 1.0
    row, column = torch.arange(2, device=DEVICE), torch.tensor([item, item], device=DEVICE)
    assert torch.equal(counted(score, row, column), sorted_whole(score, row, column))


@pytest.mark.parametrize("best", [0, 511, 512, 1023, 1024, 1535, 1536, 2047, 2048, 2099])
@pytest.mark.parametrize("item", [5, 2090])
def test_a_single_higher_score_is_seen_wherever_it_is(best, item):
    """It is the best of its four; all others are passed over."""
    score = torch.zeros(1, 2100, device=DEVICE)
    score[0, best], score[0, item] = 0.7, 0.5
    row, column = torch.tensor([0], device=DEVICE), torch.tensor([item], device=DEVICE)
    assert counted(score, row, column).tolist() == [2]


@pytest.mark.parametrize("pieces", [(0, 1), (0, 2), (1, 3), (2, 3), (0, 1, 2), (0, 1, 2, 3)])
@pytest.mark.parametrize("order", [1, -1])
def test_all_higher_scores_of_four_are_seen(pieces, order):
    """Columns of a chunk are looked at in fours, one of each piece, and the best of them first."""
    score = torch.zeros(1, 2100, device=DEVICE)
    for height, piece in enumerate(pieces[::order]):
        score[0, 512 * piece + 77] = 0.6 + height / 10
    row, column = torch.zeros(2, dtype=torch.int64, device=DEVICE), torch.tensor([5, 2090])
    score[0, 5], score[0, 2090] = 0.5, 0.65
    found = counted(score, row, column.to(DEVICE)).tolist()
    assert found == [len(pieces), len(pieces) + 2]  # all but the lowest; all and the other item


@pytest.mark.parametrize("most", [31, 32, 33, 64, 65])
def test_more_items_than_are_counted_together_are_counted(most):
    score = equal_scores(2, 9000, 5)
    row, item = random_items(2, 9000, most, seed=most)
    assert torch.equal(counted(score, row, item), sorted_whole(score, row, item))


def test_ranks_in_rows_with_a_stride_are_right():
    score = equal_scores(3, 5000, 3)[:, :2500]
    row, item = random_items(3, 2500, 40, seed=0)
    assert torch.equal(counted(score, row, item), sorted_whole(score, row, item))


@pytest.mark.parametrize("apart", [1, 2048, 9000])
def test_minus_zero_equals_zero(apart):
    """In one chunk of columns, in others, in other programs."""
    score = torch.full((1, 5 * apart + 1), -9.0, device=DEVICE)
    score[0, ::apart] = torch.tensor([0.0, -0.0, 0.0, -0.0, -1.0, 1e-40])
    row, item = torch.zeros(5, dtype=torch.int64, device=DEVICE), torch.arange(5, device=DEVICE)
    assert counted(score, row, apart * item).tolist() == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("apart", [1, 2048, 9000])
def test_neighbouring_numbers_are_told_apart(apart):
    """By one unit in the last place, of either sign; each item has a row of its own."""
    value = torch.tensor([0.3, -0.3, 1e-40, -1e-40, 2.0**-126])
    higher = torch.nextafter(value, torch.tensor(torch.inf))
    score = torch.full((5, 2 * apart + 1), -9.0, device=DEVICE)
    score[:, ::apart] = torch.stack([value, higher, value], dim=1).to(DEVICE)
    row, item = torch.arange(15, device=DEVICE), torch.arange(3, device=DEVICE).repeat(5)
    found = counted(score.repeat_interleave(3, dim=0), row, apart * item)
    assert found.tolist() == [2, 1, 3] * 5


@pytest.mark.parametrize("lowest", [-1.0, torch.finfo(torch.float32).min])
def test_what_is_taken_out_comes_before_nothing(lowest):
    """Not even before the lowest of all numbers, in a later chunk of columns."""
    score = scores(2, 3000)
    score[:, 5:100] = -torch.inf
    score[:, [3, 2999]] = lowest
    row = torch.arange(2, device=DEVICE).repeat_interleave(3)
    item = torch.tensor([2999, 3, 0, 4, 3, 2999], device=DEVICE)
    assert torch.equal(counted(score, row, item), sorted_whole(score, row, item))


@pytest.mark.parametrize(
    ("columns", "longest", "dtype", "does"),
    [
        (1, 1024, torch.float32, True),
        (9, 1025, torch.float32, False),  # too many items
        (65_535 * 2**14, 1, torch.float32, True),
        (65_535 * 2**14 + 1, 1, torch.float32, False),  # too many programs
        (9, 1, torch.float64, False),
    ],
)
def test_scores_that_are_not_for_counting_are_known(columns, longest, dtype, does):
    score = torch.empty(2, columns, dtype=dtype, device="meta")
    assert ranks.fits(score, longest) is does
    assert not ranks.fits(torch.empty(columns, 2, dtype=dtype, device="meta").T, longest)


@pytest.mark.parametrize(("batch", "classes"), [(1, 1), (3, 2), (5, 127), (2, 20_000)])
def test_exponents_are_those_of_torch(batch, classes):
    generator = torch.Generator().manual_seed(classes)
    e = torch.nn.functional.normalize(torch.randn(batch, 5, generator=generator), dim=1).to(DEVICE)
    some = torch.randn(classes, 5, generator=generator).to(DEVICE)
    own = torch.randint(-2, classes + 2, (batch,), generator=generator).to(DEVICE)
    product = e @ some.T
    expected, sums = weights_by_torch(product.clone(), own, some.norm(dim=1), 0.07)
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


def test_a_contrast_by_the_kernel_is_that_of_torch(monkeypatch):
    """All blocks, own classes inside and outside of them, loss sums and gradient sums."""
    generator = torch.Generator().manual_seed(0)
    e = torch.nn.functional.normalize(torch.randn(7, 5, generator=generator), dim=1).to(DEVICE)
    classes = torch.randn(130, 5, generator=generator).to(DEVICE)
    labels = torch.randint(130, (7,), generator=generator).to(DEVICE)
    monkeypatch.setattr(softmax_contrast, "usable", lambda x: False)
    expected = class_sums(e, labels, classes, 0.07, block=50)
    monkeypatch.setattr(softmax_contrast, "usable", lambda x: True)
    monkeypatch.setattr(softmax_contrast, "weights_by_torch", None)  # is not called
    sums = class_sums(e, labels, classes, 0.07, block=50)
    torch.testing.assert_close(sums, expected)


def test_the_kernel_of_the_contrast_is_for_single_precision_alone(monkeypatch):
    monkeypatch.setattr(softmax_contrast, "usable", lambda x: True)
    monkeypatch.setattr(exponents, "exponents", None)  # is not called
    e = torch.eye(2, dtype=torch.float64)
    sums, _ = class_sums(e, torch.tensor([0, 1]), e, 1.0)
    torch.testing.assert_close(sums, torch.full((2,), -1.0, dtype=torch.float64).exp())


@pytest.mark.parametrize(
    ("rows", "columns", "own", "later_only"),
    [(5, 127, 0, True), (5, 127, 100, False), (2, 9000, 8000, True), (2, 9000, 4500, False)],
)
def test_masks_by_the_kernel_are_those_of_torch(monkeypatch, rows, columns, own, later_only):
    product = scores(rows, columns + 5)[:, :columns]
    product[0, 3] = 0.25  # not above
    expected = crowding.above(product, 0.25, own=own, later_only=later_only, halves=True)
    column, mine = torch.arange(columns, device=DEVICE), own + torch.arange(rows, device=DEVICE)
    other = column > mine[:, None] if later_only else column != mine[:, None]
    assert expected.float().equal(((product > 0.25) & other).float())
    monkeypatch.setattr(crowding, "usable", lambda x: True)
    monkeypatch.setattr(torch, "gt", None)  # is not called
    found = crowding.above(product, 0.25, own=own, later_only=later_only, halves=True)
    assert found.dtype == expected.dtype == torch.bfloat16
    assert found.equal(expected)
    assert found.stride() == expected.stride() == (columns + -columns % 16, 1)


def test_masks_in_the_precision_of_the_products_need_no_kernel(monkeypatch):
    monkeypatch.setattr(crowding, "usable", lambda x: True)
    monkeypatch.setattr(threshold_mask, "above", None)  # is not called
    mask = crowding.above(torch.eye(2), -1.0, own=0, later_only=True)
    assert mask.tolist() == [[0.0, 1.0], [0.0, 0.0]]
