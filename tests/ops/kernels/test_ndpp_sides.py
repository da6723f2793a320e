"""Both sides of a product and the flag beside them, against torch."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed: torch does the same, slower")

from nobackfill.ops.bf16x3 import gallery_side, query_side
from nobackfill.ops.kernels.ndpp_sides import PIECES, write_sides

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

every_kind = pytest.mark.parametrize("kind", PIECES)
every_size = pytest.mark.parametrize(
    ("classes", "dim"), [(1, 1), (2, 3), (16, 8), (17, 9), (33, 255), (3, 1025)]
)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def sides(new, kind, *, p=None, before=0):
    """All that is written, into memory full of NaN, and the flag."""
    classes, dim = new.shape
    half = torch.float16 if kind == "half" else torch.bfloat16
    columns = PIECES[kind] * (dim + -dim % 8)
    q = torch.full_like(new, torch.nan)
    query = q.new_full((classes, columns), torch.nan, dtype=half)
    gallery = q.new_full((classes + -classes % 16, columns), torch.nan, dtype=half)
    broken = torch.full((1,), before, dtype=torch.int32, device=new.device)
    p = F.normalize(random(classes, dim, seed=7), dim=1) if p is None else p
    write_sides(p, new, q, query, gallery, broken, kind)
    return q, query, gallery, broken.item()


def sides_by_torch(x, kind, *, gallery):
    """The side of rows of unit length."""
    x = x.cpu()  # where torch makes it
    more = -len(x) % 16 if gallery else 0
    if kind == "thirds":
        return gallery_side(x, more) if gallery else query_side(x)
    half = torch.float16 if kind == "half" else torch.bfloat16
    return F.pad(x, (0, -x.shape[1] % 8, 0, more)).to(half)


@every_size
def test_new_class_means_become_unit(classes, dim):
    new = random(classes, dim) * 10.0 ** random(classes, 1, seed=1).mul(4).round()
    q = sides(new, "half")[0]
    torch.testing.assert_close(q.double(), F.normalize(new.double(), dim=1), atol=1e-12, rtol=3e-7)


@every_kind
@every_size
def test_sides_are_those_of_torch(kind, classes, dim):
    new, p = random(classes, dim), F.normalize(random(classes, dim, seed=1), dim=1)
    q, query, gallery, broken = sides(new, kind, p=p)
    assert query.cpu().equal(sides_by_torch(p, kind, gallery=False))
    assert gallery.cpu().equal(sides_by_torch(q, kind, gallery=True))
    assert not broken


@every_kind
def test_what_is_between_two_numbers_goes_to_the_even_one(kind):
    bits = {"thirds": 7, "bfloat16": 7, "half": 10}[kind]
    p = 0.5 + 0.5 * (torch.arange(16.0, device=DEVICE)[None] + 0.5) / 2**bits
    query = sides(torch.ones_like(p), kind, p=p)[1]
    assert query.cpu().equal(sides_by_torch(p, kind, gallery=False))


@every_kind
def test_the_product_of_both_sides_is_that_of_all_pairs(kind):
    new, p = random(20, 30), F.normalize(random(20, 30, seed=1), dim=1)
    _, query, gallery, _ = sides(new, kind, p=p)
    product = query.double() @ gallery.double().T
    error = {"thirds": 1e-7, "half": 1e-3, "bfloat16": 1e-2}[kind]
    expected = p.double() @ F.normalize(new.double(), dim=1).T
    torch.testing.assert_close(product[:, :20], expected, atol=error, rtol=0)
    assert (product[:, 20:] == 0).all()


@every_kind
def test_a_class_mean_of_zeros_stays_one(kind):
    new = random(5, 9)
    new[2] = 0.0
    q, _, gallery, broken = sides(new, kind)
    assert (q[2] == 0).all()
    assert (gallery[2] == 0).all()
    assert not broken


def test_very_short_class_means_are_not_made_unit():
    new = torch.tensor([[3e-13, 4e-13], [3e-30, 4e-30], [3e-12, 4e-12]], device=DEVICE)
    torch.testing.assert_close(
        sides(new, "half")[0],
        torch.tensor([[0.3, 0.4], [3e-18, 4e-18], [0.6, 0.8]], device=DEVICE),
    )
    torch.testing.assert_close(sides(new, "half")[0], F.normalize(new, dim=1))


@every_kind
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", [(0, 0), (0, 10), (9, 5), (18, 0), (18, 10)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_flag_tells_that_a_number_is_none(kind, value, place):
    new = random(19, 11)
    new[place] = value
    assert sides(new, kind)[3] == 1


@every_kind
@pytest.mark.parametrize("value", [2e19, 1e38, -3e38])
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_finite_numbers_whose_squares_or_sums_overflow_are_no_reason_for_the_flag(kind, value):
    """Of infinite length, a row becomes 0, as by torch."""
    new = random(19, 11)
    new[3], new[18, 4] = value, value
    q, _, gallery, broken = sides(new, kind)
    assert not broken
    assert (q[[3, 18]] == 0).all()
    assert (gallery[[3, 18]] == 0).all()
    torch.testing.assert_close(q, F.normalize(new, dim=1))


def test_a_flag_that_is_set_stays_set():
    assert sides(random(3, 4), "half", before=1)[3] == 1


@every_kind
def test_what_is_read_is_not_overwritten(kind):
    new, p = random(5, 9), random(5, 9, seed=1)
    before = new.clone(), p.clone()
    sides(new, kind, p=p)
    assert new.equal(before[0])
    assert p.equal(before[1])
