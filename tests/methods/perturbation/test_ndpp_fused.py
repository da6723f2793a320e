"""Updates of NDPP in four launches, against those of many and against double precision."""

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed: torch does the same, slower")

import nobackfill as nb
from nobackfill.errors import DataError
from nobackfill.methods.perturbation import ndpp as neighbor
from nobackfill.methods.perturbation import ndpp_fused as short
from nobackfill.ops.kernels import ndpp_update as nearby

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

every_precision = pytest.mark.parametrize(
    ("precision", "kind"), [("float32", "thirds"), ("tf32", "half"), ("bfloat16", "bfloat16")]
)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def coarse(classes, seed):
    """Unit vectors of 16 numbers, plus or minus a quarter: every precision holds them exactly."""
    return torch.where(random(classes, 16, seed=seed) > 0, 0.25, -0.25)


@pytest.fixture
def taken(monkeypatch):
    """As on a GPU that has tensor cores; what is multiplied in each update by the short way."""
    for name in ("usable", "sums_in_float32"):
        monkeypatch.setattr(short, name, lambda x: True)
    kinds = []
    original = neighbor.moved_at_once

    def watched(*args, kind, **options):
        kinds.append(kind)
        return original(*args, kind=kind, **options)

    monkeypatch.setattr(neighbor, "moved_at_once", watched)
    return kinds


def by_the_long_way(monkeypatch, *args, **options):
    """The same perturbation, updates of which never are short."""
    perturb = nb.NeighborPerturbation(*args, **options)

    def update(new):
        with monkeypatch.context() as patch:
            patch.setattr(short, "usable", lambda x: False)
            perturb.update(new)
        return perturb.moved

    return update


@every_precision
@pytest.mark.parametrize("accumulate", [True, False])
@pytest.mark.parametrize("include_self", [True, False])
def test_two_updates_are_those_by_the_long_way(
    monkeypatch, taken, precision, kind, accumulate, include_self
):
    options = {
        "neighbors": 5, "old_strength": 0.3, "new_strength": 0.2, "accumulate": accumulate,
        "include_self": include_self, "precision": precision,
    }  # fmt: skip
    old = coarse(17, 0)
    found = nb.NeighborPerturbation(old, **options)
    long = by_the_long_way(monkeypatch, old, **options)
    for seed in (1, 2):
        new = 8 * coarse(17, seed)
        new[5] = old[5]  # the nearest of all
        expected = long(new)
        assert len(taken) == seed - 1
        found.update(new)
        torch.testing.assert_close(found.moved, expected, atol=1e-6, rtol=0)
    assert taken == [kind, kind]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(("classes", "dim", "neighbors"), [(2, 1, 1), (33, 20, 16), (50, 3, 9)])
def test_updates_of_any_numbers_are_those_by_the_long_way(
    monkeypatch, taken, precision, classes, dim, neighbors
):
    old, new = random(classes, dim), 3 * random(classes, dim, seed=1)
    options = {"neighbors": neighbors, "new_strength": 0.2, "precision": precision}
    found = nb.NeighborPerturbation(old, **options)
    found.update(new)
    expected = by_the_long_way(monkeypatch, old, **options)(new)
    torch.testing.assert_close(found.moved, expected, atol=1e-6, rtol=0)
    assert len(taken) == 1


@every_precision
def test_an_update_is_its_formula_in_the_precision_that_was_asked_for(taken, precision, kind):
    """Similarities are of rounded vectors; what pushes is not rounded."""
    old, new = random(41, 13), 3 * random(41, 13, seed=1)
    perturb = nb.NeighborPerturbation(old, neighbors=5, new_strength=0.5, precision=precision)
    x, p, q = perturb.moved.double(), perturb.old, F.normalize(new, dim=1)
    dtype = {"thirds": torch.float32, "half": torch.half, "bfloat16": torch.bfloat16}[kind]
    cosine = p.to(dtype).double() @ q.to(dtype).double().T
    near = cosine.fill_diagonal_(-1.0).topk(5, dim=1)
    weight = near.values.clamp(min=0) / near.values.clamp(min=0).sum(dim=1, keepdim=True)
    away = x[:, None] - q.double()[near.indices]
    expected = x + 0.5 * (weight[:, :, None] * away).sum(dim=1)
    perturb.update(new)
    assert taken == [kind]
    torch.testing.assert_close(perturb.moved.double(), expected, atol=1e-6, rtol=0)


def test_where_torch_may_round_float32_is_rounded(monkeypatch, taken):
    monkeypatch.setattr(short, "torch_rounds", lambda: True)
    perturb = nb.NeighborPerturbation(random(9, 4), neighbors=3)
    perturb.update(random(9, 4, seed=1))
    assert taken == ["half"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@every_precision
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", [(0, 0), (4, 2), (8, 3)])
def test_an_update_that_is_refused_changes_nothing(
    monkeypatch, taken, precision, kind, value, place
):
    options = {"neighbors": 3, "precision": precision}
    perturb = nb.NeighborPerturbation(random(9, 4), **options)
    before, copy = perturb.moved, perturb.moved.clone()
    new = coarse(9, 1)[:, :4].contiguous()
    broken = new.clone()
    broken[place] = value
    with pytest.raises(DataError, match="diverged"):
        perturb.update(broken)
    assert taken == [kind]
    assert perturb.moved is before
    assert perturb.moved.equal(copy)
    perturb.update(new)
    assert not perturb.moved.equal(copy)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_class_means_too_long_to_have_a_length_are_those_by_the_long_way(monkeypatch, taken):
    old, new = random(9, 4), random(9, 4, seed=1)
    new[3], new[7] = 3e38, 0.0
    perturb = nb.NeighborPerturbation(old, neighbors=3)
    perturb.update(new)
    assert taken
    expected = by_the_long_way(monkeypatch, old, neighbors=3)(new)
    torch.testing.assert_close(perturb.moved, expected, atol=1e-6, rtol=0)


@pytest.mark.usefixtures("taken")
def test_classes_that_are_others_are_refused_first():
    perturb = nb.NeighborPerturbation(random(9, 4), neighbors=3)
    with pytest.raises(DataError, match="5 dimensions"):
        perturb.update(random(9, 5))
    with pytest.raises(DataError, match="8 classes"):
        perturb.update(torch.full((8, 4), torch.nan, device=DEVICE))


@pytest.mark.usefixtures("taken")
def test_nothing_is_waited_for_before_all_is_asked_for(monkeypatch):
    asked = []
    item, push = torch.Tensor.item, nearby.pushed_by_nearest

    def watched(*args, **options):
        moved = push(*args, **options)
        asked.append("push")
        return moved

    perturb = nb.NeighborPerturbation(random(9, 4), neighbors=3)
    monkeypatch.setattr(nearby, "pushed_by_nearest", watched)
    monkeypatch.setattr(torch.Tensor, "item", lambda x: asked.append("wait") or item(x))
    perturb.update(random(9, 4, seed=1))
    assert asked == ["push", "wait"]


@every_precision
@pytest.mark.usefixtures("taken")
def test_sides_are_as_wide_and_as_many_as_tensor_cores_like(monkeypatch, precision, kind):
    shapes = []
    original = short.half_products
    monkeypatch.setattr(
        short, "half_products", lambda *given: shapes.extend(some.shape for some in given)
        or original(*given),
    )  # fmt: skip
    perturb = nb.NeighborPerturbation(random(9, 4), neighbors=3, precision=precision)
    perturb.update(random(9, 4, seed=1))
    columns = 48 if kind == "thirds" else 8
    assert shapes == [(9, columns), (16, columns), (9, 16)]


def test_gradients_of_new_class_means_are_left_alone(taken):
    new = random(9, 4, seed=1).requires_grad_()
    perturb = nb.NeighborPerturbation(random(9, 4), neighbors=3)
    perturb.update(new)
    assert taken
    assert not perturb.moved.requires_grad


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (lambda x: x, {"normalize": False}),
        (lambda x: x, {"neighbors": 10}),  # of nine others
        (lambda x: x.double(), {}),
        (lambda x: x.T.contiguous().T, {}),
    ],
    ids=["not unit", "many neighbours", "double", "columns one after the other"],
)
def test_what_is_not_for_the_short_way_goes_the_long_one(monkeypatch, taken, change, options):
    old, new = random(10, 4), random(10, 4, seed=1)
    options = {"neighbors": 3, "new_strength": 0.3} | options
    perturb = nb.NeighborPerturbation(change(old), **options)
    perturb.update(change(new))
    assert not taken
    expected = by_the_long_way(monkeypatch, old, **options)(new)
    torch.testing.assert_close(perturb.moved, expected.to(perturb.moved.dtype))


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize("place", [0, 1, 2])
def test_each_of_the_class_means_is_asked_whether_it_is_for_the_short_way(place):
    def kind(change):
        some = [torch.empty(300, 4, device=DEVICE) for _ in range(3)]
        some[place] = change(some[place])
        return short.kind_of_products(*some, 100, "float32")

    assert kind(lambda x: x) == "thirds"
    assert kind(lambda x: x.double()) is None
    assert kind(lambda x: x.T.contiguous().T) is None


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize(("classes", "k"), [(8193, 100), (199, 100), (2000, 257)])
def test_too_many_classes_or_neighbours_go_the_long_way(classes, k):
    x = torch.empty(classes, 2, device=DEVICE)
    assert short.kind_of_products(x, x, x, k, "bfloat16") is None
    assert short.kind_of_products(x[:512], x[:512], x[:512], 99, "bfloat16") == "bfloat16"


@pytest.mark.usefixtures("taken")
def test_classes_elsewhere_are_left_to_the_long_way():
    x = torch.empty(300, 4, device=DEVICE)
    assert short.kind_of_products(x, x, x.to("meta"), 100, "float32") is None


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize("name", ["usable", "sums_in_float32"])
@every_precision
def test_without_a_gpu_that_can_it_is_the_long_way(monkeypatch, name, precision, kind):
    x = torch.empty(300, 4, device=DEVICE)
    assert short.kind_of_products(x, x, x, 100, precision) == kind
    monkeypatch.setattr(short, name, lambda x: False)
    assert short.kind_of_products(x, x, x, 100, precision) is None
