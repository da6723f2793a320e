"""Kernels against their slow twins: on a GPU where there is one, interpreted where not."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: torch does the same, slower")

from nobackfill.methods.perturbation.ndpp import weighted_pushes
from nobackfill.ops.bf16x3 import gallery_side, query_side
from nobackfill.ops.kernels import bf16x3 as thirds
from nobackfill.ops.kernels import ndpp_pushes as pushes
from nobackfill.ops.kernels import ranks, run_on, usable
from nobackfill.ops.kernels import softmax_terms as exponents
from nobackfill.ops.kernels import threshold_mask as masks
from nobackfill.ops.kernels import topk as largest
from nobackfill.ops.nearest import best_by_topk, best_of_all, write_best
from nobackfill.ops.ranking import in_order, ranks_by_sorting, row_starts
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
    with pytest.warns(UserWarning, match="do not run on .* torch does the same"):
        assert not run_on(device)
    assert not run_on(device)  # told once
    run_on.cache_clear()


def the_largest(score, k):
    column = torch.full((len(score), k), -1, device=DEVICE)
    value = torch.full((len(score), k), torch.nan, device=DEVICE)
    largest.largest(score, k, column, value)
    return column, value


@pytest.mark.parametrize(
    ("k", "columns"),
    [(1, 4096), (2, 4097), (30, 5003), (100, 16_385), (127, 17_000), (9, 70_001), (3, 270_000)],
)
def test_the_largest_are_those_of_a_stable_sort(k, columns):
    score = scores(3, columns, seed=k)
    found, values = the_largest(score, k)
    expected = score.sort(dim=1, descending=True, stable=True)
    assert torch.equal(found, expected.indices[:, :k])
    assert torch.equal(values, expected.values[:, :k])


@pytest.mark.parametrize("columns", [512, 513, 1024, 1025, 1026])
def test_the_last_column_is_looked_at(columns):
    """Also where it is alone in the last round, or the only one that is not taken out."""
    score = scores(2, columns)
    score[0, -1] = 99.0
    score[1, :-1] = -torch.inf
    assert torch.equal(the_largest(score, 3)[0], best_by_topk(score, 3))


@pytest.mark.parametrize(("values", "k"), [(20, 10), (2000, 40), (3, 100), (1, 512)])
def test_ties_among_the_largest_come_in_the_order_of_columns(values, k):
    score = equal_scores(4, 8500, values)
    score[1] = 0.0  # all equal
    score[2, ::2] = -0.0  # equal to 0 as a float
    score[2, 1::2] = 0.0
    score[3, : k // 2] = 9.0
    found, value = the_largest(score, k)
    expected = (score + 0.0).sort(dim=1, descending=True, stable=True)
    assert torch.equal(found, expected.indices[:, :k])
    assert torch.equal(value, expected.values[:, :k])


@pytest.mark.parametrize("size", [20, 100, 200, 400, 800])
@pytest.mark.parametrize("columns", [3000, 6000])
def test_the_largest_next_to_each_other_are_found(size, columns):
    score = scores(2, columns)
    score[:, 700 : 700 + size] += 10  # a cluster: neighbours of neighbouring classes
    assert torch.equal(the_largest(score, 100)[0], best_by_topk(score, 100))


@pytest.fixture
def _fast_way_alone(monkeypatch):
    """Not by bisection over all, a matter of sixty readings."""
    from triton.runtime.interpreter import InterpretedFunction

    if not isinstance(largest.keep_exactly, InterpretedFunction):
        pytest.skip("compiled kernels cannot be watched")
    monkeypatch.setattr(largest, "keep_exactly", None)


@pytest.mark.usefixtures("_fast_way_alone")
@pytest.mark.parametrize("size", [20, 100, 200, 400, 800])
def test_clusters_do_not_take_the_slow_way(size):
    score = scores(2, 6000)
    score[:, 700 : 700 + size] += 10
    assert torch.equal(the_largest(score, 100)[0], best_by_topk(score, 100))


@pytest.mark.usefixtures("_fast_way_alone")
def test_negative_scores_do_not_take_the_slow_way():
    score = scores(2, 3000) - 10
    assert torch.equal(the_largest(score, 9)[0], best_by_topk(score, 9))


@pytest.mark.parametrize("number", [7, 8, 9, 10])
def test_as_many_as_there_is_room_for_and_one_more_are_found(number):
    """For k = 2 there is room for 8; the best are those that are met last."""
    score = torch.full((1, 4096), -1.0, device=DEVICE)
    one_group = [first + at for first in (0, 1024, 2048) for at in range(4)][: number - 1]
    score[0, one_group] = torch.arange(2.0, number + 1.0, device=DEVICE)
    score[0, 4] = 1.0  # the best of another group: the floor
    column, value = the_largest(score, 2)
    assert column.tolist() == [one_group[:-3:-1]]
    assert value.tolist() == [[number, number - 1.0]]


def test_what_is_taken_out_comes_last():
    score = scores(3, 4200)
    score[:, :50] = -torch.inf
    score[0, 100:] = -torch.inf
    found, value = the_largest(score, 60)
    assert (found[1:] >= 50).all()
    assert set(found[0, :50].tolist()) == set(range(50, 100))
    assert found[0, 50:].tolist() == list(range(10))
    assert (value[0, 50:] == -torch.inf).all()


def test_rows_with_a_stride_are_read_right():
    wide = scores(3, 9000)
    assert torch.equal(the_largest(wide[:, :4300], 7)[0], best_by_topk(wide[:, :4300], 7))


@pytest.mark.parametrize(
    ("k", "shape", "dtype", "does"),
    [
        (100, (1, 2048), torch.float32, True),
        (100, (1, 2047), torch.float32, False),  # too short
        (512, (1, 2**20), torch.float32, True),
        (513, (1, 2**20), torch.float32, False),  # too many
        (0, (1, 4096), torch.float32, False),
        (100, (1, 4096), torch.float64, False),
    ],
)
def test_blocks_that_are_not_for_the_kernel_are_known(k, shape, dtype, does):
    assert largest.fits(torch.empty(shape, dtype=dtype, device="meta"), k) is does


@pytest.mark.parametrize("k", [1, 30, 100, 512])
def test_long_rows_are_dealt_into_more_groups(k):
    assert largest.groups_for(k, 10**6) >= largest.groups_for(k, 2000) >= 8 * k
    assert largest.groups_for(k, 10**6) <= largest.MOST_GROUPS


@pytest.mark.parametrize("exclude_self", [False, True])
@pytest.mark.parametrize("block", [7, 1000])
def test_a_search_by_kernels_is_that_by_sorting(monkeypatch, exclude_self, block):
    """With clusters, with copies too many to be kept apart, and with a last block that is short."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randint(-4, 5, (600, 6), generator=generator).float().to(DEVICE)
    vectors[100:400] = vectors[7]
    vectors[:, 5] = 0.5  # no two products are exact multiples of each other
    options = {"exclude_self": exclude_self, "precision": "float32", "block": block}
    monkeypatch.setattr("nobackfill.ops.nearest.usable", lambda x: False)
    expected = best_of_all(vectors[:16], vectors, 9, **options)
    monkeypatch.setattr("nobackfill.ops.nearest.usable", lambda x: True)
    found = best_of_all(vectors[:16], vectors, 9, **options)
    assert found[0].equal(expected[0])
    assert found[1].equal(expected[1])


@pytest.mark.parametrize(
    ("columns", "k", "dtype"), [(511, 3, torch.float32), (600, 3, torch.float64)]
)
def test_a_search_that_is_not_for_the_kernel_goes_without(monkeypatch, columns, k, dtype):
    score = scores(2, columns).to(dtype)
    monkeypatch.setattr("nobackfill.ops.nearest.usable", lambda x: True)
    monkeypatch.setattr(largest, "largest", None)
    indices, values = torch.empty(2, k, dtype=torch.int64, device=DEVICE), score[:, :k].clone()
    write_best(score, indices, values)
    assert indices.equal(best_by_topk(score, k))
    assert values.equal(score.gather(1, indices))


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
    return in_order(ranks_by_sorting(score, row, item), row, score.shape[1])


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


@pytest.mark.parametrize(("rows", "dim"), [(1, 1), (2, 3), (127, 255), (5, 8), (9, 1025)])
@pytest.mark.parametrize("gallery", [False, True])
def test_thirds_are_those_of_torch(rows, dim, gallery):
    x = scores(rows, dim) * 10.0 ** scores(rows, 1, seed=1).mul(8).round()
    more = 3 if gallery else 0
    expected = gallery_side(x, more) if gallery else query_side(x)
    out = torch.full_like(expected, torch.nan)
    thirds.write_thirds(x, out, gallery=gallery)
    assert out.equal(expected)


def test_sides_by_the_kernel_are_those_without(monkeypatch):
    """Of columns that are no rows one after the other, too."""
    x = scores(21, 10)[:, ::2]
    expected = gallery_side(x, 11), query_side(x)
    monkeypatch.setattr("nobackfill.ops.bf16x3.usable", lambda x: True)
    assert gallery_side(x, 11).equal(expected[0])
    assert query_side(x).equal(expected[1])


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 3), (5, 127), (3, 1025), (2, 9000)])
@pytest.mark.parametrize("later_only", [False, True])
@pytest.mark.parametrize("own", [0, 1, 500])
def test_masks_are_ones_where_it_is_above(rows, columns, later_only, own):
    wide = scores(rows, columns + 5)
    wide[0, 0] = 0.25  # not above
    product = wide[:, :columns]
    mask = masks.above(product, 0.25, own=own, later_only=later_only)
    column, mine = torch.arange(columns, device=DEVICE), own + torch.arange(rows, device=DEVICE)
    other = column > mine[:, None] if later_only else column != mine[:, None]
    assert mask.float().equal(((product > 0.25) & other).float())
    assert mask.dtype == torch.bfloat16
    assert rows == 1 or mask.stride(0) % 8 == 0


@pytest.mark.parametrize(("classes", "dim", "k"), [(2, 1, 1), (7, 3, 6), (130, 255, 9), (5, 40, 4)])
def test_pushes_are_those_of_torch(classes, dim, k):
    generator = torch.Generator().manual_seed(classes)
    x, n = (torch.randn(classes, dim, generator=generator) for _ in range(2))
    neighbor = torch.randint(classes, (classes, k), generator=generator)
    cosine = torch.rand(classes, k, generator=generator) * 1.5 - 0.5
    cosine[0] = -0.1  # no neighbour on its side: not pushed
    found = pushes.pushes(x.to(DEVICE), n.to(DEVICE), neighbor.to(DEVICE), cosine.to(DEVICE))
    expected = weighted_pushes(x.double(), n.double(), neighbor, cosine.double())
    assert (found[0] == 0).all()
    torch.testing.assert_close(found.cpu().double(), expected, atol=1e-6, rtol=1e-5)


def test_pushes_do_not_mind_how_classes_lie_in_memory():
    x, n = scores(5, 14)[:, ::2], scores(7, 5, seed=1).T
    neighbor = torch.arange(10, device=DEVICE).reshape(5, 2) % 5
    cosine = scores(5, 2, seed=2).abs()
    plain = [torch.tensor(one.tolist(), device=DEVICE) for one in (x, n)]
    expected = pushes.pushes(*plain, neighbor, cosine)
    assert pushes.pushes(x, n, neighbor, cosine).equal(expected)


def test_neighbours_that_are_hardly_near_push_all_the_same():
    """Weights add up to 1 down to a sum of cosines of 1e-8; below, they fade."""
    x, n = scores(3, 4), scores(3, 4, seed=1)
    neighbor = torch.tensor([[1, 2], [0, 2], [0, 1]], device=DEVICE)
    cosine = torch.tensor([[1e-6, 3e-6], [2e-8, 1e-8], [1e-9, 0.0]], device=DEVICE)
    found = pushes.pushes(x, n, neighbor, cosine)
    torch.testing.assert_close(found, weighted_pushes(x, n, neighbor, cosine))
    assert found[2].abs().max() < 0.2 * (x[2] - n[0]).abs().max()


@pytest.mark.parametrize(("dtype", "dim", "does"), [("float32", 4096, True), ("float64", 8, False),
                                                    ("float32", 4097, False)])  # fmt: skip
def test_classes_that_are_not_for_the_kernel_are_known(dtype, dim, does):
    x = torch.empty(2, dim, dtype=getattr(torch, dtype), device="meta")
    assert pushes.fits(x, x, x) is does
    assert not pushes.fits(x, x.half(), x)
    assert not pushes.fits(x, x, x.half())
    assert not pushes.fits(x, x, x[:, :0])
