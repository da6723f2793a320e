"""What a head is fitted on: training items by `split`, or all but classes kept for evaluation."""

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.errors import ConfigError, DataError
from nobackfill.head.seen_items import id_marks

CLASSES, PER_CLASS = 40, 6
LABELS = np.arange(CLASSES * PER_CLASS) % CLASSES
IDS = np.array([f"item {row}" for row in range(len(LABELS))])


def sides(seed=0, labels=LABELS, **columns):
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(CLASSES, 12, generator=generator)
    noise = torch.randn(2, len(LABELS), 12, generator=generator)
    turn = torch.linalg.qr(torch.randn(12, 12, generator=generator)).Q
    old = nb.Vectors(IDS, means[LABELS] + 1.5 * noise[0], labels, columns=columns)
    new = nb.Vectors(IDS, (means[LABELS] + 0.7 * noise[1]) @ turn)
    return new, old


def fitted_ids(head):
    """Ids that the head marks as fitted."""
    return set(IDS[np.isin(id_marks(IDS), np.concatenate(head.fitted_))].tolist())


def head(**settings):
    return nb.CompatibleHead(epochs=1, **settings)


@pytest.mark.parametrize("names", [("train", "validation"), ("Train", "TEST"), ("fit", "dev")])
def test_only_training_items_are_fitted_on(names):
    is_training = LABELS % 4 > 0
    new, old = sides(split=np.where(is_training, *names))
    assert fitted_ids(head().fit(new, old)) == set(IDS[is_training])


def test_the_result_is_that_of_the_training_items_alone():
    is_training = LABELS % 4 > 0
    new, old = sides(split=np.where(is_training, "train", "test"))
    expected = head(test_share=0.0).fit(new.select(is_training), sides()[1].select(is_training))
    assert torch.equal(head().fit(new, old).transform(new).vectors, expected.transform(new).vectors)


@pytest.mark.parametrize("kind", ["labels", "groups"])
def test_labels_of_the_call_follow_the_split(kind):
    is_training = LABELS % 4 > 0
    new, old = sides(labels=None, split=np.where(is_training, "train", "test"))
    fitted = head().fit(new, old, **{kind: LABELS.tolist()})
    assert fitted_ids(fitted) == set(IDS[is_training])
    assert fitted.supervision_ == kind


def test_pairs_with_items_of_the_evaluation_are_dropped():
    split = np.where(LABELS % 4 > 0, "train", "validation")
    new, old = sides(labels=None, split=split)
    pairs = {IDS[row]: [IDS[row + CLASSES], IDS[row + 3]] for row in range(CLASSES)}
    fitted = fitted_ids(head().fit(new, old, pairs=pairs))
    assert fitted <= set(IDS[split == "train"])
    assert len(fitted) > CLASSES


def test_a_split_of_unknown_values_is_refused_by_name():
    new, old = sides(split=np.where(LABELS % 4 > 0, "train", "gallery A"))
    with pytest.raises(DataError, match="'gallery a'.*`train`.*`validation`"):
        head().fit(new, old)


def test_a_split_without_training_items_is_never_all_items():
    new, old = sides(split=np.full(len(LABELS), "validation"))
    with pytest.raises(DataError, match="none of the 240 items"):
        head().fit(new, old)


def test_without_a_split_classes_are_kept_and_named():
    new, old = sides()
    fitted = head().fit(new, old)
    kept = set(IDS) - fitted_ids(fitted)
    classes = {LABELS[row] for row, item in enumerate(IDS) if item in kept}
    assert len(classes) == 8
    assert len(kept) == 8 * PER_CLASS
    (note,) = [note for note in fitted.notes_ if "no column `split`" in note]
    assert "8 of 40 classes, 48 of 240 items" in note
    assert str(min(classes)) in note


def test_all_are_fitted_on_if_asked_and_it_is_said():
    new, old = sides()
    fitted = head(test_share=0.0).fit(new, old)
    assert fitted_ids(fitted) == set(IDS)
    assert any("decides nothing" in note for note in fitted.notes_)
    with pytest.raises(ConfigError, match="test_share"):
        head(test_share=1.0).fit(new, old)


def test_arrays_are_all_fitted_on():
    new, old = sides()
    arrays = (new.vectors, old.vectors, LABELS)
    first = head().fit(*arrays).transform(new.vectors)
    assert torch.equal(first, head(test_share=0.0).fit(*arrays).transform(new.vectors))


def test_noise_is_not_compatible_whatever_was_fitted():
    """The first commands of the README: no `split`, and a head fitted on the items searched."""
    _, old = sides()
    noise = torch.randn(len(LABELS), 12, generator=torch.Generator().manual_seed(9))
    new = nb.Vectors(IDS, noise)
    fitted = nb.CompatibleHead(old_query=False).fit(new, old)
    evaluation = nb.evaluate(old, fitted.transform(new))
    assert evaluation.verdict == "not compatible"
    assert evaluation.num_seen == 240 - 48
    everything = nb.CompatibleHead(test_share=0.0, old_query=False).fit(new, old)
    assert nb.evaluate(old, everything.transform(new)).verdict == "undecided"
