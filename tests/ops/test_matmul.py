"""Inner products in the precision that is asked for."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import nobackfill as nb
from nobackfill.errors import ConfigError
from nobackfill.ops.bf16x3 import torch_rounds
from nobackfill.ops.matmul import (
    ALIGNED,
    PRECISIONS,
    WIDE,
    aligned_parts,
    empty_products,
    half_products,
    inner_products,
    masked_sums,
    matmul_precision,
    parts_for,
    products_with,
    sums_of_rows,
    three_parts,
)
from nobackfill.ops.nearest import nearest, nearest_checked


def vectors(rows, dim, seed):
    return F.normalize(torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed)), dim=1)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("rows", "dim"), [(1, 1), (2, 3), (127, 255)])
def test_products_are_near_those_of_double_precision(precision, rows, dim):
    query, gallery = vectors(rows, dim, 0), vectors(9, dim, 1)
    out = torch.full((rows, 9), torch.nan)
    found = inner_products(query, gallery, out, precision)
    assert found is out or found.data_ptr() == out.data_ptr()
    allowed = {"float32": 1e-6, "tf32": 2**-9, "bfloat16": 2**-6}[precision]
    torch.testing.assert_close(
        out.double(), query.double() @ gallery.double().T, atol=allowed, rtol=0
    )


def test_bfloat16_rounds_factors_but_not_sums():
    query, gallery = vectors(3, 64, 0), vectors(5, 64, 1)
    expected = query.bfloat16().double() @ gallery.bfloat16().double().T
    found = inner_products(query, gallery, torch.empty(3, 5), "bfloat16")
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=0)


def test_neighbours_are_sought_in_the_precision_asked_for():
    """Two neighbours that only more bits than seven can tell apart."""
    gallery = torch.tensor([[1.0, 0.0], [1.001, 0.0]])
    query = torch.tensor([[1.0, 0.0]])
    assert nearest(query, gallery, 2)[0].tolist() == [[1, 0]]
    assert nearest(query, gallery, 2, precision="bfloat16")[0].tolist() == [[0, 1]]  # a tie


@pytest.mark.parametrize("precision", PRECISIONS)
def test_perturbations_hardly_depend_on_it(precision):
    old, new = vectors(60, 8, 0), vectors(60, 8, 1)
    exact, other = (
        nb.NeighborPerturbation(old, neighbors=5, old_strength=0.5, new_strength=0.5, precision=one)
        for one in ("float32", precision)
    )
    exact.update(new)
    other.update(new)
    assert (exact.moved - old).norm() > 0.1
    assert (exact.moved - other.moved).norm() < 0.1 * (exact.moved - old).norm()


@pytest.mark.parametrize("make", [nb.NeighborPerturbation, nb.OptimizedPerturbation])
def test_an_unknown_precision_is_refused(make):
    with pytest.raises(ConfigError, match="float32.*'float8'"):
        make(vectors(4, 3, 0), precision="float8")


def test_nobody_elses_products_change():
    before = torch.get_float32_matmul_precision()
    nb.OptimizedPerturbation(vectors(4, 3, 0), steps=1, precision="tf32")
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="an older torch"
)
@pytest.mark.parametrize("value", ["ieee", "tf32"])
def test_the_newer_setting_of_torch_is_understood(value):
    """After which torch refuses to tell of the older one."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = value
    try:
        assert torch_rounds() is (value == "tf32")
        query, gallery = vectors(3, 4, 0), vectors(5, 4, 1)
        for precision in PRECISIONS:
            inner_products(query, gallery, torch.empty(3, 5), precision)
            assert torch.backends.cuda.matmul.fp32_precision == value
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="an older torch"
)
def test_every_setting_of_torch_is_put_back():
    settings = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    before = [setting.fp32_precision for setting in settings]
    try:
        for values in (before, ["ieee", "ieee"], ["none", "bf16"]):
            for setting, value in zip(settings, values, strict=True):
                setting.fp32_precision = value
            with matmul_precision("tf32"):
                assert torch.get_float32_matmul_precision() == "high"  # is told, not refused
                assert torch_rounds()
            assert [setting.fp32_precision for setting in settings] == values
    finally:
        for setting, value in zip(settings, before, strict=True):
            setting.fp32_precision = value


def test_a_torch_without_the_newer_setting_is_asked_as_before(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "matmul", object())
    assert not torch_rounds()
    with matmul_precision("tf32"):
        assert torch_rounds()
    assert not torch_rounds()


@pytest.mark.parametrize(("value", "rounds"), [("none", False), ("ieee", False), ("tf32", True)])
def test_only_tf32_rounds(monkeypatch, value, rounds):
    """A setting that was never touched may be "none"."""
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace(fp32_precision=value))
    assert torch_rounds() is rounds


@pytest.mark.parametrize("columns", [1, 1023, 1024, 1025, 2501])
def test_room_for_products_has_aligned_rows_where_they_are_wide(columns):
    query = torch.ones(2, 3)
    room = empty_products(query, 5, columns)
    assert room.shape == (5, columns)
    assert room.stride(0) - columns in range(ALIGNED)
    assert room.is_contiguous() or columns >= WIDE
    assert room.stride(0) % ALIGNED == 0 or columns < WIDE


def test_products_do_not_mind_the_room_they_are_given():
    generator = torch.Generator().manual_seed(0)
    query = torch.randint(-3, 4, (7, 5), generator=generator).float()
    gallery = torch.randint(-3, 4, (1025, 5), generator=generator).float()
    found = inner_products(query, gallery, empty_products(query, 7, 1025))
    assert found.equal((query[:, None] * gallery).sum(dim=2))


@pytest.mark.parametrize("columns", [16, 1023, 1024, 1025, 1039, 24_393])
def test_parts_of_columns_are_all_of_them(columns):
    """In two parts, where the first is of many and aligned."""
    parts = aligned_parts(columns)
    assert [one for part in parts for one in range(columns)[part]] == list(range(columns))
    if columns >= WIDE:
        assert len(range(columns)[parts[0]]) % ALIGNED == 0


def test_only_tensor_cores_want_parts():
    gallery = vectors(1025, 3, 0)
    with matmul_precision("tf32"):
        assert parts_for(gallery) == [slice(0, 1025)]


class OnGPU(torch.Tensor):
    """Says that it is on a GPU, and is not."""

    is_cuda = property(lambda self: True)


@pytest.mark.parametrize(
    ("rounds", "dtype", "parts"),
    [
        (True, torch.float32, 2),
        (False, torch.float32, 1),
        (False, torch.bfloat16, 2),
        (False, torch.float64, 2),
    ],
)
def test_the_parts_that_tensor_cores_want_are_all_of_a_gallery(monkeypatch, rounds, dtype, parts):
    monkeypatch.setattr("nobackfill.ops.matmul.torch_rounds", lambda: rounds)
    found = parts_for(vectors(1025, 3, 0).to(dtype).as_subclass(OnGPU))
    assert len(found) == parts
    assert [one for part in found for one in range(1025)[part]] == list(range(1025))


def test_products_with_a_gallery_are_in_the_precision_asked_for(monkeypatch):
    """Also where float32 would pay on tensor cores; for fewer queries than a block, too."""
    query, gallery = vectors(3, 64, 0), vectors(5, 64, 1)
    for pays in (False, True):
        monkeypatch.setattr(
            "nobackfill.ops.matmul.is_worthwhile", lambda rows, gallery, pays=pays: pays
        )
        for precision, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
            found = products_with(gallery, 10**9, 3, precision)(query)
            expected = query.to(dtype).double() @ gallery.to(dtype).double().T
            torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("number", [1, 16, 33])
def test_a_gpu_rounds_a_gallery_once_and_fills_it_up(monkeypatch, number):
    query, gallery = vectors(3, 5, 0), vectors(number, 5, 1)
    seen = []

    def multiply(query, gallery, out):
        seen.append((query.dtype, gallery.dtype, len(gallery), tuple(out.shape)))
        return out.copy_(query.float() @ gallery.float().T)

    monkeypatch.setattr("nobackfill.ops.matmul.sums_in_float32", lambda x: True)
    monkeypatch.setattr("nobackfill.ops.matmul.half_products", multiply)
    products = products_with(gallery, 2, 3, "bfloat16")
    found = torch.cat([products(query[:2]).clone(), products(query[2:])])
    filled = number + -number % ALIGNED
    half = torch.bfloat16
    assert seen == [(half, half, filled, (2, filled)), (half, half, filled, (1, filled))]
    expected = query.bfloat16().float() @ gallery.bfloat16().float().T
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("rounds", [True, False])
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_unit_vectors_are_multiplied_in_float16_where_tf32_is_allowed(
    monkeypatch, rounds, unit, dtype, precision
):
    query, gallery = vectors(3, 64, 0).to(dtype), vectors(5, 64, 1).to(dtype)
    monkeypatch.setattr("nobackfill.ops.matmul.sums_in_float32", lambda x: True)
    monkeypatch.setattr("nobackfill.ops.matmul.torch_rounds", lambda: rounds)
    seen = []

    def multiply(query, gallery, out):
        seen.append(gallery.dtype)
        return out.copy_(query.to(dtype) @ gallery.to(dtype).T)

    monkeypatch.setattr("nobackfill.ops.matmul.half_products", multiply)
    found = products_with(gallery, 3, 3, precision, unit=unit)(query)
    short = unit and dtype == torch.float32 and (rounds or precision == "tf32")
    assert seen == ([torch.float16] if short else [])
    factors = torch.float16 if short else dtype
    expected = query.to(factors).double() @ gallery.to(factors).double().T
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=0)


def test_only_vectors_that_were_made_unit_are_said_to_be(monkeypatch):
    """Those of `retrieval`; what `nearest` is given has any length, which float16 may not hold."""
    told = []

    def watched(*rest, unit):
        told.append(unit)
        return products_with(*rest, unit=unit)

    monkeypatch.setattr("nobackfill.ops.nearest.products_with", watched)
    x = 1e5 * vectors(4, 3, 0)
    nearest(x, x, 2)
    nb.retrieval(x, x, range(4), range(4))
    nearest_checked(
        vectors(4, 3, 0), vectors(4, 3, 0), 2, exclude_self=True, precision="tf32", unit=True
    )
    assert told == [False, True, True]


def test_nothing_is_rounded_where_halves_cannot_be_summed(monkeypatch):
    """On a CPU, on an older GPU, by an older torch."""
    query, gallery = vectors(3, 64, 0), vectors(5, 64, 1)
    monkeypatch.setattr("nobackfill.ops.matmul.torch_rounds", lambda: True)
    found = products_with(gallery, 3, 3, unit=True)(query)
    torch.testing.assert_close(
        found.double(), query.double() @ gallery.double().T, atol=1e-6, rtol=0
    )


def test_halves_are_summed_in_single_precision():
    query, gallery = (vectors(rows, 64, rows).half() for rows in (3, 5))
    found = half_products(query, gallery, torch.empty(3, 5))
    torch.testing.assert_close(
        found.double(), query.double() @ gallery.double().T, atol=1e-6, rtol=0
    )


def in_two_parts(gallery):
    half = len(gallery) // 2
    return [slice(0, half), slice(half, len(gallery))]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_parts_do_not_change_a_product(monkeypatch, precision):
    query, gallery = vectors(7, 5, 0), vectors(33, 5, 1)
    weight = torch.rand(4, 33, generator=torch.Generator().manual_seed(2))
    whole = inner_products(query, gallery, torch.empty(7, 33), precision)
    sums = sums_of_rows(weight, gallery, torch.ones(4, 5))
    torch.testing.assert_close(sums, 1 + weight @ gallery)
    monkeypatch.setattr("nobackfill.ops.matmul.parts_for", in_two_parts)
    torch.testing.assert_close(
        inner_products(query, gallery, torch.full((7, 33), torch.nan), precision), whole
    )
    torch.testing.assert_close(sums_of_rows(weight, gallery, torch.ones(4, 5)), sums)


@pytest.mark.parametrize("columns", [1, 100, 20_000])  # 20,000 are summed in three parts
def test_masked_sums_are_those_of_float32_numbers(columns):
    values = vectors(columns, 11, 0)
    mask = (torch.rand(7, columns, generator=torch.Generator().manual_seed(1)) > 0.5).bfloat16()
    found = masked_sums(mask, three_parts(values), torch.ones(7, 11))
    torch.testing.assert_close(
        found.double(), 1 + mask.double() @ values.double(), atol=1e-4, rtol=1e-5
    )


@pytest.mark.parametrize("six", [False, True])
def test_products_with_the_rows_from_a_first_one_on(monkeypatch, six):
    query, gallery = vectors(7, 5, 0), vectors(33, 5, 1)
    monkeypatch.setattr("nobackfill.ops.matmul.is_worthwhile", lambda rows, gallery: six)
    products = products_with(gallery, 7, 7)
    torch.testing.assert_close(products(query, 20), query @ gallery[20:].T)
    torch.testing.assert_close(products(query), query @ gallery.T)
