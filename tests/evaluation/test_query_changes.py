"""Query by query, against loops over all pairs."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import nobackfill as nb
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import ConfigError
from nobackfill.evaluation.bootstrap import paired_interval

CLASSES, PER_CLASS, DIM = 12, 5, 6
COUNT = CLASSES * PER_CLASS
LABELS = np.array([f"class {i % CLASSES}" for i in range(COUNT)])
CAMERA = np.arange(COUNT) // CLASSES % 2
LIGHT = np.array(["day" if i % 3 else "night" for i in range(COUNT)])


def vectors(seed, noise):
    centre = torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    values = centre[torch.arange(COUNT) % CLASSES]
    values = values + noise * torch.randn(COUNT, DIM, generator=generator)
    ids = [f"item {i}" for i in range(COUNT)]
    return nb.Vectors(ids, values, LABELS, columns={"camera": CAMERA, "light": LIGHT})


OLD, NEW = vectors(1, 0.9), vectors(2, 1.1)


def cosines(query, gallery):
    unit = [torch.nn.functional.normalize(side.vectors, dim=1) for side in (query, gallery)]
    return unit[0] @ unit[1].T


def ranking(query, gallery, row, *, protocol="plain"):
    order = cosines(query, gallery)[row].argsort(descending=True, stable=True).tolist()
    hidden = {row}
    if protocol == "market1501":
        hidden |= {j for j in range(COUNT) if LABELS[j] == LABELS[row] and CAMERA[j] == CAMERA[row]}
    return [j for j in order if j not in hidden]


@pytest.mark.parametrize("protocol", ["plain", "market1501"])
@pytest.mark.parametrize("k", [1, 3])
def test_flipped_queries_by_loops(k, protocol):
    comparison = nb.compare(nb.evaluate(OLD, NEW, protocol=protocol))
    lost, won = {}, {}
    for row in range(COUNT):
        before, after = (ranking(side, OLD, row, protocol=protocol) for side in (OLD, NEW))
        hit = [any(LABELS[j] == LABELS[row] for j in places[:k]) for places in (before, after)]
        if hit[0] != hit[1]:
            tops = [[f"item {j}" for j in places[:4]] for places in (before, after)]
            (lost if hit[0] else won)[f"item {row}"] = tops
    assert lost
    assert won
    for found, expected in (
        (comparison.flipped(k, top=4), lost),
        (comparison.won(k, top=4), won),
    ):
        assert {one.query: [one.top_before, one.top_after] for one in found} == expected


def test_the_worst_come_first_and_may_be_few():
    evaluation = nb.evaluate(OLD, NEW)
    gain = evaluation.new_old.average_precision - evaluation.old_old.average_precision
    gain_of = dict(zip(evaluation.query_ids.tolist(), gain.tolist(), strict=True))
    comparison = nb.compare(evaluation)
    lost = [gain_of[one.query] for one in comparison.flipped()]
    won = [gain_of[one.query] for one in comparison.won()]
    assert lost == sorted(lost)
    assert won == sorted(won, reverse=True)
    assert comparison.flipped(limit=2) == comparison.flipped()[:2]
    ranks = dict(
        zip(evaluation.query_ids.tolist(), evaluation.old_old.first_hit.tolist(), strict=True)
    )
    assert all(one.rank_before == ranks[one.query] == 1 for one in comparison.flipped())
    assert all(one.rank_after > 1 for one in comparison.flipped())


@pytest.mark.parametrize("column", ["light", "label", "camera"])
def test_slices_by_hand(column):
    evaluation = nb.evaluate(OLD, NEW)
    values = {"light": LIGHT, "label": LABELS, "camera": CAMERA}[column]
    slices = nb.compare(evaluation).slices(column)
    assert {one.value for one in slices} == set(values.tolist())
    assert [one.difference.mean for one in slices] == sorted(o.difference.mean for o in slices)
    for one in slices:
        rows = values == one.value
        before, after = (
            getattr(evaluation, pair).average_precision.numpy()[rows]
            for pair in ("old_old", "new_old")
        )
        groups = np.arange(rows.sum()) if column == "label" else evaluation.query_groups[rows]
        assert one.queries == rows.sum()
        assert (one.old_old, one.new_old) == (
            pytest.approx(before.mean()),
            pytest.approx(after.mean()),
        )
        assert repr(one.difference) == repr(paired_interval(after - before, groups))  # NaN, too
        hit = [getattr(evaluation, p).found_by(1).numpy()[rows] for p in ("old_old", "new_old")]
        assert one.lost == pytest.approx((hit[0] & ~hit[1]).mean())
        assert one.won == pytest.approx((~hit[0] & hit[1]).mean())


def test_slices_of_texts_that_are_not_padded_are_the_same():
    """One text of 300,000 characters, which belongs to no query; 72 MB if all were padded to it."""
    plain = nb.compare(nb.evaluate(OLD, NEW)).slices("light")
    columns = {"light": [*LIGHT, "z" * 300_000]}
    old, new = (
        nb.Vectors(
            [*v.ids, "long"],
            torch.cat([v.vectors, torch.ones(1, DIM)]),
            [*LABELS, "alone"],
            columns=columns,
        )
        for v in (OLD, NEW)
    )
    assert old.columns["light"].dtype.kind == "T"
    found = nb.compare(nb.evaluate(old, new)).slices("light")
    assert {(one.value, one.queries) for one in found} == {(o.value, o.queries) for o in plain}


def test_small_slices_are_left_out_and_unknown_columns_told():
    comparison = nb.compare(nb.evaluate(OLD, NEW))
    assert [one.value for one in comparison.slices("light", smallest=30)] == ["day"]
    with pytest.raises(ConfigError, match="no column `ligth` of the queries. Did you mean `light`"):
        comparison.slices("ligth")


def test_a_query_without_anything_to_find_is_in_no_slice():
    labels = LABELS.copy()
    labels[0] = "alone"
    old, new = (nb.Vectors(v.ids, v.vectors, labels, columns=v.columns) for v in (OLD, NEW))
    slices = nb.compare(nb.evaluate(old, new)).slices("label")
    assert "alone" not in {one.value for one in slices}
    assert all(np.isfinite(one.old_old) for one in slices)


@pytest.mark.parametrize("share", [0.001, 0.05, 0.3])
def test_thresholds_let_the_same_share_of_strangers_pass(share):
    evaluation = nb.evaluate(OLD, NEW)
    for one in nb.compare(evaluation).thresholds(share):
        query, gallery = {"old_old": (OLD, OLD), "new_old": (NEW, OLD), "new_new": (NEW, NEW)}[
            one.pair
        ]
        cosine = cosines(query, gallery)
        same = torch.from_numpy(LABELS[:, None] == LABELS)
        other = ~torch.eye(COUNT, dtype=torch.bool)
        strangers, friends = cosine[~same], cosine[same & other]
        assert one.false_accept == pytest.approx((strangers >= one.value).double().mean().item())
        assert one.true_accept == pytest.approx((friends >= one.value).double().mean().item())
        assert one.false_accept <= share
        assert one.false_accept > share - 3 / len(strangers)  # old/old has each pair twice
    with pytest.raises(ConfigError, match="between 0 and 1"):
        nb.compare(evaluation).thresholds(0.0)


def test_cosines_do_not_depend_on_blocks_and_of_many_pairs_some_are_taken(monkeypatch):
    comparison = nb.compare(nb.evaluate(OLD, NEW))
    whole = comparison.cosines("new_old")
    monkeypatch.setattr("nobackfill.evaluation.query_changes.BLOCK", 7 * COUNT)
    parts = comparison.cosines("new_old")
    assert all(
        torch.equal(a.sort().values, b.sort().values) for a, b in zip(whole, parts, strict=True)
    )
    monkeypatch.setattr("nobackfill.evaluation.query_changes.PAIRS", 10 * COUNT)
    some = comparison.cosines("new_old")
    assert sum(map(len, some)) == 10 * (COUNT - 1)


def test_lists_and_what_they_ignore_are_looked_at():
    relevant = {f"item {i}": [f"item {(i + 1) % COUNT}"] for i in range(COUNT)}
    ignored = {f"item {i}": [f"item {(i + 2) % COUNT}"] for i in range(COUNT)}
    evaluation = nb.evaluate(OLD, NEW, ground_truth=GroundTruth(relevant, ignored))
    same, different = nb.compare(evaluation).cosines("old_old")
    assert (len(same), len(different)) == (COUNT, COUNT * (COUNT - 3))
    assert "item 2" not in nb.compare(evaluation).top("old_old", 0, COUNT)
    assert len(nb.compare(evaluation).top("old_old", 0, COUNT)) == COUNT - 2


def test_every_query_has_a_row_in_a_file(tmp_path):
    evaluation = nb.evaluate(OLD, NEW)
    nb.compare(evaluation).save_queries(tmp_path / "queries.parquet")
    table = pq.read_table(tmp_path / "queries.parquet").to_pydict()
    assert table["id"] == evaluation.query_ids.tolist()
    assert table["average_precision_new_old"] == evaluation.new_old.average_precision.tolist()
    assert table["first_hit_old_old"] == evaluation.old_old.first_hit.tolist()
    assert table["light"] == LIGHT.tolist()
    assert table["label"] == LABELS.tolist()
