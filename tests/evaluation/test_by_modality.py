"""Every direction and every gap against slow loops in float64."""

import math

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.errors import DataError, SpaceMismatch
from nobackfill.evaluation.by_modality import evaluate_modalities
from nobackfill.evaluation.evaluate import evaluate
from nobackfill.evaluation.modality_gap import modality_gap
from nobackfill.methods import METHODS
from nobackfill.vectors.space import Space

COUNT, CLASSES, DIM = 53, 9, 5
LABELS = np.random.default_rng(0).integers(0, CLASSES, COUNT)
KINDS = np.array(["image", "text", "text"])[np.random.default_rng(1).integers(0, 3, COUNT)]
CAMERA = np.random.default_rng(2).integers(0, 3, COUNT)
TWO = {(a, b) for a in ("image", "text") for b in ("image", "text")}


def vectors(seed, noise=1.0, *, labels=LABELS, kinds=KINDS, dim=DIM, space=None, **columns):
    """Items around their class and their modality, of very different lengths, in float64."""
    random, fixed = np.random.default_rng(seed), np.random.default_rng(9)
    number, kind = (np.unique(values, return_inverse=True)[1] for values in (labels, kinds))
    values = 2 * fixed.normal(size=(len(labels), dim))[number]
    values += fixed.normal(size=(9, dim))[kind] + noise * random.normal(size=(len(labels), dim))
    values *= random.uniform(0.1, 10, size=(len(labels), 1))
    ids = [f"item {i}" for i in range(len(labels))]
    return nb.Vectors(
        ids, values, labels, columns={"modality": kinds, **columns}, space=space
    )  # fmt: skip


OLD, NEW, FREE, MAPPED = vectors(1), vectors(2, 0.8), vectors(3, 0.4), vectors(4, 0.9)


def bare(file, **columns):
    return nb.Vectors(file.ids, file.vectors, file.labels, columns=columns)


def cosine(one, other):
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return dot / math.sqrt(sum(a * a for a in one) * sum(b * b for b in other))


def slow(asking, stored, asks, searched, *, labels=LABELS, kinds=KINDS, camera=None, at=None):
    """Average precisions and ranks of the first hit, one query and one gallery item at a time."""
    rows = [file.vectors.double().tolist() for file in (asking, stored)]
    precisions, first = [], []
    for i in np.flatnonzero(kinds == asks):
        gallery = [
            j
            for j in np.flatnonzero(kinds == searched)
            if j != i
            and not (camera is not None and labels[i] == labels[j] and camera[i] == camera[j])
        ]
        order = sorted(gallery, key=lambda j, i=i: -cosine(rows[0][i], rows[1][j]))
        ranks = [rank for rank, j in enumerate(order, 1) if labels[j] == labels[i]]
        if ranks:
            hits = [(n, rank) for n, rank in enumerate(ranks, 1) if at is None or rank <= at]
            best = len(ranks) if at is None else min(len(ranks), at)
            precisions.append(sum(n / rank for n, rank in hits) / best)
            first.append(ranks[0])
    return precisions, first


def slow_gap(one, other):
    """The formula of the docstring, one vector at a time."""
    centroids = []
    for vectors_of in (one, other):
        total = [0.0] * len(vectors_of[0])
        for vector in vectors_of.double().tolist():
            length = math.sqrt(sum(x * x for x in vector))
            total = [t + x / length for t, x in zip(total, vector, strict=True)]
        centroids.append([t / len(vectors_of) for t in total])
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(*centroids, strict=True)))


def of(file, kind, kinds=KINDS):
    return file.vectors[torch.from_numpy(np.flatnonzero(kinds == kind))]


# Directions


def test_every_direction_of_every_pair_is_its_loop():
    found = evaluate_modalities(OLD, NEW, query_for_old=MAPPED, independent=FREE)
    summary = found.summary()["directions"]
    assert set(found.directions) == {f"{a}_to_{b}" for a, b in TWO}
    pairs = {
        "old_old": (OLD, OLD),
        "new_old": (MAPPED, OLD),
        "old_new": (OLD, NEW),
        "new_new": (NEW, NEW),
        "independent": (FREE, FREE),
    }
    for asks, searched in TWO:
        one = summary[f"{asks}_to_{searched}"]
        assert one["num_asked"] == (asks == KINDS).sum()
        assert one["num_gallery"] == (searched == KINDS).sum()
        assert set(one["metrics"]) == set(pairs)
        for pair, files in pairs.items():
            precisions, first = slow(*files, asks, searched)
            assert one["num_queries"] == len(precisions)
            assert one[pair] == pytest.approx(np.mean(precisions))
            assert one["metrics"][pair]["map"] == one[pair]
            for k in (1, 5, 10):
                share = np.mean([rank <= k for rank in first])
                assert one["metrics"][pair][f"recall_at_{k}"] == pytest.approx(share)
            assert one["recall_at_1"][pair] == one["metrics"][pair]["recall_at_1"]


def test_directions_between_modalities_come_first():
    names = list(evaluate_modalities(OLD, NEW).directions)
    assert names == ["text_to_image", "image_to_text", "image_to_image", "text_to_text"]


def test_a_direction_is_what_evaluate_says_of_it():
    found = evaluate_modalities(OLD, NEW, independent=FREE, seed=3)
    alone = evaluate(OLD, NEW, independent=FREE, modalities=("text", "image"), seed=3)
    assert found.directions["text_to_image"].summary() == alone.summary()
    assert found.directions["text_to_image"].protocol == "plain"
    turned = evaluate(OLD, NEW, protocol="flickr8k", modalities=("image", "text"))
    assert turned.summary()["new_old"] == found.directions["image_to_text"].summary()["new_old"]


@pytest.mark.parametrize(
    ("protocol", "asks", "searched"),
    [
        ("flickr8k", "text", "image"),
        ("text_to_image", "text", "image"),
        ("image_to_text", "image", "text"),
    ],
)
def test_a_protocol_may_name_a_direction(protocol, asks, searched):
    result = evaluate(OLD, NEW, protocol=protocol).summary()
    assert result["protocol"] == protocol
    assert result["new_old"] == pytest.approx(np.mean(slow(NEW, OLD, asks, searched)[0]))


@pytest.mark.parametrize(
    ("protocol", "rules"), [("market1501", {"camera": CAMERA}), ("gldv2", {"at": 100})]
)
def test_the_other_rules_are_the_protocols(protocol, rules):
    if "at" in rules:  # a cut that matters
        labels, kinds = np.tile(LABELS, 5), np.tile(KINDS, 5)
    else:
        labels, kinds = LABELS, KINDS
    old, new = (
        vectors(seed, labels=labels, kinds=kinds, camera=np.resize(CAMERA, len(labels)))
        for seed in (1, 2)
    )
    found = evaluate_modalities(old, new, protocol=protocol).summary()["directions"]
    for asks, searched in TWO:
        one = found[f"{asks}_to_{searched}"]
        for pair, files in {"new_old": (new, old), "old_new": (old, new)}.items():
            precisions, _ = slow(*files, asks, searched, labels=labels, kinds=kinds, **rules)
            assert one[pair] == pytest.approx(np.mean(precisions))


def test_who_asks_and_who_is_searched_may_be_marked():
    texts = KINDS == "text"
    marks = {"is_query": texts, "is_gallery": ~texts}
    found = evaluate_modalities(vectors(1, **marks), vectors(2, 0.8, **marks))
    assert list(found.directions) == ["text_to_image"]
    expected = evaluate_modalities(OLD, NEW)
    assert found.summary()["directions"]["text_to_image"]["old_new"] == pytest.approx(
        expected.summary()["directions"]["text_to_image"]["old_new"]
    )
    assert "image_to_text is left out: there are no image queries" in found.notes
    assert "text_to_text is left out: there are no text gallery items" in found.notes
    assert found.gaps == {**expected.gaps, "new_image_old_text": None}


def captioned(seed, **more):
    """Eleven images with three captions each: no image has another to find."""
    kinds = np.array(["image"] * 11 + ["text"] * 33)
    labels = np.array([*range(11), *np.repeat(np.arange(11), 3)])
    return vectors(seed, labels=labels, kinds=kinds, **more)


def test_a_direction_in_which_nothing_can_be_found_is_left_out_with_a_note():
    found = evaluate_modalities(captioned(1), captioned(2))
    assert set(found.directions) == {"text_to_image", "image_to_text", "text_to_text"}
    assert found.directions["text_to_image"].old_old.num_relevant.tolist() == [1] * 33
    notes = "image_to_image is left out: no image has another image to find"
    assert [note for note in found.notes if "left out" in note] == [notes]


def test_labels_without_partners_are_not_counted():
    labels = LABELS.copy()
    labels[np.flatnonzero(KINDS == "text")[:4]] = 100 + np.arange(4)
    old, new = vectors(1, labels=labels), vectors(2, labels=labels)
    found = evaluate_modalities(old, new).summary()["directions"]
    for asks, searched in TWO:
        precisions, _ = slow(new, old, asks, searched, labels=labels)
        assert found[f"{asks}_to_{searched}"]["new_old"] == pytest.approx(np.mean(precisions))


def test_where_no_direction_has_anything_to_find_the_error_says_why():
    files = [vectors(seed, labels=np.arange(COUNT)) for seed in (1, 2)]
    with pytest.raises(DataError, match="text_to_image: no text has any image.*column.*`label`"):
        evaluate_modalities(*files)
    files = [vectors(seed, labels=np.zeros(COUNT, dtype=int)) for seed in (1, 2)]
    with pytest.raises(DataError, match="of one class"):
        evaluate_modalities(*files)


def test_only_one_modality_has_one_direction_no_gap_and_no_verdict():
    files = [vectors(seed, kinds=np.full(COUNT, "image")) for seed in (1, 2)]
    found = evaluate_modalities(*files)
    assert list(found.directions) == ["image_to_image"]
    assert (found.gaps, found.compatible, found.verdict) == ({}, None, "undecided")
    assert any("no verdict" in note for note in found.notes)
    assert found.conclusion == "No direction between two modalities was measured."
    expected = evaluate(*(bare(file) for file in files)).summary()
    assert found.summary()["directions"]["image_to_image"]["new_old"] == expected["new_old"]


def test_three_modalities_have_nine_directions_and_gaps_by_pair():
    kinds = np.array(["audio", "image", "text"])[np.random.default_rng(3).integers(0, 3, COUNT)]
    old, new = vectors(1, kinds=kinds), vectors(2, kinds=kinds)
    found = evaluate_modalities(old, new)
    summary = found.summary()
    names = ("audio", "image", "text")
    assert set(found.directions) == {f"{a}_to_{b}" for a in names for b in names}
    for a in names:
        for b in names:
            precisions, _ = slow(old, new, a, b, kinds=kinds)
            assert summary["directions"][f"{a}_to_{b}"]["old_new"] == pytest.approx(
                np.mean(precisions)
            )
    expected = {}
    for a, b in (("audio", "image"), ("audio", "text"), ("image", "text")):
        expected[f"old_{a}_{b}"] = slow_gap(of(old, a, kinds), of(old, b, kinds))
        expected[f"new_{a}_{b}"] = slow_gap(of(new, a, kinds), of(new, b, kinds))
        expected[f"new_{a}_old_{b}"] = slow_gap(of(new, a, kinds), of(old, b, kinds))
        expected[f"new_{b}_old_{a}"] = slow_gap(of(new, b, kinds), of(old, a, kinds))
    assert summary["modality_gap"] == pytest.approx(expected)
    assert len(found.gap_pairs) == 3
    assert found.gap_pairs[2].sentence.startswith("The gap between images and texts: ")


# What the files must have


def test_without_the_column_the_error_says_what_to_do():
    with pytest.raises(DataError, match="column `modality`.*Add it to either.*--by-modality"):
        evaluate_modalities(bare(OLD), bare(NEW))


@pytest.mark.parametrize("values", [np.arange(COUNT) % 2, np.where(KINDS == "text", "text", "")])
def test_a_modality_is_a_word(values):
    with pytest.raises(DataError, match="needs a word in the column `modality`"):
        evaluate_modalities(bare(OLD, modality=values), bare(NEW))


def test_the_column_may_stand_in_either_file_but_must_agree():
    expected = evaluate_modalities(OLD, NEW).summary()
    assert evaluate_modalities(bare(OLD), NEW).summary() == expected
    assert evaluate_modalities(OLD, bare(NEW)).summary() == expected
    turned = bare(NEW, modality=np.where(KINDS == "text", "image", "text"))
    with pytest.raises(DataError, match="the same `modality` in all files, but 53 items differ"):
        evaluate_modalities(OLD, turned)


def test_items_that_only_one_file_has_are_an_error_or_left_out():
    fewer = NEW.select(np.arange(1, COUNT))
    with pytest.raises(DataError, match="the new file lacks 1 queries .'item 0'"):
        evaluate_modalities(OLD, fewer)
    found = evaluate_modalities(OLD, fewer, intersect=True)
    both = evaluate_modalities(OLD.select(np.arange(1, COUNT)), fewer)
    told, expected = found.summary(), both.summary()
    for name, one in expected["directions"].items():
        assert told["directions"][name]["metrics"] == one["metrics"]
    assert told["modality_gap"] == expected["modality_gap"]  # of those that took part


def test_a_new_file_of_texts_alone_asks_with_texts_alone():
    found = evaluate_modalities(OLD, NEW.select(KINDS == "text"))
    assert list(found.directions) == ["text_to_image", "text_to_text"]
    assert "image_to_text is left out: the new file has no image queries" in found.notes
    one = found.summary()["directions"]["text_to_image"]
    assert one["new_old"] == pytest.approx(np.mean(slow(NEW, OLD, "text", "image")[0]))
    assert one["new_new"] is one["old_new"] is None
    assert found.gaps["new"] is found.gaps["new_image_old_text"] is None
    assert found.gaps["new_text_old_image"] == pytest.approx(
        slow_gap(of(NEW, "text"), of(OLD, "image"))
    )
    assert "after" not in found.gap_pairs[0].sentence
    assert any("old/new is not measured in text_to_image:" in note for note in found.notes)


# Old queries on the new gallery


def test_old_new_of_other_dimensions_is_not_measured_and_a_note_says_so():
    longer = vectors(2, dim=7)
    found = evaluate_modalities(OLD, longer, query_for_old=MAPPED)
    one = found.summary()["directions"]["text_to_image"]
    assert set(found.old_new.values()) == {None}
    assert one["old_new"] is None
    assert "old_new" not in one["metrics"]
    assert one["new_new"] == pytest.approx(np.mean(slow(longer, longer, "text", "image")[0]))
    assert any("old queries have 5 dimensions, the new gallery 7" in note for note in found.notes)
    assert found.gaps["new"] == pytest.approx(slow_gap(of(longer, "image"), of(longer, "text")))
    assert found.gaps["new_text_old_image"] == pytest.approx(
        slow_gap(of(MAPPED, "text"), of(OLD, "image"))
    )
    with pytest.raises(SpaceMismatch):
        evaluate_modalities(OLD, longer)


def test_first_dimensions_that_meet_the_old_gallery_are_what_the_gap_is_of():
    longer = nb.Vectors(
        NEW.ids,
        torch.cat([NEW.vectors, 3 + NEW.vectors], dim=1),
        NEW.labels,
        columns=NEW.columns,
        compatible_dim=DIM,
    )
    found, plain = evaluate_modalities(OLD, longer), evaluate_modalities(OLD, NEW)
    assert found.gaps["new_text_old_image"] == plain.gaps["new_text_old_image"]
    assert found.gaps["new"] != pytest.approx(plain.gaps["new"])
    name = "text_to_image"
    assert found.directions[name].summary()["new_old"] == pytest.approx(
        plain.directions[name].summary()["new_old"]
    )
    assert found.old_new[name] is None


@pytest.mark.parametrize("method", ["rm", "ndpp"])
def test_where_queries_are_mapped_a_note_says_what_to_expect_of_old_new(method):
    new = vectors(2, space=Space(dim=DIM, method=method))
    notes = evaluate_modalities(OLD, new).notes
    assert any("old/new is expected" in note for note in notes) is METHODS[method].maps_queries
    mapped = evaluate_modalities(OLD, NEW, query_for_old=MAPPED).notes
    assert any("old/new is expected to find nothing" in note for note in mapped)


# The gap


@pytest.mark.parametrize(("images", "texts", "dim"), [(1, 1, 1), (7, 3, 5), (2, 31, 4)])
def test_the_gap_is_its_formula_written_as_loops(images, texts, dim):
    random = np.random.default_rng(images)
    one, other = (
        torch.from_numpy(random.normal(0.5, 1, (n, dim)) * random.uniform(0.1, 9, (n, 1)))
        for n in (images, texts)
    )
    assert modality_gap(one, other) == pytest.approx(slow_gap(one, other))
    assert modality_gap(other, one) == modality_gap(one, other)
    assert modality_gap(one.float(), 1000 * other.float()) == pytest.approx(
        slow_gap(one, other), abs=1e-6
    )
    half = [part.half() for part in (one, other)]
    assert modality_gap(*half) == pytest.approx(slow_gap(*half), abs=1e-6)


def test_a_gap_is_between_0_and_2():
    one = torch.tensor([[3.0, 0.0]])
    assert modality_gap(one, 5 * one) == 0
    assert modality_gap(one, -one) == 2


def test_a_gap_needs_vectors_on_both_sides():
    one = torch.tensor([[3.0, 0.0]])
    with pytest.raises(DataError, match="both modalities, but got 1 and 0"):
        modality_gap(one, one[:0])
    with pytest.raises(DataError, match="text vectors must have a direction"):
        modality_gap(one, 0 * one)


def test_gaps_are_of_what_asks_and_what_is_stored():
    found = evaluate_modalities(OLD, NEW, query_for_old=MAPPED)
    expected = {
        "old": slow_gap(of(OLD, "image"), of(OLD, "text")),
        "new": slow_gap(of(NEW, "image"), of(NEW, "text")),
        "new_text_old_image": slow_gap(of(MAPPED, "text"), of(OLD, "image")),
        "new_image_old_text": slow_gap(of(MAPPED, "image"), of(OLD, "text")),
    }
    assert found.summary()["modality_gap"] == pytest.approx(expected)
    assert list(found.gaps) == list(expected)


def test_training_items_take_no_part_in_a_gap():
    split = np.where(np.arange(COUNT) % 3 == 0, "train", "validation")
    kept = np.flatnonzero(split == "validation")
    found = evaluate_modalities(vectors(1, split=split), vectors(2, 0.8, split=split))
    assert found.gaps == pytest.approx(evaluate_modalities(OLD.select(kept), NEW.select(kept)).gaps)


# The verdict over all directions


def verdicts(*, text_to_image, image_to_text):
    """New vectors that are better, worse or as good as old ones by the modality that asks."""
    noise = {"better": 0.2, "worse": 6.0, "alike": None}
    labels, kinds = np.tile(np.arange(60), 4), np.repeat(["image", "text"], 120)
    old = vectors(1, 0.8, labels=labels, kinds=kinds)
    values = old.vectors.clone()
    for kind, how in (("text", text_to_image), ("image", image_to_text)):
        rows = torch.from_numpy(np.flatnonzero(kinds == kind))
        if noise[how] is not None:
            values[rows] = vectors(2, noise[how], labels=labels, kinds=kinds).vectors[rows]
    new = nb.Vectors(old.ids, values, labels, columns=old.columns)
    return evaluate_modalities(old, new)


@pytest.mark.parametrize(
    ("text_to_image", "image_to_text", "compatible"),
    [
        ("better", "better", True),
        ("better", "alike", None),
        ("better", "worse", False),
        ("worse", "better", False),
        ("alike", "alike", None),
        ("alike", "worse", False),
    ],
)
def test_compatible_is_better_in_every_direction_between_modalities(
    text_to_image, image_to_text, compatible
):
    found = verdicts(text_to_image=text_to_image, image_to_text=image_to_text)
    assert found.compatible is compatible
    assert found.summary()["compatible"] is compatible
    says = {"better": "compatible", "worse": "not compatible", "alike": "undecided"}
    assert found.directions["text_to_image"].verdict == says[text_to_image]
    assert found.directions["image_to_text"].verdict == says[image_to_text]
    if compatible is False:
        worse = "text to image" if text_to_image == "worse" else "image to text"
        assert f"worse than old ones from {worse}. Keep" in found.conclusion


# What is told meanwhile, and of files that mix


@pytest.mark.parametrize("independent", [None, FREE])
def test_progress_goes_on_from_direction_to_direction(independent):
    told = []
    evaluate_modalities(
        OLD, NEW, independent=independent, progress=lambda *numbers: told.append(numbers)
    )
    total = (4 if independent is None else 5) * 2 * COUNT  # each item asks in two directions
    assert {number for _, number in told} == {total}
    done = [number for number, _ in told]
    assert done == sorted(done)
    assert done[-1] == total


def test_what_is_true_of_all_directions_is_said_once():
    notes = evaluate_modalities(OLD, NEW).notes
    assert sum("no space.json" in note for note in notes) == 1
    few = captioned(1).select(np.flatnonzero(captioned(1).labels < 3))
    other = captioned(2).select(np.flatnonzero(captioned(2).labels < 3))
    assert sum("no intervals" in note for note in evaluate_modalities(few, other).notes) == 1


def test_a_note_says_where_one_number_stands_for_images_and_texts():
    def mixed(*files, **more):
        return [note for note in evaluate(*files, **more).notes if "--by-modality" in note]

    (note,) = mixed(OLD, NEW)
    assert note.startswith("these files contain images and texts: ")
    assert mixed(bare(OLD), NEW) == [note]
    assert not mixed(bare(OLD), bare(NEW))
    assert not mixed(OLD, NEW, protocol="rstpreid")
    assert not mixed(OLD, NEW, modalities=("text", "text"))
    texts = KINDS == "text"
    marks = {"is_query": texts, "is_gallery": ~texts}
    assert not mixed(vectors(1, **marks), vectors(2, **marks))  # each side is of one kind
    assert mixed(vectors(1, **{**marks, "is_gallery": texts | True}), NEW)
    assert not any("--by-modality" in note for note in evaluate_modalities(OLD, NEW).notes)
