"""Single precision on tensor cores: nothing is lost that a product of float32 keeps."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from nobackfill.ops.bf16x3 import GALLERY, LEAST_ROWS, QUERY, is_worthwhile, six_parts, thirds
from nobackfill.ops.matmul import ALIGNED, half_products, inner_products, products_with


def vectors(rows, dim, seed):
    return F.normalize(torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed)), dim=1)


def test_thirds_hold_every_bit():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 40, generator=generator) * 10.0 ** torch.arange(-20, 20)
    parts = thirds(x)
    assert all(part.dtype == torch.bfloat16 for part in parts)
    assert sum(part.double() for part in parts).equal(x.double())
    assert (parts[1].abs() <= x.abs() * 2**-8).all()
    assert (parts[2].abs() <= x.abs() * 2**-16).all()


@pytest.mark.parametrize(("rows", "dim"), [(1, 1), (2, 3), (127, 255), (200, 256), (60, 2000)])
def test_a_product_of_sides_is_as_exact_as_one_of_single_precision(rows, dim):
    query, gallery = vectors(rows, dim, 0), vectors(90, dim, 1)
    gallery[: min(rows, 90)] = query[:90]  # cosines of 1, too
    exact = query.double() @ gallery.double().T
    found = half_products(
        six_parts(query, QUERY), six_parts(gallery, GALLERY), torch.empty(rows, 90)
    )
    plain = inner_products(query, gallery, torch.empty(rows, 90))
    error, usual = ((one.double() - exact).abs().max() for one in (found, plain))
    assert error <= max(3 * usual, 1.5e-7)  # other machines sum float32 in another order


def test_leaving_out_a_piece_would_be_seen():
    """Each of the six products is larger than what rounding takes away."""
    query, gallery = vectors(50, 64, 0), vectors(50, 64, 1)
    exact = query.double() @ gallery.double().T
    left = six_parts(query, QUERY).double().unflatten(1, (6, -1))
    right = six_parts(gallery, GALLERY).double().unflatten(1, (6, -1))
    pieces = torch.einsum("qpd,gpd->pqg", left, right)
    assert (pieces.sum(dim=0) - exact).abs().max() < 2e-8
    for piece in range(6):
        assert (pieces.sum(dim=0) - pieces[piece] - exact).abs().max() > 1e-7
    size = pieces.abs().amax(dim=(1, 2))
    assert (size[1:] >= 0.5 * size[:-1]).all()  # the smallest first


def test_rows_of_zeros_follow_where_asked_for():
    side = six_parts(vectors(5, 3, 0), GALLERY, 11)
    assert side.shape == (16, 6 * 8)
    assert (side[5:] == 0).all()
    assert side[:5].equal(six_parts(vectors(5, 3, 0), GALLERY))


def test_products_in_blocks_are_the_same(monkeypatch):
    monkeypatch.setattr("nobackfill.ops.matmul.is_worthwhile", lambda rows, gallery: True)
    query, gallery = vectors(7, 5, 0), vectors(33, 5, 1)
    products = products_with(gallery, 4, 7)
    found = torch.cat([products(query[first : first + 4]).clone() for first in (0, 4)])
    torch.testing.assert_close(found, query @ gallery.T, atol=3e-7, rtol=0)
    whole = products(query[:4])
    assert whole.stride(0) % ALIGNED == 0
    assert whole.shape == (4, 33)


def test_sides_pay_on_a_gpu_alone():
    assert not is_worthwhile(10**6, torch.empty(10**6, 256, device="meta"))


@pytest.mark.parametrize(
    ("rows", "number", "dtype", "memory", "rounds", "does"),
    [
        (10**4, 10**4, torch.float32, 2**37, False, True),
        (LEAST_ROWS, 10**6, torch.float32, 2**37, False, True),
        (LEAST_ROWS - 1, 10**6, torch.float32, 2**37, False, False),  # few rows
        (10**3, 10**3, torch.float32, 2**37, False, False),  # few products
        (10**4, 10**4, torch.float64, 2**37, False, False),  # more bits than three parts hold
        (10**4, 10**4, torch.float32, 2**37, True, False),  # fewer bits are welcome
        (10**4, 10**4, torch.float32, 8 * 12 * 256 * 10**4, False, True),  # just room for a side
        (10**4, 10**4, torch.float32, 8 * 12 * 256 * 10**4 - 1, False, False),
    ],
)
def test_sides_pay_for_many_products_of_single_precision(
    monkeypatch, rows, number, dtype, memory, rounds, does
):
    monkeypatch.setattr("nobackfill.ops.bf16x3.sums_in_float32", lambda x: True)
    monkeypatch.setattr("nobackfill.ops.bf16x3.torch_rounds", lambda: rounds)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=memory)
    )
    assert is_worthwhile(rows, torch.empty(number, 256, dtype=dtype, device="meta")) is does
