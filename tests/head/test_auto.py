"""`method="auto"`: what is tried, what is chosen, and what a blend is."""

import pytest
import torch

from nobackfill.errors import ConfigError
from nobackfill.head.auto import SHARES, blend, blended
from nobackfill.head.examples import Examples
from nobackfill.head.fitting import weights_of
from nobackfill.head.network import HeadNetwork
from nobackfill.head.schedule import CANDIDATES
from nobackfill.head.split import hold_out, tightness_of
from nobackfill.head.validation import embed_rows, new_old_map


def held_out_of(data):
    rows = hold_out(data.labels, 0.2, seed=0, tightness=tightness_of(data.old, data.labels))[1]
    return Examples(data.new[rows], data.old[rows], data.labels[rows])


def test_every_candidate_is_tried_and_the_best_is_trained(items, head):
    data = items()
    done = head("auto").fit(data.new, data.old, data.labels)
    progress = done.progress_
    assert tuple(progress.tried) == CANDIDATES
    assert progress.tried[progress.method] == max(progress.tried.values())
    assert done.space_.method == progress.method
    reached = new_old_map(done.network_, held_out_of(data))
    assert reached == pytest.approx(progress.kept)
    best = [*progress.closed.values(), *progress.history, *progress.tried.values()]
    assert reached >= max(best) - 1e-12


@pytest.mark.parametrize("share", SHARES)
def test_a_blend_is_the_sum_of_both_maps(share):
    torch.manual_seed(0)
    network = HeadNetwork(8, 6, hidden=16).eval()
    start = weights_of(network)
    for weight in network.parameters():
        torch.nn.init.normal_(weight)
    trained, new = weights_of(network), torch.randn(5, 8)
    with torch.no_grad():
        after = network(new)
        network.load_state_dict(start)
        before = network(new)
        network.load_state_dict(blended(trained, start, share))
        torch.testing.assert_close(network(new), share * after + (1 - share) * before)


def test_a_blend_is_kept_only_if_it_is_better(items, head):
    data = items()
    network = head().fit(data.new, data.old, data.labels).network_
    start, held_out = weights_of(network), held_out_of(data)
    with torch.no_grad():  # training that ruined the map: less of it is better
        network.affine.weight.mul_(-1)
    ruined = new_old_map(network, held_out)
    share, value = blend(network, start, held_out, value=ruined)
    assert (share, value > ruined) == (min(SHARES), True)
    same = embed_rows(network, data.new)
    assert blend(network, weights_of(network), held_out, value=value) == (1.0, value)
    torch.testing.assert_close(embed_rows(network, data.new), same)


def test_it_keeps_to_a_limit_of_time(items, head):
    data = items()
    done = head("auto", seconds=0.0).fit(data.new, data.old, data.labels)
    assert done.progress_.kept == max(done.progress_.closed.values())


def test_options_belong_to_a_method(items, head):
    data = items()
    with pytest.raises(ConfigError, match="takes no `options`"):
        head("auto", options={"weight": 1.0}).fit(data.new, data.old, data.labels)
