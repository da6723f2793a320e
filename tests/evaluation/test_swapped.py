"""Old and new files that are swapped are noticed by their records and their dimensions."""

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.errors import SpaceMismatch
from nobackfill.evaluation.swapped import swap_notes, swap_of
from nobackfill.head.source import swap_notes_of_head
from nobackfill.vectors.space import CompatibleWith, Space

OLD_SPACE = Space(dim=6, weights="old")
MADE_FOR_OLD = Space(dim=6, weights="new", parent=OLD_SPACE.fingerprint)
MEASURED = Space(
    dim=6, weights="new", compatible_with=(CompatibleWith(OLD_SPACE.fingerprint, "mAP", 0.5),)
)


def vectors(space=None, *, dim=6, compatible_dim=None, seed=0, number=320):
    generator = torch.Generator().manual_seed(seed)
    labels = np.arange(number) % 40
    centre = torch.randn(40, dim, generator=torch.Generator().manual_seed(dim))
    values = centre[labels] + 0.5 * torch.randn(number, dim, generator=generator)
    return nb.Vectors(np.arange(number), values, labels, space=space, compatible_dim=compatible_dim)


OLD = vectors(OLD_SPACE)


@pytest.mark.parametrize("space", [MADE_FOR_OLD, MEASURED])
def test_records_tell_which_is_the_newer(space):
    new = vectors(space, seed=1)
    assert swap_of(OLD, new) is None
    assert "new ones" in swap_of(new, OLD)
    assert nb.evaluate(new, OLD).verdict == "undecided"
    assert any("swapped" in doubt for doubt in nb.evaluate(new, OLD).doubts)
    assert not any("swapped" in doubt for doubt in nb.evaluate(OLD, new).doubts)


def test_dimensions_tell_which_is_the_newer():
    new = vectors(dim=8, compatible_dim=6, seed=1)
    assert swap_notes(OLD, new) == ()
    assert "first 6 of the 8 dimensions of the old vectors" in swap_of(new, OLD)
    with pytest.raises(SpaceMismatch, match="swapped.*Pass them the other way round"):
        nb.evaluate(new, OLD)
    assert nb.evaluate(OLD, new).old_old is not None


def test_assess_is_inconclusive_about_swapped_files():
    new = vectors(MADE_FOR_OLD, seed=1)
    assert nb.assess(new, OLD, epochs=0).verdict == "inconclusive"
    assert any("swapped" in doubt for doubt in nb.assess(new, OLD, epochs=0).doubts)
    assert not any("swapped" in doubt for doubt in nb.assess(OLD, new, epochs=0).doubts)


def test_a_head_names_the_old_vectors_and_mapped_ones(tmp_path):
    new = vectors(Space(dim=8, weights="new"), dim=8, seed=1)
    head = nb.CompatibleHead(epochs=0, old_query=False).fit(new, OLD)
    with pytest.raises(SpaceMismatch, match="of the old model, so old and new seem to be swapped"):
        head.transform(OLD)
    bare = nb.Vectors(OLD.ids, OLD.vectors)
    with pytest.raises(SpaceMismatch, match="6 dimensions, so old and new may be swapped"):
        head.transform(bare)
    with pytest.raises(SpaceMismatch, match="6 dimensions, so old and new may be swapped"):
        head.transform(OLD.vectors)
    with pytest.raises(SpaceMismatch, match="has mapped them already"):
        head.transform(head.transform(new))
    with pytest.raises(SpaceMismatch, match="5 dimensions, or|have 5. Pass vectors of the same"):
        head.transform(torch.ones(1, 5))


def test_a_second_fit_the_other_way_round_is_noticed(tmp_path):
    same_dim = vectors(Space(dim=6, weights="new"), seed=1)
    longer = vectors(dim=8, seed=1)
    for name, new in (("records", same_dim), ("dimensions", longer)):
        nb.CompatibleHead(epochs=0).fit(new, OLD).save_pretrained(tmp_path / name)
        assert swap_notes_of_head(tmp_path / name, OLD, new) == ()
        (note,) = swap_notes_of_head(tmp_path / name, new, OLD)
        assert "swapped: the head that was in" in note
    assert swap_notes_of_head(tmp_path / "records", longer, longer) == ()
    assert swap_notes_of_head(tmp_path / "none", same_dim, OLD) == ()
