"""The map of a head, against its formula."""

from math import erf, sqrt

import pytest
import torch
from torch import nn

from nobackfill.adapters import procrustes
from nobackfill.head.network import HeadNetwork

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
