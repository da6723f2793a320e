import json
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import nobackfill as nb
from nobackfill.core.config.defaults import DEFAULT_HEAD_METHOD
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation import mixed_scores as strategies
from nobackfill.head.assess.fits import Fits, fit_maps
from nobackfill.head.assess.split import divide
from nobackfill.head.assess.ways import backfill_strategies, random_share

CLASSES, ITEMS, DIM = 60, 8, 12


def world(kind, seed=0, **columns):
    """The vectors of an old and of a new model, of the same items."""
    generator = torch.Generator().manual_seed(seed)
    mean = F.normalize(torch.randn(CLASSES, DIM, generator=generator), dim=1)
    labels = torch.arange(CLASSES * ITEMS) % CLASSES

    def draw(noise):
        return mean[labels] + noise * torch.randn(len(labels), DIM, generator=generator) / DIM**0.5

    old = draw(1.5)
    turn = torch.linalg.qr(torch.randn(DIM, DIM, generator=generator)).Q
    new = {
        "better": lambda: draw(0.5) @ turn,
        "worse": lambda: draw(3.0) @ turn,
        "noise": lambda: torch.randn(len(labels), DIM, generator=generator),
        "same": lambda: old @ turn,
        "elsewhere": lambda: draw(0.1).roll(1, 0),  # perfect, but of other items
    }[kind]()
    ids = [f"item {i}" for i in range(len(labels))]
    return tuple(
        nb.Vectors(ids, vectors, labels.numpy(), columns=columns) for vectors in (old, new)
    )


@cache
def judge(kind, seed=0, epochs=3):
    return nb.assess(*world(kind, seed), epochs=epochs, seed=seed)


def test_a_better_model_is_an_upgrade_and_the_reason_says_by_how_much():
    verdict = judge("better")
    assert verdict.verdict == "upgrade with head"
    chosen = next(one for one in verdict.candidates if one.name == verdict.chosen)
    assert chosen.gain.low > 0
    assert verdict.doubts == []
    assert f"{100 * chosen.gain.mean:+.2f}" in verdict.reason
    best = max(one.validation for one in verdict.candidates[2:9])
    assert chosen.validation == best


@pytest.mark.parametrize("kind", ["worse", "noise", "same"])
@pytest.mark.parametrize("seed", range(3))
def test_what_cannot_be_an_upgrade_is_none(kind, seed):
    verdict = judge(kind, seed)
    assert verdict.verdict in ("keep the old model", "inconclusive")


def test_the_same_vectors_are_told_to_be_the_same():
    assert judge("same").reason == "the new vectors are the old ones, only rotated."


def test_the_numbers_are_those_of_the_test_classes():
    old, new = world("better")
    verdict = judge("better")
    *_, tested = divide(torch.from_numpy(old.labels), None, seed=0)
    for name, file in (("keep the old model", old), ("full backfill", new)):
        some = file.select(tested.numpy())
        expected = nb.evaluate(some, some).old_old.mean_average_precision
        found = next(one.test for one in verdict.candidates if one.name == name)
        assert found == pytest.approx(expected, abs=1e-6)


def test_metrics_flips_and_roles_are_those_of_evaluate():
    """Of each class, some items search and others are searched; a third kind does neither."""
    rows = np.arange(CLASSES * ITEMS) // CLASSES
    old, new = world("better", is_query=rows < 4, is_gallery=(rows >= 3) & (rows < 7))
    verdict = nb.assess(old, new, epochs=0)
    *_, tested = divide(torch.from_numpy(old.labels), None, seed=0)
    few_old, few_new = (side.select(tested.numpy()) for side in (old, new))
    assert verdict.counts["test_queries"] == 4 * 12
    keep, full = verdict.candidates[0], verdict.candidates[-1]
    before = nb.evaluate(few_old, few_old)
    after = nb.evaluate(few_old, few_new).new_new
    for way, expected in ((keep, before.old_old), (full, after)):
        found = [way.metrics[key] for key in ("map", "recall_at_1", "ndcg_at_10")]
        by_hand = [expected.mean_average_precision, expected.recall(1), expected.ndcg(10)]
        assert found == pytest.approx(by_hand, abs=1e-6)
    assert (keep.lost.mean, keep.gained.mean) == (0, 0)
    hits = before.old_old.found_by(1), after.found_by(1)
    assert full.gained.mean == pytest.approx((~hits[0] & hits[1]).double().mean().item())
    assert full.lost.mean == pytest.approx((hits[0] & ~hits[1]).double().mean().item())


def test_roles_of_all_items_change_nothing():
    both = np.ones(CLASSES * ITEMS, dtype=bool)
    found = nb.assess(*world("better", is_query=both, is_gallery=both), epochs=1).summary()
    assert found == judge("better", epochs=1).summary()


def copied(file, times):
    """The first classes again and again, under other labels and ids."""
    part = file.select(file.labels < CLASSES // times)
    return nb.Vectors(
        [f"{item}, copy {copy}" for copy in range(times) for item in part.ids],
        part.vectors.repeat(times, 1),
        np.concatenate([part.labels + CLASSES * copy for copy in range(times)]),
    )


def test_copies_of_classes_under_other_labels_prove_nothing():
    """Four classes, each fifteen times, as though there were sixty."""
    old, new = (copied(side, 15) for side in world("better"))
    verdict = nb.assess(old, new, epochs=0)
    assert verdict.counts["classes"] == 60
    assert verdict.verdict == "inconclusive"
    doubt = "all test queries are near-duplicates of items that were fitted on"
    assert verdict.doubts[0].startswith(doubt)
    assert verdict.reason.startswith(f"this assessment proves nothing: {doubt}")
    assert verdict.notes[0] == (
        "88 of 96 queries are near-duplicates of queries of other classes: they count as one group"
    )


def test_copies_among_the_test_queries_are_resampled_together():
    old, new = world("better")
    *_, tested = divide(torch.from_numpy(old.labels), None, seed=0)
    first, *others = tested.tolist()
    copy = next(row for row in others if old.labels[row] != old.labels[first])
    spoiled = []
    for side in (old, new):
        vectors = side.vectors.clone()
        vectors[copy] = vectors[first]
        spoiled.append(nb.Vectors(side.ids, vectors, side.labels))
    verdict = nb.assess(*spoiled, epochs=0)
    assert verdict.notes[0].startswith("16 of 96 queries are near-duplicates of queries of other")
    assert (verdict.counts["test_classes"], verdict.counts["test_queries"]) == (12, 96)
    assert verdict.candidates[0].gain.groups == 11


def by_class(seed):
    """The old vectors of 300 classes, ten items each, one class after the other."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(3000) // 10
    mean = F.normalize(torch.randn(300, 32, generator=generator), dim=1)[labels]
    vectors = mean + 1.5 * torch.randn(3000, 32, generator=generator) / 32**0.5
    turn = torch.linalg.qr(torch.randn(32, 32, generator=generator)).Q
    return [f"item {row}" for row in range(3000)], vectors, labels.numpy(), turn


@pytest.mark.parametrize(
    ("deceive", "says"),
    [
        (lambda old, turn, labels: old.roll(1, 0), "rows of one file are shifted"),
        (lambda old, turn, labels: old.roll(1, 0) @ turn, "rows of one file are shifted"),
        (lambda old, turn, labels: (old.unflatten(0, (300, 10)).flip(1).flatten(0, 1) @ turn),
         "ids are mixed up"),
        (lambda old, turn, labels: F.normalize(turn.repeat(10, 1)[labels]
         + F.one_hot(labels % 32) / 2 + labels[:, None] / 300, dim=1),
         "they may be made from the labels"),
    ],
    ids=["shifted", "shifted and rotated", "mixed up within classes", "labels"],
)  # fmt: skip
def test_vectors_of_other_items_prove_nothing(deceive, says):
    ids, old, labels, turn = by_class(0)
    new = F.pad(deceive(old, turn, torch.from_numpy(labels)), (0, 8))  # of another length
    verdict = nb.assess(nb.Vectors(ids, old, labels), nb.Vectors(ids, new, labels), epochs=0)
    assert verdict.verdict == "inconclusive"
    assert says in verdict.reason
    assert verdict.summary()["doubts"] == list(verdict.doubts) != []


def test_copies_of_test_queries_among_fitted_items_are_left_out():
    old, new = world("better")
    fitted, _, tested = divide(torch.from_numpy(old.labels), None, seed=0)
    spoiled = []
    for side in (old, new):
        vectors = side.vectors.clone()
        vectors[fitted[0]] = 2 * vectors[tested[0]]  # one photograph, under two labels
        spoiled.append(nb.Vectors(side.ids, vectors, side.labels))
    verdict = nb.assess(*spoiled, epochs=0)
    assert verdict.counts["test_queries"] == 96 - 8  # its whole class
    assert verdict.counts["test_classes"] == 11
    assert verdict.notes[0].startswith("8 of 96 test queries are left out")
    assert verdict.candidates[0].gain.groups == 11


def test_the_verdict_is_strict_json_and_the_same_twice():
    one, other = judge("better").summary(), judge.__wrapped__("better").summary()
    assert json.dumps(one, allow_nan=False) == json.dumps(other)
    assert {"verdict", "reason", "candidates"} <= set(one)


def test_a_split_leaves_no_note_that_test_classes_may_have_been_seen():
    split = np.where(np.arange(CLASSES * ITEMS) % CLASSES < 25, "train", "validation")
    old, new = world("better", split=split)
    told = nb.assess(old, new, epochs=1)
    assert told.counts["fitted_classes"] == 25
    assert not any("too good to be true" in note for note in told.notes)
    assert any("too good to be true" in note for note in judge("better").notes)


def test_shares_of_a_backfill_contain_each_other():
    few, more = random_share(100, 0.1, seed=0), random_share(100, 0.5, seed=0)
    assert (int(few.sum()), int(more.sum())) == (10, 50)
    assert not (few & ~more).any()


def test_backfill_strategies_are_those_of_strategies():
    def a_part(seed):
        generator = torch.Generator().manual_seed(seed)
        new, old = (torch.randn(40, dim, generator=generator) for dim in (6, 4))
        return strategies.make_part(new, old, torch.arange(40) % 8, most=100)

    chosen_on, part = a_part(0), a_part(1)
    turn = torch.randn(6, 4, generator=torch.Generator().manual_seed(2))

    def best(new):
        return F.normalize(new @ turn, dim=1)

    ways = backfill_strategies(best, chosen_on, k=7, seed=5)
    scales = (
        strategies.scale_of(chosen_on, lambda rows: best(chosen_on.new)[rows] @ chosen_on.old.T),
        strategies.scale_of(chosen_on, lambda rows: chosen_on.new[rows] @ chosen_on.new.T),
    )
    expected = {"two-stage, top 7": strategies.two_stage(part, best(part.new), 7)}
    for share in (0.1, 0.25, 0.5):
        again = random_share(40, share, seed=5)
        half = strategies.half_done(part, best(part.new), again, scales)
        expected[f"{100 * share:.0f} % backfilled"] = half
    expected["full backfill"] = lambda rows: part.new[rows] @ part.new.T
    assert list(ways) == list(expected)
    rows = torch.arange(0, 40, 3)
    for name, scores in expected.items():
        torch.testing.assert_close(ways[name](part)(rows), scores(rows))


def test_a_share_of_a_backfill_is_one_of_the_gallery():
    """Of the ten items that are searched, five are embedded again, whoever else queries."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(40, 6, generator=generator)
    roles = {"is_query": torch.arange(40) < 30, "is_gallery": torch.arange(40) >= 30}
    part = strategies.make_part(vectors, vectors, torch.arange(40) % 8, most=100, **roles)

    def opposite(new):
        return -new

    half = backfill_strategies(opposite, part, k=7, seed=5)["50 % backfilled"]
    is_new = torch.zeros(40, dtype=torch.bool)
    is_new[30:] = random_share(10, 0.5, seed=5)
    scales = (
        strategies.scale_of(part, strategies.on_old(part, -part.new)),
        strategies.scale_of(part, strategies.on_new(part)),
    )
    expected = strategies.half_done(part, -part.new, is_new, scales)
    torch.testing.assert_close(half(part)(part.queries), expected(part.queries))


def test_the_best_on_validation_classes_is_chosen_and_the_rest_is_told_of_the_test_classes():
    old, new = world("worse")
    told = []
    verdict = nb.assess(old, new, epochs=1, k=9, watch=told.append)
    by_name = {one.name: one for one in verdict.candidates}
    maps = list(by_name)[2 : list(by_name).index("both models ask")]
    assert verdict.chosen == max(maps, key=lambda name: by_name[name].validation)
    fits = [step for step in told if step != "searching"]
    assert list(dict.fromkeys(fits)) == [
        "fitting mimic", f"fitting {DEFAULT_HEAD_METHOD}", "fitting old vectors with a head",
    ]  # fmt: skip
    shares = [step.done / step.total for step in fits]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    searches = told[len(fits) :]
    assert [step.done for step in searches] == [*range(searches[0].total)]
    _, chosen_on, tested_on = divide(torch.from_numpy(old.labels), None, seed=0)
    part = strategies.make_part(
        new.vectors[tested_on], old.vectors[tested_on], tested_on % CLASSES, most=10**6
    )
    could = strategies.metrics_of_queries(part, strategies.headroom(part))["map"].mean()
    assert verdict.headroom == pytest.approx(float(could), abs=1e-6)
    assert verdict.counts == {
        "items": 480, "classes": 60, "fitted_classes": 36, "validation_classes": 12,
        "test_classes": 12, "test_queries": len(tested_on),
    }  # fmt: skip
    some = old.select(chosen_on.numpy())
    expected = nb.evaluate(some, some).old_old.mean_average_precision
    assert by_name["keep the old model"].validation == pytest.approx(expected, abs=1e-6)


def one_fit(settings):
    return Fits(settings, lambda step: None, number=1, seconds=None, begun=0.0)


def test_an_assessment_is_its_steps_by_hand():
    """Divided, fitted, chosen and tested again, with a seed that is not the default."""
    old, new = world("noise")
    settings = {"seed": 3, "epochs": 1}
    verdict = nb.assess(old, new, **settings)
    classes = torch.from_numpy(old.labels)
    fitted, *asking = divide(classes, None, seed=3)
    chosen_on, tested_on = (
        strategies.make_part(new.vectors[rows], old.vectors[rows], classes[rows], most=10**6)
        for rows in asking
    )
    seen = new.vectors[fitted], old.vectors[fitted], classes[fitted]
    maps = fit_maps(*seen, [DEFAULT_HEAD_METHOD], one_fit(settings))
    control = (
        nb.CompatibleHead(old_query=False, **settings).fit(seen[1], seen[1], seen[2]).transform
    )
    ways = {
        "old vectors with a head": lambda part: strategies.on_old(part, control(part.old)),
        **backfill_strategies(maps[verdict.chosen], chosen_on, k=100, seed=3),
    }
    assert verdict.chosen != "procrustes"
    found = {one.name: (one.validation, one.test) for one in verdict.candidates}
    for name, scores in ways.items():
        expected = [
            strategies.metrics_of_queries(part, scores(part))["map"].mean()
            for part in (chosen_on, tested_on)
        ]
        assert found[name] == pytest.approx(expected, abs=1e-6), name


def test_both_models_ask_with_the_weight_that_is_best_on_validation_classes():
    """Sums of unit vectors by hand; the test classes are searched with the chosen weight alone."""
    old, new = world("worse")
    verdict = nb.assess(old, new, seed=3, epochs=1)
    classes = torch.from_numpy(old.labels)
    fitted, *asking = divide(classes, None, seed=3)
    seen = new.vectors[fitted], old.vectors[fitted], classes[fitted]
    map_new = fit_maps(*seen, [DEFAULT_HEAD_METHOD], one_fit({"seed": 3, "epochs": 1}))[
        verdict.chosen
    ]
    found = {}
    for tenth in range(11):
        for name, rows in zip(("validation", "test"), asking, strict=True):
            part = strategies.make_part(
                new.vectors[rows], old.vectors[rows], classes[rows], most=10**6
            )
            mapped = torch.nn.functional.normalize(map_new(part.new), dim=1)
            query = 0.1 * tenth * part.old + (1 - 0.1 * tenth) * mapped
            metrics = strategies.metrics_of_queries(part, strategies.on_old(part, query))
            found[name, tenth] = metrics["map"].mean()
    best = max(range(11), key=lambda tenth: found["validation", tenth])
    (both,) = [one for one in verdict.candidates if one.name == "both models ask"]
    assert 0 < best < 10
    assert both.validation == pytest.approx(found["validation", best], abs=1e-6)
    assert both.test == pytest.approx(found["test", best], abs=1e-6)


def test_what_crowding_advises_is_told_but_is_no_note(monkeypatch):
    monkeypatch.setattr(
        "nobackfill.head.assess.assess.advice", lambda crowding: f"{crowding.classes}!"
    )
    verdict = nb.assess(*world("better"), epochs=0)
    assert verdict.advice == verdict.summary()["advice"] == "60!"
    assert not any("60!" in note for note in verdict.notes)


def test_two_ways_do_without_the_new_model():
    ways = judge("better", epochs=0).candidates
    assert [one.uses_new for one in ways] == [False, False] + [True] * (len(ways) - 2)


def linked(ids, labels):
    """Pairs that link what has the same label: the first of each class asks for the others."""
    return {
        ids[np.flatnonzero(labels == label)[0]].item(): ids[labels == label][1:].tolist()
        for label in np.unique(labels)
    }


def with_strangers(file, seed, **columns):
    """A file with items in no pair between its own: every third is one, of vectors at random."""
    number = len(file) * 3 // 2
    own = np.arange(number) % 3 != 1
    vectors = torch.randn(number, DIM, generator=torch.Generator().manual_seed(seed))
    vectors[torch.from_numpy(own)] = file.vectors
    ids = np.array([f"stranger {row}" for row in range(number)])
    ids[own] = file.ids
    return nb.Vectors(ids, vectors, columns=columns)


def test_pairs_say_what_labels_say():
    old, new = world("better")
    expected = judge("better", epochs=1).summary()
    pairs = linked(old.ids, old.labels)
    swapped = [nb.Vectors(side.ids, side.vectors, old.labels[::-1].copy()) for side in (old, new)]
    found = nb.assess(*swapped, pairs=pairs, epochs=1).summary()  # labels: not used
    names = [pair[:2] for pair in found["crowding"].pop("closest")]  # of items: classes have none
    classes = [[item.removeprefix("item ") for item in pair] for pair in names]
    assert classes == [list(pair[:2]) for pair in expected["crowding"].pop("closest")]
    told = {"notes": [], "advice": ""}
    assert {**found, **told} == {**expected, **told}


@pytest.mark.parametrize("with_split", [False, True])
def test_items_in_no_pair_take_part_in_nothing(with_split):
    old, new = world("better")
    pairs = linked(old.ids, old.labels)
    split = np.where(np.arange(CLASSES * ITEMS) % CLASSES < 25, "train", "validation")
    more = np.full(CLASSES * ITEMS * 3 // 2, "train", dtype="<U10")
    more[np.arange(len(more)) % 3 != 1] = split
    few, many = ({"split": split}, {"split": more}) if with_split else ({}, {})
    bare = [nb.Vectors(side.ids, side.vectors, columns=few) for side in (old, new)]
    expected = nb.assess(*bare, pairs=pairs, epochs=1).summary()
    crowd = [with_strangers(side, seed, **many) for seed, side in enumerate((old, new))]
    found = nb.assess(*crowd, pairs=pairs, epochs=1).summary()
    assert found["notes"][0].startswith("240 of 720 items are in no pair and are not used")
    assert found["notes"][1:] == expected["notes"]
    told = {"notes": [], "advice": ""}
    assert {**found, **told} == {**expected, **told}
    assert found["counts"]["items"] == 480


def test_a_class_that_pairs_chained_together_gets_a_note():
    old, new = world("better")
    pairs = linked(old.ids, old.labels)
    hub, *others = list(pairs)[:7]
    pairs[hub] += others  # 7 of 60 classes
    verdict = nb.assess(old, new, pairs=pairs, epochs=0)
    assert verdict.notes[0].startswith("56 of 480 items in pairs are linked into one class")
    assert verdict.counts["classes"] == 54


def test_pairs_that_cannot_be_used_are_refused():
    old, new = world("better")
    with pytest.raises(ConfigError, match="one kind of supervision, not labels and pairs"):
        nb.assess(old, new, labels=old.labels, pairs={})
    with pytest.raises(DataError, match="1 items of the pairs .* the first are 'nobody'"):
        nb.assess(old, new, pairs={"item 0": ["nobody"]})
    with pytest.raises(DataError, match="at least 30 classes.*there are 1"):
        nb.assess(old, new, pairs={"item 0": ["item 1"]})


def test_too_few_classes_and_no_labels_are_refused():
    old, new = world("better")
    few = old.labels < 29
    with pytest.raises(DataError, match="at least 30 classes.*there are 29"):
        nb.assess(old.select(few), new.select(few))
    bare = [nb.Vectors(side.ids, side.vectors) for side in (old, new)]
    with pytest.raises(DataError, match="no labels for 480 items"):
        nb.assess(*bare)
    with pytest.raises(ConfigError, match="unknown method `nddp`.*ndpp"):
        nb.assess(old, new, methods=["nddp"])


def test_labels_that_disagree_are_refused():
    old, new = world("better")
    labels = old.labels.copy()
    labels[[3, 5]] = 59
    wrong = nb.Vectors(new.ids, new.vectors, labels).select(np.arange(len(labels))[::-1])
    with pytest.raises(DataError, match="2 items differ: 'item 3' is 3 in the old file and 59 in"):
        nb.assess(old, wrong)


@pytest.mark.parametrize("kind", ["labels", "pairs"])
def test_labels_that_are_not_used_may_disagree(kind):
    old, new = world("better")
    wrong = nb.Vectors(new.ids, new.vectors, old.labels[::-1].copy())
    told = {"labels": old.labels, "pairs": linked(old.ids, old.labels)}[kind]
    found = nb.assess(old, wrong, **{kind: told}, epochs=0).summary()
    expected = nb.assess(old, new, **{kind: told}, epochs=0).summary()
    assert found == expected
