"""Ways to fool `evaluate`: files that look like an upgrade, and the verdicts they must get."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nobackfill.vectors.space import Space

CODES = {"not compatible": 1, "refused": 2, "mixed": 3, "undecided": 3}
DECEPTIONS = []


def deception(*verdicts, says="", fooled=""):
    """Adds a builder of two files to the suite.

    Args:
        verdicts: Right verdicts.
        says: Words of the page or the error, and of the notes or the error in Python.
        fooled: Why the gate is fooled today; empty if it is not.
    """

    def add(build):
        marks = [pytest.mark.xfail(strict=True, reason=fooled)] if fooled else []
        DECEPTIONS.append(pytest.param(build, verdicts, says, id=build.__name__, marks=marks))
        return build

    return add


# Nothing is new


@deception("undecided", says="the same")
def new_is_old(world):
    w = world()
    return w.upgrade(w.view(), w.view())


@deception("undecided", says="the same")
def new_is_old_in_half_precision(world):
    w = world()
    return w.upgrade(w.view(), w.view().half())


@deception("undecided", says="the same")
def new_is_old_scaled(world):
    w = world()
    return w.upgrade(w.view(), w.view() * torch.linspace(0.1, 9, w.size)[:, None])


@deception("undecided")
def new_is_old_with_little_noise(world):
    w = world()
    return w.upgrade(w.view(), w.view(noise=0.01))


@deception("undecided", "not compatible")
def new_is_old_with_fresh_noise(world):
    w = world()
    return w.upgrade(w.view(), w.view(noise=0.5))


@deception("undecided", "not compatible")
def both_models_are_equally_good(world):
    w = world()
    return w.upgrade(w.view(spread=0, noise=1.5), w.view(spread=0, noise=1.5))


@deception("not compatible", says="no closer to the old vectors of their own items")
def new_is_old_rotated(world):
    w = world()
    return w.upgrade(w.view(), w.view() @ torch.linalg.qr(w.random(w.dim)).Q)


@deception("not compatible", says="no closer to the old vectors of their own items")
def new_is_old_negated(world):
    w = world()
    return w.upgrade(w.view(), -w.view())


@deception("not compatible", says="no closer to the old vectors of their own items")
def new_is_old_with_permuted_dimensions(world):
    w = world()
    return w.upgrade(w.view(), w.view()[:, torch.arange(w.dim).roll(3)])


@deception("not compatible", says="no closer to the old vectors of their own items")
def a_better_model_in_a_space_of_its_own(world):
    w = world()
    return w.upgrade(w.view(), w.view(spread=0.3) @ torch.linalg.qr(w.random(w.dim)).Q)


@deception("not compatible", says="no closer to the old vectors of their own items")
def new_is_noise(world):
    w = world()
    return w.upgrade(w.view(), w.random(w.size))


# Labels say nothing


@deception("undecided", "not compatible")
def shuffled_labels(world):
    w = world()
    labels = w.shuffled(w.labels)
    return w.upgrade(w.view(), w.view(spread=0.3), labels=labels)


@deception("refused", says="no gallery item has the label of any query")
def labels_that_are_ids(world):
    w = world()
    return w.upgrade(w.view(), w.view(spread=0.3), labels=w.ids)


@deception("undecided", says="at least 8 independent groups")
def labels_that_are_ids_but_for_a_few(world):
    w = world()
    labels = np.array(w.ids, dtype=object)
    labels[:12] = [f"class {row // 3}" for row in range(12)]
    return w.upgrade(w.view(), w.view(spread=0.3), labels=labels.tolist())


@deception("refused", says="at least two classes")
def one_label_for_all(world):
    w = world()
    return w.upgrade(w.view(), w.view(spread=0.3), labels=["all"] * w.size)


@deception("refused", says="items need the same labels in all files")
def labels_that_differ(world, upgrade_of):
    w = world()
    old, new = (w.upgrade(w.view(), w.view(spread=0.3)).old for _ in range(2))
    object.__setattr__(new, "labels", np.roll(new.labels, 1))
    return upgrade_of(old, new)


@deception("undecided", says="at least 8 independent groups")
def a_column_of_two_values_for_labels(world):
    """The new model knows which half an item is in, whatever that means."""
    w = world()
    half = w.labels % 2
    new = w.view() + 9 * torch.from_numpy(half)[:, None] * w.random(1)
    return w.upgrade(w.view(), new, options={"group": "half"}, half=half)


@deception("undecided", "not compatible")
def a_column_of_another_meaning_for_labels(world):
    w = world()
    shelf = w.shuffled(np.arange(w.size) % 20)
    return w.upgrade(w.view(), w.view(spread=0.3), options={"group": "shelf"}, shelf=shelf)


# Constant vectors and ties


@deception("undecided", says="the vectors of the gallery are all the same")
def constant_old_vectors(world):
    w = world()
    return w.upgrade(w.random(1).expand(w.size, -1).clone(), w.view())


@deception("undecided", says="the vectors of the new queries are all the same")
def constant_new_vectors(world):
    w = world()
    return w.upgrade(w.random(w.size), w.random(1).expand(w.size, -1).clone())


@deception("undecided", says="all the same")
def constant_vectors_in_both_files(world):
    w = world()
    return w.upgrade(*(w.random(1).expand(w.size, -1).clone() for _ in range(2)))


@deception("undecided", says="made from the labels")
def one_new_vector_per_class(world):
    """Whoever has the labels can write the mean of its class for every item."""
    w = world()
    old = w.view()
    means = torch.stack([old[w.labels == label].mean(dim=0) for label in np.unique(w.labels)])
    return w.upgrade(old, means[w.labels])


@deception("undecided", says="made from the labels")
def one_random_vector_per_class(world):
    w = world()
    return w.upgrade(w.view(), w.random(24)[w.labels])


@deception("undecided", says="the vectors of the gallery are all the same")
def a_gallery_of_duplicates(world):
    """All gallery items have one vector, and the file lists those of the class first."""
    w = world()
    is_query = np.arange(w.size) % 8 == 0
    old = w.view()
    old[torch.from_numpy(~is_query)] = old[1].clone()
    return w.upgrade(old, w.view(spread=0.3), is_query=is_query, is_gallery=~is_query)


@deception("undecided", says="old rankings are in the order of the file")
def noise_that_breaks_ties(world):
    """Old vectors are rounded to signs, and the file lists what nobody looks for first."""
    w = world(classes=48, items=8, dim=6)
    old = w.view(spread=1.0).sign()
    # queries and relevant items are in the last third
    is_query = (w.labels >= 32) & (np.arange(w.size) % 8 == 0)
    return w.upgrade(old, old + 0.05 * w.random(w.size), is_query=is_query, is_gallery=~is_query)


# Too few, or one of many


@deception("undecided", says="at least 8 independent groups")
def six_items(world):
    w = world(classes=3, items=2)
    return w.upgrade(w.view(), w.view(spread=0.1))


def better_model(world, classes):
    w = world(classes=classes, items=40)
    return w.upgrade(w.view(), w.view(spread=0.3))


@deception("undecided", says="at least 8 independent groups, such as classes, and these are of 3")
def three_classes(world):
    return better_model(world, 3)


@deception("undecided", says="at least 8 independent groups, such as classes, and these are of 5")
def five_classes(world):
    return better_model(world, 5)


@deception("undecided", says="at least 8 independent groups, such as classes, and these are of 7")
def seven_classes(world):
    return better_model(world, 7)


@deception("undecided", says="one class holds 300 of 340 queries")
def one_class_holds_most_queries(world):
    w = world(classes=170, items=2)
    labels = np.where(w.labels < 150, 0, w.labels)
    old = w.random(340)
    new = old.clone()
    new[:300] += 3 * w.random(1)  # gains by this class alone
    return w.upgrade(old, new, labels=labels)


# Rows do not belong to their ids


@deception("undecided", says="new queries are the old vectors of other items")
def rows_shifted_by_one(world):
    w = world()
    return w.upgrade(w.view(), w.view().roll(1, 0))


@deception("undecided", says="new queries are the old vectors of other items")
def rows_shifted_by_two(world):
    w = world()
    return w.upgrade(w.view(), w.view().roll(-2, 0))


@deception("undecided", says="new queries are the old vectors of other items")
def rows_shifted_within_classes(world):
    w = world()
    return w.upgrade(w.view(), w.view().view(24, 8, -1).roll(1, 1).reshape(w.size, -1))


@deception("undecided", says="new queries are the old vectors of other items")
def rows_shifted_by_many(world):
    """Rows of a file whose classes take turns, shifted by one turn."""
    w = world()
    order = torch.arange(w.size).view(24, 8).T.flatten()
    old = w.view()[order]
    return w.upgrade(old, old.roll(24, 0), labels=w.labels[order])


@deception("undecided", says="1 row above their own")
def rows_of_another_model_shifted_by_one(world):
    w = world()
    return w.upgrade(w.view(), w.view(noise=0.3).roll(1, 0))


@deception("undecided", says="2 rows below their own")
def rows_of_another_model_shifted_by_two(world):
    w = world()
    return w.upgrade(w.view(), w.view(noise=0.3).roll(-2, 0))


@deception("undecided", says="new queries are the old vectors of other items")
def ids_permuted_within_classes(world):
    w = world()
    rows = np.concatenate([w.shuffled(range(first, first + 8)) for first in range(0, w.size, 8)])
    return w.upgrade(w.view(), w.view()[torch.from_numpy(rows)])


@deception("undecided", says="ids are mixed up")
def ids_of_another_model_permuted_within_classes(world):
    """The model gains nothing, but its queries find their own item under another id."""
    w = world()
    rows = np.concatenate([w.shuffled(range(first, first + 8)) for first in range(0, w.size, 8)])
    return w.upgrade(w.view(), w.view(noise=0.3)[torch.from_numpy(rows)])


@deception("undecided", says="ids are mixed up")
def rows_of_another_model_shifted_by_many(world):
    w = world()
    order = torch.arange(w.size).view(24, 8).T.flatten()
    old, new = w.view()[order], w.view(noise=0.3)[order]
    return w.upgrade(old, new.roll(24, 0), labels=w.labels[order])


@deception("undecided", says="swapped")
def swapped_files(world):
    """The files declare their spaces: the new one is the older."""
    w = world()
    first = Space(dim=16, weights="first")
    second = Space(dim=16, weights="second", parent=first.fingerprint)
    files = w.upgrade(w.view(spread=2), w.view(spread=1))
    for file, space in ((files.old, second), (files.new, first)):
        object.__setattr__(file, "space", space)
    return files


@deception("not compatible")
def swapped_files_without_records(world):
    w = world()
    return w.upgrade(w.view(spread=0.3), w.view(spread=2))


@deception("not compatible", says="no closer to the old vectors of their own items")
def another_data_set_with_the_same_row_numbers(world):
    w, other = world(), world(seed=1)
    return w.upgrade(w.view(), other.view(spread=0.3), ids=list(range(w.size)))


@deception("refused", says="Embed the same items")
def another_data_set_with_its_own_ids(world, upgrade_of):
    w, other = world(), world(seed=1)
    other.ids = [f"thing {row}" for row in range(other.size)]
    return upgrade_of(
        w.upgrade(w.view(), w.view()).old, other.upgrade(other.view(), other.view()).new
    )


@deception("undecided", says="at least 8 independent groups")
def the_intersection_of_two_data_sets(world, upgrade_of):
    w = world()
    files = w.upgrade(w.view(), w.view(spread=0.3), options={"intersect": True})
    return upgrade_of(files.old, files.new.select(range(24)), options=files.options)


# Splits


@deception("refused", says="'trian'")
def a_split_spelled_oddly(world):
    w = world()
    split = np.where(w.labels % 2, "trian", "validation")
    return w.upgrade(w.view(), w.view(spread=0.3), split=split)


@deception("refused", says="0 queries and 0 gallery items are left")
def everything_is_marked_as_training(world):
    w = world()
    return w.upgrade(w.view(), w.view(spread=0.3), split=["TRAIN"] * w.size)


@deception("undecided", says="at least 8 independent groups")
def all_but_a_few_classes_are_training(world):
    w = world()
    split = np.where(w.labels < 20, "Train", "Test")
    return w.upgrade(w.view(), w.view(spread=0.3), split=split)


# Lists of relevant items


def classes_as_truth(w):
    return {
        item: [other for other, label in zip(w.ids, w.labels, strict=True) if label == own]
        for item, own in zip(w.ids, w.labels, strict=True)
    }


@deception("undecided", says="at least 8 independent groups")
def a_truth_that_repeats_four_classes(world):
    """By chance the model is better for three of four classes."""
    w = world(classes=4, items=40)
    new = w.view()
    new[:120] += 0.4 * w.means[w.labels[:120]]
    return w.upgrade(w.view(), new, truth=classes_as_truth(w), labels=None)


@deception("undecided", says="at least 8 independent groups")
def a_truth_in_which_all_queries_share_an_item(world):
    w = world()
    truth = {item: [*found, w.ids[0]] for item, found in classes_as_truth(w).items()}
    return w.upgrade(w.view(), w.view(spread=0.3), truth=truth, labels=None)


@deception("undecided", says="at least 8 independent groups")
def a_truth_that_is_a_chain(world):
    """Each query looks for the next item, so all depend on each other."""
    w = world()
    new = w.view() + 0.3 * w.view().roll(-1, 0)
    truth = dict(zip(w.ids, ([item] for item in [*w.ids[1:], w.ids[0]]), strict=True))
    return w.upgrade(w.view(), new, truth=truth, labels=None)


@deception("refused", says="a query does not count for itself")
def queries_that_are_their_own_relevant_items(world):
    w = world()
    truth = {item: [item] for item in w.ids}
    return w.upgrade(w.view(), w.view(spread=0.3), truth=truth, labels=None)


@deception("undecided", says="at least 8 independent groups")
def a_truth_for_three_queries(world):
    w = world()
    truth = {item: found for item, found in classes_as_truth(w).items() if item in w.ids[:24:8]}
    return w.upgrade(w.view(), w.view(spread=0.3), truth=truth, labels=None)


# More than mAP


@deception("mixed", says="Recall@1 falls")
def map_rises_while_the_first_hits_fall(world):
    """Old queries find a copy of their item first; new ones do not, but find the class."""
    w = world(items=12)
    old = w.view(spread=3)
    old[1::2] = old[::2] + 0.1 * w.random(w.size // 2)
    return w.upgrade(old, w.view(spread=0.3, noise=0.1))


@deception("mixed", says="nDCG@10 falls")
def first_hits_rise_while_map_falls(world):
    w = world(items=12)
    old = w.view(spread=1)
    new = old.view(-1, 2, w.dim).flip(1).reshape(w.size, -1) + 1.2 * w.random(w.size)
    return w.upgrade(old, new)


@deception("not compatible", "undecided")
def a_gain_below_the_smallest_gain(world):
    w = world()
    return w.upgrade(w.view(), w.view(spread=1.4), options={"min_gain": 0.2})


@deception("not compatible", "undecided")
def too_many_negative_flips(world):
    w = world()
    options = {"metric": ["map"], "max_negative_flips": 0.01}
    return w.upgrade(w.view(), w.view(spread=1.2, noise=0.6), options=options)


# Items that depend on each other


def copied(world, likeness):
    """Four classes, copied 20 times under other labels and ids; the new model suits two of them."""
    w = world(classes=4, items=8, seed=3)
    new = w.view()
    new[:24] += 0.6 * w.means[w.labels[:24]]
    labels = np.concatenate([w.labels + 4 * copy for copy in range(20)])
    noise = (1 / likeness**2 - 1) ** 0.5
    sides = []
    for side in (w.view(), new):
        rows = F.normalize(side, dim=1).repeat(20, 1)
        around = torch.randn(rows.shape, generator=w.generator) / w.dim**0.5
        sides.append(rows + noise * around)
    # copies of an item are in one gallery: the nearest items are of other classes
    w.ids = [f"item {row}" for row in range(len(labels))]
    return w.upgrade(*sides, labels=labels)


@deception("undecided", says="near-duplicates of queries of other classes")
def classes_copied_twenty_times(world):
    return copied(world, 1.0)


@deception("undecided", says="near-duplicates of queries of other classes")
def classes_copied_with_small_noise(world):
    return copied(world, 0.9985)


@deception("undecided", says="near-duplicates of queries of other classes")
def classes_copied_with_more_noise(world):
    return copied(world, 0.985)


@deception("undecided", says="near-duplicates of queries of other classes")
def classes_copied_with_much_noise(world):
    return copied(world, 0.97)


@deception("undecided", fooled="copies are hardly closer than items of a class are to each other")
def classes_copied_with_as_much_noise_as_items_have(world):
    return copied(world, 0.9)


@deception("undecided", "not compatible")
def a_model_that_knows_the_photograph(world):
    """Two crops of each photograph: the new model finds the other crop, and nothing else."""
    w = world()
    photo = np.arange(w.size) // 2
    scene = 2 * w.random(w.size // 2)[photo]
    old = w.view() + scene
    return w.upgrade(
        old, old + scene + 0.3 * w.random(w.size), options={"group_leak": "photo"}, photo=photo
    )


# Items that a head was fitted on


@deception("undecided", says="the head was fitted on all 192 queries")
def all_items_were_fitted_on(world):
    w = world()
    files = w.upgrade(w.view(), w.view(spread=0.3))
    files.new.columns["fitted"] = np.ones(w.size, dtype=bool)
    return files


@deception("undecided", says="the head was fitted on all 192 queries")
def an_item_of_each_class_was_fitted_on(world):
    w = world()
    files = w.upgrade(w.view(), w.view(spread=0.3))
    files.new.columns["fitted"] = np.arange(w.size) % 8 == 0
    return files


@deception("undecided", says="184 of 192 queries")
def all_but_a_few_classes_were_fitted_on(world):
    w = world()
    files = w.upgrade(w.view(), w.view(spread=0.3))
    files.new.columns["fitted"] = np.arange(w.size) < 180
    return files


@deception("undecided", says="the head was fitted on all 192 queries")
def marks_of_fitted_items_as_numbers(world):
    w = world()
    files = w.upgrade(w.view(), w.view(spread=0.3))
    files.new.columns["fitted"] = np.ones(w.size, dtype=np.int64)
    return files


@deception("undecided", says="the head was fitted on all 96 queries")
def training_items_of_the_same_classes(world):
    """A split by items: the head has seen every class that is searched."""
    w = world()
    is_training = np.arange(w.size) % 2 == 0
    files = w.upgrade(
        w.view(), w.view(spread=0.3), split=np.where(is_training, "train", "validation")
    )
    files.new.columns["fitted"] = is_training
    return files


@deception(
    "undecided",
    says="the head was fitted on all 192 queries",
)
def training_items_that_are_copies(world):
    """The head was fitted on copies of every query, under other labels and ids."""
    w = world()
    old, new = (side.repeat(2, 1) for side in (w.view(), w.view(spread=0.3)))
    is_training = np.arange(2 * w.size) >= w.size
    w.ids = [f"item {row}" for row in range(2 * w.size)]
    labels = np.concatenate([w.labels, w.labels + 24])
    files = w.upgrade(old, new, labels=labels, split=np.where(is_training, "train", "validation"))
    files.new.columns["fitted"] = is_training
    return files


@deception("undecided", says="the head was fitted on all 192 queries")
def training_items_that_are_copies_with_noise(world):
    """No copy is a near-duplicate by itself, but every class is copied."""
    w = world()
    noise = (1 / 0.985**2 - 1) ** 0.5
    sides = []
    for side in (w.view(), w.view(spread=1.2)):
        rows = F.normalize(side, dim=1).repeat(2, 1)
        around = torch.randn(rows.shape, generator=w.generator) / w.dim**0.5
        around[: w.size] = 0
        sides.append(rows + noise * around)
    is_training = np.arange(2 * w.size) >= w.size
    w.ids = [f"item {row}" for row in range(2 * w.size)]
    labels = np.concatenate([w.labels, w.labels + 24])
    split = np.where(is_training, "train", "validation")
    files = w.upgrade(*sides, labels=labels, split=split)
    files.new.columns["fitted"] = is_training
    return files


@pytest.mark.parametrize(("build", "verdicts", "says"), DECEPTIONS)
def test_nobody_is_fooled(build, verdicts, says, world, upgrade_of, by_command, by_python):
    more = (upgrade_of,) if build.__code__.co_argcount > 1 else ()
    upgrade = build(world, *more)
    verdict, notes = by_python(upgrade)
    code, text = by_command(upgrade)
    assert verdict in verdicts, notes
    assert says in notes
    assert code == CODES[verdict], text
    assert says in text


def test_the_suite_is_large():
    assert len(DECEPTIONS) >= 40
