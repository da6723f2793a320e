import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.evaluation.evaluate import evaluate
from nobackfill.evaluation.file_columns import labelled_by
from nobackfill.vectors.space import Space

CLASSES, PER_CLASS, DIM = 6, 5, 8


@pytest.fixture(autouse=True)
def few_classes_are_enough(monkeypatch):
    """These tests are not about how sure a result is; tests/test_verdict.py is."""
    for module in ("bootstrap", "result"):
        monkeypatch.setattr(f"nobackfill.evaluation.{module}.FEWEST_GROUPS", 3)


def labels():
    return np.arange(CLASSES * PER_CLASS) % CLASSES


def vectors(seed, noise, *, dim=DIM, axes_seed=0, **more):
    """Items around class centres; the same `axes_seed` is the same space."""
    centre = torch.randn(CLASSES, dim, generator=torch.Generator().manual_seed(axes_seed))
    generator = torch.Generator().manual_seed(seed)
    values = centre[labels()] + noise * torch.randn(len(labels()), dim, generator=generator)
    first = np.arange(len(labels())) < CLASSES
    columns = {"is_query": first, "is_gallery": ~first}
    return nb.Vectors(
        [f"item-{i}" for i in range(len(labels()))],
        values,
        more.pop("labels", labels()),
        columns={**columns, **more.pop("columns", {})},
        **more,
    )


OLD, NEW = vectors(4, 1.5), vectors(2, 0.4)
STRANGER = vectors(3, 0.2, axes_seed=9)


def mean_ap(query, gallery):
    asks, searched = query.columns["is_query"], gallery.columns["is_gallery"]
    return nb.retrieval(
        query.vectors[torch.from_numpy(asks)],
        gallery.vectors[torch.from_numpy(searched)],
        query.labels[asks],
        gallery.labels[searched],
    ).mean_average_precision


def test_every_pair_is_query_by_gallery():
    result = evaluate(OLD, NEW, independent=STRANGER)
    assert result.old_old.mean_average_precision == mean_ap(OLD, OLD)
    assert result.new_old.mean_average_precision == mean_ap(NEW, OLD)
    assert result.new_new.mean_average_precision == mean_ap(NEW, NEW)
    assert result.independent.mean_average_precision == mean_ap(STRANGER, STRANGER)
    assert mean_ap(NEW, OLD) != mean_ap(OLD, NEW)


def test_compatible_is_strictly_better_than_today():
    assert evaluate(OLD, NEW).compatible
    assert not evaluate(OLD, STRANGER).compatible
    assert not evaluate(OLD, OLD).compatible


def test_the_summary_has_what_programs_rely_on():
    summary = evaluate(OLD, NEW, independent=NEW).summary()
    scores = nb.p_scores(
        summary["new_new"], summary["new_old"], summary["old_old"], summary["independent"]
    )
    assert (summary["p_up"], summary["p_comp"], summary["p_1"]) == (
        scores.up,
        scores.comp,
        scores.one,
    )
    assert summary["new_old_above_old_old"] is True
    assert (summary["compatible"], summary["verdict"]) == (None, "undecided")  # of six queries
    assert summary["num_queries"] == CLASSES


def test_without_a_gain_the_p_scores_are_left_out_and_nothing_breaks():
    result = evaluate(NEW, OLD, independent=OLD)
    assert any("no P-scores" in note and "no gain" in note for note in result.notes)
    summary = result.summary()
    assert summary["p_up"] is summary["p_comp"] is summary["p_1"] is None


def test_the_order_of_the_files_plays_no_part():
    order = np.random.default_rng(0).permutation(len(NEW))
    shuffled = evaluate(OLD, NEW.select(order))
    torch.testing.assert_close(
        shuffled.new_old.average_precision, evaluate(OLD, NEW).new_old.average_precision
    )


def test_without_a_new_gallery_new_new_is_not_measured():
    result = evaluate(OLD, NEW.select(NEW.columns["is_query"]))
    assert result.new_new is None
    assert result.summary()["new_new"] is None
    assert any("not measured" in note for note in result.notes)
    assert result.new_old.mean_average_precision == mean_ap(NEW, OLD)


def test_items_that_only_one_file_has_are_an_error_or_left_out():
    fewer = NEW.select(np.arange(1, len(NEW) - 1))  # lacks a query and a gallery item
    with pytest.raises(DataError, match="the new file lacks 1 queries .'item-0'"):
        evaluate(OLD, fewer)
    result = evaluate(OLD, fewer, intersect=True)
    both = [OLD.select(np.arange(1, len(OLD) - 1)), fewer]
    assert result.old_old.mean_average_precision == mean_ap(both[0], both[0])
    assert result.new_old.mean_average_precision == mean_ap(fewer, both[0])
    assert len(result.notes) >= 2
    with pytest.raises(DataError, match="the old file lacks 1 items that other files search"):
        evaluate(OLD.select(np.arange(1, len(OLD))), NEW)
    with pytest.raises(DataError, match="0 queries and"):
        evaluate(OLD, renamed(NEW), intersect=True)


def renamed(file):
    return nb.Vectors([f"x{i}" for i in file.ids], file.vectors, file.labels, columns=file.columns)


def plain(file, **columns):
    return nb.Vectors(file.ids, file.vectors, file.labels, columns=columns)


def test_without_roles_every_item_queries_all_others():
    result = evaluate(plain(OLD), plain(NEW))
    expected = nb.retrieval(
        NEW.vectors, OLD.vectors, NEW.labels, OLD.labels, exclude_self=True
    ).average_precision
    torch.testing.assert_close(result.new_old.average_precision, expected)
    by_name = evaluate(OLD, NEW, protocol="leave-one-out")
    torch.testing.assert_close(by_name.new_old.average_precision, expected)


def test_only_the_validation_split_takes_part():
    split = np.where(np.arange(len(OLD)) < 12, "train", "validation")
    result = evaluate(plain(OLD, split=split), plain(NEW, split=split))
    assert result.num_gallery == len(OLD) - 12


def test_one_role_without_the_other_is_an_error():
    with pytest.raises(DataError, match="neither file has `is_gallery`"):
        evaluate(plain(OLD, is_query=OLD.columns["is_query"]), plain(NEW))
    split = plain(OLD, is_query=OLD.columns["is_query"])
    other = plain(NEW, is_gallery=NEW.columns["is_gallery"])  # each file has one
    assert evaluate(split, other).summary()["new_old"] == evaluate(OLD, NEW).summary()["new_old"]


def test_one_class_is_no_search():
    one = np.zeros(len(OLD), dtype=int)
    with pytest.raises(DataError, match="at least two classes"):
        evaluate(vectors(4, 1.5, labels=one), vectors(2, 0.4, labels=one))


def test_an_item_in_both_roles_never_finds_itself():
    everyone = np.ones(len(OLD), dtype=bool)
    both = {"is_query": everyone, "is_gallery": everyone}
    result = evaluate(plain(OLD, **both), plain(NEW, **both))
    alone = evaluate(plain(OLD), plain(NEW))
    torch.testing.assert_close(result.old_old.average_precision, alone.old_old.average_precision)


def test_labels_may_stand_in_either_file_but_must_agree():
    unlabelled_old = nb.Vectors(OLD.ids, OLD.vectors, columns=OLD.columns)
    unlabelled_new = nb.Vectors(NEW.ids, NEW.vectors, columns=NEW.columns)
    expected = evaluate(OLD, NEW).summary()["new_old"]
    assert evaluate(unlabelled_old, NEW).summary()["new_old"] == expected
    assert evaluate(OLD, unlabelled_new).summary()["new_old"] == expected
    with pytest.raises(DataError, match="no file has a column `label`"):
        evaluate(unlabelled_old, unlabelled_new)
    with pytest.raises(DataError, match="30 items differ"):
        evaluate(OLD, vectors(2, 0.4, labels=labels() + 1))


def test_labels_may_be_words():
    words = np.array(["ant", "bee", "cat", "dog", "elk", "fox"])[labels()]
    result = evaluate(vectors(4, 1.5, labels=words), vectors(2, 0.4, labels=words))
    assert result.summary()["new_old"] == evaluate(OLD, NEW).summary()["new_old"]


def test_market1501_ignores_the_querys_label_in_its_own_camera():
    camera = np.arange(len(OLD)) // CLASSES % 2
    old, new = (vectors(*a, columns={"camera": camera}) for a in ((4, 1.5), (2, 0.4)))
    result = evaluate(old, new, protocol="market1501")
    asks, searched = OLD.columns["is_query"], OLD.columns["is_gallery"]
    expected = nb.retrieval(
        new.vectors[torch.from_numpy(asks)],
        old.vectors[torch.from_numpy(searched)],
        labels()[asks],
        labels()[searched],
        query_camera=camera[asks],
        gallery_camera=camera[searched],
    )
    torch.testing.assert_close(result.new_old.average_precision, expected.average_precision)
    assert (result.new_old.num_relevant < evaluate(OLD, NEW).new_old.num_relevant).all()
    with pytest.raises(DataError, match="column `camera`"):
        evaluate(OLD, NEW, protocol="market1501")


def test_gldv2_cuts_at_a_hundred():
    values = torch.randn(400, DIM, generator=torch.Generator().manual_seed(0))
    many = nb.Vectors(np.arange(400), values, np.arange(400) % 2)
    result = evaluate(many, many, protocol="gldv2")
    expected = nb.retrieval(values, values, many.labels, many.labels, exclude_self=True, at=100)
    assert result.protocol == "gldv2"
    assert torch.equal(result.new_old.average_precision, expected.average_precision)
    with pytest.raises(ConfigError, match="unknown protocol `gldv3`. Did you mean `gldv2`"):
        evaluate(OLD, NEW, protocol="gldv3")


def test_only_the_compatible_dimensions_meet_the_old_gallery():
    extra = torch.randn(len(NEW), 3, generator=torch.Generator().manual_seed(7)) * 5
    longer = nb.Vectors(
        NEW.ids,
        torch.cat([NEW.vectors, extra], dim=1),
        NEW.labels,
        columns=NEW.columns,
        compatible_dim=DIM,
    )
    result = evaluate(OLD, longer)
    assert result.new_old.mean_average_precision == mean_ap(NEW, OLD)
    assert result.new_new.mean_average_precision == mean_ap(longer, longer)


def test_query_vectors_may_be_others_than_gallery_vectors():
    result = evaluate(OLD, STRANGER, new_query=NEW)
    assert result.new_old.mean_average_precision == mean_ap(NEW, OLD)
    assert result.new_new.mean_average_precision == mean_ap(NEW, STRANGER)


def test_dimensions_must_fit():
    with pytest.raises(
        SpaceMismatch, match="8 dimensions of the old file, but they have 5"
    ) as wrong:
        evaluate(OLD, vectors(2, 0.4, dim=5))
    ways = ["`nobackfill fit`", "`embedding_dim = 8`", "--query-for-old"]
    places = [str(wrong.value).index(way) for way in ways]
    assert places == sorted(places)  # what needs no training comes first


def test_ids_must_be_of_one_kind():
    numbered = nb.Vectors(np.arange(len(NEW)), NEW.vectors, NEW.labels, columns=NEW.columns)
    with pytest.raises(DataError, match="ids of one kind"):
        evaluate(OLD, numbered)


def test_something_must_be_there_to_be_found():
    apart = np.where(OLD.columns["is_query"], labels(), labels() + 100)
    with pytest.raises(DataError, match="no gallery item has the label of any query"):
        evaluate(vectors(4, 1.5, labels=apart), vectors(2, 0.4, labels=apart))


def test_the_notes_tell_of_undeclared_and_of_other_spaces():
    assert any(
        "do not declare the model that made them" in note for note in evaluate(OLD, NEW).notes
    )
    old_space = Space(dim=DIM, weights="a")
    old = vectors(4, 1.5, space=old_space)
    child = vectors(2, 0.4, space=Space(dim=DIM, weights="b", parent=old_space.fingerprint))
    other = vectors(2, 0.4, space=Space(dim=DIM, weights="b", parent="0123456789abcdef"))
    assert evaluate(old, child).notes == ()
    assert any("another old space" in note for note in evaluate(old, other).notes)


def test_items_that_take_no_part_need_not_be_in_both_files():
    split = np.where(np.arange(len(OLD)) < 12, "train", "validation")
    searched = plain(OLD, split=split).select(split == "validation")
    assert evaluate(searched, plain(NEW, split=split)).notes[1:] == ()
    idle = {role: flag & (np.arange(len(NEW)) > 0) for role, flag in NEW.columns.items()}
    assert len(evaluate(OLD.select(np.arange(1, len(OLD))), plain(NEW, **idle)).query_ids) == 5


def test_a_map_for_the_old_gallery_serves_the_old_gallery_only():
    longer = vectors(3, 0.2, axes_seed=9, dim=12)  # its own space, in which it also is searched
    result = evaluate(OLD, longer, query_for_old=NEW)
    assert result.new_old.mean_average_precision == mean_ap(NEW, OLD)
    assert result.new_new.mean_average_precision == mean_ap(longer, longer)
    assert result.old_old.mean_average_precision == mean_ap(OLD, OLD)
    both = evaluate(OLD, longer, new_query=vectors(5, 0.9, axes_seed=9, dim=12), query_for_old=NEW)
    assert both.new_old.mean_average_precision == mean_ap(NEW, OLD)
    asks = vectors(5, 0.9, axes_seed=9, dim=12)
    assert both.new_new.mean_average_precision == mean_ap(asks, longer)


def test_a_mapped_query_may_be_longer_than_the_old_gallery():
    extra = torch.randn(len(NEW), 3, generator=torch.Generator().manual_seed(7)) * 5
    longer = nb.Vectors(
        NEW.ids,
        torch.cat([NEW.vectors, extra], dim=1),
        NEW.labels,
        columns=NEW.columns,
        compatible_dim=DIM,
    )
    result = evaluate(OLD, STRANGER, query_for_old=longer)
    assert result.new_old.mean_average_precision == mean_ap(NEW, OLD)


def test_mapped_queries_alone_do_not_measure_new_new():
    gallery = STRANGER.select(STRANGER.columns["is_gallery"])
    result = evaluate(OLD, gallery, query_for_old=NEW)
    assert result.new_new is None
    assert any("lacks queries" in note for note in result.notes)
    assert result.new_old.mean_average_precision == mean_ap(NEW, OLD)


def test_the_notes_are_about_the_vectors_that_ask_the_old_gallery():
    old_space = Space(dim=DIM, weights="a")
    old = vectors(4, 1.5, space=old_space)
    child = vectors(2, 0.4, space=Space(dim=DIM, weights="b", parent=old_space.fingerprint))
    other = vectors(2, 0.4, space=Space(dim=DIM, weights="b", parent="0123456789abcdef"))
    assert evaluate(old, other, query_for_old=child).notes == ()
    assert any("another old space" in n for n in evaluate(old, child, query_for_old=other).notes)
    free = vectors(2, 0.4, space=Space(dim=DIM, weights="d"))
    assert evaluate(old, free).notes == ()  # made compatible with nothing


def test_queries_that_were_not_mapped_are_told_of():
    of_rm = vectors(2, 0.4, space=Space(dim=DIM, weights="b", method="rm"))
    old = vectors(4, 1.5, space=Space(dim=DIM, weights="a"))
    assert any("--query-for-old" in note for note in evaluate(old, of_rm).notes)
    mapped = vectors(2, 0.4, space=Space(dim=DIM, weights="b", method="rm"))
    assert evaluate(old, of_rm, query_for_old=mapped).notes == ()
    foreign = vectors(2, 0.4, space=Space(dim=DIM, weights="c"))
    notes = evaluate(old, of_rm, query_for_old=foreign).notes
    assert any("another model than the new one" in note for note in notes)


# Collections that list what each query shall find, instead of labelling


def around(angles, ids=None, **more):
    """Vectors in the plane: a query at 0, and a gallery at angles from it, the nearest first."""
    angles = torch.tensor([0.0, *angles], dtype=torch.float64)
    ids = ids if ids is not None else ["q", *(f"g{place}" for place in range(len(angles) - 1))]
    asks = np.arange(len(angles)) == 0
    return nb.Vectors(
        ids,
        torch.stack([angles.cos(), angles.sin()], dim=1),
        columns={"is_query": asks, "is_gallery": ~asks},
        **more,
    )


FIVE = around([0.1, 0.2, 0.3, 0.4, 0.5])
BACKWARDS = around([0.5, 0.4, 0.3, 0.2, 0.1])


@pytest.mark.parametrize(
    ("relevant", "ignored", "trapezoid", "plain"),
    [
        ("g0 g1 g4", "", 0.85, 0.866667),
        ("g2", "", 0.166667, 0.333333),
        ("g1 g4", "g0 g2", 0.791667, 0.833333),  # junk, found, junk, wrong, found
        ("g0 g1 g2 g3 g4", "", 1.0, 1.0),
    ],
)
def test_listed_items_are_found_as_published(relevant, ignored, trapezoid, plain):
    truth = GroundTruth({"q": relevant.split()}, {"q": ignored.split()})
    for protocol, expected in (("roxford_rparis", trapezoid), ("plain", plain)):
        result = evaluate(FIVE, FIVE, protocol=protocol, ground_truth=truth)
        for pair in (result.old_old, result.new_old, result.new_new):
            assert pair.mean_average_precision == pytest.approx(expected, abs=1e-6)
        assert result.old_old.num_relevant.tolist() == [len(relevant.split())]


def test_each_pair_has_a_ranking_of_its_own():
    truth = GroundTruth({"q": ["g0"]})
    result = evaluate(BACKWARDS, FIVE, ground_truth=truth)  # old: the last of five; new: the first
    assert result.old_old.ranks.tolist() == result.new_old.ranks.tolist() == [5]
    assert result.new_new.ranks.tolist() == [1]


def trapezoid_by_hand(query, gallery, relevant, ignored):
    """Trapezoids under precision over recall, one gallery item at a time, from the best on."""
    score = {item: float(query @ vector) for item, vector in gallery.items()}
    seen = found = area = 0
    for item in sorted(score, key=score.get, reverse=True):
        if item in ignored:
            continue
        if item in relevant:
            before = found / seen if seen else 1.0
            found += 1
            area += (before + found / (seen + 1)) / 2
        seen += 1
    return area / found if found else float("nan")


@pytest.mark.parametrize("both_roles", [False, True])
def test_lists_are_counted_as_loops_count_them(both_roles):
    generator = np.random.default_rng(0)
    names = [f"item-{place}" for place in range(30)]
    old, new = (
        nb.Vectors(
            names,
            torch.nn.functional.normalize(torch.from_numpy(generator.normal(size=(30, 4)))),
            columns={
                "is_query": np.arange(30) < 8,
                "is_gallery": (np.arange(30) >= 8) | both_roles,
            },
        )
        for _ in range(2)
    )
    searched = [name for name, flag in zip(names, old.columns["is_gallery"], strict=True) if flag]
    truth = GroundTruth(
        {query: generator.choice(searched, 6, replace=False).tolist() for query in names[:7]},
        {query: generator.choice(searched, 5, replace=False).tolist() for query in names[1:8]},
    )
    if both_roles:
        truth.relevant[names[0]].append(names[0])  # itself, which is never found
    result = evaluate(old, new, protocol="roxford_rparis", ground_truth=truth)
    for pair, asks, holds in (
        (result.old_old, old, old),
        (result.new_old, new, old),
        (result.new_new, new, new),
    ):
        gallery = dict(zip(names, holds.vectors, strict=True))
        expected = [
            trapezoid_by_hand(
                asks.vectors[row],
                {name: gallery[name] for name in searched},
                set(truth.relevant.get(names[row], ())),
                {*truth.ignored.get(names[row], ()), names[row]},
            )
            for row in range(8)
        ]
        torch.testing.assert_close(
            pair.average_precision, torch.tensor(expected).double(), equal_nan=True
        )
        assert np.isnan(expected[7])  # has no list
        assert pair.mean_average_precision == pytest.approx(np.nanmean(expected))


def test_ignored_is_stronger_than_relevant_and_twice_is_once():
    truth = GroundTruth({"q": ["g0", "g1", "g1"]}, {"q": ["g0", "g0"]})
    result = evaluate(FIVE, FIVE, ground_truth=truth)
    assert result.old_old.num_relevant.tolist() == [1]
    assert result.old_old.ranks.tolist() == [1]


def test_where_lists_are_given_labels_play_no_part():
    truth = GroundTruth({"q": ["g1"]})
    one_class = around([0.1, 0.2, 0.3], labels=np.zeros(4, dtype=int))
    others = around([0.1, 0.2, 0.3], labels=np.array([0, 1, 1, 2]))
    assert evaluate(one_class, others, ground_truth=truth).old_old.ranks.tolist() == [2]


def test_what_is_listed_must_be_in_the_gallery():
    truth = GroundTruth({"q": ["g0", "g7", "g8"], "nobody": ["g9"]}, {"q": ["junk"]})
    with pytest.raises(DataError, match="of query 'q' 2 items are not, the first being 'g7'"):
        evaluate(FIVE, FIVE, ground_truth=truth)
    result = evaluate(FIVE, FIVE, ground_truth=truth, intersect=True)
    assert result.old_old.num_relevant.tolist() == [1]  # what is not there cannot be missed
    fine = GroundTruth({"q": ["g0"], "nobody": ["g9"]}, {"q": ["junk"], "nobody": ["g9"]})
    assert evaluate(FIVE, FIVE, ground_truth=fine).old_old.num_relevant.tolist() == [1]


def test_items_that_only_one_file_has_are_left_out_of_the_lists():
    truth = GroundTruth({"q": ["g0", "g2"]})
    fewer = FIVE.select(np.array([0, 1, 2, 4, 5]))  # lacks g2
    with pytest.raises(DataError, match="the new file lacks 1 gallery items .'g2'"):
        evaluate(FIVE, fewer, ground_truth=truth)
    result = evaluate(FIVE, fewer, ground_truth=truth, intersect=True)
    assert result.num_gallery == 4
    assert result.old_old.num_relevant.tolist() == [1]


def test_items_that_are_numbers_are_listed_as_text():
    numbered = around([0.1, 0.2, 0.3], ids=np.array([40, 7, 8, 9]))
    truth = GroundTruth({"40": ["8"]}, {"40": ["7"]})
    assert evaluate(numbered, numbered, ground_truth=truth).old_old.ranks.tolist() == [1]


@pytest.mark.parametrize(
    ("truth", "says"),
    [
        (GroundTruth({}), "nothing is in the gallery"),
        (GroundTruth({"q": []}), "nothing is in the gallery"),
        (GroundTruth({"q": ["g0"]}, {"q": ["g0"]}), "nothing is in the gallery and counts"),
        (GroundTruth({"q.jpg": ["g0"]}), "any of the 1: it names .* 'q.jpg', the files like 'q'"),
    ],
)
def test_lists_in_which_nothing_is_found_are_told_of(truth, says):
    with pytest.raises(DataError, match="queries that have something to find") as wrong:
        evaluate(FIVE, FIVE, ground_truth=truth)
    assert wrong.match(says)
    assert "label" not in str(wrong.value)


def test_queries_that_have_nothing_to_find_do_not_count():
    lists = {f"item-{query}": [f"item-{query + 6}"] for query in range(4)}
    result = evaluate(OLD, NEW, ground_truth=GroundTruth(lists))
    assert result.counted.tolist() == [True] * 4 + [False] * 2
    summary = result.summary()
    assert (summary["num_queries"], summary["num_asked"]) == (4, CLASSES)
    assert summary["differences"]["new_old - old_old"]["groups"] == 4
    assert not any("no intervals" in note for note in result.notes)


def test_classes_that_do_not_count_make_no_interval():
    lists = {f"item-{query}": [f"item-{query + 6}"] for query in range(2)}
    result = evaluate(OLD, NEW, ground_truth=GroundTruth(lists))
    assert any(note.startswith("no intervals: ") and "are of 2" in note for note in result.notes)


# Which column says what belongs together


def grouped(file, values, name="product", *, labelled=True):
    columns = {**file.columns, name: values}
    return nb.Vectors(file.ids, file.vectors, labels() if labelled else None, columns=columns)


def named(old, new):
    return {"the old file": old, "the new file": new}


@pytest.mark.parametrize("telling", [(True, True), (True, False), (False, True)])
def test_a_column_takes_the_place_of_labels(telling):
    pairs = labels() // 2
    files = [
        grouped(file, pairs) if tells else file
        for file, tells in zip((OLD, NEW), telling, strict=True)
    ]
    found = labelled_by("product", named(*files))
    assert [one.labels is not None for one in found] == list(telling)  # other labels are gone
    by_label = evaluate(vectors(4, 1.5, labels=pairs), vectors(2, 0.4, labels=pairs))
    summary, expected = evaluate(*found).summary(), by_label.summary()
    assert summary["new_old"] == expected["new_old"] != evaluate(OLD, NEW).summary()["new_old"]
    assert summary["searched"] == expected["searched"]


def test_rows_of_a_column_are_compared_by_id():
    new = grouped(NEW, labels() // 2).select(np.arange(len(NEW))[::-1])
    old, new = labelled_by("product", named(grouped(OLD, labels() // 2), new))
    assert new.labels.tolist() == old.labels[::-1].tolist()
    fewer = grouped(NEW, labels() // 2).select(np.arange(4, 20))
    assert len(labelled_by("product", named(old, fewer))[1]) == 16


@pytest.mark.parametrize(
    ("old", "new", "error", "says"),
    [
        (OLD, NEW, ConfigError, "no file has a column `product` to .* Known: label, is_q"),
        (grouped(OLD, labels(), "products"), NEW, ConfigError, "Did you mean `products`"),
        (FIVE.select([0]), NEW, ConfigError, "Known: is_query, is_gallery, label."),
        (nb.Vectors(["a"], torch.ones(1, 2)),) * 2 + (ConfigError, "Add it to either file"),
        (
            grouped(OLD, labels()), grouped(NEW, labels() + 1), DataError,
            "the same `product` in all files, but 30 items differ",
        ),
        (grouped(OLD, labels() / 2), NEW, DataError, "`product` must be text or whole numbers"),
    ],
)  # fmt: skip
def test_a_column_that_cannot_be_used_is_named(old, new, error, says):
    with pytest.raises(error, match=says):
        labelled_by("product", named(old, new))


# The same file twice


SAME = "the old and the new vectors of the queries are the same"


def told_the_same(old, new, **options):
    return any(note.startswith(SAME) for note in evaluate(old, new, **options).notes)


def test_the_same_vectors_twice_get_a_note():
    lengths = torch.linspace(1, 9, len(OLD))[:, None]
    longer = torch.cat([OLD.vectors, torch.ones(len(OLD), 2)], dim=1)
    known = {"columns": OLD.columns}
    assert told_the_same(OLD, OLD)
    assert told_the_same(OLD, nb.Vectors(OLD.ids, OLD.vectors.half(), OLD.labels, **known))
    assert told_the_same(OLD, nb.Vectors(OLD.ids, lengths * OLD.vectors, OLD.labels, **known))
    assert told_the_same(
        OLD, nb.Vectors(OLD.ids, longer, OLD.labels, **known, compatible_dim=OLD.dim)
    )
    assert told_the_same(OLD, OLD.select(np.random.default_rng(0).permutation(len(OLD))))
    assert told_the_same(OLD, NEW, query_for_old=OLD)


@pytest.mark.parametrize("query", [0, 3, CLASSES - 1])
def test_one_other_query_is_another_model(query):
    values = OLD.vectors.clone()
    values[query] += 0.01
    assert not told_the_same(OLD, nb.Vectors(OLD.ids, values, OLD.labels, columns=OLD.columns))
    assert not told_the_same(OLD, NEW)


def test_trapezoids_are_a_matter_of_the_protocol_not_of_lists():
    labelled = around([0.1, 0.2, 0.3], labels=np.array([1, 2, 2, 1]))
    result = evaluate(labelled, labelled, protocol="roxford_rparis")
    assert result.old_old.mean_average_precision == pytest.approx(1 / 6)
