"""Sums over classes in one pass against the formula: on a GPU, or interpreted without one."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed: torch does the same, slower")

from nobackfill.ops import softmax_contrast
from nobackfill.ops.kernels import softmax_stream as stream

pytestmark = pytest.mark.usefixtures("nothing_is_right_by_chance")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def vectors(rows, dim, seed=0):
    """Vectors of very different lengths."""
    generator = torch.Generator().manual_seed(seed)
    length = 10 ** (2 * torch.rand(rows, 1, generator=generator) - 1)
    return (length * torch.randn(rows, dim, generator=generator)).to(DEVICE)


def check(e, labels, classes, temperature, parts):
    """Halves are taken as the kernel rounded them, so that the rest is asked for more bits."""
    u, p = (stream.unit_halves(x)[:, : x.shape[1]].double() for x in (e, classes))
    weight = ((u @ p.T - 1) / temperature).exp()
    weight[torch.arange(len(classes), device=DEVICE) == labels[:, None]] = 0
    z, a = weight.sum(dim=1), weight @ p
    found = stream.streamed_class_sums(e, labels, classes, temperature, parts=parts)
    torch.testing.assert_close(found[0].double(), z, rtol=1e-4, atol=0)
    scale = z.clamp(min=1e-300)[:, None]
    torch.testing.assert_close(found[1].double() / scale, a / scale, rtol=0, atol=1e-3)


def test_halves_are_unit_vectors_with_ten_bits():
    x = vectors(300, 21).T  # columns are rows
    found = stream.unit_halves(x)
    assert found.shape == (21, 512)
    assert not found[:, 300:].any()
    expected = F.normalize(x.double(), dim=1)
    torch.testing.assert_close(found[:, :300].double(), expected, rtol=2**-11, atol=3e-8)


@pytest.mark.parametrize(
    ("batch", "classes", "dim", "temperature", "parts"),
    [
        (1, 1, 1, 1.0, 1),
        (3, 127, 3, 0.07, 1),
        (130, 129, 20, 0.025, 2),  # two blocks of rows, the last tile has one class
        (3, 321, 255, 0.07, 1000),  # no more parts than tiles
    ],
)
def test_sums_are_those_of_the_formula(batch, classes, dim, temperature, parts):
    e = F.normalize(vectors(batch, dim), dim=1)
    labels = torch.randint(-1, classes + 1, (batch,), generator=torch.Generator().manual_seed(0))
    check(e, labels.to(DEVICE), vectors(classes, dim, 1), temperature, parts)


@pytest.mark.parametrize("descending", [True, False])
def test_sums_are_right_wherever_the_largest_cosine_is(descending):
    e, p = F.normalize(vectors(1, 5), dim=1), F.normalize(vectors(321, 5, 1), dim=1)
    p = p[(p @ e[0]).argsort(descending=descending)]
    check(e, torch.tensor([7], device=DEVICE), p, 0.025, 1)


def test_the_smallest_weights_keep_their_bits():
    """All weights are 2**-125."""
    e = torch.tensor([[1.0, 0.0]], device=DEVICE)
    check(e, torch.tensor([3], device=DEVICE), -e.repeat(5, 1), 0.0231, 1)


def test_without_a_gradient_the_sums_are_the_same():
    e, p, labels = F.normalize(vectors(3, 5), dim=1), vectors(321, 5, 1), torch.tensor([0, 5, 320])
    options = {"temperature": 0.07, "parts": 2}
    both = stream.streamed_class_sums(e, labels.to(DEVICE), p, **options)
    alone = stream.streamed_class_sums(e, labels.to(DEVICE), p, gradient=False, **options)
    assert alone[1] is None
    assert alone[0].equal(both[0])


@pytest.mark.parametrize(
    ("rounds", "dtype", "dim", "major", "streams"),
    [
        (True, torch.float32, 256, 9, True),
        (False, torch.float32, 256, 9, False),
        (True, torch.float64, 256, 9, False),
        (True, torch.float32, 257, 9, False),
        (True, torch.float32, 256, 8, False),
    ],
)
def test_classes_stream_where_a_new_gpu_may_round(monkeypatch, rounds, dtype, dim, major, streams):
    gpu = SimpleNamespace(
        major=major, minor=0, total_memory=2**37, shared_memory_per_block_optin=227 * 2**10
    )
    calls = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    monkeypatch.setattr(softmax_contrast, "usable", lambda x: len(x) == 2 and x.shape[1] >= 256)
    monkeypatch.setattr(softmax_contrast, "torch_rounds", lambda: rounds)
    monkeypatch.setattr(
        stream,
        "streamed_class_sums",
        lambda *rest, **options: calls.append(rest) or (e[:, 0], None),
    )
    e = torch.ones(2, dim, dtype=dtype)
    softmax_contrast.class_sums(e, torch.tensor([0, 1]), torch.ones(3, dim), 1.0)
    assert bool(calls) is streams
