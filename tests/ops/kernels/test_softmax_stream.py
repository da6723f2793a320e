"""Sums over classes that stream by equal the formula: on a GPU if there is one, else interpreted.

Halves are made by another kernel and then taken as they are, so that the rest is asked for more
than their ten bits; what these cost is asked of the whole loss, in test_contrast.py.
"""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed: torch does the same, slower")

from nobackfill.ops.kernels import softmax_stream as module
from nobackfill.ops.kernels.normalize import unit_halves
from nobackfill.ops.kernels.softmax_stream import (
    MOST_CLASSES,
    TILES,
    WIDEST,
    Chip,
    chip,
    fits,
    parts_for,
    stream,
    tiles_for,
)

pytestmark = pytest.mark.usefixtures("nothing_is_right_by_chance")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = [(1, 1, 1), (3, 2, 1), (3, 127, 3), (130, 127, 3), (3, 1025, 255), (130, 2, 256)]


def vectors(rows, dim, seed=0):
    """Of very different lengths."""
    generator = torch.Generator().manual_seed(seed)
    length = 10 ** (2 * torch.rand(rows, 1, generator=generator) - 1)
    return (length * torch.randn(rows, dim, generator=generator)).to(DEVICE)


def case(batch=9, classes=127, dim=5, seed=0):
    """Embeddings and classes, both as halves, and labels."""
    labels = torch.randint(classes, (batch,), generator=torch.Generator().manual_seed(seed))
    e, p = vectors(batch, dim, seed), vectors(classes, dim, seed + 1)
    return *unit_halves(e, p), labels.to(DEVICE)


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
    _, p = unit_halves(torch.ones(1, 3, device=DEVICE), torch.ones(classes, 3, device=DEVICE))
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
    given = *unit_halves(e, p), torch.tensor([0, 77, 199], device=DEVICE)
    check(stream(*given, temperature, 8), given, temperature, 8)


def test_the_smallest_weights_keep_their_bits():
    """All are 2**-125: a single precision that had lost another 2**-15 would have few bits left."""
    x = torch.tensor([[1.0, 0.0]], device=DEVICE)
    e, _ = unit_halves(x, x)
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
    (e, p), labels = unit_halves(p[:1], p), torch.tensor([2], device=DEVICE)
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
