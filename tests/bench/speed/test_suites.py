"""Every suite at small sizes: ours and its peer do what they say."""

import pytest
import torch

from nobackfill_bench.speed import SPEED_SUITES, Case, head, loss, ndpp, odpp, retrieval
from nobackfill_bench.speed.inputs import crowded, dense, product_in_blocks
from nobackfill_bench.speed.retrieval_peers import PEERS

CPU = torch.device("cpu")
EVERY = pytest.mark.parametrize("name", SPEED_SUITES)
KINDS = pytest.mark.parametrize("kind", ["cpu", "cuda"])


@EVERY
@KINDS
def test_no_two_figures_of_a_suite_are_the_same(name, kind):
    cases = SPEED_SUITES[name].cases(kind)
    keys = [(case.name, tuple(sorted(case.size.items()))) for case in cases]
    assert len(keys) == len(set(keys)) > 0


@EVERY
@KINDS
def test_every_figure_has_its_peer_and_its_counts(name, kind):
    for case in SPEED_SUITES[name].cases(kind):
        if isinstance(case, Case):
            assert case.peer
            assert case.operations > 0
            assert case.bytes > 0
            assert not case.axis or case.axis in case.size


def test_targets_are_those_of_the_issue():
    figures = [case for case in odpp.cases("cuda") if isinstance(case, Case)]
    found = {(case.name, case.size["classes"]): case.target_seconds for case in figures}
    assert found["constructor, dense, float32", 24_393] == 0.3
    assert found["constructor, crowded, float32", 81_313] == 4.0
    updates = [case for case in ndpp.cases("cuda") if case.name == "`update`, float32"]
    assert [case.size["classes"] for case in updates] == [3_997, 24_393, 81_313, 300_000]
    assert {(case.target, case.target_gb) for case in updates} == {(2.0, 8.0)}
    losses = [case for case in loss.cases("cuda") if isinstance(case, Case)]
    assert {case.target for case in losses} == {1.3}
    assert {case.target for case in retrieval.cases("cuda")} == {1.5}
    assert {case.target for case in retrieval.cases("cpu")} == {5.0, 10.0}
    assert [case.target for case in head.cases("cuda")] == [3.0]


@pytest.mark.parametrize("by_torch", [False, True])
def test_the_error_of_a_gradient_is_that_of_its_precision(monkeypatch, by_torch):
    monkeypatch.setattr(loss, "BATCHES", (20,))
    monkeypatch.setattr(loss, "CLASSES", (300,))
    finding = loss.error_of_gradient("float32", by_torch=by_torch)
    assert 1e-9 < finding.find(torch.device("cpu")) < 1e-5


def test_growth_goes_over_three_decades():
    for kind in ("cpu", "cuda"):
        for axis in ("classes", "gallery"):
            sizes = [
                case.size[axis]
                for case in SPEED_SUITES["growth"].cases(kind)
                if case.axis == axis and not case.large
            ]
            assert max(sizes) / min(sizes) >= 1000


@pytest.mark.parametrize(
    "case",
    [
        ndpp.update(150, 8, "float32", "cpu"),
        ndpp.update(150, 8, "float32", "cuda"),
        ndpp.update(150, 8, "float64", "cpu"),
        ndpp.constructor(150, 8, "cpu"),
        odpp.steps_of("crowded", 40, "float32", "cpu"),
        odpp.steps_of("dense", 40, "float64", "cpu", update=True),
        loss.both_ways(4, 30, 8, "float32", "cpu"),
        retrieval.whole(5, 60, 8, 3, 1.0, "float32"),
        head.epoch_of(64, 8, 12, 6, 16, "cpu"),
    ],
    ids=lambda case: f"{case.name}, {case.peer}"[:40],
)
def test_ours_and_its_peer_can_be_called_again_and_again(case):
    if "faiss" in case.requires:
        pytest.importorskip("faiss")
    pair = case.make(CPU)
    for _ in range(2):
        pair.ours()
        pair.peer()


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_comes_to_the_same_map(name):
    for module in PEERS[name].requires:
        pytest.importorskip(module)
    vectors = retrieval.clustered(9, 70, 6, 5, 1.0, CPU)
    ours = retrieval.mean_average_precision(vectors)
    assert 0.2 < ours < 0.95
    assert PEERS[name].function(*vectors) == pytest.approx(ours, abs=1e-6)


def test_a_product_in_blocks_is_the_product():
    rows, columns = torch.randn(7, 3), torch.randn(5, 3)
    torch.testing.assert_close(product_in_blocks(rows, columns)(), rows @ columns.T)
    back = product_in_blocks(rows, columns, back=True, block_bytes=2 * 5 * 4)  # two rows a block
    torch.testing.assert_close(back(), rows @ columns.T @ columns)


def test_dense_means_that_most_cosines_are_near_the_threshold():
    for make, share in ((dense, 1.0), (crowded, 0.1)):
        rows = make(400, 256, CPU)
        torch.testing.assert_close(rows.norm(dim=1), torch.ones(400))
        near = ((rows @ rows.T) > 0.5).float().mean().item()
        assert near > 0.99 if share == 1.0 else near < share


def test_rounded_vectors_find_fewer_of_the_neighbours():
    exact = ndpp.agreement(600, 16, "float32", CPU)
    assert exact > 0.999
    assert 0.9 < ndpp.agreement(600, 16, "bfloat16", CPU) < exact


def test_an_epoch_of_ours_has_the_steps_of_the_naive_loop(monkeypatch):
    steps = []
    step = torch.optim.AdamW.step

    def counted(self, *arguments):
        steps.append(self)
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", counted)
    case = head.epoch_of(70, 8, 12, 6, 16, "cpu")
    pair = case.make(CPU)
    for work in (pair.ours, pair.peer):
        steps.clear()
        work()
        assert len(steps) == case.steps == 5
