"""The map of a head, against its formula."""

from math import erf, sqrt

import pytest
import torch
from torch import nn

from nobackfill.head.closed_form import procrustes
from nobackfill.head.network import HeadNetwork, byte_dropout

NEW, OLD, HIDDEN = 5, 3, 4


def filled(hidden=HIDDEN, **settings):
    torch.manual_seed(0)
    network = HeadNetwork(NEW, OLD, hidden=hidden, **settings).double()
    for parameter in network.parameters():
        nn.init.normal_(parameter)
    return network


def by_hand(network, vector):
    state = {name: value.tolist() for name, value in network.state_dict().items()}
    length = sqrt(sum(x * x for x in vector))
    unit = [x / length for x in vector]

    def linear(layer, inputs):
        weight, bias = state[f"{layer}.weight"], state[f"{layer}.bias"]
        return [
            sum(w * x for w, x in zip(row, inputs, strict=True)) + b
            for row, b in zip(weight, bias, strict=True)
        ]

    inner = linear("inner", [sqrt(NEW) * x for x in unit])
    gelu = [x * (1 + erf(x / sqrt(2))) / 2 for x in inner]
    return [a + b for a, b in zip(linear("affine", unit), linear("outer", gelu), strict=True)]


def test_it_is_its_formula():
    network, new = filled().eval(), torch.randn(6, NEW).double()
    expected = torch.tensor([by_hand(network, row) for row in new.tolist()]).double()
    torch.testing.assert_close(network(new), expected)


@pytest.mark.parametrize("hidden", [0, HIDDEN])
def test_it_begins_as_the_closed_form(hidden):
    new, old = torch.randn(20, NEW), torch.randn(20, OLD)
    affine, network = procrustes(new, old), HeadNetwork(NEW, OLD, hidden=hidden)
    network.start_from(affine)
    assert torch.equal(network.affine.weight, affine.weight)
    assert torch.equal(network.affine.bias, affine.bias)
    exact = nn.functional.linear(nn.functional.normalize(new, dim=1), affine.weight, affine.bias)
    for training in (True, False):  # dropout of a correction that is 0 changes nothing
        assert torch.equal(network.train(training)(new), exact)


def test_without_a_correction_it_is_linear_and_has_no_other_weights():
    network = filled(hidden=0)
    assert set(network.state_dict()) == {"affine.weight", "affine.bias"}
    new = nn.functional.normalize(torch.randn(6, NEW).double(), dim=1)
    torch.testing.assert_close(network(new), network.affine(new))


def test_lengths_do_not_matter():
    network, new = filled().eval(), torch.randn(6, NEW).double()
    torch.testing.assert_close(network(1000 * new), network(new))


def test_dropout_acts_in_training_on_the_correction_only():
    network, new = filled(dropout=0.5), torch.randn(6, NEW).double()
    one, other = network(new), network(new)
    assert not torch.equal(one, other)
    assert torch.equal(network.eval()(new), network(new))
    with torch.no_grad():
        network.outer.weight.zero_()
    assert torch.equal(network.train()(new), network(new))


def test_both_layers_of_the_correction_lose_a_part():
    network, new = filled(dropout=0.5), torch.ones(1, NEW).double()
    seen = []
    network.inner.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
    network.outer.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
    for _ in range(20):
        network(new)
    assert all((torch.cat(part) == 0).any() for part in (seen[::2], seen[1::2]))
    kept = torch.cat(seen[::2])
    torch.testing.assert_close(kept[kept != 0].unique(), torch.tensor([2.0]).double())


def test_the_correction_learns_from_the_first_step():
    network = HeadNetwork(NEW, OLD, hidden=HIDDEN)
    network(torch.randn(6, NEW)).square().sum().backward()
    assert network.outer.weight.grad.any()
    assert network.affine.weight.grad.any()


def test_what_is_embedded_has_unit_length():
    network, new = filled().eval(), torch.randn(6, NEW).double()
    out = network(new)
    torch.testing.assert_close(network.embed(new), out / out.norm(dim=1, keepdim=True))


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9])
def test_dropout_loses_its_share_and_keeps_the_mean(share):
    torch.manual_seed(0)
    values = torch.ones(1001, 399)
    out = byte_dropout(values, share)
    lost = round(256 * share) / 256
    noise = 4 * sqrt(lost * (1 - lost) / values.numel())
    assert (out == 0).double().mean().item() == pytest.approx(lost, abs=noise)
    assert abs(lost - share) <= 1 / 512
    torch.testing.assert_close(out[out != 0].unique(), torch.tensor([1 / (1 - lost)]))
    assert out.mean().item() == pytest.approx(1, abs=noise / (1 - lost))


def test_dropout_takes_no_place_rather_than_another():
    torch.manual_seed(0)
    out = byte_dropout(torch.ones(20_000, 16), 0.25) == 0
    noise = 5 * sqrt(0.25 * 0.75 / len(out))
    assert (out.double().mean(dim=0) - 0.25).abs().max() < noise  # as 8 come from one number
    both = (out.double().T @ out.double() / len(out)).fill_diagonal_(0.25**2)
    assert (both - 0.25**2).abs().max() < noise


@pytest.mark.parametrize(
    ("share", "lost"), [(0.001, 0), (0.002, 1), (0.5, 128), (0.997, 255), (0.999, 256)]
)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 1), (8, 8), (250, 333)])
def test_dropout_of_any_share_and_any_number_of_entries(share, lost, shape):
    torch.manual_seed(0)
    values = torch.randn(shape).double()
    out = byte_dropout(values, share)
    assert (out.shape, out.dtype) == (shape, torch.float64)
    stays = out != 0
    if lost == 256:
        assert not stays.any()
    else:
        torch.testing.assert_close(out, values * stays * 256 / (256 - lost))
    if lost == 0:
        assert stays.all()
    if 0 < lost < 256 and values.numel() > 10_000:
        assert 0 < stays.sum() < values.numel()


@pytest.mark.parametrize("share", [0.3, 0.999])
def test_gradients_pass_where_values_stay_only(share):
    torch.manual_seed(0)
    values = torch.randn(31, 7, requires_grad=True)
    out = byte_dropout(values, share)
    out.sum().backward()
    lost = round(256 * share)
    factor = 0 if lost == 256 else 256 / (256 - lost)
    torch.testing.assert_close(values.grad, (out != 0) * torch.tensor(float(factor)))
    assert values.grad.any() == (lost < 256)


def test_the_seed_decides_what_is_lost():
    def draw(seed):
        torch.manual_seed(seed)
        return byte_dropout(torch.ones(9, 9), 0.5)

    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))


def test_without_dropout_nothing_is_lost_in_training():
    network, new = filled(dropout=0.0), torch.randn(6, NEW).double()
    assert torch.equal(network.train()(new), network.eval()(new))
