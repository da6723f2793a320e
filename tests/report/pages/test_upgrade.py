"""The page of one upgrade says what the evaluation measured, in its numbers and in its words."""

import numpy as np
import pytest
import torch
from PIL import Image

import nobackfill as nb
from nobackfill.core.page import Picture
from nobackfill.data.listing import GroundTruth
from nobackfill.evaluation.conclusion import HEADLINE, conclude, worse_within
from nobackfill.evaluation.findings import findings_of
from nobackfill.evaluation.query_changes import compare
from nobackfill.report.html import render_html
from nobackfill.report.markdown import render_markdown
from nobackfill.report.pages.evaluation import SHOWN
from nobackfill.report.pages.queries import FOUND, QUERIES, precision_changes, queries_section
from nobackfill.report.pages.upgrade import (
    numbers_section,
    scores_section,
    slice_sections,
    spaces_section,
    upgrade_page,
)
from nobackfill.report.pages.upgrade import tests_section as section_of_other_tests
from nobackfill.report.thumbnails import show_ids, thumbnail

CLASSES, PER_CLASS, DIM = 30, 6, 8
COUNT = CLASSES * PER_CLASS
LABELS = np.array([f"class {i % CLASSES}" for i in range(COUNT)])
LIGHT = np.where(np.arange(COUNT) % 3 == 0, "night", "day")
VERDICTS = ("compatible", "not compatible", "undecided")


def vectors(seed, noise, *, space=0, labels=LABELS, **columns):
    names, number = np.unique(labels, return_inverse=True)
    centre = torch.randn(len(names), DIM, generator=torch.Generator().manual_seed(space))
    generator = torch.Generator().manual_seed(seed)
    values = centre[number] + noise * torch.randn(len(labels), DIM, generator=generator)
    ids = [f"item {i}" for i in range(len(labels))]
    return nb.Vectors(ids, values, labels, columns={"light": LIGHT[: len(labels)], **columns})


OLD, FREE = vectors(1, 1.2), vectors(9, 0.3, space=9)
NEW = {"compatible": vectors(2, 0.6), "not compatible": vectors(3, 2.0), "undecided": OLD}


def look(*files, **more):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nobackfill.evaluation.tsne._open_tsne", lambda: None)  # PCA is quicker
        return findings_of(nb.evaluate(*files, **more))


@pytest.fixture(scope="module")
def findings():
    return {verdict: look(OLD, new, independent=FREE) for verdict, new in NEW.items()}


@pytest.fixture(scope="module")
def pages(findings):
    return {verdict: upgrade_page(found) for verdict, found in findings.items()}


def section(page, title):
    (found,) = [one for one in page.sections if one.title == title]
    return found


def rows(table):
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def percent(share, digits=1):
    return f"{100 * share:.{digits}f} %"


def points(interval, digits=2):
    ends = [100 * value for value in (interval.mean, interval.low, interval.high)]
    return "{:+.{d}f} ({:+.{d}f} to {:+.{d}f})".format(*ends, d=digits)


# What to conclude


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_verdict_and_the_gain_come_first(findings, pages, verdict):
    page, evaluation = pages[verdict], findings[verdict].evaluation
    assert evaluation.verdict == verdict
    assert page.verdict == verdict
    advice = {
        "compatible": "may go live today",
        "not compatible": "keep the old model",
        "undecided": "nothing changes",  # the same vectors
    }
    assert advice[verdict] in page.summary[0]
    others = [words for name, words in advice.items() if name != verdict]
    assert not any(words in page.summary[0] for words in others)
    assert f"gives {points(evaluation.differences['new_old - old_old'])} points" in page.summary[0]


@pytest.mark.parametrize("verdict", VERDICTS)
def test_who_loses_who_wins_and_what_share_comes_today(findings, pages, verdict):
    evaluation, summary = findings[verdict].evaluation, pages[verdict].summary
    flips = evaluation.flips(1)
    assert summary[1] == (
        f"{percent(flips.negative)} of the queries lose their first hit, "
        f"{percent(flips.positive)} gain one."
    )
    (share,) = [said for said in summary if "without constraint" in said]
    assert f"This recovers {percent(evaluation.gain_recovered, 0)} of the gain" in share


def test_the_worst_class_of_those_with_enough_queries_is_named():
    """Of large classes one that changes little, of small ones all that change much."""
    labels = np.array([f"large {i % 6}" for i in range(6 * HEADLINE)] + [*"abcdefgh"] * 3)
    found = look(vectors(1, 0.8, labels=labels), vectors(3, 2.5, labels=labels))
    slices = found.slices["label"]
    worst = next(one for one in slices if one.queries >= HEADLINE)
    assert slices[0].queries < HEADLINE
    (said,) = [said for said in conclude(found) if "hurts most" in said]
    assert said == (
        f"It hurts most in class {worst.value}: {100 * worst.difference.mean:+.1f} points over "
        f"{HEADLINE} queries."
    )


def test_no_class_is_named_that_has_few_queries_or_gets_no_worse(findings, pages):
    assert findings["not compatible"].slices["label"][0].difference.mean < 0
    assert not any("hurts most" in said for page in pages.values() for said in page.summary)
    labels = np.array([f"{i % 6}" for i in range(6 * HEADLINE)])
    same = look(*[vectors(1, 1.5, labels=labels)] * 2)
    assert same.slices["label"][0].queries == HEADLINE
    assert not any("hurts most" in said for said in conclude(same))


def test_that_the_first_answers_get_worse_is_said_where_they_do(findings, pages):
    for verdict in VERDICTS:
        before, after = (
            findings[verdict].evaluation.summary()["metrics"][pair]
            for pair in ("old_old", "new_old")
        )
        told = [said for said in pages[verdict].summary if "first answers get worse" in said]
        if after["recall_at_1"] >= before["recall_at_1"]:
            assert not told
        else:
            fall = f"{100 * before['recall_at_1']:.2f} to {100 * after['recall_at_1']:.2f} %"
            assert fall in told[0]
    assert any("first answers" in said for said in pages["not compatible"].summary)
    assert not any("first answers" in said for said in pages["compatible"].summary)


def test_embedding_again_is_advised_only_where_new_new_is_better(findings, pages):
    for verdict in VERDICTS:
        change = findings[verdict].evaluation.differences["new_new - old_old"]
        is_advised = verdict == "not compatible" and change.low > 0
        assert ("or embed the gallery again" in pages[verdict].summary[0]) is is_advised
    labels = LABELS.repeat(2)[:COUNT]
    better, worse = (vectors(seed, noise, labels=labels) for seed, noise in ((1, 0.6), (2, 3.0)))
    told = upgrade_page(look(better, worse)).summary[0]
    assert told.endswith("embedding the gallery again is not known to help either.")


# Images and texts


MIXED = np.where(np.arange(COUNT) % 2 == 0, "image", "text")


@pytest.fixture(scope="module")
def asked():
    """From texts to images, by a new model that is better, and what other directions might say."""
    old, new = (
        vectors(seed, noise, labels=LABELS.repeat(2)[:COUNT], modality=MIXED)
        for seed, noise in ((1, 1.2), (2, 0.6))
    )
    return look(old, new, modalities=("text", "image"))


def directions(asked, **verdicts):
    """The direction that was looked into, and others like it but for their verdict."""
    own = asked.evaluation.summary()
    others = {name: {**own, "verdict": verdict} for name, verdict in verdicts.items()}
    return {"text_to_image": own, **others}


@pytest.mark.parametrize(
    ("other", "advice"),
    [
        ("compatible", ": it may go live today, without embedding the gallery again."),
        ("undecided", ", which may be chance from image to text. Evaluate with more queries"),
        ("not compatible", ": keep the old model, or embed the gallery again."),
    ],
)
def test_the_verdict_is_that_of_all_directions_between_images_and_texts(asked, other, advice):
    assert asked.evaluation.verdict == "compatible"
    page = upgrade_page(asked, directions=directions(asked, image_to_text=other))
    gain = points(asked.evaluation.differences["new_old - old_old"])
    assert page.verdict == other
    assert page.summary[0].startswith(
        f"On the stored gallery the new model gives {gain} points of mAP against the old one from "
        f"text to image and {gain} from image to text{advice}"
    )
    assert "lose their first hit from text to image, " in page.summary[1]


def test_a_single_direction_is_named_first_and_that_no_other_was_asked(asked):
    for others, said in (
        (None, "from text to image, the only direction that was asked: it may"),
        ({}, "from text to image, the only direction between modalities that was asked: it may"),
        ({"text_to_text": "undecided"}, "only direction between modalities that was asked: it may"),
    ):
        told = None if others is None else directions(asked, **others)
        page = upgrade_page(asked, directions=told)
        assert page.verdict == "compatible"
        assert said in page.summary[0]
        assert section(page, "The numbers").text.startswith("Percent, from text to image.")


def test_searches_within_a_modality_do_not_count_but_are_told_where_they_lose(asked):
    found = directions(asked, image_to_text="compatible", text_to_text="not compatible")
    page = upgrade_page(asked, directions=found)
    assert page.verdict == "compatible"
    gain = points(asked.evaluation.differences["new_old - old_old"])
    (said,) = worse_within(found)
    assert said in page.summary
    assert said.endswith(f"do worse: from text to text {gain} points of mAP.")
    fine = directions(asked, image_to_text="not compatible", image_to_image="undecided")
    assert worse_within(fine) == []


def test_first_answers_that_get_worse_are_told_of_each_direction_that_counts(asked):
    found = directions(asked, image_to_text="compatible", text_to_text="compatible")
    worse = {
        "old_old": {"recall_at_1": 0.5, "ndcg_at_10": 0.5},
        "new_old": {"recall_at_1": 0.4, "ndcg_at_10": 0.5},
    }
    for name in ("image_to_text", "text_to_text"):
        found[name] = {**found[name], "metrics": worse}
    told = [said for said in conclude(asked, found) if "first answers" in said]
    assert told == [
        "The first answers get worse from image to text: Recall@1 falls from 50.00 to 40.00 %."
    ]


def test_without_an_independent_model_no_share_is_told():
    found = look(OLD, NEW["compatible"])
    assert not any("without constraint" in sentence for sentence in conclude(found))
    assert "P_up" not in numbers_section(found).text


# The numbers


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_table_has_every_pair_in_percent(findings, pages, verdict):
    evaluation = findings[verdict].evaluation
    (table,) = section(pages[verdict], "The numbers").tables
    expected = [
        {
            "query/gallery": name,
            "mAP": f"{100 * pair.mean_average_precision:.2f}",
            "Recall@1": f"{100 * pair.recall(1):.2f}",
            "@5": f"{100 * pair.recall(5):.2f}",
            "@10": f"{100 * pair.recall(10):.2f}",
            "nDCG@10": f"{100 * pair.ndcg(10):.2f}",
            "mAP@100": f"{100 * pair.precision_at(100):.2f}",
            "in order": f"{100 * pair.in_order:.2f}",
        }
        for name, pair in (
            ("old/old", evaluation.old_old),
            ("new/old", evaluation.new_old),
            ("new/new", evaluation.new_new),
            ("independent", evaluation.independent),
        )
    ]
    assert rows(table) == expected
    assert table.numbers == set(table.columns) - {"query/gallery"}


def test_p_scores_are_told_with_what_they_were_made_of(findings, pages):
    evaluation = findings["compatible"].evaluation
    scores, text = evaluation.p_scores, section(pages["compatible"], "The numbers").text
    assert f"P_up {scores.up:.2f}, P_comp {scores.comp:.2f}, P_1 {scores.one:.2f}" in text
    assert f"old/old, {100 * evaluation.old_old.mean_average_precision:.2f}" in text
    assert f"model, {100 * evaluation.independent.mean_average_precision:.2f}" in text


def test_differences_are_drawn_and_told(findings, pages):
    evaluation = findings["compatible"].evaluation
    (figure,) = section(pages["compatible"], "The numbers").figures
    for name, interval in evaluation.differences.items():
        said = name.replace(" - ", " − ").replace("_", "/")
        assert f"{said}: {points(interval)}" in figure.says
        assert said in figure.svg


def test_with_few_classes_a_difference_stands_without_its_interval():
    few = np.array([f"class {i % 5}" for i in range(40)])
    page = upgrade_page(look(*(vectors(seed, 0.9, labels=few) for seed in (1, 2))))
    assert page.verdict == "undecided"
    assert " to " not in page.summary[0].split("points")[0]
    assert any("at least 8 independent groups" in note for note in page.notes)
    assert "nan" not in render_html(page).lower().replace("nanmean", "")


def test_other_tests_stand_in_a_table_of_their_own(findings):
    found = findings["compatible"]
    tests = {
        "easy": found.evaluation.summary(),
        "hard": {**findings["undecided"].evaluation.summary(), "new_new": None},
    }
    (table,) = section_of_other_tests(tests).tables
    easy, hard = rows(table)
    evaluation = found.evaluation
    assert easy == {
        "test": "easy",
        "old/old": f"{100 * evaluation.old_old.mean_average_precision:.1f}",
        "new/old": f"{100 * evaluation.new_old.mean_average_precision:.1f}",
        "new/new": f"{100 * evaluation.new_new.mean_average_precision:.1f}",
        "difference (95 %)": points(evaluation.differences["new_old - old_old"]),
        "verdict": "compatible",
    }
    assert (hard["test"], hard["new/new"], hard["verdict"]) == ("hard", "–", "undecided")


# Query by query


def test_flips_are_counted(findings, pages):
    evaluation = findings["not compatible"].evaluation
    part = section(pages["not compatible"], "Query by query")
    assert f"Of {COUNT} queries" in part.text
    table = part.tables[0]
    for row, k in zip(table.rows, (1, 5, 10), strict=True):
        before, after = (
            [0 < rank <= k for rank in pair.first_hit.tolist()]
            for pair in (evaluation.old_old, evaluation.new_old)
        )
        lost = sum(a and not b for a, b in zip(before, after, strict=True))
        won = sum(b and not a for a, b in zip(before, after, strict=True))
        assert list(row) == [
            str(k),
            percent(lost / COUNT),
            str(lost),
            percent(won / COUNT),
            str(won),
        ]


def test_queries_without_anything_to_find_are_not_counted():
    labels = np.array([*LABELS[:60], *(f"alone {i}" for i in range(10))])
    found = look(*(vectors(seed, 1.2, labels=labels) for seed in (1, 2)))
    assert "Of 60 queries" in queries_section(found, show_ids).text


def test_queries_that_change_stand_with_what_they_find(findings, pages):
    part = section(pages["not compatible"], "Query by query")
    found = findings["not compatible"]
    _, lost, won = part.tables
    assert "lose" in lost.caption
    assert "gain" in won.caption
    assert [table.columns[2] for table in (lost, won)] == ["hit is at", "hit was at"]
    changes = precision_changes(found.evaluation)
    for table, flipped in ((lost, found.lost), (won, found.won)):
        assert len(table.rows) == min(QUERIES, len(flipped))
        for row, one in zip(table.rows, flipped, strict=False):
            query, change, rank, before, after = row
            assert query == one.query
            assert change == f"{100 * changes[one.query]:+.1f}"
            assert rank == str(one.rank_after if table is lost else one.rank_before)
            for cell, ids, right in (
                (before, one.top_before, one.right_before),
                (after, one.top_after, one.right_after),
            ):
                assert cell == "\n".join(
                    f"{'✓' if mark else '✗'}\N{NO-BREAK SPACE}{item}"
                    for item, mark in zip(ids[:FOUND], right[:FOUND], strict=True)
                )
    first = lost.rows[0][3]
    mine = {f"item {i}" for i in range(COUNT) if LABELS[i] == LABELS[int(found.lost[0].query[5:])]}
    assert all((part[2:] in mine) == (part[0] == "✓") for part in first.split("\n"))


def test_it_is_seen_that_the_worst_come_first(findings, pages):
    evaluation = findings["not compatible"].evaluation
    before, after = evaluation.old_old.average_precision, evaluation.new_old.average_precision
    place = {item: row for row, item in enumerate(evaluation.query_ids.tolist())}
    _, lost, won = section(pages["not compatible"], "Query by query").tables
    for table, sign in ((lost, 1), (won, -1)):
        told = [float(row["Δ AP"]) for row in rows(table)]
        assert told == sorted(told, key=lambda change: sign * change)
        wanted = [100 * (after - before)[place[row["query"]]].item() for row in rows(table)]
        assert told == pytest.approx(wanted, abs=0.051)
        assert "Δ AP" in table.numbers


def test_ids_that_are_paths_are_told_without_what_all_share(findings):
    def moved(file):
        ids = [f"shop/photos/{item}/{'long' * 12}{item}.jpg" for item in file.ids.tolist()]
        return nb.Vectors(ids, file.vectors, file.labels)

    found = look(moved(OLD), moved(NEW["not compatible"]))
    part = queries_section(found, show_ids)
    assert part.text.endswith("The ids below begin with shop/photos/, which is left out.")
    row = rows(part.tables[1])[0]
    for name, cell in (
        (found.lost[0].query, row["query"]),
        (found.lost[0].top_after[1], row["found after"].split("\n")[1][2:]),
    ):
        begin, end = cell.split("…")
        assert name.startswith(f"shop/photos/{begin}")
        assert name.endswith(end)
    assert "left out" not in queries_section(findings["not compatible"], show_ids).text


def test_what_is_never_found_has_a_dash_for_a_rank():
    """Cut at 100, a first hit further down is none."""
    labels = np.array(["a", "a", *("b" for _ in range(150))])
    near, far = torch.tensor([1.0, 0.0, 0.1]), torch.tensor([-1.0, 0.0, 0.1])
    values = torch.tensor([0.5, 1.0, 0.0]) + 0.01 * torch.randn(
        152, 3, generator=torch.Generator().manual_seed(0)
    )
    asks = np.arange(152) == 0
    columns = {"is_query": asks, "is_gallery": ~asks}

    def file(place):
        rows = torch.cat([place[None], near[None], values[2:]])
        return nb.Vectors([f"{i}" for i in range(152)], rows, labels, columns=columns)

    part = queries_section(look(file(near), file(far), protocol="gldv2"), show_ids)
    (row,) = part.tables[1].rows
    assert row[1:3] == ["-100.0", "–"]


def test_where_nothing_changes_no_query_is_listed(pages):
    assert len(section(pages["undecided"], "Query by query").tables) == 1


# How items are shown


def test_items_are_shown_as_pictures(findings):
    asked = []

    def show(ids):
        asked.extend(ids)
        return {item: thumbnail(Image.new("RGB", (8, 8))) for item in ids}

    table = queries_section(findings["not compatible"], show).tables[1]
    one = findings["not compatible"].lost[0]
    row = rows(table)[0]
    assert table.columns[:2] == ["query", "id"]
    assert row["id"] == one.query
    (picture,) = row["query"]
    assert (picture.says, picture.right) == (one.query, None)
    assert [picture.says for picture in row["found before"]] == one.top_before[:FOUND]
    assert [picture.right for picture in row["found after"]] == one.right_after[:FOUND]
    assert all(isinstance(picture, Picture) for picture in row["found after"])
    assert len(asked) == len(set(asked)) <= 2 * QUERIES * (1 + 2 * FOUND)


def test_items_are_shown_as_texts_and_the_rest_by_their_ids(findings):
    one = findings["not compatible"].lost[0]
    texts = {one.query: "a blue  cup", one.top_after[0]: "a green cup"}
    row = rows(queries_section(findings["not compatible"], lambda ids: texts).tables[1])[0]
    assert row["query"] == "a blue cup"
    assert row["id"] == one.query
    first, *others = row["found after"].split("\n")
    assert first[2:] == "a green cup"
    assert [other[2:] for other in others] == one.top_after[1:FOUND]


# Slices


def test_classes_stand_the_worst_first(findings, pages):
    slices = findings["not compatible"].slices["label"]
    part = section(pages["not compatible"], "Class by class")
    (table,) = part.tables
    assert f"the {SHOWN} worst of {CLASSES};" in part.text
    assert "The smallest has 6 queries" in part.text
    assert len(table.rows) == SHOWN
    for row, one in zip(rows(table), slices[:SHOWN], strict=True):
        assert row == {
            "class": one.value,
            "queries": "6",
            "old/old": f"{100 * one.old_old:.1f}",
            "new/old": f"{100 * one.new_old:.1f}",
            "difference (95 %)": f"{100 * one.difference.mean:+.1f}",
            "lose": percent(one.lost, 0),
            "gain": percent(one.won, 0),
        }


def test_other_columns_have_a_section_each(findings, pages):
    part = section(pages["not compatible"], "By light")
    (table,) = part.tables
    slices = compare(findings["not compatible"].evaluation).slices("light")
    assert [row["light"] for row in rows(table)] == [one.value for one in slices]
    assert [row["difference (95 %)"] for row in rows(table)] == [
        points(one.difference, 1) for one in slices
    ]
    assert "worst of" not in part.text
    assert f"The smallest has {min(one.queries for one in slices)} queries" in part.text


def test_a_column_without_slices_large_enough_has_no_section():
    each = np.array([f"{i}" for i in range(60)])  # one query each, and two are wanted
    files = [vectors(seed, 1.0, labels=LABELS[:60], own=each) for seed in (1, 2)]
    assert [one.title for one in slice_sections(look(*files))] == ["Class by class", "By light"]


# Classes, scores, spaces


def test_confused_classes_stand_with_their_shares(findings, pages):
    (table,) = section(pages["compatible"], "Classes that the old space cannot tell apart").tables
    confused = findings["compatible"].confused
    assert len(table.rows) == len(confused) == 20
    for row, one in zip(table.rows, confused, strict=True):
        assert list(row) == [
            one.one,
            one.other,
            f"{one.old_cosine:.3f}",
            f"{one.new_cosine:.3f}",
            "12",
            percent(one.old_old, 0),
            percent(one.new_old, 0),
            percent(one.new_new, 0),
        ]


def test_thresholds_stand_with_what_happens_if_nobody_moves_them(findings, pages):
    part = section(pages["not compatible"], "Scores and thresholds")
    (table,), (figure,) = part.tables, part.figures
    found = findings["not compatible"].similarities
    expected = [
        [
            {"independent": "independent"}.get(one.pair, one.pair.replace("_", "/")),
            percent(own.false_accept, 2),
            f"{own.value:.4f}",
            percent(own.true_accept),
            percent(kept.false_accept, 2),
            percent(kept.true_accept),
        ]
        for one in found
        for own, kept in zip(one.thresholds, one.kept, strict=True)
    ]
    assert [list(row) for row in table.rows] == expected
    assert len(expected) == 8
    for one in found:
        assert f"mean cosine {one.mean_same:.3f} within a class" in figure.says
        assert f"{one.mean_different:.3f} between classes" in figure.says


def test_each_space_has_a_row(findings, pages):
    part = section(pages["compatible"], "The spaces")
    found = findings["compatible"]
    alignment = {one.pair: one.alignment for one in found.similarities}
    own = {"old": "old_old", "new": "new_new", "independent": "independent"}
    assert [list(row) for row in part.tables[0].rows] == [
        [
            name,
            f"{space.spread:.4f}",
            f"{space.spread_centred:.4f}",
            f"{alignment[own[name]]:.3f}",
            f"{space.uniformity:.3f}",
        ]
        for name, space in found.spaces.items()
    ]
    (figure,) = part.figures
    assert "PCA" in figure.title
    assert all(name in figure.says and name in figure.svg for name in found.map.names)


# What the charts are given


def given(monkeypatch, name):
    """Collects what a chart is told to draw."""
    calls = []

    def draw(*values, **more):
        calls.append((*values, more))
        return "<svg></svg>"

    monkeypatch.setattr(f"nobackfill.report.pages.upgrade.{name}", draw)
    return calls


def test_differences_are_drawn_in_points_from_end_to_end(findings, monkeypatch):
    calls = given(monkeypatch, "intervals")
    evaluation = findings["compatible"].evaluation
    assert numbers_section(findings["compatible"]).figures[0].svg
    ((drawn, _),) = calls
    assert list(drawn.values()) == [
        (100 * one.mean, 100 * one.low, 100 * one.high) for one in evaluation.differences.values()
    ]


def test_ends_that_are_not_known_are_no_numbers(monkeypatch):
    calls = given(monkeypatch, "intervals")
    few = np.array([f"class {i % 5}" for i in range(40)])
    part = numbers_section(look(*(vectors(seed, 0.9, labels=few) for seed in (1, 2))))
    assert part.figures[0].svg
    ((drawn, _),) = calls
    assert all(np.isnan(ends).all() and np.isfinite(mean) for mean, *ends in drawn.values())


def test_scores_are_drawn_with_both_thresholds_the_own_one_first(findings, monkeypatch):
    calls = given(monkeypatch, "score_curves")
    found = findings["not compatible"]
    assert scores_section(found)[0].figures[0].svg
    ((panels, marks, _),) = calls
    for title, one in zip(panels, found.similarities, strict=True):
        assert panels[title] == (one.edges, one.same, one.different)
        assert marks[title] == (one.thresholds[0].value, found.similarities[0].thresholds[0].value)


def test_the_map_is_drawn_as_it_was_found(findings, monkeypatch):
    calls = given(monkeypatch, "queries_on_gallery")
    found = findings["compatible"]
    assert spaces_section(found)[0].figures[0].svg
    assert calls == [(found.map.points, found.map.classes, found.map.names, {})]


# What is not there


def test_without_a_new_gallery_dashes_stand_for_it():
    asks = np.arange(COUNT) < 60
    old, new = (vectors(seed, 1.0, is_query=asks, is_gallery=~asks) for seed in (1, 2))
    page = upgrade_page(look(old, new.select(asks)))
    pairs = [row[0] for row in section(page, "The numbers").tables[0].rows]
    assert pairs == ["old/old", "new/old"]
    confused = section(page, "Classes that the old space cannot tell apart").tables[0]
    assert {(row["new"], row["new/new"]) for row in rows(confused)} == {("–", "–")}
    assert [row[0] for row in section(page, "The spaces").tables[0].rows] == ["old"]
    assert any("new/new" in what for what in page.not_measured)


def test_lists_instead_of_classes_leave_out_what_needs_classes():
    truth = GroundTruth({f"item {i}": [f"item {i + 30}"] for i in range(30)})
    page = upgrade_page(look(OLD, NEW["compatible"], ground_truth=truth))
    titles = [one.title for one in page.sections]
    assert "Classes that the old space cannot tell apart" not in titles
    assert "The spaces" not in titles
    assert "Scores and thresholds" in titles
    render_html(page)


def test_where_nobody_is_a_stranger_scores_are_left_out():
    labels = np.array(["a", "a", "b", "b"])
    truth = GroundTruth({f"item {i}": [f"item {j}" for j in range(4)] for i in range(4)})
    files = [vectors(seed, 1.0, labels=labels) for seed in (1, 2)]
    page = upgrade_page(look(*files, ground_truth=truth))
    assert "Scores and thresholds" not in [one.title for one in page.sections]
    assert any("scores and thresholds" in what for what in page.not_measured)


@pytest.mark.parametrize("stored", [1, 4])
def test_of_a_single_class_dashes_stand_for_what_needs_two(stored):
    labels = np.array(["a", "b", *"a" * stored])
    asks = np.arange(len(labels)) < 2
    old, new = (
        vectors(seed, 0.9, labels=labels, is_query=asks, is_gallery=~asks) for seed in (1, 2)
    )
    page = upgrade_page(look(old, new))
    assert {row["in order"] for row in rows(section(page, "The numbers").tables[0])} == {"–"}
    assert {row["spread"] for row in rows(section(page, "The spaces").tables[0])} == {"–"}
    cells = [
        cell
        for part in page.sections
        for table in part.tables
        for row in table.rows
        for cell in row
    ]
    assert not [cell for cell in cells if "nan" in cell]


# The page as a whole


def test_says_what_it_was_made_of_and_what_was_not_measured(findings, pages):
    found = findings["compatible"]
    tests = {"other": found.evaluation.summary()}
    page = upgrade_page(found, title="Shall we?", tests=tests, made_of={"old space": "a1b2"})
    assert page.title == "Shall we?"
    assert [one.title for one in page.sections if one not in pages["compatible"].sections] == [
        "Other tests"
    ]
    assert page.made_of == {
        "queries": "180",
        "gallery": "180 items",
        "protocol": "plain",
        "searched": found.evaluation.plan.fingerprint,
        "old space": "a1b2",
    }
    assert page.caveats == [*found.not_measured, *found.evaluation.notes]
    assert any("do not declare the model that made them" in note for note in page.notes)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_it_is_a_page_for_browsers_and_a_text_for_others(pages, verdict):
    page = pages[verdict]
    html, markdown = render_html(page), render_markdown(page)
    for part in page.sections:
        assert part.title in html
        assert part.title in markdown
    for text in (html, markdown):
        assert page.summary[1] in text
        assert verdict in text


def test_the_same_findings_make_the_same_page(findings, pages):
    assert render_html(upgrade_page(findings["compatible"])) == render_html(pages["compatible"])
