"""CompatibleHead: what it promises, whatever it is given."""

import json

import numpy as np
import pytest
import torch
from sklearn.base import clone

import nobackfill as nb
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.head import learn
from nobackfill.head.closed_form import ridge
from nobackfill.head.examples import Examples
from nobackfill.head.fitting import Learner, weights_of
from nobackfill.head.split import class_folds, tightness_of
from nobackfill.head.validation import new_old_map
from nobackfill.vectors.space import Space


def as_vectors(data, side, order=None, **more):
    values = data.new if side == "new" else data.old
    vectors = nb.Vectors(data.ids, values, data.labels.numpy(), **more)
    return vectors if order is None else vectors.select(order)


def parts_of(data, share=0.2, seed=0):
    """Rows that are fitted on, and rows that are held out."""
    tightness = tightness_of(data.old, data.labels)
    (chosen,) = class_folds(data.labels, share, seed=seed, tightness=tightness)
    is_held_out = torch.isin(data.labels, chosen)
    return (~is_held_out).nonzero().flatten(), is_held_out.nonzero().flatten()


def held_out_map(head, data, seed=0):
    """What the head reaches on the classes that it held out."""
    rows = parts_of(data, head.held_out, seed=seed)[1]
    return new_old_map(head.network_, Examples(data.new[rows], data.old[rows], data.labels[rows]))


@pytest.mark.parametrize(("new_dim", "old_dim"), [(8, 6), (6, 8), (7, 7)])
@pytest.mark.parametrize("hidden", [0, 16])
def test_it_maps_into_the_old_space_at_unit_length(items, head, new_dim, old_dim, hidden):
    data = items(new_dim=new_dim, old_dim=old_dim)
    out = head(hidden=hidden).fit(data.new, data.old, data.labels).transform(100 * data.new)
    assert out.shape == (90, old_dim)
    torch.testing.assert_close(out.norm(dim=1), torch.ones(90))


def test_training_pays_where_it_can(fitted):
    progress = fitted.progress_
    assert progress.history[progress.best - 1] > progress.closed[progress.start]
    assert fitted.network_.outer.weight.any()
    assert fitted.supervision_ == "labels"
    (note,) = fitted.notes_  # of the only thing that is wrong
    assert "below the old model" in note


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bad", ["random labels", "noise", "one epoch", "huge steps"])
def test_on_held_out_classes_it_is_never_worse_than_any_closed_form(items, head, bad, seed):
    data = items(seed=seed)
    generator = torch.Generator().manual_seed(seed)
    if bad == "random labels":
        data.labels = data.labels[torch.randperm(90, generator=generator)]
    if bad == "noise":
        data.new = torch.randn(90, 8, generator=generator)
    settings = {"one epoch": {"epochs": 1}, "huge steps": {"learning_rate": 100.0}}.get(bad, {})
    done = head(seed=seed, **settings).fit(data.new, data.old, data.labels)
    reached = held_out_map(done, data, seed=seed)
    assert reached >= max(done.progress_.closed.values())
    assert reached == max([*done.progress_.closed.values(), *done.progress_.history])


def test_held_out_classes_are_never_fitted_on(items, head, monkeypatch):
    data, seen = items(), []
    for name in ("choose_closed_form", "fit_network"):
        kept = getattr(learn, name)

        def record(network, examples, held_out, *, kept=kept, **more):
            seen.append((examples, held_out))
            return kept(network, examples, held_out, **more)

        monkeypatch.setattr(f"nobackfill.head.learn.{name}", record)
    head().fit(data.new, data.old, data.labels)
    for parts in seen:
        for part, rows in zip(parts, parts_of(data), strict=True):
            assert torch.equal(part.new_of(torch.arange(len(part))), data.new[rows])
            assert torch.equal(part.old, data.old[rows])
            known = data.labels[rows].unique()
            assert torch.equal(known[part.classes], data.labels[rows])
    assert len(seen) == 2


@pytest.mark.parametrize("side", ["old", "new"])
def test_what_held_out_classes_look_like_changes_no_step(items, head, monkeypatch, side, in_place):
    """They are turned, and every round has the same weights."""
    data, states = items(), [[], []]
    away = parts_of(data)[1]
    in_place("new_old_map", lambda *given: 0.5)
    train = Learner.train
    for kept in states:

        def remember(learner, *given, kept=kept):
            made = train(learner, *given)
            kept.append(weights_of(learner.network))
            return made

        monkeypatch.setattr(Learner, "train", remember)
        head(epochs=2).fit(data.new, data.old, data.labels)
        vectors = getattr(data, side)
        vectors[away] = vectors[away].flip(1)  # classes stay as tight as they were
    assert len(states[0]) == 2
    for one, other in zip(*states, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_seed_gives_the_same_bits_and_another_seed_another_split(items, head):
    data = items()
    torch.manual_seed(1)
    one = head(seed=3).fit(data.new, data.old, data.labels)
    torch.manual_seed(2)
    same = head(seed=3).fit(data.new, data.old, data.labels)
    other = head(seed=4).fit(data.new, data.old, data.labels)
    assert torch.equal(one.transform(data.new), same.transform(data.new))
    assert one.progress_ == same.progress_
    assert one.space_ == same.space_
    assert other.progress_.closed != one.progress_.closed


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "array", "unit"])
def test_fitting_leaves_what_it_is_given_alone(items, head, kind):
    data = items()
    sides = [data.new, data.old]
    if kind == "unit":
        sides = [torch.nn.functional.normalize(side) for side in sides]
    elif kind == "array":
        sides = [side.numpy() for side in sides]
    else:
        sides = [side.to(getattr(torch, kind)) for side in sides]
    copies = [torch.as_tensor(side).clone() for side in (*sides, data.labels)]
    head(extra=2).fit(*sides, data.labels).transform(sides[0])
    assert all(map(torch.equal, copies, map(torch.as_tensor, (*sides, data.labels))))


def test_vectors_are_matched_by_id_whatever_their_order(items, head):
    data = items()
    plain = head().fit(data.new, data.old, data.labels)
    order = torch.randperm(90, generator=torch.Generator().manual_seed(0)).numpy()
    extra = nb.Vectors(["stranger"], torch.ones(1, 8), [99])
    new = as_vectors(data, "new", order)
    new = nb.Vectors(
        [*new.ids, *extra.ids],
        torch.cat([new.vectors, extra.vectors]),
        [*new.labels, *extra.labels],
    )
    matched = head().fit(new, as_vectors(data, "old"))
    assert torch.equal(matched.transform(data.new), plain.transform(data.new))
    assert matched.supervision_ == "labels"


def test_labels_of_either_file_will_do(items, head):
    data = items()
    bare = nb.Vectors(data.ids, data.new), nb.Vectors(data.ids, data.old)
    made = head(epochs=1)
    expected = made.fit(data.new, data.old, data.labels).progress_
    assert made.fit(bare[0], as_vectors(data, "old")).progress_ == expected
    assert made.fit(as_vectors(data, "new"), bare[1]).progress_ == expected
    assert made.fit(*bare, data.labels).progress_ == expected
    assert made.fit(*bare).supervision_ == "none"


def test_what_is_known_of_items_is_carried_along(items, fitted):
    data = items()
    new = as_vectors(data, "new", columns={"camera": np.arange(90) % 3}, compatible_dim=4)
    out = fitted.transform(new)
    assert out.ids.tolist() == data.ids.tolist()
    assert out.labels.tolist() == data.labels.tolist()
    assert out.columns["camera"].tolist() == (np.arange(90) % 3).tolist()
    assert (out.dim, out.compatible_dim) == (6, None)
    assert out.space == fitted.space_
    assert torch.equal(out.vectors, fitted.transform(data.new))


def test_the_space_tells_what_made_it(items, head):
    data = items()
    spaces = Space(dim=8, weights="new"), Space(dim=6, weights="old")
    new = as_vectors(data, "new", space=spaces[0])
    old = as_vectors(data, "old", space=spaces[1])
    done = head().fit(new, old)
    assert done.space_.parent == spaces[1].fingerprint
    assert spaces[0].fingerprint in done.space_.preprocessing
    assert (done.space_.dim, done.space_.normalized) == (6, True)
    assert done.space_.method == "cross_supcon"
    closed = head(epochs=0).fit(new, old)
    assert closed.space_.method == closed.progress_.start
    assert closed.space_.fingerprint != done.space_.fingerprint
    assert head().fit(data.new, data.old).space_.parent is None


def in_space(data, space, rows=slice(None)):
    return nb.Vectors(data.ids[rows], data.new[rows], data.labels.numpy()[rows], space=space)


@pytest.mark.parametrize("read_back", [False, True])
def test_vectors_of_another_space_are_refused(items, head, tmp_path, read_back):
    data, own, other = items(), Space(dim=8, weights="new"), Space(dim=8, weights="newer")
    made = head(epochs=0).fit(in_space(data, own), as_vectors(data, "old"))
    if read_back:
        made.save_pretrained(tmp_path)
        made = nb.CompatibleHead.from_pretrained(tmp_path)
    assert made.source_ == own.fingerprint
    with pytest.raises(SpaceMismatch, match=f"space {own.fingerprint}, .* of {other.fingerprint}"):
        made.transform(in_space(data, other))
    expected = made.transform(data.new)  # what made an array, nobody knows
    in_half = Space(dim=8, weights="new", dtype="float16")  # the same space
    for space in (own, in_half, None):
        assert torch.equal(made.transform(in_space(data, space)).vectors, expected)
    assert np.array_equal(made.transform(data.new.numpy()), expected.numpy())


@pytest.mark.parametrize("read_back", [False, True])
def test_a_head_that_does_not_know_its_space_takes_any(items, head, tmp_path, read_back):
    data = items()
    made = head(epochs=0).fit(data.new, data.old, data.labels)
    if read_back:
        made.save_pretrained(tmp_path)
        made = nb.CompatibleHead.from_pretrained(tmp_path)
    assert made.source_ is None
    out = made.transform(in_space(data, Space(dim=8, weights="any")))
    assert torch.equal(out.vectors, made.transform(data.new))


def test_another_fit_knows_its_own_space_only(items, head):
    data, spaces = items(), [Space(dim=8, weights=name) for name in ("one", "other")]
    made = head(epochs=0)
    for space in spaces:
        made.fit(in_space(data, space), as_vectors(data, "old"))
        made.transform(in_space(data, space))
    with pytest.raises(SpaceMismatch):
        made.transform(in_space(data, spaces[0]))
    made.fit(data.new, data.old).transform(in_space(data, spaces[0]))


def disagreeing(data):
    """Both sides, of which the new one has another class for two items, and another order."""
    labels = data.labels.numpy().copy()
    labels[[7, 20]] = 99
    return nb.Vectors(data.ids, data.new, labels).select(np.arange(90)[::-1]), as_vectors(
        data, "old"
    )


def test_labels_that_disagree_are_refused(items, head):
    new, old = disagreeing(items())
    with pytest.raises(
        DataError,
        match="2 items differ: 'item 7' is 7 in the old file and 99 in the new file. Correct one",
    ):
        head().fit(new, old)


def test_labels_need_not_be_of_one_kind(items, head):
    data = items()
    text = nb.Vectors(data.ids, data.new, data.labels.numpy().astype(str))
    done = head(epochs=0).fit(text, as_vectors(data, "old"))
    assert done.progress_ == head(epochs=0).fit(data.new, data.old, data.labels).progress_


@pytest.mark.parametrize("kind", ["labels", "groups", "pairs"])
def test_labels_that_are_not_used_may_disagree(items, head, kind):
    data = items()
    new, old = disagreeing(data)
    told = {
        "labels": data.labels,
        "groups": data.labels,
        "pairs": {f"item {row}": [f"item {row + 15}"] for row in range(75)},
    }[kind]
    done = head(epochs=0).fit(new.select(np.arange(90)[::-1]), old, **{kind: told})
    assert done.supervision_ == kind


@pytest.mark.parametrize("kind", ["tensor", "float64", "float16", "array", "read-only array"])
def test_the_kind_that_comes_in_goes_out(items, fitted, kind):
    new = items().new
    expected = fitted.transform(new)
    given = {
        "tensor": new,
        "float64": new.double(),
        "float16": new.half(),
        "array": new.numpy().astype(np.float64),
        "read-only array": np.frombuffer(new.numpy().tobytes(), np.float32).reshape(new.shape),
    }[kind]
    out = fitted.transform(given)
    assert isinstance(out, type(given))
    assert str(out.dtype).endswith("float32")
    torch.testing.assert_close(torch.as_tensor(out), expected, atol=2e-3, rtol=0)
    if "float16" not in kind:
        torch.testing.assert_close(torch.as_tensor(out), expected)


def test_arrays_fit_as_tensors_do(items, head):
    data = items()
    arrays = [
        np.frombuffer(x.numpy().tobytes(), np.float32).reshape(x.shape)
        for x in (data.new, data.old)
    ]
    done = head().fit(*arrays, data.labels.tolist())
    plain = head().fit(data.new, data.old, data.labels)
    assert torch.equal(done.transform(data.new), plain.transform(data.new))
    again = head().fit_transform(*arrays, np.array([f"class {n:02}" for n in data.labels]))
    assert np.array_equal(again, plain.transform(arrays[0]))


def test_many_rows_are_mapped_in_blocks(items, fitted, monkeypatch):
    new = items().new
    expected = fitted.transform(new)
    monkeypatch.setattr("nobackfill.head.validation.BLOCK", 7)
    torch.testing.assert_close(fitted.transform(new), expected)
    new[80] = 0
    with pytest.raises(DataError, match="vector of id 80"):
        fitted.transform(new)


def test_groups_and_pairs_say_the_same_as_labels(items, head):
    data = items()
    plain = head().fit(data.new, data.old, data.labels)
    groups = head().fit(data.new, data.old, groups=[f"{n:02}" for n in data.labels])
    assert (groups.progress_, groups.supervision_) == (plain.progress_, "groups")
    chain = {row: [row + 15] for row in range(75)}  # one item of a class leads to the next
    pairs = head().fit(data.new, data.old, pairs=chain)
    assert pairs.supervision_ == "pairs"
    assert pairs.progress_.closed == plain.progress_.closed
    by_id = {f"item {row}": [f"item {other}" for other in found] for row, found in chain.items()}
    with_ids = head().fit(*(as_vectors(data, side) for side in ("new", "old")), pairs=by_id)
    assert with_ids.progress_ == pairs.progress_


def test_items_in_no_pair_take_no_part_in_training(items, head):
    data = items()
    chain = {row: [row + 15] for row in range(60)}  # of the last 15, none
    done = head().fit(data.new, data.old, pairs=chain)
    short = head().fit(data.new[:75], data.old[:75], data.labels[:75])
    assert torch.equal(done.transform(data.new), short.transform(data.new))


def test_without_supervision_it_is_a_map_in_closed_form_and_says_so(items, head):
    data = items()
    done = head().fit(data.new, data.old)
    closed = ridge(data.new, data.old, strength=1e-3)
    torch.testing.assert_close(done.transform(data.new), closed(data.new))
    assert done.supervision_ == "none"
    assert done.notes_ == ("no supervision was used: the head is a closed-form map",)
    assert done.progress_.history == []


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        (np.arange(90) % 9, "9 classes, 9 of them with more than one item"),
        (np.arange(90), "90 classes, 0 of them"),
        ([0, 0, *range(1, 89)], "89 classes, 1 of them"),
        (np.zeros(90, dtype=int), "1 classes, 1 of them"),
    ],
)
def test_too_few_classes_to_hold_some_out_give_a_closed_form(items, head, labels, says):
    data = items()
    done = head().fit(data.new, data.old, labels)
    assert done.supervision_ == "none"
    assert says in done.notes_[0]
    assert "closed-form map" in done.notes_[0]
    torch.testing.assert_close(
        done.transform(data.new), ridge(data.new, data.old, strength=1e-3)(data.new)
    )


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_ten_classes_are_enough_whatever_the_share(items, head, share):
    data = items(classes=10)
    done = head(held_out=share, epochs=1).fit(data.new, data.old, data.labels)
    assert len(done.progress_.history) == 1
    assert len(set(done.progress_.closed.values())) > 1  # one class alone would always be found


def test_classes_of_one_item_are_fitted_on(items, head):
    data = items()
    labels = torch.cat([data.labels[:60], torch.arange(100, 130)])
    done = head().fit(data.new, data.old, labels)
    assert done.supervision_ == "labels"
    assert len(done.progress_.history) > 0


def test_training_that_diverges_is_told(items, head):
    data = items()
    done = head(learning_rate=1e30).fit(data.new, data.old, data.labels)
    assert "diverged at a learning rate of 1e+30" in done.notes_[0]
    assert done.progress_.best == 0
    assert done.transform(data.new).isfinite().all()


def test_a_method_with_nothing_to_learn_by_is_told(items, head):
    data = items()
    done = head("independent").fit(data.new, data.old, data.labels)
    assert "`independent` had no loss to minimise" in done.notes_[0]
    closed = head("independent", epochs=0).fit(data.new, data.old, data.labels)
    assert not any("no loss" in note for note in closed.notes_)
    learns = head("independent", classification=1.0).fit(data.new, data.old, data.labels)
    assert not any("no loss" in note for note in learns.notes_)


def with_row(rows, value, row=5):
    changed = rows.clone()
    changed[row] = value
    return changed


WRONG = {
    "NaN in new": (lambda d: (with_row(d.new, torch.nan), d.old, d.labels), "NaN or infinite"),
    "NaN in old": (lambda d: (d.new, with_row(d.old, torch.nan), d.labels), "NaN or infinite"),
    "infinite": (lambda d: (with_row(d.new, torch.inf), d.old, d.labels), "NaN or infinite"),
    "zero": (lambda d: (d.new, with_row(d.old, 0.0), d.labels), "id 5 .* only zeros"),
    "too long for float32": (
        lambda d: (with_row(d.new.double(), 1e300), d.old, d.labels),
        r"out of the range of float32: .* \(row 5\)",
    ),
    "of no length that float32 can tell": (
        lambda d: (with_row(d.new, 1e25), d.old, d.labels),
        r"out of the range of float32: .* \(row 5\) has 2.8.*e\+25",
    ),
    "too short": (
        lambda d: (with_row(d.new, 1e-20), d.old, d.labels),
        "out of the range of float32",
    ),
    "fewer old": (lambda d: (d.new, d.old[:80], d.labels), "`old` has 80 rows and `new` has 90"),
    "fewer labels": (
        lambda d: (d.new, d.old, d.labels[:80]),
        "are 80 labels for 90 of `old`",
    ),
    "a label missing": (
        lambda d: (d.new, d.old, [None, *d.labels.tolist()[1:]]),
        "`labels` must have a value in each row, but 1 of 90 are missing",
    ),
    "one vector": (lambda d: (d.new[0], d.old, d.labels), "shape"),
    "whole numbers": (lambda d: (d.new.long(), d.old, d.labels), "float32"),
    "other ids": (
        lambda d: (nb.Vectors(np.arange(90).astype(str), d.new), as_vectors(d, "old"), None),
        "none of 90 old and 90 new",
    ),
    "ids of another kind": (
        lambda d: (nb.Vectors(np.arange(90), d.new), as_vectors(d, "old"), None),
        "ids of one kind, but the old file names items like 'item 0' .* 0",
    ),
    "labels beside another order": (
        lambda d: (as_vectors(d, "new", np.arange(90)[::-1]), as_vectors(d, "old"), d.labels),
        "The order of labels is ambiguous",
    ),
    "one item": (lambda d: (d.new[:1], d.old[:1], None), "two items or more"),
    "all alike": (lambda d: (torch.ones(90, 8), d.old, None), "differ from each other"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_fitted_is_told(items, head, wrong):
    make, says = WRONG[wrong]
    new, old, labels = make(items())
    with pytest.raises(DataError, match=says):
        head().fit(new, old, labels)


def test_one_kind_of_supervision_is_enough(items, head):
    data = items()
    for given in (
        {"labels": data.labels, "groups": data.labels},
        {"labels": data.labels, "pairs": {0: [15]}},
        {"pairs": {0: [15]}, "groups": data.labels},
    ):
        with pytest.raises(ConfigError, match=f"not {' and '.join(given)}"):
            head().fit(data.new, data.old, **given)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"method": "bct"}, "fitted by `bct`.*cross_supcon"),
        ({"method": "cross_supkon"}, "Did you mean `cross_supcon`"),
        ({"method": "cross_supcon", "options": {"temperatur": 1.0}}, "Did you mean `temperature`"),
        ({"hidden": -1}, "`hidden` must be 0 or more"),
        ({"dropout": 1.0}, "`dropout`"),
        ({"held_out": 0.0}, "`held_out`"),
        ({"held_out": 1.0}, "`held_out`"),
        ({"batch_size": 0}, "`batch_size` must be 1 or more"),
        ({"together": 0}, "`together` must be 1 or more"),
        ({"extra": -1}, "`extra` must be 0 or more"),
    ],
)
def test_settings_are_looked_at_before_any_work(items, settings, says):
    data = items()
    with pytest.raises(ConfigError, match=says):
        nb.CompatibleHead(**settings).fit(data.new, data.old)  # without classes, too


def test_new_vectors_must_be_of_the_new_model(items, fitted):
    new = items().new
    with pytest.raises(SpaceMismatch, match=r"of 8 dimensions, but these have 7"):
        fitted.transform(new[:, :7])
    for wrong, says in ((with_row(new, 0.0), "zeros"), (new[0], "shape"), (new[:0], "shape")):
        with pytest.raises(DataError, match=says):
            fitted.transform(wrong)
    with pytest.raises(DataError, match="Call `fit` first"):
        nb.CompatibleHead().transform(new)
    with pytest.raises(DataError, match="Call `fit` first"):
        nb.CompatibleHead().save_pretrained("nowhere")


def test_scikit_learn_can_copy_and_change_it(items, head):
    made = head(options={"temperature": 0.2}, seconds=1e6, seed=4, together=2, extra=1)
    params = made.get_params()
    assert set(params) == {
        "method", "options", "hidden", "dropout", "epochs", "batch_size", "learning_rate",
        "weight_decay", "classification", "held_out", "test_share", "together", "extra",
        "old_query", "seconds", "seed", "device",
    }  # fmt: skip
    assert nb.CompatibleHead().set_params(**params).get_params() == params
    copy = clone(made)
    assert copy is not made
    assert copy.get_params() == params
    data = items()
    one, other = (each.fit(data.new, data.old, data.labels) for each in (made, copy))
    assert torch.equal(one.transform(data.new), other.transform(data.new))
    assert not hasattr(clone(one), "network_")
    with pytest.raises(ConfigError, match="Did you mean `epochs`"):
        made.set_params(epoch=3)


def test_settings_reach_the_fit(items, head, monkeypatch):
    data, seen = items(), {}

    def fit_network(network, examples, held_out, **more):
        seen.update(more, network=network)
        return 1

    monkeypatch.setattr("nobackfill.head.learn.fit_network", fit_network)
    settings = {
        "epochs": 5, "batch_size": 7, "learning_rate": 0.5, "weight_decay": 0.25,
        "classification": 0.125, "together": 3, "seconds": 3.0, "seed": 11,
    }  # fmt: skip
    head("ract", dropout=0.6, hidden=9, options={"temperature": 0.3}, **settings).fit(
        data.new, data.old, data.labels
    )
    assert {name: getattr(seen["config"], name) for name in settings} == settings
    assert seen["config"].method == "ract"
    assert seen["config"].options == {"temperature": 0.3}
    assert seen["network"].dropout == 0.6
    assert seen["network"].inner.out_features == 9


def test_whoever_watches_is_told_after_each_round(items, head):
    data, seen = items(), []
    head().fit(
        data.new,
        data.old,
        data.labels,
        watch=lambda progress: seen.append((len(progress.history), progress.done)),
    )
    assert seen == [(1, pytest.approx(1 / 3)), (2, pytest.approx(2 / 3)), (3, 1.0)]


@pytest.mark.parametrize("hidden", [0, 16])
def test_what_was_saved_does_the_same_to_the_bit(items, head, tmp_path, hidden):
    data = items()
    options = {"temperature": 0.2}
    made = head(hidden=hidden, options=options, seconds=float("inf"))
    made.fit(data.new, data.old, data.labels)
    made.save_pretrained(tmp_path / "head")
    read = nb.CompatibleHead.from_pretrained(tmp_path / "head")
    assert torch.equal(read.transform(data.new), made.transform(data.new))
    assert read.progress_ == made.progress_
    assert (read.supervision_, read.notes_) == (made.supervision_, made.notes_)
    assert read.space_ == made.space_
    assert read.get_params() == {**made.get_params(), "seconds": None}
    assert not read.network_.training
    again = clone(read).fit(data.new, data.old, data.labels)
    assert torch.equal(again.transform(data.new), made.transform(data.new))


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_config_is_strict_json_also_where_nothing_was_measured(items, head, tmp_path):
    data = items()
    made = head().fit(data.new, data.old)  # held out were none: NaN
    made.save_pretrained(tmp_path)
    config = strict((tmp_path / "config.json").read_text())
    assert set(config["progress"]["closed"].values()) == {None}
    assert (config["new_dim"], config["old_dim"], config["supervision"]) == (8, 6, "none")
    read = nb.CompatibleHead.from_pretrained(tmp_path)
    assert all(value != value for value in read.progress_.closed.values())
    assert read.notes_ == made.notes_


def test_the_correction_begins_with_weights_of_the_seed(items, head):
    data = items()
    one, again, other = (
        head(seed=seed, epochs=0).fit(data.new, data.old, data.labels).network_.inner.weight
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
