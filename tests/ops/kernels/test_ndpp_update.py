"""Classes pushed by the nearest of others, against a sort and sums in double precision."""

import signal

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: torch does the same, slower")

from triton.runtime.interpreter import InterpretedFunction

from nobackfill.methods.perturbation.ndpp import weighted_pushes
from nobackfill.ops.kernels import ndpp_update as nearby
from nobackfill.ops.kernels.ndpp_update import pushed_by_nearest

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRETED = isinstance(nearby.nearby_kernel, InterpretedFunction)


@pytest.fixture(autouse=True)
def _every_loop_ends():
    """A loop that does not is a failure, not a test that never ends."""

    def stop(number, frame):
        raise TimeoutError("a loop does not end")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def filled_up(score, filling=torch.nan):
    """Rows as products leave them: as long as a multiple of 16, with anything at their ends."""
    wide = score.new_full((len(score), score.shape[1] + -score.shape[1] % 16), filling)
    wide[:, : score.shape[1]] = score
    return wide


def pushed_slowly(score, x, n, k, strength, own):
    """A stable sort, and one neighbour at a time, in double precision."""
    score, x, n = ((one + 0.0).double().cpu() for one in (score[:, : len(n)], x, n))
    if not own:
        score.fill_diagonal_(-torch.inf)
    best = score.sort(dim=1, descending=True, stable=True)
    moved = x.clone()
    for row, (value, column) in enumerate(zip(best.values, best.indices, strict=True)):
        weight = value[:k].clamp(min=0)
        for w, j in zip(weight / weight.sum().clamp(min=1e-8), column[:k], strict=True):
            moved[row] += strength * w * (x[row] - n[j])
    return moved


def compare(score, k, *, dim=3, own=True, strength=0.7):
    """Both ways of one call; the row's own is the nearest, so that it matters whether it counts."""
    rows, columns = score.shape
    x, n = random(rows, dim, seed=1), random(columns, dim, seed=2)
    found = pushed_by_nearest(filled_up(score), x, n, k, strength, own=own)
    expected = pushed_slowly(score, x, n, k, strength, own)
    torch.testing.assert_close(found.cpu().double(), expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("dim", [1, 3, 255])
@pytest.mark.parametrize(
    ("columns", "k"),
    [(2, 1), (14, 7), (200, 100), (127, 1), (127, 7), (531, 1), (531, 7), (531, 100), (1025, 7),
     (1025, 100)],
)  # fmt: skip
def test_pushes_are_those_of_a_sort(columns, k, dim, own):
    score = random(min(3, columns), columns, seed=columns + k)
    score.diagonal().add_(2.0)
    compare(score, k, dim=dim, own=own)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("own", [True, False])
def test_pushes_are_the_formula_of_their_slow_twin(k, own):
    score, x, n = random(9, 9), random(9, 4, seed=1), random(9, 4, seed=2)
    some = score if own else score.clone().fill_diagonal_(-torch.inf)
    cosine, neighbor = some.topk(k, dim=1)
    expected = x + 0.3 * weighted_pushes(x, n, neighbor, cosine)
    torch.testing.assert_close(pushed_by_nearest(score, x, n, k, 0.3, own=own), expected)


@pytest.mark.parametrize("columns", [255, 256, 257, 512, 4096, 4097, 8192])
def test_the_first_and_the_last_columns_are_looked_at(columns):
    score = random(3, columns) * 0.01
    score[0, :2], score[1, -2:] = 1.0, 1.0
    score[2, 0] = score[2, -1] = 1.0
    compare(score, 2, own=True)


@pytest.mark.parametrize(("values", "k"), [(20, 10), (3, 100), (1, 40), (200, 7)])
@pytest.mark.parametrize("own", [True, False])
def test_of_equal_scores_the_first_columns_push(values, k, own):
    compare((random(4, 531) * values).round() / values, k, own=own)


@pytest.mark.parametrize("value", [0.0, 0.25, 1.0, -0.5])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("k", [1, 7, 100])
def test_where_all_are_equal_the_first_columns_push(value, own, k):
    compare(torch.full((2, 300), value, device=DEVICE), k, own=own)


@pytest.mark.parametrize("equal", [5, 6, 7, 15, 16, 17, 18, 200])
@pytest.mark.parametrize("above", [0, 2])
@pytest.mark.parametrize("near", [0.5, 1e-7])
def test_as_many_equal_as_there_is_room_for_or_more(equal, above, near):
    """For 7 there is room for 16, from a floor that the equal are, or the best below them."""
    score = -random(2, 531).abs()
    order = torch.randperm(530, generator=torch.Generator().manual_seed(equal)) + 1
    score[:, order[:equal]] = 0.4
    score[:, order[equal : equal + above]] = 0.4 + near
    score[:, order[-3:]] = 0.4 - 1e-7
    compare(score, 7)


@pytest.mark.parametrize("equal", [15, 16, 17, 18])
def test_the_first_column_pushes_even_if_it_is_written_down_last(equal):
    """What 256 lanes hold is written lane by lane, so column 256 before column 255."""
    score = torch.full((1, 531), -1.0, device=DEVICE)
    score[0, 255 : 255 + equal] = 0.4
    compare(score, 7)


@pytest.mark.parametrize("k", [1, 2, 30])
def test_minus_zero_is_zero(k):
    """Which of them is chosen does not show: neither pushes."""
    score = -random(2, 300).abs() - 0.01
    score[:, 100:200:2], score[:, 101:200:2] = -0.0, 0.0
    score[0, 7] = 0.5
    compare(score, k)


def test_without_a_neighbour_on_its_side_nothing_moves():
    score = -random(3, 300).abs() - 0.01
    x, n = random(3, 5, seed=1), random(300, 5, seed=2)
    assert pushed_by_nearest(score, x, n, 7, 0.5, own=True).equal(x)
    score[1, 99] = 0.3  # one of seven neighbours
    found = pushed_by_nearest(score, x, n, 7, 0.5, own=True)
    torch.testing.assert_close(found[1], x[1] + 0.5 * (x[1] - n[99]))
    assert found[::2].equal(x[::2])


def test_neighbours_that_are_hardly_near_push_all_the_same():
    """Weights add up to 1 down to a sum of scores of 1e-8; below, they fade."""
    score = torch.full((3, 300), -1.0, device=DEVICE)
    score[0, 5:7], score[1, 5:7], score[2, 5:7] = 2e-6, 2e-8, 1e-9
    compare(score, 2)
    x, n = random(3, 4, seed=1), random(300, 4, seed=2)
    push = pushed_by_nearest(score, x, n, 2, 1.0, own=True) - x
    assert push[2].abs().max() < 0.3 * push[1].abs().max()


@pytest.mark.parametrize("k", [7, 100])
def test_scores_that_are_not_spread_as_guessed(k):
    """The floor that mean and deviation tell is then far too high, or far too low."""
    score = random(6, 1025)
    score[0, 30] = 1e4  # nobody else is above
    score[1, 30] = -1e4  # all others are
    score[2, 300:900] += 100.0  # half of all are
    score[3] = score[3].exp().exp()
    score[4] = torch.linspace(1, 1 + 1e-4, 1025, device=DEVICE)
    score[5, : k - 1] += 100.0  # one fewer than wanted, and then a gap
    compare(score, k)


@pytest.mark.parametrize("filling", [1e9, -1e9, torch.inf, torch.nan])
@pytest.mark.parametrize("columns", [17, 100, 257, 531])
def test_what_fills_up_a_row_does_not_count(filling, columns):
    score, x, n = random(3, columns), random(3, 4, seed=1), random(columns, 4, seed=2)
    found = pushed_by_nearest(filled_up(score, filling), x, n, 3, 0.5, own=True)
    assert found.equal(pushed_by_nearest(score, x, n, 3, 0.5, own=True))
    expected = pushed_slowly(score, x, n, 3, 0.5, True)
    torch.testing.assert_close(found.cpu().double(), expected, atol=2e-6, rtol=0)


def test_rows_lie_in_memory_as_they_like():
    wide = random(5, 900)
    score, x, n = wide[::2, 33:333], random(3, 14, seed=1)[:, ::2], random(7, 300, seed=2).T
    plain = [torch.tensor(one.tolist(), device=DEVICE) for one in (score, x, n)]
    found = pushed_by_nearest(score, x, n, 9, 0.5, own=False)
    assert found.equal(pushed_by_nearest(*plain, 9, 0.5, own=False))
    expected = pushed_slowly(*plain, 9, 0.5, False)
    torch.testing.assert_close(found.cpu().double(), expected, atol=2e-6, rtol=0)


def test_what_is_moved_is_not_overwritten():
    score, x, n = random(3, 40), random(3, 4, seed=1), random(40, 4, seed=2)
    before = [one.clone() for one in (score, x, n)]
    pushed_by_nearest(score, x, n, 3, 0.5, own=True)
    assert all(one.equal(other) for one, other in zip((score, x, n), before, strict=True))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("columns", [14, 300])
def test_scores_that_are_no_numbers_end_no_loop_late_and_spoil_no_other_row(
    monkeypatch, value, columns
):
    """Nor is anything read that nobody wrote, which would name the last class, far away, or what
    comes after it.
    """
    score, x = random(6, columns), random(6, 4, seed=1)
    n = torch.full((columns + 600, 4), torch.nan, device=DEVICE)[:columns]
    n.copy_(random(columns, 4, seed=2))
    n[-1] = 1e9
    score[:, -1] = -9.0
    expected = pushed_slowly(score, x, n, 7, 0.5, True)
    score[0], score[1, 0], score[2, : columns - 3], score[3, ::2] = value, value, value, value
    empty = torch.empty

    def unwritten(*shape, dtype, device):
        return empty(*shape, dtype=dtype, device=device).fill_(columns - 1)

    monkeypatch.setattr(torch, "empty", unwritten)
    found = pushed_by_nearest(score, x, n, 7, 0.5, own=True)
    torch.testing.assert_close(found[4:].cpu().double(), expected[4:], atol=2e-6, rtol=0)
    if value != torch.inf:  # of which the weights are NaN
        assert (found.abs() < 1e3).all()


@pytest.mark.skipif(not INTERPRETED, reason="compiled kernels cannot be watched")
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("columns", [2100, 4000])
def test_a_guess_spares_most_of_the_looking(monkeypatch, own, columns):
    """Rows are summed up for mean and deviation, and looked through once or twice."""
    looks = []
    original = nearby.over_all
    monkeypatch.setattr(
        nearby, "over_all", lambda value: looks.append(int(value.shape[0])) or original(value)
    )
    score = 0.1 * random(4, columns) + 0.2
    pushed_by_nearest(score, random(4, 3), random(columns, 3), 100, 0.5, own=own)
    whole = [lines for lines in looks if lines > 1]
    assert 4 * (2 + 1) <= len(whole) <= 4 * (2 + 2)


@pytest.mark.parametrize(
    ("k", "classes", "deviations"), [(91, 6000, 2.0), (100, 200, 0.0), (100, 300, 0.0)]
)
def test_the_guess_is_a_quantile_of_the_normal_distribution(k, classes, deviations):
    assert nearby.deviations_above(k, classes) == pytest.approx(deviations, abs=1e-4)


@pytest.mark.parametrize(
    ("k", "classes", "dim", "does"),
    [
        (100, 200, 4096, True),
        (100, 199, 256, False),
        (256, 8192, 1, True),
        (257, 8192, 1, False),
        (256, 8193, 1, False),
        (0, 100, 8, False),
        (1, 2, 8, True),
        (100, 4000, 4097, False),
    ],
)
def test_classes_that_are_not_for_the_kernel_are_known(k, classes, dim, does):
    x = torch.empty(classes, dim, device="meta")
    assert nearby.fits(x, x, k) is does
    assert not nearby.fits(x.double(), x, k)
    assert not nearby.fits(x, x.double(), k)
