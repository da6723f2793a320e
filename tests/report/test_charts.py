"""The charts of an upgrade: well-formed, the same each time, and with every name and number."""

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nobackfill.report.charts import (
    BETTER,
    SOFT,
    WORSE,
    intervals,
    pareto_front,
    score_curves,
    self_cross_plane,
    step_curves,
)
from nobackfill.report.maps import _frame, queries_on_gallery

NAN = float("nan")
NAMES = ["cup", "mug", "hat"]
EDGES = np.linspace(-1, 1, 161)


def a_map(names=NAMES, items=4):
    random = np.random.default_rng(0)
    number = np.repeat(np.arange(len(names)), items)
    points = {part: random.normal(size=(len(number), 2)) for part in ("gallery", "old", "new")}
    points["means"] = random.normal(size=(len(names), 2))
    classes = dict.fromkeys(("gallery", "old", "new"), number) | {"means": np.arange(len(names))}
    return points, classes, names


def counted(mean, number=500):
    values = np.random.default_rng(0).normal(mean, 0.1, number).clip(-1, 1)
    return np.histogram(values, EDGES)[0]


@pytest.fixture(scope="module")
def drawn():
    return every_chart()


def every_chart():
    panels = {
        "old/old": (EDGES, counted(0.7), counted(0.0)),
        "new/old": (EDGES, counted(0.6), counted(0.1)),
    }
    return {
        "intervals": intervals(
            {"new/old − old/old": (1.5, 0.2, 2.8), "new/new − old/old": (-3.0, -4.0, -2.0)},
            label="points",
        ),
        "scores": score_curves(panels, {"old/old": (0.5, 0.5), "new/old": (0.45, 0.5)}),
        "map": queries_on_gallery(*a_map()),
        "steps": step_curves({"old": counted(0.2), "ndpp": counted(-0.1)}, EDGES, label="cosine"),
        "plane": self_cross_plane(
            [("ndpp", 60.0, 55.0), ("bct", 62.0, 51.0), ("lwf", 58.0, 12.0)],
            [0, 1],
            old=50.0,
            independent=63.0,
        ),
    }


def read(svg):
    return ElementTree.fromstring(svg)


def words(svg):
    return [element.text for element in read(svg).iter() if element.text and element.text.strip()]


def colors(svg, *wanted):
    """How many marks are drawn in each colour."""
    return [len(re.findall(rf"stroke: var\([^,]*, {color}\)", svg)) for color in wanted]


def test_every_chart_is_well_formed_svg_and_the_same_each_time(drawn):
    again = every_chart()
    for name, svg in drawn.items():
        assert read(svg).tag.endswith("svg"), name
        assert svg == again[name], name
        assert "nan" not in svg.lower(), name


def test_charts_share_no_id(drawn):
    ids = [one for svg in drawn.values() for one in re.findall(r' id="([^"]+)"', svg)]
    assert ids
    assert len(ids) == len(set(ids))


# Intervals


def test_intervals_say_names_and_numbers(drawn):
    said = words(drawn["intervals"])
    for what in ("new/old − old/old", "+1.50", "new/new − old/old", "-3.00", "points"):
        assert what in [one.replace("−", "-") for one in said] or what in said


@pytest.mark.parametrize(
    ("row", "color"),
    [
        ((1.0, 0.5, 1.5), BETTER),
        ((-1.0, -1.5, -0.5), WORSE),
        ((0.1, -0.5, 0.7), SOFT),
        ((2.0, 0.0, 4.0), SOFT),
        ((2.0, NAN, NAN), SOFT),
    ],
)
def test_the_colour_of_an_interval_says_on_which_side_of_nothing_it_lies(row, color):
    svg = intervals({"a": row}, label="points")
    others = [one for one in (BETTER, WORSE) if one != color]
    assert colors(svg, *others) == [0] * len(others)
    assert colors(svg, color)[0] > 0
    assert "+" in "".join(words(svg)) or row[0] < 0


def test_a_difference_without_an_interval_is_drawn_alone():
    svg = intervals({"a": (2.0, NAN, NAN)}, label="points")
    assert "+2.00" in words(svg)
    assert "nan" not in svg.lower()


def test_the_first_row_stands_above_the_others():
    svg = intervals(dict.fromkeys(("first", "second", "third"), (1.0, 0.0, 2.0)), label="points")
    heights = [place_of(svg, name)[1] for name in ("first", "second", "third")]
    assert heights == sorted(heights)


def place_of(svg, text):
    """Where a text stands, in points from the left and from the top."""
    for element in read(svg).iter():
        if element.text == text:
            *_, x, y = re.findall(r"-?[\d.]+", element.get("transform"))
            return float(x), float(y)
    raise AssertionError(f"no {text} in the chart")


# Scores


def test_scores_have_a_panel_for_each_pair_on_one_axis(drawn):
    said = words(drawn["scores"])
    assert said.count("one class") == said.count("different classes") == 1
    for what in ("old/old", "new/old", "cosine"):
        assert said.count(what) == 1


def watched(monkeypatch, name):
    """Collects what axes are told to draw, and lets them draw it."""
    calls, draw = [], getattr(Axes, name)

    def watch(self, *places, **how):
        calls.append((places, how))
        return draw(self, *places, **how)

    monkeypatch.setattr(Axes, name, watch)
    return calls


def test_thresholds_are_drawn_as_lines_the_old_one_dotted(monkeypatch):
    drawn = watched(monkeypatch, "axvline")
    score_curves({"old/old": (EDGES, counted(0.7), counted(0.0))}, {"old/old": (0.4, 0.5)})
    assert [(x, how["linestyle"]) for (x,), how in drawn] == [(0.4, "-"), (0.5, ":")]


def test_the_legend_of_scores_lies_on_no_panel(monkeypatch):
    figures = []

    def keep(figure):
        figure.draw_without_rendering()
        figures.append(figure)
        return ""

    monkeypatch.setattr("nobackfill.report.charts.to_svg", keep)
    panel = (EDGES, counted(0.7), counted(0.0))
    score_curves({"old/old": panel, "new/old": panel}, {"old/old": (0.9,), "new/old": (0.9,)})
    (figure,) = figures
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["different classes", "one class"]
    lowest = legend.get_window_extent().y0
    assert all(axes.get_legend() is None for axes in figure.axes)
    assert all(axes.get_window_extent().y1 < lowest for axes in figure.axes)


def test_curves_show_shares_of_each_kind(monkeypatch):
    """However many more strangers there are than friends, both curves have the same area."""
    drawn = watched(monkeypatch, "stairs")
    same, other = counted(0.7, 50), counted(0.0, 5000)
    score_curves({"old/old": (EDGES, same, other)}, {"old/old": (0.4,)})
    assert [share.sum() for (share, _), _ in drawn] == pytest.approx([1, 1, 1, 1])
    drawn.clear()
    step_curves({"old": same, "new": other}, EDGES, label="cosine")
    assert [share.sum() for (share, _), _ in drawn] == pytest.approx([1, 1])


def test_a_single_filled_bin_is_drawn():
    one = np.zeros(160, dtype=int)
    one[159] = 3
    assert read(score_curves({"old/old": (EDGES, one, one)}, {"old/old": (1.0, 1.0)})) is not None
    assert read(step_curves({"old": one}, EDGES, label="cosine")) is not None


def test_no_pairs_of_classes_are_an_empty_chart():
    none = np.zeros(160, dtype=int)
    assert "old" in words(step_curves({"old": none, "ndpp": none}, EDGES, label="cosine"))


# The map


def test_a_map_has_every_class_and_both_models(drawn):
    said = words(drawn["map"])
    assert [said.count(name) for name in NAMES] == [1, 1, 1]
    assert said.count("old/old") == said.count("new/old") == 1


def test_a_map_shows_stored_items_and_in_each_panel_the_queries_of_its_model(monkeypatch):
    drawn = watched(monkeypatch, "scatter")
    points, classes, names = a_map()
    queries_on_gallery(points, classes, names)
    expected = [
        points[what][classes[what] == number].tolist()
        for part in ("old", "new")
        for number in range(len(names))
        for what in ("gallery", part, "means")
    ]
    found = [np.column_stack([np.atleast_1d(one) for one in place]) for place, _ in drawn]
    assert [one.tolist() for one in found] == expected


def test_every_name_is_in_the_legend():
    names = ["_background", "cup"]
    assert set(names) <= set(words(queries_on_gallery(*a_map(names))))


@pytest.mark.parametrize("name", [r"$\frac$", "5$ or 6$"])
def test_a_name_is_no_formula(name):
    assert name in words(queries_on_gallery(*a_map([name, "cup"])))


def test_a_name_with_control_characters_leaves_the_chart_well_formed():
    read(queries_on_gallery(*a_map(["a\x0bb", "cup"])))


def test_names_are_of_any_script():
    assert "杯子" in words(queries_on_gallery(*a_map(["杯子", "cup"])))


def test_points_on_a_line_are_drawn():
    points, classes, names = a_map()
    queries_on_gallery({part: one * [1, 0] for part, one in points.items()}, classes, names)


@pytest.mark.parametrize("name", ["<b> & 'c'", 'fill: #1d2733 id="x"'])
def test_a_name_that_looks_like_markup_stays_a_name(name):
    assert name in words(queries_on_gallery(*a_map([name, "cup"])))
    assert name in words(self_cross_plane([(name, 1.0, 2.0), ("b", 2.0, 1.0)], [0, 1], old=1.0))


# The plane


def test_a_plane_has_every_method_by_name(drawn):
    said = words(drawn["plane"])
    for what in ("ndpp", "bct", "old/old", "independent"):
        assert said.count(what) == 1
    without = self_cross_plane([("ndpp", 60.0, 55.0)], [0], old=50.0)
    assert "independent" not in words(without)


def drawn_points(monkeypatch, runs, front=(0,), **more):
    drawn = watched(monkeypatch, "scatter")
    svg = self_cross_plane(runs, front, **more)
    return [(*place, how["color"], how["marker"], how["s"]) for place, how in drawn], svg


def test_colours_say_who_is_compatible(monkeypatch):
    runs = [("a", 60.0, 55.0), ("b", 61.0, 50.0), ("c", 62.0, 49.0)]
    drawn, _ = drawn_points(monkeypatch, runs, old=50.0)
    assert [one[2] for one in drawn] == [BETTER, WORSE, WORSE]
    assert [one[4] > drawn[1][4] for one in drawn] == [True, False, False]  # the front is larger


def test_a_point_far_below_is_drawn_at_the_edge_with_its_number(monkeypatch):
    runs = [("good", 60.0, 54.0), ("near", 60.0, 40.0), ("far", 65.0, 2.0)]
    drawn, svg = drawn_points(monkeypatch, runs, front=(0, 2), old=50.0)
    lowest = 50 - 1.5 * 12.5
    assert [one[:2] for one in drawn] == [(60.0, 54.0), (60.0, 40.0), (65.0, lowest)]
    assert [one[3] for one in drawn] == ["o", "o", "v"]
    assert {"good", "near", "far (2.0)"} <= set(words(svg))


def test_good_methods_make_room_below(monkeypatch):
    runs = [("good", 60.0, 80.0), ("far", 65.0, 6.0)]
    drawn, svg = drawn_points(monkeypatch, runs, old=50.0)
    assert [one[1] for one in drawn] == [80.0, 6.0]  # 50 - 1.5 * 30 is lower still
    assert "far" in words(svg)


@pytest.mark.parametrize("number", [1, 2, 12])
def test_names_of_equal_points_do_not_cover_each_other(number):
    runs = [(f"method {n}", 60.0, 55.0) for n in range(number)]
    places = [place_of(self_cross_plane(runs, [0], old=50.0), name) for name, *_ in runs]
    for (x, y), (other_x, other_y) in combinations(places, 2):
        assert abs(y - other_y) > 11 or abs(x - other_x) > 13  # or on both sides of the point


def test_a_name_stands_beside_its_point_and_a_line_leads_to_one_that_does_not(monkeypatch):
    said = watched(monkeypatch, "annotate")
    runs = [("near", 60.0, 55.0), ("there", 70.0, 55.0), ("too", 70.0, 55.0), ("far", 70.0, 55.0)]
    self_cross_plane(runs, [0], old=50.0)
    names = {place[0]: (place[2], how) for place, how in said if len(place) == 3}
    assert names["near"][0] == names["there"][0]
    assert names["too"][1]["ha"] == "right"  # on the other side
    assert [bool(names[one][1]["arrowprops"]) for one in ("near", "there", "too", "far")] == [
        False, False, False, True,
    ]  # fmt: skip


def test_a_point_without_a_name_is_told_by_no_number():
    svg = self_cross_plane([("here", 60.0, 55.0), ("", 70.0, 1.0)], [0], old=50.0)
    assert "(1.0)" not in " ".join(words(svg))


def test_a_plane_where_nothing_is_found_is_drawn():
    assert "a" in words(self_cross_plane([("a", 0.0, 0.0), ("b", 0.0, 0.0)], [0], old=0.0))


def test_the_front_is_a_line_through_its_points(monkeypatch):
    lines = watched(monkeypatch, "plot")
    self_cross_plane([("a", 1.0, 9.0), ("b", 5.0, 4.0), ("c", 9.0, 8.0)], [0, 2], old=5.0)
    assert [[list(one) for one in place] for place, _ in lines] == [[[1.0, 9.0], [9.0, 8.0]]]


# The front


def front_by_hand(points):
    """Those that no other reaches in both, going beyond it in one; of copies the first."""
    front = []
    for place, (x, y) in enumerate(points):
        beaten = any(
            a >= x and b >= y and ((a, b) != (x, y) or other < place)
            for other, (a, b) in enumerate(points)
            if other != place
        )
        if not beaten:
            front.append(place)
    return sorted(front, key=lambda place: points[place][0])


@pytest.mark.parametrize("seed", range(60))
def test_the_front_by_its_definition(seed):
    """Few different values, so that there are many ties and copies."""
    random = np.random.default_rng(seed)
    points = [tuple(map(float, p)) for p in random.integers(0, 2 + seed // 6, (1 + seed % 11, 2))]
    assert pareto_front(points) == front_by_hand(points)


@pytest.mark.parametrize(
    ("points", "front"),
    [
        ([(1.0, 1.0)], [0]),
        ([(1.0, 1.0), (1.0, 1.0)], [0]),
        ([(1.0, 2.0), (1.0, 3.0)], [1]),
        ([(1.0, 2.0), (2.0, 2.0)], [1]),
        ([(3.0, 1.0), (2.0, 2.0), (1.0, 3.0)], [2, 1, 0]),
        ([(-1.0, -3.0), (-2.0, -2.0)], [1, 0]),
        ([], []),
    ],
)
def test_fronts_one_sees_at_once(points, front):
    assert pareto_front(points) == front


def test_a_map_has_its_axes_upwards_and_a_margin_around_all_points():
    axes = Figure().subplots()
    _frame(axes, "old/old", [np.array([[0.0, 0.0]]), np.array([[10.0, 20.0]])])
    assert axes.get_xlim() == pytest.approx((-0.6, 10.6))
    assert axes.get_ylim() == pytest.approx((-1.2, 21.2))
    assert axes.get_title(loc="left") == "old/old"
