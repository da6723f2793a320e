"""Several runs compared: intervals over seeds, pairing with the Baseline, and who is refused."""

import math
import statistics

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.errors import DataError
from nobackfill.evaluation.bootstrap import student_quantile
from nobackfill.evaluation.geometry import cosine_spread, similarity_histogram
from nobackfill.report.class_spaces import ClassSpaces
from nobackfill.report.html import render_html
from nobackfill.report.markdown import render_markdown
from nobackfill.report.pages.runs import runs_page
from nobackfill.report.seeds import (
    BASELINE,
    Outcome,
    Spread,
    check_same_search,
    comparison_of,
    over_seeds,
)

# Of tables: the two-sided 95 % quantiles of Student's distribution
STUDENT = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 9: 2.2622, 29: 2.0452}


def outcome(kind, seed, new_old, *, new_new=0.6, old_old=0.4, independent=0.7, **more):
    """A run as it leaves its folder; its verdict follows from the means."""
    summary = {
        "old_old": old_old,
        "new_old": new_old,
        "new_new": new_new,
        "independent": independent,
        "gain_recovered": None if independent is None else (new_old - old_old) / 0.3,
        "p_up": None if independent is None else 51.0,
        "p_comp": None if independent is None else 50 + 100 * (new_old - old_old),
        "p_1": None if independent is None else 52.0,
        "flips": [{"k": 1, "negative": 0.1, "positive": 0.2}],
        "metrics": {
            "old_old": {"recall_at_1": 0.5, "ndcg_at_10": 0.4},
            "new_old": {"recall_at_1": 0.6, "ndcg_at_10": 0.5},
        },
        "verdict": "compatible" if new_old > old_old else "not compatible",
        "protocol": "plain",
        "searched": "0123456789abcdef",
        "num_queries": 1200,
        "num_gallery": 34000,
        "notes": [],
    }
    return Outcome(f"{kind}-{seed}", kind, seed, {**summary, **more})


def section(page, title):
    (found,) = [one for one in page.sections if one.title == title]
    return found


def rows(table):
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def numbers(page):
    (table,) = section(page, "What each method gives").tables
    return {row["method"]: row for row in rows(table)}


# Over seeds


@pytest.mark.parametrize(("freedom", "known"), STUDENT.items())
def test_students_quantiles_are_those_of_the_tables(freedom, known):
    assert -student_quantile(0.025, freedom) == pytest.approx(known, rel=2e-3)
    if freedom < 3:
        assert -student_quantile(0.025, freedom) == pytest.approx(known, abs=5e-5)  # exact


@pytest.mark.parametrize("tail", [0.005, 0.025, 0.05, 0.25])
def test_one_and_two_degrees_of_freedom_are_exact(tail):
    """By the distribution functions, which are known in closed form."""
    one, two = student_quantile(tail, 1), student_quantile(tail, 2)
    assert 0.5 + math.atan(one) / math.pi == pytest.approx(tail)
    assert 0.5 + two / (2 * math.sqrt(2 + two**2)) == pytest.approx(tail)


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6, 10])
def test_a_mean_over_seeds_has_students_interval(number):
    values = [0.41, 0.44, 0.40, 0.47, 0.43, 0.42, 0.45, 0.39, 0.46, 0.48][:number]
    found = over_seeds(values)
    mean = sum(values) / number
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (number - 1))
    assert (found.mean, found.seeds) == (pytest.approx(mean), number)
    expected = STUDENT[number - 1] * deviation / math.sqrt(number)
    assert found.half == pytest.approx(expected, rel=2e-3)


def test_two_seeds_by_hand():
    found = over_seeds([0.40, 0.42])
    assert found.half == pytest.approx(12.7062 * 0.01, rel=1e-4)
    assert found.text() == "41.0 ± 12.7"
    assert found.text(digits=2, sign=True) == "+41.00 ± 12.71"
    assert found.summary() == {"mean": found.mean, "half_width": found.half, "seeds": 2}


def test_a_single_seed_has_no_interval():
    assert over_seeds([0.4]) == Spread(0.4, None, 1)
    assert over_seeds([0.4]).text() == "40.0"
    assert over_seeds([0.4]).summary()["half_width"] is None


def test_equal_seeds_have_an_interval_of_no_width():
    assert over_seeds([0.5, 0.5, 0.5]) == Spread(0.5, 0.0, 3)


def test_what_was_not_measured_for_all_has_no_mean():
    assert over_seeds([]) is None
    assert over_seeds([None]) is None
    assert over_seeds([0.4, None, 0.5]) is None


# The table of methods


def three_seeds(kind, values, **more):
    return [outcome(kind, seed, value, **more) for seed, value in enumerate(values)]


def test_each_method_is_paired_with_the_baseline_by_seed():
    baseline = [outcome(BASELINE, seed, 0.40 + 0.05 * seed) for seed in (3, 1, 2)]
    ndpp = [outcome("ndpp", seed, 0.41 + 0.05 * seed + 0.001 * seed) for seed in (1, 2, 3)]
    table = comparison_of([*ndpp, *baseline])
    found = table["ndpp"]["against_baseline"]
    assert found.mean == pytest.approx(0.012)
    gains = [0.011, 0.012, 0.013]
    assert found.half == pytest.approx(4.3027 * statistics.stdev(gains) / math.sqrt(3), rel=1e-4)
    assert table["ndpp"]["new_old"].half > 10 * found.half  # pairing takes the seeds' spread off
    assert table[BASELINE]["against_baseline"] is None


def test_seeds_that_the_baseline_lacks_are_not_paired():
    runs = [*three_seeds(BASELINE, [0.45, 0.46]), *three_seeds("ndpp", [0.46, 0.48, 0.99])]
    found = comparison_of(runs)["ndpp"]["against_baseline"]
    assert (found.mean, found.seeds) == (pytest.approx(0.015), 2)
    apart = [outcome(BASELINE, 7, 0.4), outcome("ndpp", 8, 0.5)]
    assert comparison_of(apart)["ndpp"]["against_baseline"] is None


def test_the_numbers_of_a_method_are_the_means_of_its_runs():
    runs = [
        outcome("ndpp", 0, 0.45, new_new=0.60, old_old=0.40),
        outcome("ndpp", 1, 0.47, new_new=0.62, old_old=0.41,
                flips=[{"k": 1, "negative": 0.3, "positive": 0}]),
    ]  # fmt: skip
    one = comparison_of(runs)["ndpp"]
    assert one["seeds"] == 2
    for key, expected in (
        ("old_old", 0.405), ("new_old", 0.46), ("new_new", 0.61), ("gain", 0.055),
        ("independent", 0.7), ("lost", 0.2), ("p_up", 0.51), ("p_comp", 0.555), ("p_1", 0.52),
        ("gain_recovered", (0.05 + 0.06) / 0.6),
    ):  # fmt: skip
        assert one[key].mean == pytest.approx(expected), key
    assert one["gain"].half == pytest.approx(12.7062 * 0.005, rel=1e-4)  # of the differences
    assert one["verdicts"] == {"compatible": 2, "not compatible": 0, "undecided": 0}


def test_the_table_is_read_in_percent_the_best_first():
    page = runs_page(
        [
            *three_seeds(BASELINE, [0.45, 0.46, 0.47]),
            *three_seeds("ndpp", [0.465, 0.475, 0.485], new_new=0.61),
            *three_seeds("bct", [0.38, 0.39, 0.40]),
        ]
    )
    found = numbers(page)
    assert list(found) == ["ndpp", BASELINE, "bct"]
    assert found["ndpp"] == {
        "method": "ndpp",
        "compatible": "yes",
        "seeds": "3",
        "old/old": "40.0 ± 0.0",
        "new/old": "47.5 ± 2.5",
        "new/new": "61.0 ± 0.0",
        "gain today": "+7.5 ± 2.5",
        "Δ Baseline": "+1.50 ± 0.00",
        "lose first hit": "10.0 ± 0.0",
        "P_up": "51.0 ± 0.0",
        "P_comp": "57.5 ± 2.5",
        "P_1": "52.0 ± 0.0",
        "gain recovered": "25 ± 8",
    }
    assert found[BASELINE]["Δ Baseline"] == "–"
    assert found["bct"]["Δ Baseline"].startswith("-7.00")


def test_the_best_that_is_compatible_on_every_seed_is_strong():
    runs = [
        *three_seeds("lucky", [0.39, 0.60, 0.61]),
        *three_seeds("sure", [0.41, 0.42, 0.43]),
        *three_seeds("also", [0.405, 0.41, 0.42]),
    ]
    (table,) = section(runs_page(runs), "What each method gives").tables
    assert table.rows[table.strong][0] == "sure"
    (table,) = section(runs_page(runs[:3]), "What each method gives").tables
    assert table.strong is None


def test_without_a_baseline_and_an_independent_model_their_columns_are_left_out():
    page = runs_page([outcome("ndpp", 0, 0.5, independent=None), outcome("bct", 0, 0.45)])
    (table,) = section(page, "What each method gives").tables
    assert "Δ Baseline" not in table.columns
    assert numbers(page)["ndpp"]["P_1"] == "–"
    runs = [outcome(kind, 0, 0.5, independent=None) for kind in ("ndpp", "bct")]
    (table,) = section(runs_page(runs), "What each method gives").tables
    assert not {"P_up", "P_comp", "P_1", "gain recovered"} & set(table.columns)


@pytest.mark.parametrize(
    ("verdicts", "text"),
    [
        (["compatible"] * 3, "yes"),
        (["not compatible"] * 3, "no"),
        (["compatible", "undecided", "not compatible"], "1 of 3 seeds"),
        (["compatible", "compatible", "undecided"], "2 of 3 seeds"),
        (["undecided"] * 3, "0 of 3 seeds"),
        (["not compatible", "undecided"], "0 of 2 seeds"),
        (["compatible"], "yes"),
    ],
)
def test_a_verdict_is_yes_or_no_where_all_seeds_agree(verdicts, text):
    runs = [outcome("ndpp", seed, 0.5, verdict=one) for seed, one in enumerate(verdicts)]
    assert numbers(runs_page(runs))["ndpp"]["compatible"] == text


# What to conclude


def test_the_highest_new_old_of_the_compatible_is_advised():
    runs = [
        *three_seeds("unsure", [0.39, 0.70, 0.71]),
        *three_seeds("ndpp", [0.46, 0.47, 0.48], new_new=0.60),
        *three_seeds("bct", [0.41, 0.42, 0.43], new_new=0.65),
    ]
    first, second = runs_page(runs).summary
    assert "2 methods are compatible on every seed, of 3" in first
    assert "`ndpp` has the highest new/old mAP: 47.0 ± 2.5 (old/old: 40.0 ± 0.0)" in first
    assert "`bct` would be the best of them: 65.0" in second


def test_the_best_today_and_later_is_said_once():
    runs = [outcome("ndpp", 0, 0.5, new_new=0.7), outcome("bct", 0, 0.45, new_new=0.6)]
    assert len(runs_page(runs).summary) == 1
    runs = [outcome("ndpp", 0, 0.5, new_new=None), outcome("bct", 0, 0.35, new_new=0.6)]
    (said,) = runs_page(runs).summary
    assert said.startswith("1 method is compatible on every seed, of 2.")


def test_where_none_is_compatible_none_is_advised():
    (said,) = runs_page([outcome("ndpp", 0, 0.3), outcome("bct", 0, 0.2)]).summary
    assert "No method is compatible on every seed" in said


# Who is refused


def test_runs_on_other_items_are_refused_by_both_names():
    runs = [outcome("ndpp", 0, 0.5), outcome("ndpp", 1, 0.5)]
    runs.append(outcome("bct", 0, 0.5, searched="fedcba9876543210", num_gallery=50))
    for refuse in (check_same_search, runs_page):
        with pytest.raises(DataError, match="ndpp-0 and bct-0 used different items") as error:
            refuse(runs)
        assert "34,000 and 50 gallery items" in str(error.value)


def test_runs_of_other_protocols_are_refused_by_both_names():
    runs = [outcome("ndpp", 0, 0.5), outcome("bct", 0, 0.5, protocol="gldv2")]
    with pytest.raises(DataError, match="ndpp-0 and bct-0 used different protocols") as error:
        runs_page(runs)
    assert "plain and gldv2" in str(error.value)


def test_the_same_seed_twice_is_refused():
    runs = [outcome("ndpp", 3, 0.5), outcome("bct", 3, 0.4)]
    again = Outcome("a copy", "ndpp", 3, runs[0].summary)
    with pytest.raises(DataError, match="two of `ndpp` have the seed 3, the second being a copy"):
        runs_page([*runs, again])


# The plane


def test_the_plane_names_those_that_no_other_beats():
    runs = [
        outcome("later", 0, 0.41, new_new=0.70),
        outcome("today", 0, 0.50, new_new=0.50),
        outcome("neither", 0, 0.40, new_new=0.45),
        outcome("unmeasured", 0, 0.90, new_new=None),
    ]
    (figure,) = section(runs_page(runs), "Today against later").figures
    assert "today, later" in figure.says
    assert "neither" not in figure.says
    assert "old/old is 40.0" in figure.says
    assert ">neither<" in figure.svg
    assert "unmeasured" not in figure.svg
    assert ">independent<" in figure.svg


def test_the_plane_is_drawn_in_percent(monkeypatch):
    calls = []

    def draw(points, front, **more):
        calls.append((points, front, more))
        return "<svg></svg>"

    monkeypatch.setattr("nobackfill.report.pages.runs.self_cross_plane", draw)
    page = runs_page(
        [
            *three_seeds("ndpp", [0.45, 0.55], new_new=0.6, old_old=0.40, independent=0.7),
            *three_seeds("bct", [0.35, 0.37], new_new=0.8, old_old=0.42, independent=0.8),
            *three_seeds("lwf", [0.30, 0.30], new_new=0.5, old_old=0.41, independent=None),
        ]
    )
    assert section(page, "Today against later").figures[0].svg
    ((points, front, more),) = calls
    assert [name for name, *_ in points] == ["ndpp", "bct", "lwf"]
    assert [place for _, *place in points] == [
        pytest.approx([60, 50]), pytest.approx([80, 36]), pytest.approx([50, 30]),
    ]  # fmt: skip
    assert front == [0, 1]
    assert more == {"old": pytest.approx(41), "independent": pytest.approx(75)}


def test_without_an_independent_model_the_plane_has_no_ceiling():
    runs = [outcome(kind, 0, 0.5, independent=None) for kind in ("ndpp", "bct")]
    (figure,) = section(runs_page(runs), "Today against later").figures
    assert "independent" not in figure.svg


def test_a_plane_needs_two_points():
    runs = [outcome("ndpp", 0, 0.5), outcome("bct", 0, 0.5, new_new=None)]
    titles = [one.title for one in runs_page(runs).sections]
    assert titles == ["What each method gives", "Every run"]


# Every run, and what is missing


def test_every_run_has_a_row():
    runs = [outcome("ndpp", 4, 0.4567), outcome("bct", 0, 0.38, new_new=None)]
    (table,) = section(runs_page(runs), "Every run").tables
    assert [list(row) for row in table.rows] == [
        ["ndpp-4", "ndpp", "4", "40.00", "45.67", "60.00", "compatible"],
        ["bct-0", "bct", "0", "40.00", "38.00", "–", "not compatible"],
    ]


def test_a_reader_is_told_of_single_seeds_and_missing_p_scores():
    runs = [
        *three_seeds("ndpp", [0.5, 0.5]),
        outcome("bct", 0, 0.5, independent=None, notes=["no space", "another"]),
        outcome("lwf", 0, 0.5, notes=["no space"]),
    ]
    missing = list(runs_page(runs).not_measured)
    assert missing[0] == "the spread over seeds: a single run of bct, lwf"
    assert "P-scores" in missing[1]
    assert missing[1].endswith("in 1 run")
    assert missing[2:] == ["another", "no space"]
    assert runs_page(three_seeds("ndpp", [0.5, 0.5])).not_measured == []


def test_says_what_it_was_made_of():
    runs = three_seeds("ndpp", [0.5, 0.5])
    page = runs_page(runs, title="Which?")
    assert page.title == "Which?"
    assert page.verdict == ""
    assert page.made_of == {
        "runs": "2",
        "queries": "1,200",
        "gallery": "34,000 items",
        "protocol": "plain",
        "searched": "0123456789abcdef",
    }


def test_similar_classes_are_told_and_drawn():
    generator = torch.Generator().manual_seed(0)
    means = {name: torch.randn(9, 4, generator=generator) for name in ("old", BASELINE, "ndpp")}
    found = similarity_histogram(means, ("old", BASELINE))
    spread = {name: (cosine_spread(m), cosine_spread(m, center=True)) for name, m in means.items()}
    for place, words in (("training", "of the training set"), ("searched", "searched classes")):
        spaces = ClassSpaces(place, means, spread)
        page = runs_page(three_seeds("ndpp", [0.5, 0.5]), spaces=spaces, missing="the rest")
        even = section(page, "How evenly class means are spread")
        assert words in even.text
        assert [list(row) for row in even.tables[0].rows] == [
            [name, f"{plain:.4f}", f"{centred:.4f}"] for name, (plain, centred) in spread.items()
        ]
        assert "the rest" in page.not_measured
        part = section(page, "How similar different classes are")
        assert f"for the {found.pairs} pairs" in part.text
        assert words in part.text
    assert [list(row) for row in part.tables[0].rows] == [
        [name, f"{found.mean[name]:.3f}", f"{100 * found.below_zero[name]:.1f} %"] for name in means
    ]
    assert f"ndpp: mean {found.mean['ndpp']:.3f}" in part.figures[0].says
    assert all(f">{name}<" in part.figures[0].svg for name in means)


def test_it_is_a_page_for_browsers_and_a_text_for_others():
    page = runs_page([*three_seeds(BASELINE, [0.45, 0.5]), *three_seeds("ndpp", [0.5, 0.5])])
    for text in (render_html(page), render_markdown(page)):
        assert "Δ Baseline" in text
        assert "nan" not in text
    assert render_html(page).count("<svg") == 1


def test_real_summaries_are_what_it_reads():
    labels = np.arange(100) % 10
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(10, 6, generator=generator)
    old, new = (
        nb.Vectors(range(100), centre[labels] + noise * torch.randn(100, 6, generator=generator),
                   labels)
        for noise in (1.0, 0.5)
    )  # fmt: skip
    summary = nb.evaluate(old, new, independent=new).summary()
    page = runs_page([Outcome("one", "ndpp", 0, summary), Outcome("two", "bct", 0, summary)])
    assert numbers(page)["bct"]["new/old"] == f"{100 * summary['new_old']:.1f}"
    assert numbers(page)["bct"]["P_1"] == f"{summary['p_1']:.1f}"


# What a gain of mAP hides, and directions


FEWER = {
    "old_old": {"recall_at_1": 0.5, "ndcg_at_10": 0.4},
    "new_old": {"recall_at_1": 0.4, "ndcg_at_10": 0.5},
}


def test_methods_whose_first_answers_get_worse_are_named():
    outcomes = [outcome("ndpp", 0, 0.5), outcome("bct", 0, 0.45), outcome("lwf", 0, 0.3)]
    assert not any("first answers" in said for said in runs_page(outcomes).summary)
    outcomes += [outcome("bct", 1, 0.45, metrics=FEWER), outcome("lwf", 1, 0.3, metrics=FEWER)]
    table = comparison_of(outcomes)
    assert [table[kind]["first_answers_worse"] for kind in ("ndpp", "bct", "lwf")] == [0, 1, 1]
    (said,) = [said for said in runs_page(outcomes).summary if "first answers" in said]
    assert said.endswith("on some seed with bct.")  # nobody is told to deploy lwf


def in_directions(kind, seed, verdict="compatible", *, other="compatible", metrics=None):
    tests = {"image_to_text": outcome(kind, seed, 0.5).summary | {"verdict": other}}
    if metrics is not None:
        tests["image_to_text"]["metrics"] = metrics
    return outcome(
        kind, seed, 0.5, direction="text_to_image", tests=tests, verdict=verdict,
        verdicts={"text_to_image": "compatible", "image_to_text": other},
    )  # fmt: skip


def test_of_images_and_texts_a_reader_is_told_which_direction_the_numbers_are():
    summary = runs_page([in_directions("ndpp", 0), in_directions("bct", 0)]).summary
    assert summary[-1] == (
        "Numbers are from text to image; a run is compatible if it is so from text to image and "
        "from image to text."
    )
    alone = outcome("ndpp", 0, 0.5, direction="text_to_image", tests={})
    said = runs_page([alone]).summary[-1]
    assert said == "All numbers are from text to image, the only direction between modalities."
    assert not any("direction" in said for said in runs_page([outcome("ndpp", 0, 0.5)]).summary)


def test_every_direction_that_counts_is_looked_at_for_worse_first_answers():
    summary = runs_page([in_directions("ndpp", 0, metrics=FEWER)]).summary
    assert any("first answers get worse" in said for said in summary)
