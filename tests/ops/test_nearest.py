import pytest
import torch

from nobackfill.errors import DataError
from nobackfill.ops import nearest as search
from nobackfill.ops.nearest import best_by_partition, best_by_topk, nearest

EVERY_WAY = pytest.mark.parametrize("best", [best_by_partition, best_by_topk])


def vectors(rows, dim=3, *, seed, dtype=torch.float64):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def whole_numbers(rows, dim=2, *, seed):
    """Vectors whose inner products are small integers: exact in floats, and often equal."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-1, 2, (rows, dim), generator=generator).double()


def nearest_by_hand(query, gallery, k, *, exclude_self=False):
    """Sorts all of the gallery for one query after the other; Python's sort keeps ties in order."""
    found = []
    for i, q in enumerate(query):
        score = [sum((q * g).tolist()) for g in gallery]
        items = [j for j in range(len(gallery)) if not (exclude_self and i == j)]
        found.append(sorted(items, key=lambda j, score=score: -score[j])[:k])
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("block", [1, 4, None])
def test_agrees_with_sorting_by_hand(seed, k, block):
    query, gallery = vectors(7, seed=seed), vectors(10, seed=seed + 100)
    indices, scores = nearest(query, gallery, k, block=block)
    assert indices.tolist() == nearest_by_hand(query, gallery, k)
    torch.testing.assert_close(scores, (query @ gallery.T).gather(1, indices))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_equal_scores_come_in_the_order_of_the_gallery(seed, k):
    query, gallery = whole_numbers(6, seed=seed), whole_numbers(9, seed=seed + 100)
    indices, _ = nearest(query, gallery, k, block=4)
    assert indices.tolist() == nearest_by_hand(query, gallery, k)


@EVERY_WAY
@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_cpu_and_gpu_code_agree_on_ties_too(best, k):
    score = whole_numbers(20, 9, seed=0)
    expected = score.sort(dim=1, descending=True, stable=True).indices[:, :k]
    assert best(score, k).tolist() == expected.tolist()


@pytest.mark.parametrize("block", [1, 4, None])
def test_nobody_is_his_own_neighbour_if_excluded(block):
    x = vectors(9, seed=0)
    indices, scores = nearest(x, x, 100, exclude_self=True, block=block)
    assert indices.tolist() == nearest_by_hand(x, x, 100, exclude_self=True)
    assert indices.shape == (9, 8)
    assert scores.isfinite().all()


def test_only_the_pair_itself_is_excluded():
    same = torch.ones(3, 2)
    indices, _ = nearest(same, same, 2, exclude_self=True)
    assert indices.tolist() == [[1, 2], [0, 2], [0, 1]]


def test_one_item_has_no_other():
    indices, scores = nearest(torch.ones(1, 2), torch.ones(1, 2), 5, exclude_self=True)
    assert indices.shape == scores.shape == (1, 0)


def test_more_than_there_is_means_all():
    indices, _ = nearest(vectors(2, seed=0), vectors(5, seed=1), 50)
    assert indices.sort(dim=1).values.tolist() == [[0, 1, 2, 3, 4]] * 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_half_precision_is_computed_in_single(dtype):
    query, gallery = vectors(4, seed=0, dtype=torch.float64).to(dtype), vectors(6, seed=1).to(dtype)
    indices, scores = nearest(query, gallery, 3)
    assert indices.tolist() == nearest_by_hand(query.double(), gallery.double(), 3)
    assert scores.dtype == torch.promote_types(dtype, torch.float32)


def test_vectors_that_require_a_gradient_are_welcome():
    query = vectors(2, seed=0).requires_grad_()
    assert not nearest(query, vectors(3, seed=1), 1)[1].requires_grad


def bad_row(value):
    vectors = torch.ones(4, 2)
    vectors[2, 1] = value
    return vectors


@pytest.mark.parametrize(
    ("query", "gallery", "options", "message"),
    [
        (torch.ones(2, 3), torch.ones(2, 3), {"k": 0}, r"k is 0. Pass k=1"),
        (torch.ones(0, 3), torch.ones(2, 3), {}, "the query has 0 rows"),
        (torch.ones(2, 3), torch.ones(0, 3), {}, "the gallery has 0 rows"),
        (torch.ones(2, 3), torch.ones(2, 4), {}, "query has 3 and the gallery 4"),
        (torch.ones(2, 3), torch.ones(2, 3, device="meta"), {}, "the gallery on meta"),
        (torch.ones(2, 3), torch.ones(4, 3), {"exclude_self": True}, "2 queries and 4 gallery"),
        (bad_row(torch.nan), torch.ones(2, 2), {}, "query vectors .* 1 of 4 .* row 2"),
        (torch.ones(2, 2), bad_row(-torch.inf), {}, "gallery vectors .* row 2"),
    ],
)
def test_says_what_is_wrong(query, gallery, options, message):
    with pytest.raises(DataError, match=message):
        nearest(query, gallery, **{"k": 1, **options})


def test_large_values_are_not_taken_for_infinite():
    large = torch.full((2, 8), 3e38)  # their sum overflows
    indices, _ = nearest(large, torch.eye(8)[:2], 1)
    assert indices.tolist() == [[0], [0]]


def test_rows_are_shared_out_among_threads(monkeypatch):
    score = whole_numbers(50, 9, seed=0)
    on_one_thread = best_by_partition(score, 4)
    monkeypatch.setattr(search, "LONG_ROW", 1)
    monkeypatch.setattr(search, "CACHE_BYTES", 1)  # so that each row is a part
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert best_by_partition(score, 4).tolist() == on_one_thread.tolist()


def test_short_rows_are_shared_out_where_they_are_many(monkeypatch):
    """What counts is how much a thread has to do at a time: a part, not a row."""
    asked = []
    original = search.for_each_row
    monkeypatch.setattr(
        search, "for_each_row", lambda do, shape: asked.append(shape) or original(do, shape)
    )
    monkeypatch.setattr(search, "CACHE_BYTES", 20 * 9 * 8)
    best_by_partition(whole_numbers(50, 9, seed=0), 4)
    assert asked == [(3, 20 * 9)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_found_wherever_it_is(dtype, value):
    vectors = torch.full((3, 4), torch.finfo(dtype).max, dtype=dtype)  # the sum overflows
    assert search.all_finite(vectors)
    for place in (0, 5, 11):
        spoilt = vectors.clone()
        spoilt.view(-1)[place] = value
        assert not search.all_finite(spoilt)
        spoilt = torch.zeros_like(vectors)
        spoilt.view(-1)[place] = value
        assert not search.all_finite(spoilt)


def test_what_a_thread_raises_is_raised():
    def fail(row):
        raise ValueError(row)

    with pytest.raises(ValueError, match="0"):
        search.for_each_row(fail, (3, 3))


def random_scores(rows, columns, seed):
    return vectors(rows, columns, seed=seed, dtype=torch.float32)


def tied_scores(rows, columns, seed):
    return whole_numbers(rows, columns, seed=seed)


def equal_scores(rows, columns, seed):
    return torch.full((rows, columns), 0.25 + seed)


def mostly_left_out(rows, columns, seed):
    """Of ten items nine are not in the ranking; some rows may have none left."""
    left_out = random_scores(rows, columns, seed + 1) < 1.28
    return random_scores(rows, columns, seed).masked_fill(left_out, -torch.inf)


def alike_next_to_each_other(rows, columns, seed):
    centre = vectors(rows, -(-columns // 20), seed=seed).repeat_interleave(20, dim=1)
    return centre[:, :columns] + 0.1 * vectors(rows, columns, seed=seed + 1)


def best_in_one_group(rows, columns, seed):
    """The largest values are as far apart as groups are many: each shares a group with others."""
    scores = random_scores(rows, columns, seed)
    scores[:, seed :: search.FEWEST_GROUPS] += 100
    return scores


def duplicates(rows, columns, seed):
    return random_scores(rows, -(-columns // 3), seed).repeat(1, 3)[:, :columns]


@pytest.mark.parametrize("columns", [1, 2, 127, 1025, 2047, 2048, 5003])
@pytest.mark.parametrize(
    "scores",
    [
        random_scores,
        tied_scores,
        equal_scores,
        mostly_left_out,
        alike_next_to_each_other,
        best_in_one_group,
        duplicates,
    ],
)
def test_best_of_rows_of_any_length_are_those_of_a_stable_sort(scores, columns):
    for seed, k in enumerate((1, 2, 17, 100, 999, columns - 1, columns)):
        if 1 <= k <= columns:
            score = scores(9, columns, seed)
            expected = score.sort(dim=1, descending=True, stable=True).indices[:, :k]
            assert best_by_partition(score, k).equal(expected)


@pytest.mark.parametrize("rows_at_once", [1, 3, 100])
def test_rows_are_sorted_a_few_at_a_time(rows_at_once, monkeypatch):
    score = random_scores(8, 2500, seed=0)
    monkeypatch.setattr(search, "CACHE_BYTES", rows_at_once * 2500 * 4)
    expected = score.sort(dim=1, descending=True, stable=True).indices[:, :7]
    assert [len(range(8)[part]) for part in search.row_parts(score)][0] == min(rows_at_once, 8)
    assert best_by_partition(score, 7).equal(expected)


def test_a_gap_after_each_row_is_not_looked_at():
    room = torch.full((5, 3000), 1e9)
    score = room[:, :2999].copy_(random_scores(5, 2999, seed=0))
    expected = score.sort(dim=1, descending=True, stable=True).indices[:, :50]
    assert best_by_partition(score, 50).equal(expected)


@pytest.mark.parametrize("dim", [1, 3, 255])
@pytest.mark.parametrize("number", [1, 2, 127, 1025, 2501])
@pytest.mark.parametrize("exclude_self", [False, True])
def test_nearest_at_odd_sizes_are_those_of_a_stable_sort(dim, number, exclude_self):
    gallery = whole_numbers(number, dim, seed=dim)
    score = gallery @ gallery.T
    if exclude_self:
        score.fill_diagonal_(-torch.inf)
    order = score.sort(dim=1, descending=True, stable=True)
    for k, dtype in ((1, torch.float16), (30, torch.float32), (number, torch.float64)):
        found = min(k, number - exclude_self)
        indices, scores = nearest(gallery.to(dtype), gallery, k, exclude_self=exclude_self)
        assert indices.equal(order.indices[:, :found])
        assert scores.equal(order.values[:, :found])


@pytest.mark.parametrize("columns", [1, 127, 2047, 2048, 5003])
@pytest.mark.parametrize("k", [1, 100])
def test_at_least_k_reach_the_floor_and_few_more(columns, k):
    k = min(k, columns)
    rows = random_scores(20, columns, seed=columns).numpy()
    reaching = (rows >= search.floor_of_best(rows, k)[:, None]).sum(axis=1)
    assert (reaching >= k).all()
    assert (reaching <= 1.5 * k + 5).all()


@pytest.mark.parametrize("columns", [4, 5, 7, 8, 11])
def test_each_group_has_its_own_maximum(columns):
    rows = random_scores(3, columns, seed=columns).numpy()
    expected = [[max(row[group::4]) for group in range(4)] for row in rows]
    assert search.group_maxima(rows, 4).tolist() == expected


@pytest.mark.parametrize("k", [1, 3])
def test_products_that_overflow_are_refused(k):
    query = torch.tensor([[3e38, 3e38], [1.0, 0.0]])
    gallery = torch.tensor([[3e38, -3e38], [1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(DataError, match=r"NaN.*Make them "):
        nearest(query, gallery, k)
