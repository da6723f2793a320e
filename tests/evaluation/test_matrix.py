"""The compatibility matrix against slow loops, the paper's tables, and `evaluate`."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

import nobackfill as nb
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.evaluation.matrix import compatibility_matrix, mean_average_precision
from nobackfill.evaluation.protocols import PROTOCOLS
from nobackfill.evaluation.search_plan import plan_search
from nobackfill.vectors.space import Space

CLASSES, PER_CLASS = 6, 6
NUMBER = CLASSES * PER_CLASS
LABELS = np.arange(NUMBER) % CLASSES
CAMERA = np.arange(NUMBER) // CLASSES % 3
ASKS = np.arange(NUMBER) < 2 * CLASSES
IDS = [f"item-{place:02}" for place in range(NUMBER)]


def vectors(seed, noise, *, dim=8, axes_seed=0, **more):
    """Items around class centres, in float64; longer ones begin in the same space."""
    generator = torch.Generator().manual_seed(axes_seed)
    centre = torch.randn(20, CLASSES, generator=generator, dtype=torch.float64)[:dim].T
    noises = torch.Generator().manual_seed(seed)
    drawn = torch.randn(NUMBER, 20, generator=noises, dtype=torch.float64)[:, :dim]
    columns = {"is_query": ASKS, "is_gallery": ~ASKS, "camera": CAMERA}
    return nb.Vectors(
        IDS,
        centre[torch.from_numpy(LABELS)] + noise * drawn,
        LABELS,
        columns={**columns, **more.pop("columns", {})},
        **more,
    )


THREE = {"old": vectors(1, 2.0), "middle": vectors(2, 1.2), "new": vectors(3, 0.7)}
FREE = {"middle": vectors(4, 1.0, axes_seed=7), "new": vectors(5, 0.5, axes_seed=8, dim=12)}


def average_precision(score, is_relevant):
    """Of one ranking, by a loop from the best on."""
    found, total = 0, 0.0
    for seen, place in enumerate(sorted(range(len(score)), key=lambda p: -score[p]), start=1):
        if is_relevant[place]:
            found += 1
            total += found / seen
    return total / found


def by_hand(query, gallery, *, truth=None, cameras=False, everyone=False):
    """MAP of one file's queries on another's gallery: one pair of items at a time, in float64."""
    values, everything = [], range(NUMBER)
    asking, stored = query.vectors.numpy()[:, : gallery.dim], gallery.vectors.numpy()
    for q in everything if everyone else np.flatnonzero(ASKS):
        score, is_relevant = [], []
        for g in everything if everyone else np.flatnonzero(~ASKS):
            same = LABELS[q] == LABELS[g]
            if q == g or (cameras and same and CAMERA[q] == CAMERA[g]):
                continue
            if truth is not None:
                if IDS[g] in truth.ignored.get(IDS[q], ()):
                    continue
                same = IDS[g] in truth.relevant.get(IDS[q], ())
            lengths = np.linalg.norm(asking[q]) * np.linalg.norm(stored[g])
            score.append(asking[q] @ stored[g] / lengths)
            is_relevant.append(same)
        if any(is_relevant):
            values.append(average_precision(score, is_relevant))
            assert values[-1] == pytest.approx(average_precision_score(is_relevant, score))
    return np.mean(values)


def assert_is(matrix, models, **how):
    """Every entry that can be measured is that of the loops, and no two are the same."""
    for i, query in enumerate(models.values()):
        for j, gallery in enumerate(models.values()):
            if query.dim < gallery.dim:
                assert matrix.map[i][j] is None
            else:
                assert matrix.map[i][j] == pytest.approx(by_hand(query, gallery, **how))
    entries = [value for row in matrix.map for value in row if value is not None]
    assert len({round(value, 9) for value in entries}) == len(entries)


# The loop: is it the formula?


def test_rows_ask_and_columns_are_searched():
    matrix = compatibility_matrix(THREE)
    assert matrix.names == ["old", "middle", "new"]
    assert_is(matrix, THREE)
    assert (matrix.num_queries, matrix.num_gallery) == (12, 24)
    assert matrix.protocol == "plain"
    assert matrix.notes == ()


def test_the_order_of_the_models_is_that_of_rows_and_columns():
    turned = dict(reversed(THREE.items()))
    assert_is(compatibility_matrix(turned), turned)


def test_items_of_one_camera_and_label_are_passed_over():
    matrix = compatibility_matrix(THREE, protocol="market1501")
    assert_is(matrix, THREE, cameras=True)
    assert matrix.map != compatibility_matrix(THREE).map
    assert matrix.protocol == "market1501"


def test_every_item_asks_all_others():
    matrix = compatibility_matrix(THREE, protocol="leave-one-out")
    assert_is(matrix, THREE, everyone=True)
    assert (matrix.num_queries, matrix.num_gallery) == (NUMBER, NUMBER)


@pytest.mark.parametrize("protocol", ["gldv2", "roxford_rparis", "inshop"])
def test_other_protocols_are_those_of_evaluate(protocol, monkeypatch):
    if protocol == "gldv2":
        monkeypatch.setitem(PROTOCOLS, "gldv2", PROTOCOLS["gldv2"].__class__("cut", at=3))
    matrix = compatibility_matrix(THREE, protocol=protocol)
    for i, new in enumerate(THREE.values()):
        for j, old in enumerate(THREE.values()):
            expected = nb.evaluate(old, new, protocol=protocol).summary()
            assert matrix.map[i][j] == pytest.approx(expected["new_old"])
            assert matrix.map[j][j] == pytest.approx(expected["old_old"])


def test_lists_say_what_is_found():
    generator = np.random.default_rng(0)
    stored = np.array(IDS)[~ASKS]
    truth = GroundTruth(
        {one: generator.choice(stored, 5, replace=False).tolist() for one in IDS[:11]},
        {one: generator.choice(stored, 4, replace=False).tolist() for one in IDS[1:12]},
    )
    unlabelled = {
        name: nb.Vectors(one.ids, one.vectors, columns=one.columns) for name, one in THREE.items()
    }
    matrix = compatibility_matrix(unlabelled, ground_truth=truth)
    assert_is(matrix, THREE, truth=truth)
    with pytest.raises(DataError, match="of query 'item-00' 1 items are not.*'nowhere'"):
        compatibility_matrix(THREE, ground_truth=GroundTruth({IDS[0]: ["nowhere"]}))


def test_longer_queries_are_compared_by_their_first_dimensions():
    models = {"a": vectors(1, 2.0), "b": vectors(2, 1.2, dim=12), "c": vectors(3, 0.7, dim=20)}
    matrix = compatibility_matrix(models)
    assert_is(matrix, models)
    assert [[value is None for value in row] for row in matrix.map] == [
        [False, True, True],
        [False, False, True],
        [False, False, False],
    ]
    lower = [row[: i + 1] for i, row in enumerate(matrix.map)]
    assert (matrix.ac, matrix.am) == (nb.compatibility(lower).ac, nb.compatibility(lower).am)
    (note,) = matrix.notes
    assert (
        "(`a` 8, `b` 12, `c` 20): queries with more dimensions are compared by their first ones"
        in note
    )


def test_shorter_queries_are_not_compared():
    models = {"a": vectors(1, 2.0), "b": vectors(2, 1.2, dim=5), "c": vectors(3, 0.7)}
    matrix = compatibility_matrix(models, independent={"b": FREE["middle"], "c": FREE["new"]})
    assert_is(matrix, models)
    assert matrix.map[1][0] is None
    assert matrix.map[1][2] is None
    assert matrix.ac is None
    assert matrix.am is None
    assert (
        "no AC and AM: 1 of the entries below the diagonal cannot be measured, the first being "
        "queries by `b` on the gallery of `a`"
    ) in matrix.notes
    a_to_b, a_to_c, b_to_c = matrix.upgrades
    assert a_to_b.new_old is None
    assert a_to_b.p_scores[0].scores is None
    assert a_to_b.p_scores[0].reason == "new/old was not measured"
    assert a_to_c.new_old == matrix.map[2][0]
    assert b_to_c.new_old == matrix.map[2][1]
    plan = plan_search(models, PROTOCOLS["plain"])
    with pytest.raises(SpaceMismatch, match="at least the gallery's 8 dimensions.*have 5"):
        mean_average_precision(plan, PROTOCOLS["plain"], models["b"], models["a"])


# AC, AM and P-scores

PAPER = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "paper_rows.jsonl").read_text().splitlines()
]
TESTS = ("RParis", "ROxford", "GLDv2-test")


def papers_matrices(method):
    """The paper's sequence of upgrades, phi_1 to phi_2 to phi_3, as a matrix for each test set."""
    rows = {row["setting"]: row for row in PAPER if row["method"] == method}
    first, third = rows["phi_1→phi_3"], rows["phi_2→phi_3"]
    second = rows.get("phi_1→phi_2", rows["Data-Extension (9%->30%)"])
    for test in range(len(TESTS)):
        yield nb.CompatibilityMatrix(
            ["phi_1", "phi_2", "phi_3"],
            [
                [first["old_old"][test] / 100, 0.9, 0.9],  # nothing above the diagonal is counted
                [second["new_old"][test] / 100, second["new_new"][test] / 100, 0.9],
                [row["new_old"][test] / 100 for row in (first, third)]
                + [first["new_new"][test] / 100],
            ],
            independent={
                "phi_2": third["old_old"][test] / 100,
                "phi_3": third["independent"][test] / 100,
            },
        )


@pytest.mark.parametrize(
    ("method", "ac", "am"),
    [("BCT", 1, 0.437), ("AdvBCT", 1, 0.445), ("NDPP", 2 / 3, 0.456), ("ODPP", 1, 0.458)],
)
def test_ac_and_am_of_the_papers_sequence(method, ac, am):
    every = [matrix.map for matrix in papers_matrices(method)]
    mean = nb.CompatibilityMatrix(["phi_1", "phi_2", "phi_3"], np.mean(every, axis=0).tolist())
    assert mean.ac == pytest.approx(ac)
    assert mean.am == pytest.approx(am, abs=5e-4)


@pytest.mark.parametrize("method", ["BCT", "NDPP"])
def test_p_scores_of_the_papers_sequence(method):
    """From phi_2 to phi_3 the paper takes the independent phi_2 for M(o,o), not the method's."""
    printed = {r["setting"]: r["printed"] for r in PAPER if r["method"] == method}
    upgrades = [matrix.upgrades for matrix in papers_matrices(method)]
    for place, reading, setting in ((1, 0, "phi_1→phi_3"), (2, 1, "phi_2→phi_3")):
        found = [one[place].p_scores[reading] for one in upgrades]
        mean = [
            np.mean([getattr(one.scores, kind) for one in found]) for kind in ("up", "comp", "one")
        ]
        assert mean == pytest.approx(printed[setting], abs=0.011)
    own, papers = upgrades[0][2].p_scores
    assert (own.old_old_of, own.independent_of) == ("phi_2", "independent phi_3")
    assert (papers.old_old_of, papers.independent_of) == ("independent phi_2", "independent phi_3")
    assert own.scores.up == papers.scores.up
    assert own.scores.comp != pytest.approx(papers.scores.comp, abs=0.1)


def test_ac_and_am_read_the_lower_triangle_alone():
    matrix = nb.CompatibilityMatrix(
        ["a", "b", "c"], [[0.5, None, 0.9], [0.6, 0.7, None], [0.4, 0.7, 0.8]]
    )
    assert (matrix.ac, matrix.am) == pytest.approx((1 / 3, 3.7 / 6))  # a tie is not compatible
    small = compatibility_matrix(THREE)
    triangle = [row[: i + 1] for i, row in enumerate(small.map)]
    assert small.ac == nb.compatibility(triangle).ac
    assert small.am == pytest.approx(np.mean(sum(triangle, [])))


def test_every_upgrade_has_its_three_numbers():
    matrix = compatibility_matrix(THREE, independent=FREE)
    m = matrix.map
    found = [(u.old, u.new, u.old_old, u.new_old, u.new_new) for u in matrix.upgrades]
    assert found == [
        ("old", "middle", m[0][0], m[1][0], m[1][1]),
        ("old", "new", m[0][0], m[2][0], m[2][2]),
        ("middle", "new", m[1][1], m[2][1], m[2][2]),
    ]
    for name, file in FREE.items():
        assert matrix.independent[name] == pytest.approx(by_hand(file, file))
    assert [upgrade.independent for upgrade in matrix.upgrades] == [
        matrix.independent[name] for name in ("middle", "new", "new")
    ]


def test_p_scores_say_what_entered():
    matrix = compatibility_matrix(THREE, independent=FREE)
    m, free = matrix.map, matrix.independent
    first, over_two, second = matrix.upgrades
    for upgrade, (i, j) in ((first, (1, 0)), (over_two, (2, 0)), (second, (2, 1))):
        own = upgrade.p_scores[0]
        assert own.scores == nb.p_scores(m[i][i], m[i][j], m[j][j], free[upgrade.new])
        assert (own.old_old_of, own.old_old) == (upgrade.old, m[j][j])
        assert own.independent_of == f"independent {upgrade.new}"
        assert own.independent == free[upgrade.new]
    assert [len(upgrade.p_scores) for upgrade in matrix.upgrades] == [1, 1, 2]
    other = second.p_scores[1]
    assert other.scores == nb.p_scores(m[2][2], m[2][1], free["middle"], free["new"])
    assert (other.old_old_of, other.old_old) == ("independent middle", free["middle"])


def test_an_independent_model_for_one_of_several():
    matrix = compatibility_matrix(THREE, independent={"middle": FREE["middle"]})
    first, over_two, second = matrix.upgrades
    assert first.p_scores[0].scores is not None
    assert first.p_scores[0].reason is None
    for upgrade in (over_two, second):
        assert upgrade.independent is None
        (none,) = upgrade.p_scores
        assert none.scores is None
        assert none.reason == "no independent model is given for `new`"
        assert (none.old_old_of, none.independent_of) == (upgrade.old, None)
    assert matrix.map == compatibility_matrix(THREE).map


def test_without_a_gain_there_are_no_p_scores_but_a_reason():
    matrix = compatibility_matrix(
        {"good": THREE["new"], "worse": THREE["middle"]}, independent={"worse": THREE["old"]}
    )
    (scores,) = matrix.upgrades[0].p_scores
    assert scores.scores is None
    assert "there is no gain" in scores.reason
    assert (scores.old_old_of, scores.independent_of) == ("good", "independent worse")


# Which items


def test_what_a_file_lacks_is_an_error_or_left_out():
    fewer = {**THREE, "middle": THREE["middle"].select(np.arange(4, NUMBER))}
    with pytest.raises(
        DataError, match=r"`middle` lacks 4 queries \('item-00', 'item-01', 'item-02', …\)\. "
    ):
        compatibility_matrix(fewer)
    alone = {"new": FREE["new"].select(np.arange(NUMBER - 1))}
    with pytest.raises(DataError, match=r"`independent new` lacks 1 gallery items \('item-35'\)"):
        compatibility_matrix(THREE, independent=alone)
    found = compatibility_matrix(fewer, independent=alone, intersect=True)
    kept = np.arange(4, NUMBER - 1)
    expected = compatibility_matrix(
        {name: file.select(kept) for name, file in THREE.items()},
        independent={"new": FREE["new"].select(kept)},
    )
    assert found.map == expected.map
    assert found.upgrades == expected.upgrades
    assert (found.num_queries, found.num_gallery) == (8, 23)
    assert [note.split(" lacks")[0] for note in found.notes] == [
        "left out: `middle`", "left out: `independent new`",
    ]  # fmt: skip


def test_rows_are_found_by_id_whatever_their_order():
    order = np.random.default_rng(0).permutation(NUMBER)
    shuffled = {**THREE, "middle": THREE["middle"].select(order)}
    assert compatibility_matrix(shuffled).map == compatibility_matrix(THREE).map


def test_something_must_be_there_to_be_found():
    apart = np.where(ASKS, LABELS, LABELS + 100)
    models = {
        name: nb.Vectors(one.ids, one.vectors, apart, columns=one.columns)
        for name, one in THREE.items()
    }
    with pytest.raises(DataError, match="something to find"):
        compatibility_matrix(models)


# What else is told


def test_methods_that_map_queries_are_told_of():
    mapped = vectors(3, 0.7, space=Space(dim=8, weights="c", method="rm"))
    (note,) = compatibility_matrix({**THREE, "new": mapped}).notes
    assert "the method rm of `new` maps its queries" in note


def test_models_in_the_wrong_order_are_told_of():
    space = Space(dim=8, weights="a")
    old = vectors(1, 2.0, space=space)
    new = vectors(3, 0.7, space=Space(dim=8, weights="b", parent=space.fingerprint))
    assert compatibility_matrix({"old": old, "new": new}).notes == ()
    (note,) = compatibility_matrix({"new": new, "old": old}).notes
    assert note.startswith("`new` was made compatible with `old`, which comes after it")


def test_programs_get_all_of_it_and_the_same_twice():
    texts = {
        json.dumps(compatibility_matrix(THREE, independent=FREE).summary(), allow_nan=False)
        for _ in range(2)
    }
    (text,) = texts
    summary, matrix = json.loads(text), compatibility_matrix(THREE, independent=FREE)
    assert list(summary) == [
        "names", "map", "ac", "am", "independent", "upgrades",
        "protocol", "num_queries", "num_gallery", "notes",
    ]  # fmt: skip
    assert summary["map"] == matrix.map
    assert summary["ac"] == matrix.ac
    last = summary["upgrades"][2]
    assert list(last) == [
        "old", "new", "old_old", "new_old", "new_new", "independent", "p_scores",
    ]  # fmt: skip
    scores = matrix.upgrades[2].p_scores[1]
    assert last["p_scores"][1] == {
        "p_up": scores.scores.up,
        "p_comp": scores.scores.comp,
        "p_1": scores.scores.one,
        "old_old": matrix.independent["middle"],
        "old_old_of": "independent middle",
        "independent": matrix.independent["new"],
        "independent_of": "independent new",
        "reason": None,
    }


def test_what_was_not_measured_is_none_for_programs():
    models = {"a": vectors(1, 2.0), "b": vectors(2, 1.2, dim=5)}
    summary = compatibility_matrix(models).summary()
    assert summary["map"][1][0] is summary["ac"] is summary["am"] is None
    (upgrade,) = summary["upgrades"]
    assert upgrade["new_old"] is upgrade["independent"] is None
    assert upgrade["p_scores"][0]["p_1"] is upgrade["p_scores"][0]["independent_of"] is None


@pytest.mark.parametrize(
    ("models", "options", "says"),
    [
        ({}, {}, "at least two models, the oldest first, but got 0"),
        ({"a": THREE["old"]}, {}, "but got 1"),
        ({"a": THREE["old"], "": THREE["new"]}, {}, "a name of its own"),
        (THREE, {"independent": {"neu": FREE["new"]}}, "unknown model `neu`. Did you mean `new`"),
        (THREE, {"protocol": "market"}, "unknown protocol `market`. Did you mean `market1501`"),
    ],
)
def test_what_makes_no_sense_is_refused(models, options, says):
    with pytest.raises(ConfigError, match=says):
        compatibility_matrix(models, **options)
