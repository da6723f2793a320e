"""The contrast by kernels equals the plain formula: on a GPU if there is one, else interpreted."""

import weakref

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

pytest.importorskip("triton", reason="Triton is not installed: torch does the same, slower")

from nobackfill.methods import losses
from nobackfill.methods.losses import prototype_loss
from nobackfill.ops import softmax_contrast as allclasses
from nobackfill.ops.kernels import softmax_stream as streaming
from nobackfill.ops.kernels import softmax_terms as exponents
from nobackfill.ops.kernels.normalize import MOST
from nobackfill.ops.kernels.softmax_rows import PARTS, PULLS, losses_of_rows
from nobackfill.ops.softmax_contrast import (
    contrast_with_all,
    kernels_take,
    loss_by_kernels,
    loss_by_torch,
)

pytestmark = pytest.mark.usefixtures("nothing_is_right_by_chance")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = [(1, 1, 1), (3, 2, 1), (3, 127, 3), (130, 127, 3), (3, 1025, 255), (130, 2, 256)]
NOT_LAUNCHED = set(
    "alias copy_ detach empty empty_like new_empty permute select set_ slice unbind unsqueeze "
    "fill_".split()  # the last is of the fixture above
)
TOLERANCE = {"blocks": 1e-5, "stream": 2e-3}


@pytest.fixture(params=["blocks", "stream"])
def way(request, monkeypatch):
    """How sums over classes are made: in blocks, or, as if torch may round, as they stream by."""
    taken = []
    for name in ("sums_by_blocks", "sums_by_stream"):
        original = getattr(allclasses, name)

        def watched(*given, name=name, original=original, **options):
            taken.append(name.removeprefix("sums_by_"))
            return original(*given, **options)

        monkeypatch.setattr(allclasses, name, watched)
    monkeypatch.setattr(allclasses, "torch_rounds", lambda: request.param == "stream")
    monkeypatch.setattr(streaming, "OLDEST", (0, 0))
    yield request.param
    assert set(taken) == {request.param}


def case(batch=9, classes=127, dim=5, seed=0):
    """Embeddings and prototypes of very different lengths."""
    generator = torch.Generator().manual_seed(seed)

    def vectors(rows):
        length = 10 ** (2 * torch.rand(rows, 1, generator=generator) - 1)
        return length * torch.randn(rows, dim, generator=generator)

    new, moved, old = vectors(batch), vectors(classes), vectors(classes)
    labels = torch.randint(classes, (batch,), generator=generator)
    return new.to(DEVICE), labels.to(DEVICE), moved.to(DEVICE), old.to(DEVICE)


def plain(new, labels, moved, old, temperature):
    """The formula as a cross entropy in double precision; autograd finds the gradient."""
    x = new.detach().double().requires_grad_()
    e = F.normalize(x, dim=-1)
    to_own = (e * F.normalize(moved[labels].double(), dim=-1)).sum(dim=-1, keepdim=True)
    cosines = (e @ F.normalize(old.double(), dim=-1).T).scatter(1, labels[:, None].long(), to_own)
    loss = F.cross_entropy(cosines / temperature, labels.long())
    return loss.detach(), torch.autograd.grad(loss, x)[0]


def check(found, given, tolerance=1e-5):
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
def test_loss_and_gradient_are_those_of_the_formula(way, batch, classes, dim, temperature):
    given = *case(batch, classes, dim, seed=classes), temperature
    check(loss_by_kernels(*given), given, TOLERANCE[way])


def test_the_slow_twin_agrees():
    given = *case(), 0.07
    check(loss_by_torch(*given), given)
    check(loss_by_kernels(*given), given)


@pytest.mark.parametrize("block", [1, 7, 126, 127, 500])
def test_the_loss_does_not_depend_on_the_block(block):
    given = *case(3), 0.1
    check(loss_by_kernels(*given, block=block), given)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_prototypes_of_any_precision_are_taken(way, dtype):
    new, labels, moved, old = case()
    given = new, labels, moved.to(dtype), old.to(dtype), 0.07
    check(loss_by_kernels(*given), given, TOLERANCE[way])


def test_tensors_with_gaps_or_turned_round_are_read_right(way):
    new, labels, moved, old = case()
    gaps = torch.stack([labels, labels + 1], dim=1)[:, 0]
    wide = torch.cat([moved, old], dim=1)
    given = new.T.contiguous().T, gaps, wide[:, :5], wide[:, 5:], 0.07
    check(loss_by_kernels(*given), given, TOLERANCE[way])
    turned = new[:, ::2], labels.int(), moved.T.contiguous().T[:, ::2], old[:, ::2], 0.07
    check(loss_by_kernels(*turned), turned, TOLERANCE[way])


def test_prototypes_of_no_length_point_nowhere(way):
    new, labels, moved, old = case()
    old[3], old[labels[0]], moved[labels[1]] = 0, 0, 0
    given = new, labels, moved, old, 0.07
    check(loss_by_kernels(*given), given, TOLERANCE[way])


@pytest.mark.parametrize("length", [0.0, 3e-14, 0.9e-12, 1.1e-12, 1e-6, 1e12])
def test_short_embeddings_are_divided_by_no_less_than_normalize_does(way, length):
    new, labels, moved, old = case()
    new[2] = F.normalize(new[2], dim=0) * length
    given = new, labels, moved, old, 0.07
    check(loss_by_torch(*given), given)
    check(loss_by_kernels(*given), given, TOLERANCE[way])


def test_the_gradient_is_left_out_where_nobody_wants_it(way):
    given = *case(), 0.07
    loss, gradient = loss_by_kernels(*given, gradient=False)
    torch.testing.assert_close(loss.double(), plain(*given)[0], rtol=TOLERANCE[way], atol=0)
    assert gradient is None


@pytest.mark.parametrize("processors", [1, 2, 5, 40])
def test_the_loss_does_not_depend_on_the_processors(way, monkeypatch, processors):
    """So not on the parts of a stream: 1, 2, 5 and, of 9 tiles of classes, 9."""
    small = streaming.INTERPRETED._replace(processors=processors)
    monkeypatch.setattr(streaming, "chip", lambda device: small)
    given = *case(3, 550, 20), 0.07
    check(loss_by_kernels(*given), given, TOLERANCE[way])


def test_embeddings_opposite_to_all_classes_are_still_drawn(way):
    new, labels, moved, old = case(3, 130, 8)
    old, moved = 0.3 * F.normalize(old, dim=1), 0.3 * F.normalize(moved, dim=1)
    old[:, 0], moved[:, 0], new[:], new[:, 0] = 1, 1, 0.01 * F.normalize(new, dim=1), -2
    given = new, labels, moved, old, 0.025
    cosines = F.normalize(new, dim=1) @ F.normalize(old, dim=1).T
    assert cosines.max() < -0.9
    check(loss_by_kernels(*given), given, 5 * TOLERANCE[way])


@pytest.mark.parametrize("label", [-1, 127, 2**40])
def test_a_label_that_is_no_class_costs_nan(way, label):
    """On a GPU nobody can refuse it; it must not pass for a class, either."""
    new, labels, moved, old = case()
    expected = loss_by_kernels(new, labels, moved, old, 0.07)[1]
    labels[4] = label
    loss, gradient = loss_by_kernels(new, labels, moved, old, 0.07)
    assert loss.isnan()
    assert gradient[4].isnan().all()
    others = torch.arange(9, device=DEVICE) != 4
    torch.testing.assert_close(gradient[others], expected[others])


@pytest.mark.parametrize("parts", [1, 3, PARTS, 2 * PARTS + 1])
def test_each_loss_is_exact_however_small(parts):
    """Down to what is certain but for a billionth, and up to a certain mistake."""
    ratio = torch.cat([torch.logspace(-9, 6, 61), torch.linspace(0.095, 0.105, 41)]).double()
    z = ratio * torch.tensor(-1.0, dtype=torch.float64).exp()
    share = torch.rand(len(z), parts, generator=torch.Generator().manual_seed(0)).double()
    sums = (z[:, None] * share / share.sum(dim=1, keepdim=True)).float().to(DEVICE)
    new = torch.tensor([[1.0, 0.0]], device=DEVICE).expand(len(z), 2)
    own = torch.tensor([[0.5, 0.75**0.5]], device=DEVICE)  # its cosine is 1/2
    labels = torch.zeros(len(z), dtype=torch.int64, device=DEVICE)
    found, _ = losses_of_rows(new, labels, own, sums, 0.5)
    torch.testing.assert_close(found.cpu().double(), ratio.log1p(), rtol=8e-7, atol=0)


@pytest.mark.parametrize("many", [2, PULLS, PULLS + 1, 3 * PULLS])
def test_parts_of_pulls_are_added_up(many):
    """The gradient is that of their sum, which takes its place; parts themselves stay."""
    new, labels, moved, _ = case()
    generator = torch.Generator().manual_seed(0)
    pulls = torch.randn(many, *new.shape, generator=generator, dtype=torch.float64).to(DEVICE)
    sums = torch.ones(len(new), 3, device=DEVICE)
    given = new, labels, moved, sums, 0.07
    together = pulls.sum(dim=0, keepdim=True).float()
    _, expected = losses_of_rows(*given, together)
    assert expected.data_ptr() == together.data_ptr()
    before = pulls.float()
    parts = before.clone()
    _, found = losses_of_rows(*given, parts)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert parts.equal(before)


def test_sums_are_of_all_parts_of_a_row():
    given = *case(2, 18_001, 3), 0.07
    check(loss_by_kernels(*given), given)


def test_columns_are_numbered_from_the_first_class_of_a_block():
    product = torch.zeros(4, 3, device=DEVICE)
    labels, length = torch.tensor([9, 10, 12, 13], device=DEVICE), torch.ones(3, device=DEVICE)
    exponents.exponents_in_parts(product, labels, length, 1.0, first=10)
    assert (product == 0).nonzero().tolist() == [[1, 0], [2, 2]]


@pytest.fixture
def kernels(monkeypatch):
    """Kernels are taken on this device, and for small losses; tells with what they were called."""
    calls = []

    def watched(*given, **options):
        calls.append(options)
        return loss_by_kernels(*given, **options)

    monkeypatch.setattr(allclasses, "usable", lambda x: True)
    monkeypatch.setattr(allclasses, "loss_by_kernels", watched)
    monkeypatch.setattr(losses, "MANY", 1)
    return calls


def test_the_loss_of_methods_takes_the_kernels(kernels, way):
    new, labels, moved, old = case()
    new.requires_grad_()
    loss = prototype_loss(new, labels, moved, old)
    (gradient,) = torch.autograd.grad(3 * loss, new)
    check((loss.detach(), gradient / 3), (new, labels, moved, old, 0.07), TOLERANCE[way])
    assert kernels == [{"gradient": True}]


def test_kernels_find_no_gradient_where_nobody_wants_it(kernels):
    new, labels, moved, old = case()
    assert not prototype_loss(new, labels, moved, old).requires_grad
    new.requires_grad_()
    with torch.no_grad():
        prototype_loss(new, labels, moved, old)
    assert kernels == [{"gradient": False}] * 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_takes_kernels_under_autocast_alone(kernels, dtype):
    new, labels, moved, old = case()
    new = new.to(dtype).requires_grad_()
    with torch.autocast(DEVICE, torch.bfloat16):
        assert kernels_take(new)
        loss = prototype_loss(new, labels, moved, old)
    loss.backward()
    assert loss.dtype == torch.float32
    assert new.grad.dtype == dtype
    check((loss.detach(), new.grad), (new, labels, moved, old, 0.07), tolerance=1e-2)
    assert not kernels_take(new)


@pytest.mark.parametrize(
    ("dtype", "dim", "does"),
    [
        (torch.float32, 1, True),
        (torch.float32, MOST, True),
        (torch.float32, MOST + 1, False),
        (torch.float64, 1, False),
    ],
)
def test_embeddings_that_are_not_for_the_kernels_are_known(kernels, dtype, dim, does):
    x = torch.empty(1, dim, dtype=dtype, device="meta")
    assert kernels_take(x) is does


def test_kernels_are_not_taken_where_they_do_not_run():
    assert not kernels_take(torch.ones(2, 3))


def test_beside_three_kernels_little_is_launched(kernels, way):
    """The mean and the outer gradient; of blocks also both products and the lengths of classes."""

    class Launched(TorchDispatchMode):
        names = ()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = function.overloadpacket.__name__
            if name not in NOT_LAUNCHED:
                self.names += (name,)
            return function(*args, **(kwargs or {}))

    new, labels, moved, old = case()
    new.requires_grad_()
    outer = torch.ones((), device=DEVICE)
    with Launched() as seen:
        contrast_with_all(new, labels, moved, old, 0.07).backward(outer)
    of_blocks = ("mm", "linalg_vector_norm", "addmm_") if way == "blocks" else ()
    assert seen.names == (*of_blocks, "mean", "mul")


@pytest.mark.parametrize("rounds", [True, False])
@pytest.mark.parametrize("measured", [True, False])
def test_classes_stream_only_where_torch_rounds_and_the_gpu_is_known(monkeypatch, rounds, measured):
    streams = []
    original = allclasses.sums_by_stream
    monkeypatch.setattr(
        allclasses,
        "sums_by_stream",
        lambda *given, **options: streams.append(options) or original(*given, **options),
    )
    monkeypatch.setattr(allclasses, "torch_rounds", lambda: rounds)
    monkeypatch.setattr(streaming, "OLDEST", (0, 0) if measured else (99, 0))
    given = *case(), 0.07
    check(loss_by_kernels(*given), given, TOLERANCE["stream"])
    assert bool(streams) is (rounds and measured)


@pytest.mark.parametrize(("block", "blocks"), [(126, 2), (127, 1), (None, 1)])
def test_classes_that_fit_into_one_block_are_taken_as_they_are(monkeypatch, block, blocks):
    """Each view of them would cost time."""
    taken = []
    original = allclasses.sums_by_kernel
    monkeypatch.setattr(
        allclasses, "sums_by_kernel", lambda *rest: taken.append(rest[2]) or original(*rest)
    )
    new, labels, moved, old = case()
    loss_by_kernels(new, labels, moved, old, 0.07, block=block)
    assert len(taken) == blocks
    assert (taken[0] is old) is (blocks == 1)


def test_the_products_of_one_block_are_gone_before_the_next(monkeypatch):
    made = []

    def watched(e, some):
        assert all(room() is None for room in made)
        found = products(e, some)
        made.append(weakref.ref(found))
        return found

    products = allclasses.products
    monkeypatch.setattr(allclasses, "products", watched)
    loss_by_kernels(*case(), 0.07, block=50)
    assert len(made) == 3
