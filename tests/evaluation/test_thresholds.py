"""Cosines, counted: against loops over all pairs of a query and a gallery item."""

import json
import math

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.thresholds import BINS, similarities

CLASSES, PER_CLASS, DIM = 7, 6, 4
COUNT = CLASSES * PER_CLASS
LABELS = np.arange(COUNT) % CLASSES
CAMERA = np.arange(COUNT) // CLASSES % 2
ASKS = np.arange(COUNT) < 12  # of these, the last five are searched too
SEARCHED = np.arange(COUNT) >= 7
RATES = (0.02, 0.1)


def vectors(seed, noise, *, space=0, dtype=torch.float64, **columns):
    centre = torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(space))
    generator = torch.Generator().manual_seed(seed)
    values = centre[LABELS] + noise * torch.randn(COUNT, DIM, generator=generator)
    values = values * torch.linspace(0.5, 3, COUNT)[:, None]  # of any length
    ids = [f"item {i}" for i in range(COUNT)]
    return nb.Vectors(ids, values.to(dtype), LABELS, columns={"camera": CAMERA, **columns})


def evaluated(roles="all", *, dtype=torch.float64, **more):
    columns = {} if roles == "all" else {"is_query": ASKS, "is_gallery": SEARCHED}
    old, new, free = (
        vectors(seed, noise, space=space, dtype=dtype, **columns)
        for seed, noise, space in ((1, 0.8, 0), (2, 0.5, 0), (3, 0.3, 9))
    )
    return nb.evaluate(old, new, independent=free, **more)


def pairs_by_hand(evaluation, pair):
    """The cosines within a class and between classes, one pair after the other, in float64."""
    same, different = [], []
    query, gallery = ([unit(row) for row in side.tolist()] for side in evaluation.vectors[pair])
    asking, searched = (
        [int(name.split()[1]) for name in ids]
        for ids in (evaluation.plan.query_ids, evaluation.plan.gallery_ids)
    )
    for row, i in enumerate(asking):
        for place, j in enumerate(searched):
            is_own = LABELS[i] == LABELS[j]
            is_same_camera = evaluation.protocol == "market1501" and CAMERA[i] == CAMERA[j]
            if i == j or (is_own and is_same_camera):
                continue
            cosine = sum(a * b for a, b in zip(query[row], gallery[place], strict=True))
            (same if is_own else different).append(cosine)
    return same, different


def unit(row):
    return [value / math.hypot(*row) for value in row]


def at_or_above(cosines, value):
    return sum(cosine >= value for cosine in cosines)


EVERY_SEARCH = pytest.mark.parametrize(
    ("roles", "protocol", "dtype", "near"),
    [
        ("all", "plain", torch.float64, 1e-13),
        ("some", "plain", torch.float64, 1e-13),
        ("some", "market1501", torch.float64, 1e-13),
        ("all", "market1501", torch.float32, 1e-6),
        ("some", "plain", torch.float16, 1e-6),
    ],
)


@EVERY_SEARCH
def test_every_pair_is_counted_in_its_bin(roles, protocol, dtype, near):
    evaluation = evaluated(roles, dtype=dtype, protocol=protocol)
    for one in similarities(nb.compare(evaluation)):
        for counts, cosines in zip(
            (one.same, one.different), pairs_by_hand(evaluation, one.pair), strict=True
        ):
            assert counts.sum() == len(cosines)
            below = np.concatenate([[0], counts.cumsum()])
            for edge, number in zip(one.edges[1:-1], below[1:-1], strict=True):
                assert len(cosines) - at_or_above(cosines, edge - 2e-7) <= number
                assert number <= len(cosines) - at_or_above(cosines, edge + 2e-7)


@EVERY_SEARCH
def test_means_and_alignment_are_those_of_all_pairs(roles, protocol, dtype, near):
    evaluation = evaluated(roles, dtype=dtype, protocol=protocol)
    for one in similarities(nb.compare(evaluation)):
        same, different = pairs_by_hand(evaluation, one.pair)
        assert one.mean_same == pytest.approx(math.fsum(same) / len(same), abs=near)
        assert one.mean_different == pytest.approx(math.fsum(different) / len(different), abs=near)
        distances = [2 - 2 * cosine for cosine in same]
        assert one.alignment == pytest.approx(math.fsum(distances) / len(same), abs=2 * near)


def test_alignment_is_the_mean_squared_distance_of_a_query_to_its_class():
    evaluation = evaluated("all")
    (one, *_) = similarities(nb.compare(evaluation))
    unit = torch.nn.functional.normalize(evaluation.vectors["old_old"][0], dim=1)
    distances = [
        float((unit[i] - unit[j]).square().sum())
        for i in range(COUNT)
        for j in range(COUNT)
        if i != j and LABELS[i] == LABELS[j]
    ]
    assert one.alignment == pytest.approx(math.fsum(distances) / len(distances))


@EVERY_SEARCH
def test_a_threshold_is_the_lowest_that_so_few_strangers_reach(roles, protocol, dtype, near):
    evaluation = evaluated(roles, dtype=dtype, protocol=protocol)
    for one in similarities(nb.compare(evaluation), RATES):
        same, different = pairs_by_hand(evaluation, one.pair)
        assert len(one.thresholds) == len(RATES)
        for rate, threshold in zip(RATES, one.thresholds, strict=True):
            assert threshold.pair == one.pair
            assert at_or_above(different, threshold.value + near) <= rate * len(different)
            assert at_or_above(different, threshold.value - near) > rate * len(different)
            assert threshold.false_accept <= rate
            check_shares(threshold, same, different, near)


def check_shares(threshold, same, different, near):
    for share, cosines in ((threshold.true_accept, same), (threshold.false_accept, different)):
        few, many = (at_or_above(cosines, threshold.value + by) for by in (near, -near))
        assert few <= round(share * len(cosines), 6) <= many


@EVERY_SEARCH
def test_what_is_kept_passes_where_the_old_threshold_stays(roles, protocol, dtype, near):
    evaluation = evaluated(roles, dtype=dtype, protocol=protocol)
    found = similarities(nb.compare(evaluation), RATES)
    assert found[0].kept == found[0].thresholds
    for one in found:
        assert [kept.value for kept in one.kept] == [own.value for own in found[0].thresholds]
        assert {kept.pair for kept in one.kept} == {one.pair}
        for kept in one.kept:
            check_shares(kept, *pairs_by_hand(evaluation, one.pair), near)
    assert any(one.kept != one.thresholds for one in found)


def test_old_old_comes_first_and_only_what_was_measured_is_there():
    found = similarities(nb.compare(evaluated()))
    assert [one.pair for one in found] == ["old_old", "new_old", "new_new", "independent"]
    columns = {"is_query": ASKS, "is_gallery": SEARCHED & ~ASKS}
    old, new = vectors(1, 0.8, **columns), vectors(2, 0.5, **columns)
    queries_only = nb.evaluate(old, new.select(ASKS))
    assert [one.pair for one in similarities(nb.compare(queries_only))] == ["old_old", "new_old"]


def test_copies_and_opposites_fall_into_the_outer_bins():
    """Rounding takes cosines of copies beyond 1; they are counted all the same."""
    direction = torch.randn(3, generator=torch.Generator().manual_seed(0))
    scale = torch.tensor([1.0, 0.3, 7.0, -1.0, -0.1, -13.0])
    both = nb.Vectors(range(6), scale[:, None] * direction, [0, 0, 0, 1, 1, 1])
    for one in similarities(nb.compare(nb.evaluate(both, both))):
        assert one.same.tolist() == [0] * (2 * BINS - 1) + [12]
        assert one.different.tolist() == [18] + [0] * (2 * BINS - 1)
        assert (one.edges[0], one.edges[BINS], one.edges[-1]) == (-1, 0, 1)


def test_what_lists_ignore_is_not_counted():
    relevant = {f"item {i}": [f"item {(i + 1) % COUNT}"] for i in range(COUNT)}
    ignored = {f"item {i}": [f"item {(i + 2) % COUNT}"] for i in range(COUNT)}
    truth = GroundTruth(relevant, ignored)
    (one, *_) = similarities(nb.compare(evaluated(ground_truth=truth)))
    assert one.same.sum() == COUNT
    assert one.different.sum() == COUNT * (COUNT - 3)


def test_the_summary_is_json_with_all_of_it():
    for one in similarities(nb.compare(evaluated())):
        found = json.loads(json.dumps(one.summary(), allow_nan=False))
        for name in ("edges", "same", "different"):
            assert found[name] == getattr(one, name).tolist()
        for name in ("mean_same", "mean_different", "alignment"):
            assert found[name] == getattr(one, name)
        assert [t["value"] for t in found["thresholds"]] == [t.value for t in one.thresholds]
        assert [t["true_accept"] for t in found["at_old_thresholds"]] == [
            t.true_accept for t in one.kept
        ]


def test_without_strangers_there_is_no_threshold():
    truth = GroundTruth({f"item {i}": [f"item {j}" for j in range(COUNT)] for i in range(COUNT)})
    comparison = nb.compare(evaluated(ground_truth=truth))
    with pytest.raises(DataError, match="of different classes"):
        similarities(comparison)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        similarities(nb.compare(evaluated()), (0.01, 1.5))
