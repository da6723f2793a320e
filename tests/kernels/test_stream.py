"""Sums over classes that stream by equal the formula: on a GPU if there is one, else interpreted.

Halves are made by the kernel and then taken as they are, so that the rest is asked for more than
their ten bits; what these cost is asked of the whole loss, at the end.
"""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("triton", reason="Triton is not installed: torch does the same, slower")

from nobackfill import allclasses, losses
from nobackfill.allclasses import contrast_with_all, loss_by_kernels
from nobackfill.kernels import stream as module
from nobackfill.kernels.contrast import unit_rows
from nobackfill.kernels.stream import (
    MOST_CLASSES,
    TILES,
    WIDEST,
    Chip,
    chip,
    fits,
    parts_for,
    room_for_halves,
    stream,
    tiles_for,
    unit_halves,
    width_for,
)
from nobackfill.losses import prototype_loss

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = [(1, 1, 1), (3, 2, 1), (3, 127, 3), (130, 127, 3), (3, 1025, 255), (130, 2, 256)]
NOT_LAUNCHED = set(
    "alias copy_ detach empty empty_like new_empty permute select set_ slice unbind".split()
)


@pytest.fixture(autouse=True)
def _nothing_is_right_by_chance(monkeypatch):
    """Empty tensors hold NaN, so what a kernel does not write does not look as if it had."""

    def filled(make):
        def empty(*given, **options):
            made = make(*given, **options)
            return made.fill_(torch.nan) if made.is_floating_point() else made

        return empty

    monkeypatch.setattr(torch, "empty", filled(torch.empty))
    monkeypatch.setattr(torch, "empty_like", filled(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", filled(torch.Tensor.new_empty))


def vectors(rows, dim, seed=0):
    """Of very different lengths."""
    generator = torch.Generator().manual_seed(seed)
    length = 10 ** (2 * torch.rand(rows, 1, generator=generator) - 1)
    return (length * torch.randn(rows, dim, generator=generator)).to(DEVICE)


def case(batch=9, classes=127, dim=5, seed=0):
    """Embeddings and classes, both as halves, and labels."""
    labels = torch.randint(classes, (batch,), generator=torch.Generator().manual_seed(seed))
    e, p = vectors(batch, dim, seed), vectors(classes, dim, seed + 1)
    return unit_halves(e), unit_halves(p), labels.to(DEVICE)


def by_hand(e, p, labels, temperature):
    """The formula in double precision, one row at a time."""
    e, p, z, a = e.cpu().double(), p.cpu().double(), [], []
    for u, own in zip(e, labels.tolist(), strict=True):
        w = ((p @ u - 1) / temperature).exp()
        if 0 <= own < len(p):
            w[own] = 0
        z.append(w.sum())
        a.append(w @ p)
    return torch.stack(z), torch.stack(a)


def check(found, given, temperature, dim):
    """Sums are exact but for single precision; pulls have ten bits, on the scale of their sum."""
    z, a = by_hand(*given, temperature)
    sums, pulls = (part.cpu().double() for part in found)
    torch.testing.assert_close(sums.sum(dim=1), z, rtol=1e-4, atol=0)
    scale = z.clamp(min=1e-300)[:, None]
    torch.testing.assert_close(pulls.sum(dim=0) / scale, a[:, :dim] / scale, rtol=0, atol=1e-3)


@pytest.mark.parametrize(("batch", "classes", "dim"), SIZES)
@pytest.mark.parametrize("temperature", [0.025, 0.07, 1.0])
def test_sums_and_pulls_are_those_of_the_formula(batch, classes, dim, temperature):
    given = case(batch, classes, dim, seed=classes)
    check(stream(*given, temperature, dim), given, temperature, dim)


@pytest.mark.parametrize("tiles", TILES)
@pytest.mark.parametrize(("parts", "made"), [(1, 1), (2, 2), (3, 3), (1000, None)])
def test_sums_and_pulls_do_not_depend_on_the_parts(tiles, parts, made):
    given = case(3, 321, 5)
    found = stream(*given, 0.07, 5, parts=parts, tiles=tiles)
    assert found[0].shape[1] == len(found[1]) == (made or -(-321 // tiles.columns))
    check(found, given, 0.07, 5)


@pytest.mark.parametrize(
    ("classes", "parts", "first"),
    [(64, 1, 64), (64, 2, 64), (65, 1, 65), (65, 2, 64), (128, 2, 64), (129, 2, 128)],
)
def test_each_class_is_in_exactly_one_part(classes, parts, first):
    """All weigh the same, so sums count them."""
    p = unit_halves(torch.ones(classes, 3, device=DEVICE))
    e, labels = p[:2], torch.tensor([0, classes - 1], device=DEVICE)
    sums, _ = stream(e, p, labels, 1.0, 3, parts=parts, tiles=TILES[0])
    weight = by_hand(e[:1], p[:1], torch.tensor([-1]), 1.0)[0].item()
    counted = (sums.double() / weight).cpu()
    expected = torch.tensor([[first, classes - first]] * 2 if first < classes else [[first]] * 2)
    expected[0, 0] -= 1
    expected[1, -1] -= 1
    torch.testing.assert_close(counted, expected.double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("temperature", [0.025, 0.07])
def test_sums_are_right_wherever_the_largest_cosine_is(descending, temperature):
    """In the first tile, or each tile's larger than all before."""
    e, p, labels = case(1, 321, 5)
    p = p[(p @ e[0]).argsort(descending=descending)].contiguous()
    given = e, p, labels
    check(stream(*given, temperature, 5, parts=1), given, temperature, 5)
    assert bool(p[-1] @ e[0] > p[0] @ e[0]) is not descending


@pytest.mark.parametrize("temperature", [0.025, 0.07])
def test_rows_with_all_classes_opposite_have_sums_and_pulls(temperature):
    """At 0.025 each weight is about 2**-112, and the largest must still not pass for 0."""
    generator = torch.Generator().manual_seed(0)
    e = torch.zeros(3, 8, device=DEVICE)
    e[:, 0] = 1
    p = F.normalize(torch.randn(200, 7, generator=generator), dim=1) * (1 - 0.95**2) ** 0.5
    p = F.pad(p, (1, 0), value=-0.95).to(DEVICE)
    given = unit_halves(e), unit_halves(p), torch.tensor([0, 77, 199], device=DEVICE)
    check(stream(*given, temperature, 8), given, temperature, 8)


def test_the_smallest_weights_keep_their_bits():
    """All are 2**-125: a single precision that had lost another 2**-15 would have few bits left."""
    e = unit_halves(torch.tensor([[1.0, 0.0]], device=DEVICE))
    given = e, -e.repeat(5, 1), torch.tensor([3], device=DEVICE)
    check(stream(*given, 0.0231, 2), given, 0.0231, 2)


@pytest.mark.parametrize("parts", [1, 2])
def test_an_own_class_alone_in_its_tile_adds_nothing(parts):
    e, p, _ = case(2, 65, 5)
    given = e, p, torch.tensor([64, 3], device=DEVICE)
    sums, pulls = stream(*given, 0.025, 5, parts=parts, tiles=TILES[0])
    check((sums, pulls), given, 0.025, 5)
    if parts == 2:
        assert sums[0, 1] == 0
        assert not pulls[1, 0].any()
        assert sums[1, 1] > 0


def test_a_class_that_weighs_2_to_the_minus_26_of_the_largest_still_pulls():
    """Float16 alone ends at 2**-24."""
    p = torch.tensor([[1.0, 0.0], [-0.8, 0.6], [0.0, 1.0]], device=DEVICE)
    e, p, labels = unit_halves(p[:1]), unit_halves(p), torch.tensor([2], device=DEVICE)
    _, pulls = stream(e, p, labels, 0.1, 2)
    _, a = by_hand(e, p, labels, 0.1)
    assert 2**-27 < a[0, 1] < 2**-25
    torch.testing.assert_close(pulls.sum(dim=0)[0, 1].cpu().double(), a[0, 1], rtol=1e-3, atol=0)


@pytest.mark.parametrize("label", [-1, 127, 2**32, 2**40, -(2**32)])
def test_a_label_that_is_no_class_leaves_none_out(label):
    given = case()
    given[2][4] = label
    check(stream(*given, 0.07, 5), given, 0.07, 5)


def test_labels_of_any_integers_are_taken():
    e, p, labels = case()
    check(stream(e, p, labels.int(), 0.07, 5), (e, p, labels), 0.07, 5)


@pytest.mark.parametrize("parts", [1, 2])
def test_pulls_are_left_out_where_nobody_wants_them(parts):
    given = case(3, 321, 5)
    sums, pulls = stream(*given, 0.07, 5, gradient=False, parts=parts)
    assert pulls is None
    assert sums.equal(stream(*given, 0.07, 5, parts=parts)[0])


@pytest.mark.parametrize("width", [16, 64, 256])
@pytest.mark.parametrize(
    ("room", "tiles"), [(320, TILES[0]), (319, TILES[1]), (191, TILES[2]), (127, None)]
)
def test_tiles_fit_into_the_memory_that_a_program_shares(width, room, tiles):
    shared = (room + 1) * width * 2 - 1 if room != 320 else 320 * width * 2
    assert tiles_for(width, shared) == tiles


@pytest.mark.parametrize("processors", [4, 114, 132])
def test_parts_keep_processors_busy_in_few_waves(processors):
    for blocks in range(1, 300):
        parts = parts_for(blocks, 10**6, processors)
        waves = -(-blocks * parts // processors)
        assert blocks * parts >= 0.9 * waves * processors
        assert blocks * (parts + 1) > waves * processors  # no room is left
        fewer = [
            wave * processors // blocks * blocks / (wave * processors) for wave in range(1, waves)
        ]
        assert all(busy < 0.9 for busy in fewer)
        assert parts_for(blocks, 3, processors) == min(parts, 3)


@pytest.mark.parametrize("rows", [1, 3, 4, 9])
@pytest.mark.parametrize("dim", [1, 3, 16, 17, 255, 256])
def test_halves_are_rows_of_normalize_and_zeros(rows, dim):
    x = vectors(rows, dim)
    x[-1] = 0
    found = unit_halves(x)
    assert found.shape == (rows, width_for(dim))
    torch.testing.assert_close(found[:, :dim].float(), F.normalize(x, dim=1), atol=3e-4, rtol=0)
    assert not found[:, dim:].any()


def test_halves_are_as_wide_as_tensor_cores_ask():
    assert [width_for(dim) for dim in (1, 15, 16, 17, 128, 129, 256)] == [
        16, 16, 16, 32, 128, 256, 256
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_halves_are_made_of_any_precision_and_stride(dtype):
    x = vectors(9, 12)
    for given in (
        x.to(dtype),
        x.T.contiguous().T.to(dtype),
        x.to(dtype)[::2, 1::3],
        x[:, 3:].to(dtype),
    ):
        expected = F.normalize(given.float(), dim=1)
        found = unit_halves(given)[:, : given.shape[1]].float()
        torch.testing.assert_close(found, expected, atol=3e-4, rtol=0)


@pytest.mark.parametrize("length", [0.0, 3e-14, 0.9e-12, 1e-6, 1e12])
def test_short_rows_are_divided_by_no_less_than_normalize_does(length):
    x = F.normalize(vectors(5, 3), dim=1)
    x[2] *= length
    torch.testing.assert_close(
        unit_halves(x)[:, :3].float(), F.normalize(x, dim=1), atol=3e-4, rtol=0
    )


@pytest.mark.parametrize("dim", [1, 5, 16, 255])
def test_rows_made_unit_beside_their_prototypes_have_the_same_halves(dim):
    new, moved = vectors(9, dim), vectors(7, dim, seed=1)
    halves = room_for_halves(new)
    unit_rows(new, torch.arange(9, device=DEVICE) % 7, moved, halves=halves)
    torch.testing.assert_close(halves, unit_halves(new), atol=1e-3, rtol=0)
    assert not halves[:, dim:].any()


@pytest.mark.parametrize(
    ("dim", "number", "gpu", "does"),
    [
        (WIDEST, 10**6, {}, True),
        (WIDEST + 1, 10**6, {}, False),
        (1, 3, {"capability": (10, 0)}, True),
        (1, 3, {"capability": (8, 9)}, False),
        (256, 3, {"shared": 48 * 2**10}, False),
        (64, 3, {"shared": 48 * 2**10}, True),
        (1, MOST_CLASSES, {}, False),
        (1, MOST_CLASSES, {"memory": 2**40}, True),
        (1, MOST_CLASSES + 1, {"memory": 2**40}, False),
        (256, 2**20, {"memory": 2**32}, True),
        (129, 2**20, {"memory": 2**32 - 1}, False),
    ],
)
def test_it_is_known_what_can_stream(monkeypatch, dim, number, gpu, does):
    h200 = Chip((9, 0), processors=132, shared=227 * 2**10, memory=140 * 2**30)
    monkeypatch.setattr(module, "chip", lambda device: h200._replace(**gpu))
    new, old = torch.zeros(2, dim, device="meta"), torch.zeros(number, dim, device="meta")
    assert fits(new, old) is does


def test_a_gpu_is_asked_what_it_is_like(monkeypatch):
    says = SimpleNamespace(major=9, minor=0, multi_processor_count=132, total_memory=7)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: says)
    monkeypatch.setattr(torch.version, "hip", None)
    ask = chip.__wrapped__
    gpu = torch.device("cuda", 0)
    assert ask(gpu) == Chip((9, 0), processors=132, shared=48 * 2**10, memory=7)
    says.shared_memory_per_block_optin = 232_448
    assert ask(gpu).shared == 232_448
    monkeypatch.setattr(torch.version, "hip", "6.4")  # other makers count other capabilities
    assert ask(gpu).capability == (0, 0)
    assert not fits(torch.ones(2, 3), torch.ones(4, 3))  # interpreted: only in tests


@pytest.fixture
def streams(monkeypatch):
    """Torch may round, and classes stream by on this device; tells with what."""
    calls = []
    original = allclasses.sums_by_stream

    def watched(*given, **options):
        calls.append(options)
        return original(*given, **options)

    monkeypatch.setattr(allclasses, "torch_rounds", lambda: True)
    monkeypatch.setattr(allclasses, "usable", lambda x: True)
    monkeypatch.setattr(allclasses, "sums_by_stream", watched)
    monkeypatch.setattr(module, "OLDEST", (0, 0))
    monkeypatch.setattr(losses, "MANY", 1)
    return calls


def whole(batch=9, classes=127, dim=5):
    """Embeddings, labels, moved and old prototypes."""
    labels = torch.randint(classes, (batch,), generator=torch.Generator().manual_seed(0))
    moved, old = vectors(classes, dim, 1), vectors(classes, dim, 2)
    return vectors(batch, dim), labels.to(DEVICE), moved, old


def plain(new, labels, moved, old, temperature):
    """The formula as a cross entropy in double precision; autograd finds the gradient."""
    x = new.detach().double().requires_grad_()
    e = F.normalize(x, dim=-1)
    to_own = (e * F.normalize(moved[labels].double(), dim=-1)).sum(dim=-1, keepdim=True)
    cosines = (e @ F.normalize(old.double(), dim=-1).T).scatter(1, labels[:, None].long(), to_own)
    loss = F.cross_entropy(cosines / temperature, labels.long())
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def check_whole(found, given, tolerance=2e-3):
    """Loss and gradient are those of the formula, each row on the scale of gradients there."""
    expected = plain(*given)
    new, _, _, _, temperature = given
    reach = len(new) * temperature * new.detach().double().norm(dim=1, keepdim=True).clamp(1e-12)
    torch.testing.assert_close(found[0].double(), expected[0], rtol=tolerance, atol=1e-7)
    torch.testing.assert_close(
        found[1].double() * reach, expected[1] * reach, rtol=0, atol=tolerance
    )


@pytest.mark.parametrize(("batch", "classes", "dim"), SIZES)
@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_loss_and_gradient_are_those_of_the_formula(streams, batch, classes, dim, temperature):
    given = *whole(batch, classes, dim), temperature
    check_whole(loss_by_kernels(*given), given)
    assert streams == [{"gradient": True}]


@pytest.mark.parametrize("processors", [1, 2, 5, 40])
def test_the_loss_does_not_depend_on_the_processors(streams, monkeypatch, processors):
    """So not on the parts: 1, 2, 5 and, of 9 tiles of classes, 9."""
    small = chip(torch.device("cpu"))._replace(processors=processors)
    monkeypatch.setattr(module, "chip", lambda device: small)
    given = *whole(3, 550, 20), 0.07
    check_whole(loss_by_kernels(*given), given)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_prototypes_of_any_precision_are_taken(streams, dtype):
    new, labels, moved, old = whole()
    given = new, labels, moved.to(dtype), old.to(dtype), 0.07
    check_whole(loss_by_kernels(*given), given)
    assert streams


def test_tensors_with_gaps_or_turned_round_are_read_right(streams):
    new, labels, moved, old = whole()
    gaps = torch.stack([labels, labels + 1], dim=1)[:, 0]
    wide = torch.cat([moved, old], dim=1)
    given = new.T.contiguous().T, gaps, wide[:, :5], wide[:, 5:], 0.07
    check_whole(loss_by_kernels(*given), given)
    turned = new[:, ::2], labels.int(), moved[:, ::2], old.T.contiguous().T[:, ::2], 0.07
    check_whole(loss_by_kernels(*turned), turned)
    assert len(streams) == 2


def test_prototypes_of_no_length_point_nowhere(streams):
    new, labels, moved, old = whole()
    old[3], old[labels[0]], moved[labels[1]] = 0, 0, 0
    given = new, labels, moved, old, 0.07
    check_whole(loss_by_kernels(*given), given)
    assert streams


def test_embeddings_opposite_to_all_classes_are_still_drawn(streams):
    new, labels, moved, old = whole(3, 130, 8)
    old, moved = 0.3 * F.normalize(old, dim=1), 0.3 * F.normalize(moved, dim=1)
    old[:, 0], moved[:, 0], new[:], new[:, 0] = 1, 1, 0.01 * new, -2
    given = new, labels, moved, old, 0.025
    cosines = F.normalize(new, dim=1) @ F.normalize(old, dim=1).T
    assert cosines.max() < -0.9
    found = loss_by_kernels(*given)
    check_whole(found, given, tolerance=1e-2)
    assert streams


@pytest.mark.parametrize("label", [-1, 127, 2**40])
def test_a_label_that_is_no_class_costs_nan_in_its_row_alone(streams, label):
    new, labels, moved, old = whole()
    expected = loss_by_kernels(new, labels, moved, old, 0.07)[1]
    labels[4] = label
    loss, gradient = loss_by_kernels(new, labels, moved, old, 0.07)
    assert loss.isnan()
    assert gradient[4].isnan().all()
    others = torch.arange(9, device=DEVICE) != 4
    assert gradient[others].equal(expected[others])


def test_the_gradient_is_left_out_where_nobody_wants_it(streams):
    given = *whole(), 0.07
    loss, gradient = loss_by_kernels(*given, gradient=False)
    torch.testing.assert_close(loss.double(), plain(*given)[0], rtol=2e-3, atol=0)
    assert gradient is None
    assert streams == [{"gradient": False}]


@pytest.mark.parametrize("rounds", [True, False])
@pytest.mark.parametrize("measured", [True, False])
def test_classes_stream_only_where_torch_rounds_and_the_gpu_is_known(
    streams, monkeypatch, rounds, measured
):
    monkeypatch.setattr(allclasses, "torch_rounds", lambda: rounds)
    monkeypatch.setattr(module, "OLDEST", (0, 0) if measured else (99, 0))
    given = *whole(), 0.07
    check_whole(loss_by_kernels(*given), given)
    assert bool(streams) is (rounds and measured)


def test_the_loss_of_methods_streams(streams):
    new, labels, moved, old = whole()
    new.requires_grad_()
    loss = prototype_loss(new, labels, moved, old)
    (gradient,) = torch.autograd.grad(3 * loss, new)
    check_whole((loss.detach(), gradient / 3), (new, labels, moved, old, 0.07))
    assert streams == [{"gradient": True}]


def test_beside_four_kernels_the_mean_and_the_outer_gradient_are_launched(streams):
    class Launched(TorchDispatchMode):
        names = ()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = function.overloadpacket.__name__
            if name not in NOT_LAUNCHED | {"fill_"}:  # of the fixture above
                self.names += (name,)
            return function(*args, **(kwargs or {}))

    new, labels, moved, old = whole()
    new.requires_grad_()
    outer = torch.ones((), device=DEVICE)
    with Launched() as seen:
        contrast_with_all(new, labels, moved, old, 0.07).backward(outer)
    assert seen.names == ("mean", "mul")
