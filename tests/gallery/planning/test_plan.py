import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F

import nobackfill as nb
from nobackfill.core.page import Page
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.evaluation.bootstrap import Interval
from nobackfill.evaluation.mixed_scores import mixed
from nobackfill.evaluation.score_scale import Scale
from nobackfill.gallery.planning.curve import Curve, crossed, fewer_items, reached, stop_at
from nobackfill.gallery.planning.inputs import Items, search_of
from nobackfill.gallery.planning.order import margin, random_order
from nobackfill.gallery.planning.plan import advise, plan_backfill
from nobackfill.gallery.planning.plan_file import fingerprint_of, load_plan
from nobackfill.report.html import render_html
from nobackfill.report.pages.backfill import backfill_section
from nobackfill.vectors.space import Space

CLASSES, ITEMS, DIM = 12, 10, 8
FEW = (0.0, 0.25, 0.5, 0.75, 1.0)


def world(gains="core", *, turned=False, classes=CLASSES, **columns):
    """An old and a new model's vectors; which items gain is known.

    * `core`  half of each class becomes perfect, the rest is noise for both
    * `edge`  half of each class is perfect already, the rest becomes so
    * `none`  nothing changes but noise
    """
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(classes * ITEMS) % classes
    mean = F.normalize(torch.randn(classes, DIM, generator=generator), dim=1)[labels]

    def noise(size):
        return size * torch.randn(len(labels), DIM, generator=generator) / DIM**0.5

    is_even = (torch.arange(len(labels)) // classes % 2 == 0)[:, None]
    old, new = {
        "core": (torch.where(is_even, mean + noise(0.9), noise(1.0)), mean + noise(0.2)),
        "edge": (mean + torch.where(is_even, noise(0.3), noise(2.0)), mean + noise(0.3)),
        "none": (mean + noise(1.5), mean + noise(1.5)),
    }[gains]
    if gains == "core":
        new = torch.where(is_even, new, old)
    if turned:
        new = new @ torch.linalg.qr(torch.randn(DIM, DIM, generator=generator)).Q
    ids = [f"item {number}" for number in range(len(labels))]
    told = {name: values(labels) for name, values in columns.items()}
    return tuple(nb.Vectors(ids, one, labels, columns=told) for one in (old, new))


def planned(gains="core", **settings):
    return plan_backfill(*world(gains), compatible=True, seeds=3, shares=FEW, **settings)


@pytest.fixture(scope="module")
def core():
    return planned()


@pytest.mark.parametrize("compatible", [True, False])
@pytest.mark.parametrize("roles", [True, False])
def test_the_ends_of_every_curve_are_what_evaluate_finds(compatible, roles):
    columns = {}
    if roles:
        columns = {
            "is_query": lambda labels: np.arange(len(labels)) // CLASSES % 3 == 0,
            "is_gallery": lambda labels: np.arange(len(labels)) // CLASSES % 3 != 0,
        }
    old, new = world("edge", **columns)
    told = nb.evaluate(old, new)
    plan = plan_backfill(old, new, compatible=compatible, shares=FEW, seeds=2)
    assert list(plan.curves) == ["planned", "informed", "uncertainty", "random"]
    for curve in plan.curves.values():
        ends = [told.new_old.mean_average_precision, told.new_new.mean_average_precision]
        assert [curve.values[0], curve.values[-1]] == pytest.approx(ends, abs=1e-14)
        assert curve.gains[-1].mean == pytest.approx(
            told.differences["new_new - new_old"].mean, abs=1e-12
        )


def test_points_between_are_the_search_of_a_mixed_gallery():
    old, new = world("edge")
    plan = plan_backfill(old, new, compatible=True, shares=FEW, seeds=1)
    first = set(plan.first(0.25))
    part = torch.tensor([one in first for one in old.ids.tolist()])[:, None]
    gallery = F.normalize(new.vectors).where(part, F.normalize(old.vectors))
    query, labels = F.normalize(new.vectors), old.labels
    found = []
    for i in range(len(query)):
        order = [j for j in (-(gallery @ query[i])).argsort(stable=True).tolist() if j != i]
        hits = [rank for rank, j in enumerate(order, 1) if labels[j] == labels[i]]
        found.append(np.mean([place / rank for place, rank in enumerate(hits, 1)]))
    assert plan.curves["planned"].values[1] == pytest.approx(np.mean(found))


def test_scores_of_two_spaces_are_compared_in_deviations():
    on_old, on_new = torch.tensor([[0.5, 0.9]]), torch.tensor([[0.2, 0.1]])
    is_new, scales = torch.tensor([True, False]), (Scale(0.5, 0.2), Scale(0.0, 0.05))
    assert mixed(on_old, on_new, is_new, scales).tolist()[0] == pytest.approx([4.0, 2.0])
    assert mixed(on_old, on_new, is_new, None).tolist()[0] == pytest.approx([0.2, 0.9])
    assert mixed(on_old, on_new, ~is_new | is_new, scales) is on_new
    assert mixed(on_old, on_new, is_new & ~is_new, scales) is on_old


def test_vectors_of_another_space_are_searched_by_queries_made_for_the_old_one():
    old, new = world("core", turned=True)
    _, mapped = world("core")  # what a perfect map would make of the new vectors
    apart = plan_backfill(old, new, query_for_old=mapped, shares=FEW, seeds=2)
    told = nb.evaluate(old, new, query_for_old=mapped)
    curve = apart.curves["planned"]
    ends = [told.new_old.mean_average_precision, told.new_new.mean_average_precision]
    assert [curve.values[0], curve.values[-1]] == pytest.approx(ends, abs=1e-14)
    assert apart.scales is not None
    assert curve.ahead.mean > 0
    assert any("in deviations from those of unrelated pairs" in note for note in apart.notes)


@pytest.mark.parametrize(("gains", "direction"), [("core", "clear"), ("edge", "unclear")])
def test_what_gains_comes_first_and_beats_chance(gains, direction):
    plan = planned(gains)
    curve, chance = plan.curves["planned"], plan.curves["random"]
    assert plan.direction == direction or (plan.direction, gains) == ("uncertain", "edge")
    assert curve.ahead.low > 0
    assert curve.fewer.low > 0
    assert curve.fewer.mean == pytest.approx(chance.reached - curve.reached)
    number = [int(one.split()[1]) for one in plan.first(0.5)]
    gained = [(one // CLASSES) % 2 == (gains == "edge") for one in number]
    assert np.mean(gained) > 0.75
    assert plan.stop is not None
    assert plan.stop <= 0.75


def test_new_vectors_tell_more_than_old_ones():
    plan = planned("none", order="informed")
    informed, old_alone = plan.curves["informed"], plan.curves["planned"]
    assert informed.ahead.mean > old_alone.ahead.mean
    assert plan.order == "informed"


def test_where_nothing_is_gained_nothing_shall_be_done():
    old, _ = world("none")
    plan = plan_backfill(old, old, compatible=True, seeds=2, shares=FEW)
    assert plan.stop is None
    assert plan.advice.startswith("do not backfill")
    assert plan.curves["planned"].reached is None
    assert plan.curves["planned"].fewer is None
    assert plan.first() == []
    assert any("not surely better than a random one" in note for note in plan.notes)


def test_a_gain_that_may_be_chance_is_no_reason():
    gains = (Interval(0.0, 0.0, 0.0, 0.95, 9), Interval(0.1, -0.1, 0.3, 0.95, 9))
    curve = Curve((0.0, 1.0), (0.5, 0.6), gains)
    assert advise(curve) == (
        None,
        "do not backfill: a full backfill brings +10.00 (-10.00 to +30.00) points of mAP, which "
        "may be chance.",
    )


def test_advice_says_where_to_stop():
    nothing, some, all_ = (Interval(one, one, one, 0.95, 9) for one in (0.0, 0.095, 0.1))
    shares, gains = (0.0, 0.5, 1.0), (nothing, some, all_)
    stop, said = advise(Curve(shares, (0.5, 0.595, 0.6), gains))
    assert stop == 0.5
    assert said.startswith("embed 50 % of the gallery again: that brings +9.50")
    stop, said = advise(Curve(shares, (0.5, 0.52, 0.6), gains))
    assert stop == 1.0
    assert said.startswith("embed the whole gallery again")


def test_with_few_classes_there_are_no_intervals_but_an_order():
    old, new = world("core", classes=4)
    plan = plan_backfill(old, new, compatible=True, seeds=2, shares=FEW)
    assert np.isnan(plan.curves["planned"].gains[-1].low)
    assert plan.stop is not None
    assert any("no intervals" in note for note in plan.notes)
    json.dumps(plan.summary(), allow_nan=False)


def test_nine_tenths_are_found_between_the_points():
    shares = np.array([0.0, 0.2, 0.6, 1.0])
    rising = np.array([[0.0, 0.5, 1.0, 1.0], [0.0, 2.0, 0.5, 1.0], [1.0, 2.0, 2.0, 1.0]])
    found = reached(shares, rising)
    assert found[:2] == pytest.approx([0.2 + 0.4 * 0.8, 0.09])
    assert np.isnan(found[2])


def test_the_end_is_where_hardly_anything_is_to_come():
    assert stop_at((0.0, 0.3, 0.6, 1.0), (0.1, 0.55, 0.7, 0.6)) == 0.6  # the best is before the end
    assert stop_at((0.0, 0.5, 1.0), (0.0, 0.1, 1.0)) == 1.0
    assert stop_at((0.0, 0.5, 1.0), (0.0, 0.9, 1.0)) == 0.5


def test_no_query_is_asked_about_an_order_that_its_class_chose():
    groups = np.repeat(np.arange(4), 3)
    good_for = np.array([1.0, 1.0, -3.0, -3.0])[groups]
    one, other = np.stack([good_for] * 2), np.zeros((2, 12))
    for seed in range(9):
        half = np.random.default_rng(seed).permutation(4)[:2]
        found, best, agreed = crossed({"one": one, "other": other}, (0.0, 1.0), groups, seed=seed)
        is_first = np.isin(groups, half)
        for mine in (is_first, ~is_first):
            expected = good_for[mine] if good_for[~mine].sum() > 0 else np.zeros(6)
            assert found[0, mine].tolist() == expected.tolist()
        assert best == "other"
        assert agreed == (sorted(half.tolist()) not in ([0, 1], [2, 3]))


def test_how_much_earlier_is_counted_over_queries_that_have_something_to_find():
    groups = np.arange(20) % 10
    rise = np.array([[0.0], [1.0], [1.0]]) + np.zeros(20)
    late = np.array([[0.0], [0.0], [1.0]]) + np.zeros(20)
    rise[:, 3] = late[:, 3] = np.nan
    found = fewer_items(rise, late, (0.0, 0.5, 1.0), groups, seed=0)
    assert (found.mean, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))


def test_traffic_changes_the_order_and_is_noted():
    old, new = world("core", views=lambda labels: np.where(labels == 3, 1000, 1))
    plan = plan_backfill(old, new, compatible=True, traffic="views", seeds=1, shares=FEW)
    first = [int(one.split()[1]) % CLASSES for one in plan.ids[: ITEMS - 1].tolist()]
    assert set(first) == {3}
    assert any("weighs the order, but not the curves" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (lambda labels: np.zeros(len(labels)), "above 0 for some items"),
        (lambda labels: -labels.double().numpy(), "0 or more"),
        (lambda labels: np.full(len(labels), np.nan), "0 or more"),
        (lambda labels: labels.numpy().astype(str), "must have numbers"),
    ],
)
def test_traffic_that_is_none_is_refused(values, says):
    with pytest.raises(DataError, match=says):
        plan_backfill(*world(views=values), compatible=True, traffic="views")
    with pytest.raises(DataError, match="has a column `visits`"):
        plan_backfill(*world(views=values), compatible=True, traffic="visits")


def test_items_that_are_alone_in_their_class_are_noted():
    old, new = world("core")
    labels = old.labels.copy()
    labels[:3] = [100, 101, 102]
    old, new = (nb.Vectors(one.ids, one.vectors, labels) for one in (old, new))
    plan = plan_backfill(old, new, compatible=True, seeds=1, shares=FEW)
    assert any(note.startswith("3 items are alone in their class") for note in plan.notes)


def test_without_labels_a_column_of_groups_is_asked_for():
    old, new = world(album=lambda labels: labels.numpy())
    bare = [nb.Vectors(one.ids, one.vectors, columns=one.columns) for one in (old, new)]
    with pytest.raises(DataError, match="--label"):
        plan_backfill(*bare, compatible=True)
    with pytest.raises(DataError, match="Known: album"):
        plan_backfill(*bare, compatible=True, group="shelf")
    by_group = plan_backfill(*bare, compatible=True, group="album", seeds=1, shares=FEW)
    by_label = plan_backfill(old, new, compatible=True, seeds=1, shares=FEW)
    assert by_group.ids.tolist() == by_label.ids.tolist()
    assert by_group.curves["planned"].values == by_label.curves["planned"].values


def test_a_sample_of_new_vectors_is_measured_and_all_items_get_a_place():
    old, new = world("core")
    sample = new.select(np.arange(len(new)) % 4 != 1)
    with pytest.raises(DataError, match="--intersect"):
        plan_backfill(old, sample, compatible=True)
    plan = plan_backfill(old, sample, compatible=True, intersect=True, seeds=1, shares=FEW)
    assert sorted(plan.ids.tolist()) == sorted(old.ids.tolist())
    assert plan.counts["measured"] == len(sample) < plan.counts["items"]
    assert any("the order is of all 120" in note for note in plan.notes)


def test_new_margins_belong_to_the_items_of_the_sample():
    old, new = world("core")
    sample = new.select(np.arange(len(new)) % 4 != 1)
    search, _ = search_of(old, sample, sample, intersect=True, queries=999)
    items = Items.of(old, sample, search, traffic=None, device="cpu")
    assert items.new.isnan().tolist() == [number % 4 == 1 for number in range(len(old))]
    expected = margin(sample.vectors, torch.from_numpy(sample.labels))
    torch.testing.assert_close(items.new[~items.new.isnan()], expected)


def test_a_new_file_without_gallery_is_refused():
    columns = {
        "is_query": lambda labels: np.arange(len(labels)) // CLASSES % 3 == 0,
        "is_gallery": lambda labels: np.arange(len(labels)) // CLASSES % 3 != 0,
    }
    old, new = world("core", **columns)
    with pytest.raises(DataError, match="Embed a sample"):
        plan_backfill(old, new.select(new.columns["is_query"]), compatible=True)


def test_queries_that_have_nothing_to_find_are_refused():
    columns = {
        "is_query": lambda labels: labels.numpy() < 2,
        "is_gallery": lambda labels: labels.numpy() >= 2,
    }
    with pytest.raises(DataError, match="something to find"):
        plan_backfill(*world("core", **columns), compatible=True, seeds=1, shares=FEW)


def test_files_that_say_so_are_of_one_space():
    old, new = world("core")
    space = Space(dim=DIM, weights="a" * 64)
    child = Space(dim=DIM, weights="b" * 64, parent=space.fingerprint)
    old, new = (
        nb.Vectors(one.ids, one.vectors, one.labels, space=of)
        for one, of in ((old, space), (new, child))
    )
    assert plan_backfill(old, new, seeds=1, shares=FEW).scales is None
    mapped = plan_backfill(old, new, query_for_old=new, seeds=1, shares=FEW)
    assert mapped.scales is not None  # the halves are asked with queries of their own
    undeclared = plan_backfill(*world("core"), seeds=1, shares=FEW)
    assert any("nothing declares that" in note for note in undeclared.notes)
    assert undeclared.scales is not None
    told = plan_backfill(*world("core"), compatible=False, seeds=1, shares=FEW)
    assert told.scales is not None
    assert not any("nothing declares that" in note for note in told.notes)


def test_records_that_name_no_model_do_not_make_one_space():
    files = [
        nb.Vectors(one.ids, one.vectors, one.labels, space=Space(dim=DIM)) for one in world("core")
    ]
    plan = plan_backfill(*files, seeds=1, shares=FEW)
    assert plan.scales is not None
    assert any("contains neither `weights` nor `preprocessing`" in note for note in plan.notes)


def test_random_is_the_mean_of_as_many_orders_as_there_are_seeds():
    def random(seed, seeds):
        plan = plan_backfill(*world("core"), compatible=True, seeds=seeds, seed=seed, shares=FEW)
        return np.array(plan.curves["random"].values)

    single = [random(seed, 1) for seed in (4, 5, 6)]
    np.testing.assert_allclose(random(4, 3), np.mean(single, axis=0), rtol=1e-12)
    assert not np.allclose(single[0], single[1], rtol=1e-6)


def test_scores_are_of_the_items_that_they_stand_beside():
    for order in ("planned", "informed", "uncertainty"):
        old, new = world("edge")
        plan = plan_backfill(old, new, compatible=True, order=order, seeds=1, shares=FEW)
        search, _ = search_of(old, new, new, intersect=False, queries=999)
        items = Items.of(old, new, search, traffic=None, device="cpu")
        score = items.scores()[plan.direction if order == "planned" else order].double()
        expected = dict(zip(items.ids.tolist(), score.tolist(), strict=True))
        assert dict(zip(plan.ids.tolist(), plan.scores.tolist(), strict=True)) == expected
        assert (np.diff(plan.scores) <= 0).all()


def test_one_is_told_what_is_being_done():
    said = []
    planned(watch=said.append)
    assert said[0] == "ordering"
    assert (said[-1], said[-1].done, said[-1].total) == ("searching", 120, 120)


def test_new_vectors_that_look_nearer_than_old_ones_are_noted():
    old, new = world("none")
    shifted = [
        nb.Vectors(one.ids, torch.cat([one.vectors, torch.full((len(one), 1), size)], dim=1),
                   one.labels)
        for one, size in ((old, 0.3), (new, 3.0))
    ]  # fmt: skip
    plan = plan_backfill(*shifted, compatible=True, seeds=1, shares=FEW)
    (note,) = (note for note in plan.notes if "mean different things" in note)
    for option in ("`--no-compatible`", "`MixedGallery` with `same_space=False` and `calibrate`"):
        assert option in note
    plain = plan_backfill(old, new, compatible=True, seeds=1, shares=FEW)
    assert not any("mean different things" in note for note in plain.notes)
    apart = plan_backfill(*shifted, compatible=False, seeds=1, shares=FEW)
    assert not any("mean different things" in note for note in apart.notes)


def test_spaces_of_other_dimensions_are_not_one():
    old, new = world("core")
    wide = nb.Vectors(new.ids, torch.cat([new.vectors, new.vectors], dim=1), new.labels)
    with pytest.raises(SpaceMismatch, match="Leave out `compatible`"):
        plan_backfill(old, wide, query_for_old=new, compatible=True)


def test_few_queries_may_stand_for_all():
    plan = planned(queries=40)
    assert plan.counts["queries"] == 40
    assert "measured with 40 of 120 queries, evenly chosen" in plan.notes


def test_settings_that_cannot_be_meant_are_refused():
    with pytest.raises(ConfigError, match="unknown order `plannd`"):
        planned(orders=["plannd"])
    with pytest.raises(ConfigError, match="rise from 0 to 1"):
        plan_backfill(*world(), compatible=True, shares=(0.0, 0.5))
    with pytest.raises(ConfigError, match="At least one random order"):
        plan_backfill(*world(), compatible=True, seeds=0)


def test_a_random_order_can_be_written_down(core):
    plan = planned(order="random", orders=["random"])
    assert list(plan.curves) == ["random"]
    assert sorted(plan.ids.tolist()) == sorted(core.ids.tolist())
    assert plan.ids.tolist() != core.ids.tolist()
    by_chance = random_order(120, seed=0).tolist()
    assert plan.ids.tolist() == [f"item {number}" for number in by_chance]
    assert plan.scores[0] == 1
    assert (np.diff(plan.scores) < 0).all()


def test_effort_is_counted_in_items_of_the_whole_order():
    plan = planned(seconds_per_item=0.5, cost_per_item=0.01)
    assert plan.effort(0.25) == {"share": 0.25, "items": 30, "seconds": 15.0, "cost": 0.3}
    assert planned().effort(1.0)["seconds"] is None
    assert len(plan.first(0.25)) == 30
    assert plan.first(1.0) == plan.ids.tolist()
    with pytest.raises(ConfigError, match="from 0 to 1"):
        plan.first(1.5)


def test_a_plan_comes_back_from_its_file_as_it_was(tmp_path, core):
    core.save(tmp_path / "plan.parquet")
    table = pq.read_table(tmp_path / "plan.parquet")
    assert table.column_names == ["id", "rank", "score"]
    assert table.column("rank").to_pylist() == list(range(1, 121))
    again = load_plan(tmp_path / "plan.parquet")
    assert again.ids.tolist() == core.ids.tolist()
    assert again.scores.tolist() == core.scores.tolist()
    assert again.summary() == core.summary()
    assert again.curves["planned"] == core.curves["planned"]


def test_numbered_items_and_scales_come_back_too(tmp_path):
    old, new = world("core", turned=True)
    numbered = [nb.Vectors(np.arange(len(one)), one.vectors, one.labels) for one in (old, new)]
    plan = plan_backfill(*numbered, query_for_old=numbered[1], seeds=1, shares=FEW)
    plan.save(tmp_path / "plan.parquet")
    again = load_plan(tmp_path / "plan.parquet")
    assert again.ids.dtype.kind == "i"
    assert again.scales == plan.scales
    assert again.first(0.1) == [str(one) for one in plan.ids[:12].tolist()]


def test_a_plan_whose_items_were_changed_is_noticed(tmp_path, core):
    core.save(tmp_path / "plan.parquet")
    table = pq.read_table(tmp_path / "plan.parquet")
    pq.write_table(table.slice(1), tmp_path / "cut.parquet")
    with pytest.raises(DataError, match="changed since"):
        load_plan(tmp_path / "cut.parquet")
    assert fingerprint_of([1, 2]) == fingerprint_of(["2", "1"])


def test_other_files_are_no_plans(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        load_plan(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(DataError, match="cannot be read"):
        load_plan(tmp_path / "text.parquet")
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "table.parquet")
    with pytest.raises(DataError, match="another kind of table"):
        load_plan(tmp_path / "table.parquet")


def test_the_section_shows_every_order_and_share():
    plan = planned(seconds_per_item=2.0)
    section = backfill_section(json.loads(json.dumps(plan.summary())))
    orders, shares = section.tables
    assert [row[0] for row in orders.rows] == ["planned", "informed", "uncertainty", "random"]
    assert orders.rows[-1][2:] == ["–", "–"]
    assert [row[:2] for row in shares.rows][1] == ["25 %", "30"]
    assert shares.rows[1][-1] == "60.00"
    assert "seconds" in shares.columns
    assert section.figures[0].svg.startswith("<svg")
    assert "planned" in section.figures[0].svg
    assert render_html(Page("Plan", ["words"], [section]))


def test_the_section_does_without_gain_and_intervals():
    old, _ = world("none", classes=4)
    plan = plan_backfill(old, old, compatible=True, seeds=1, shares=FEW, orders=["random"])
    section = backfill_section(plan.summary())
    assert "Do not backfill" in section.text
    assert section.tables[0].rows[0][1] == "–"
