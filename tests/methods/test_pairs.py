import math

import pytest
import torch
import torch.nn.functional as F

from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.methods.pairs import PAIR_METHODS, CompatiblePairs
from nobackfill.methods.perturbation import NeighborPerturbation, OptimizedPerturbation


def drawn(rows, dim=8, *, seed=0):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed)).double()


def corpus():
    """Forty documents; the last two are copies of the first two."""
    old = drawn(40)
    old[38:] = old[:2]
    return old


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(
        sum(x * x for x in a) * sum(y * y for y in b)
    )


def contrast_by_loops(query, groups, targets, prototypes, temperature, candidates):
    total = 0.0
    for q, own in zip(query.tolist(), groups, strict=True):
        positive = math.exp(cosine(q, targets[own].tolist()) / temperature)
        negatives = sum(
            math.exp(cosine(q, prototypes[c].tolist()) / temperature)
            for c in candidates
            if c != own
        )
        total -= math.log(positive / (positive + negatives))
    return total / len(query)


@pytest.mark.parametrize("method", ["contrast", "ndpp", "odpp", "frozen_documents"])
def test_the_term_is_the_formula_over_groups(method):
    old, query, rows = corpus(), drawn(5, seed=1), torch.tensor([38, 3, 0, 17, 1])
    options = {"old_strength": 0.3} if method == "ndpp" else {}
    pairs = CompatiblePairs(old, method=method, temperature=0.1, **options)
    assert len(pairs.prototypes) == 38
    targets = pairs.prototypes
    if method == "ndpp":
        targets = NeighborPerturbation(pairs.prototypes.float(), old_strength=0.3).moved
    if method == "odpp":
        targets = OptimizedPerturbation(pairs.prototypes.float()).moved
    expected = contrast_by_loops(
        query, [0, 3, 0, 17, 1], targets, F.normalize(old[:38], dim=1), 0.1, range(38)
    )
    assert pairs(query, rows).item() == pytest.approx(expected, rel=1e-5)


def test_near_duplicates_are_never_negatives():
    old = corpus()
    old[38:] += 0.05 * drawn(2, seed=5)  # nearly copies
    query, rows = old[38:39] + 0.1, torch.tensor([38])
    together = CompatiblePairs(old)(query, rows)
    apart = CompatiblePairs(old, near_duplicate=1.0)(query, rows)
    alone = CompatiblePairs(old[:39].index_select(0, torch.tensor([38, *range(1, 38)])))
    assert together < 0.1 < apart
    assert together.item() == pytest.approx(alone(query, torch.tensor([0])).item(), rel=5e-2)


def test_beyond_exact_the_contrast_runs_over_own_near_and_random_groups():
    old, query, rows = corpus(), drawn(5, seed=1), torch.tensor([38, 3, 0, 17, 1])
    options = {"exact": 10, "memory": 6, "seed": 3}
    pairs = CompatiblePairs(old, temperature=0.1, **options)
    groups = pairs.group_of[rows]
    candidates = pairs.candidates(groups).tolist()
    assert set(groups.tolist()) <= set(candidates) < set(range(38))
    assert set(pairs.near[groups].flatten().tolist()) <= set(candidates)
    pairs = CompatiblePairs(old, temperature=0.1, **options)  # draws the same again
    expected = contrast_by_loops(
        query, groups.tolist(), pairs.prototypes, pairs.prototypes, 0.1, candidates
    )
    assert pairs(query, rows).item() == pytest.approx(expected, rel=1e-6)


def test_random_groups_are_drawn_anew_in_each_step_and_alike_with_one_seed():
    one, other = (CompatiblePairs(corpus(), exact=10, memory=4, seed=2) for _ in range(2))
    first = [one.candidates(torch.tensor([0])).tolist() for _ in range(3)]
    assert first == [other.candidates(torch.tensor([0])).tolist() for _ in range(3)]
    assert first[0] != first[1] or first[1] != first[2]


def test_moved_targets_do_not_need_all_groups_as_candidates():
    old, query, rows = corpus(), drawn(5, seed=1), torch.tensor([38, 3, 0, 17, 1])
    pairs = CompatiblePairs(old, method="ndpp", old_strength=0.3, exact=10, memory=500)
    everything = CompatiblePairs(old, method="ndpp", old_strength=0.3)
    assert pairs(query, rows).item() == pytest.approx(everything(query, rows).item(), rel=1e-5)


def test_distillation_is_the_cosine_distance_of_each_document_from_its_own_old_vector():
    old, query, document = corpus(), drawn(3, seed=1), drawn(3, seed=2)
    rows = [38, 3, 17]
    expected = sum(1 - cosine(document[i].tolist(), old[rows[i]].tolist()) for i in range(3)) / 3
    pairs = CompatiblePairs(old, method="distillation")
    assert pairs(query, torch.tensor(rows), document=document).item() == pytest.approx(expected)
    with pytest.raises(DataError, match="pass `document="):
        pairs(query, torch.tensor(rows))


def test_ndpp_moves_once_an_epoch_from_the_mean_new_documents_of_other_groups():
    old, new = corpus(), drawn(40, seed=4)
    pairs = CompatiblePairs(old, method="ndpp", new_strength=0.5)
    alone = NeighborPerturbation(pairs.prototypes.float(), new_strength=0.5)
    before = pairs.targets.clone()
    for rows in torch.arange(40).split(8):  # 40 pairs are an epoch
        assert torch.equal(pairs.targets, before)
        pairs(new[rows], rows, document=new[rows])
    unit = F.normalize(new, dim=1)
    means = torch.stack([*(unit[[row, row + 38]].mean(0) for row in (0, 1)), *unit[2:38]])
    alone.update(means.float())
    torch.testing.assert_close(pairs.targets, alone.moved, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(pairs.targets, before)


def test_a_group_that_was_not_observed_pushes_from_its_old_prototype():
    old, new = corpus(), drawn(40, seed=4)
    pairs = CompatiblePairs(old, method="ndpp", new_strength=0.5, epoch_items=10)
    alone = NeighborPerturbation(pairs.prototypes.float(), new_strength=0.5)
    rows = torch.arange(2, 12)
    pairs(new[rows], rows, document=new[rows])
    means = pairs.prototypes.clone()
    means[2:12] = F.normalize(new[2:12], dim=1)
    alone.update(means.float())
    torch.testing.assert_close(pairs.targets, alone.moved, rtol=1e-4, atol=1e-5)


def test_an_evaluation_moves_nothing():
    pairs = CompatiblePairs(corpus(), method="ndpp", new_strength=0.5, epoch_items=2)
    before, rows = pairs.targets.clone(), torch.tensor([3, 4])
    with torch.no_grad():
        pairs(drawn(2), rows, document=drawn(2))
    assert torch.equal(pairs.targets, before)


@pytest.mark.parametrize("method", PAIR_METHODS)
def test_the_gradient_reaches_the_compared_embeddings_and_nothing_old_is_learned(method):
    pairs = CompatiblePairs(corpus(), method=method)
    query, document = (drawn(3, seed=seed).requires_grad_() for seed in (1, 2))
    pairs(query, torch.tensor([1, 2, 3]), document=document).backward()
    moved = document if method == "distillation" else query
    assert moved.grad.abs().sum() > 0
    other = query if method == "distillation" else document
    assert other.grad is None
    assert not list(pairs.parameters())


def test_the_term_is_in_float32_whatever_the_precision_of_the_model():
    pairs, query, rows = CompatiblePairs(corpus()), drawn(3, seed=1), torch.tensor([1, 2, 3])
    half = query.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = pairs(half, rows)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(pairs(half.double(), rows).item(), rel=1e-5)


def test_old_vectors_are_not_saved():
    state = CompatiblePairs(corpus()).state_dict()
    assert set(state) == {"_extra_state"}  # what a resumed run needs: draws and sums so far
    assert state["_extra_state"]["sums"] is None


def test_sums_of_a_resumed_run_are_where_its_documents_are():
    pairs = CompatiblePairs(corpus(), method="ndpp")
    pairs.observe(corpus()[:4], torch.arange(4))
    state = pairs.get_extra_state()  # as read from a file: on the CPU
    pairs.prototypes = pairs.prototypes.to("meta")
    pairs.set_extra_state(state)
    assert pairs.sums.device.type == "meta"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"method": "contrats"}, ConfigError, "Did you mean `contrast`"),
        ({"neighbors": 5}, ConfigError, "has no options neighbors"),
        ({"method": "odpp", "stepz": 5}, TypeError, "stepz"),
        ({"groups": torch.zeros(40, dtype=torch.int64)}, DataError, "one group"),
    ],
)
def test_wrong_settings_are_refused(change, error, words):
    with pytest.raises(error, match=words):
        CompatiblePairs(corpus(), **change)


def test_another_dimension_is_refused():
    with pytest.raises(SpaceMismatch, match="5 dimensions and the old ones 8"):
        CompatiblePairs(corpus())(drawn(2, 5), torch.tensor([0, 1]))
