"""Rows made unit equal those of torch: on a GPU if there is one, else interpreted."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed: torch does the same, slower")

from nobackfill.ops.kernels.normalize import (
    HELD,
    MOST,
    fits,
    rows_at_once,
    unit_halves,
    unit_rows,
    width_for,
)

pytestmark = pytest.mark.usefixtures("nothing_is_right_by_chance")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def vectors(rows, dim, seed=0):
    """Of very different lengths."""
    generator = torch.Generator().manual_seed(seed)
    length = 10 ** (2 * torch.rand(rows, 1, generator=generator) - 1)
    return (length * torch.randn(rows, dim, generator=generator)).to(DEVICE)


def check_halves(found, x):
    """Rows of `F.normalize` but for ten bits, and zeros."""
    dim = x.shape[1]
    assert found.shape == (len(x), width_for(dim))
    expected = F.normalize(x.float(), dim=1)
    torch.testing.assert_close(found[:, :dim].float(), expected, atol=3e-4, rtol=0)
    assert not found[:, dim:].any()


@pytest.mark.parametrize(("rows", "dim"), [(1, 1), (3, 3), (130, 255), (65, 16), (2, 1500)])
def test_unit_rows_are_those_of_normalize(rows, dim):
    x = vectors(rows, dim)
    x[-1] = 0
    torch.testing.assert_close(unit_rows(x), F.normalize(x, dim=1))


@pytest.mark.parametrize(("rows", "others"), [(1, 1), (3, 9), (4, 4), (9, 3), (65, 130)])
@pytest.mark.parametrize("dim", [1, 3, 16, 17, 255, 256])
def test_halves_are_rows_of_normalize_and_zeros(rows, others, dim):
    x, y = vectors(rows, dim), vectors(others, dim, seed=1)
    x[-1], y[0] = 0, 0
    for found, given in zip(unit_halves(x, y), (x, y), strict=True):
        check_halves(found, given)


def test_halves_are_as_wide_as_tensor_cores_ask():
    assert [width_for(dim) for dim in (1, 15, 16, 17, 128, 129, 256)] == [
        16, 16, 16, 32, 128, 256, 256
    ]  # fmt: skip


def test_a_program_holds_some_numbers_or_a_row():
    assert [rows_at_once(width) for width in (16, 256, HELD, 2 * HELD, MOST)] == [64, 4, 1, 1, 1]
    assert [fits(torch.empty(1, dim, device="meta")) for dim in (1, MOST, MOST + 1)] == [
        True, True, False
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_rows_of_any_precision_and_stride_are_taken(dtype):
    x = vectors(9, 12)
    other = vectors(5, 12, seed=1)
    for turn in (
        lambda some: some.to(dtype),
        lambda some: some.T.contiguous().T.to(dtype),
        lambda some: some.to(dtype)[::2, 1::3],
        lambda some: some[:, 3:].to(dtype),
    ):
        given = turn(x)
        torch.testing.assert_close(unit_rows(given), F.normalize(given.float(), dim=1))
        mixed = turn(x), turn(other.T.contiguous().T)
        for found, side in zip(unit_halves(*mixed), mixed, strict=True):
            check_halves(found, side)


@pytest.mark.parametrize("length", [0.0, 3e-14, 0.9e-12, 1e-6, 1e12])
def test_short_rows_are_divided_by_no_less_than_normalize_does(length):
    x = F.normalize(vectors(5, 3), dim=1)
    x[2] *= length
    torch.testing.assert_close(unit_rows(x), F.normalize(x, dim=1))
    for found in unit_halves(x, x):
        check_halves(found, x)
