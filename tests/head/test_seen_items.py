"""A head knows the items again that it was fitted on, and says so in what it makes."""

import json
from hashlib import blake2b

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.errors import DataError
from nobackfill.head import stack_modalities
from nobackfill.head.seen_items import counts_rows, id_marks, vector_marks


@pytest.fixture
def files(items):
    """New and old vectors of some items."""

    def make(rows=slice(None), *, ids=None, **more):
        data = items()
        names = data.ids[rows] if ids is None else ids
        labels = data.labels.numpy()[rows]
        return tuple(nb.Vectors(names, side[rows], labels, **more) for side in (data.new, data.old))

    return make


def flags(vectors):
    return vectors.columns["fitted"].tolist()


def test_what_it_was_fitted_on_is_known_again(files, head, items):
    done = head(epochs=1).fit(*files(slice(0, 60)))
    made = done.transform(files()[0])
    assert flags(made) == [True] * 60 + [False] * 30  # held-out classes chose where to stop
    assert made.vectors.equal(done.transform(items().new))


def test_items_are_known_by_id_though_their_vectors_were_made_again(files, head):
    done = head(epochs=1).fit(*files(slice(0, 60)))
    new = files()[0]
    again = nb.Vectors(new.ids, new.vectors * 1.001)
    assert flags(done.transform(again)) == [True] * 60 + [False] * 30


def test_items_are_known_by_vector_though_they_have_other_names(files, head):
    done = head(epochs=1).fit(*files(slice(0, 60)))
    new = files()[0]
    named = nb.Vectors([f"other {i}" for i in range(90)], new.vectors.double())
    assert flags(done.transform(named)) == [True] * 60 + [False] * 30


def test_row_numbers_name_no_item(files, head):
    done = head(epochs=1).fit(*files(slice(0, 60), ids=np.arange(60)))
    others = files(slice(60, 90), ids=np.arange(30))[0]
    assert not any(flags(done.transform(others)))
    mixed = files(slice(50, 90), ids=np.arange(40))[0]
    assert flags(done.transform(mixed)) == [True] * 10 + [False] * 30


def test_numbers_that_do_not_count_rows_name_items(files, head):
    ids = np.arange(90) ** 2
    done = head(epochs=1).fit(*files(slice(0, 60), ids=ids[:60]))
    new = files()[0]
    assert flags(done.transform(nb.Vectors(ids, new.vectors * 1.001))) == [True] * 60 + [False] * 30
    assert counts_rows(np.array([7, 8, 9]))
    assert not counts_rows(np.array([9, 8, 7]))
    assert not counts_rows(np.array(["7", "8"]))


def test_only_what_both_have_and_what_pairs_name_takes_part(files, head):
    new, old = files()
    labels, ids = new.labels, new.ids.tolist()
    pairs = {ids[i]: [ids[i + 15]] for i in range(60) if labels[i] < 12}  # in rows below 75
    done = head(epochs=1).fit(new, old.select(np.arange(80)), pairs=pairs)
    assert done.supervision_ == "pairs"
    expected = [row < 75 and label < 12 for row, label in enumerate(labels.tolist())]
    assert flags(done.transform(new)) == expected


def test_a_closed_form_is_fitted_on_all(files, head):
    new, old = (nb.Vectors(side.ids, side.vectors) for side in files())
    done = head().fit(new.select(np.arange(50)), old)
    assert done.supervision_ == "none"
    assert flags(done.transform(new)) == [True] * 50 + [False] * 40


def test_rows_of_arrays_are_known_by_vector(files, head):
    new, old = files()
    some = slice(0, 60)
    done = head(epochs=1).fit(new.vectors[some], old.vectors[some], new.labels[some])
    assert flags(done.transform(new)) == [True] * 60 + [False] * 30
    renamed = nb.Vectors(np.arange(90), new.vectors)
    assert flags(done.transform(renamed)) == [True] * 60 + [False] * 30


def test_marks_tell_what_they_were_made_of_but_not_the_zeros_behind():
    mark = int.from_bytes(blake2b(b"7", digest_size=8, person=b"id").digest(), "little")
    assert id_marks(np.array([7])).tolist() == id_marks(np.array(["7"])).tolist() == [mark]
    assert id_marks(np.array(["a", "b"])).dtype == np.uint64
    some = torch.tensor([[1.0, 0, 2, 0], [1, 2, 0, 0]])
    assert len(set(vector_marks(some).tolist())) == 2
    assert vector_marks(some).tolist() == vector_marks(some[:, :3].double()).tolist()
    assert id_marks(np.array(["half \ud800"])).shape == (1,)


def test_many_rows_are_marked_in_blocks(monkeypatch):
    vectors = torch.randn(11, 4, generator=torch.Generator().manual_seed(0))
    expected = vector_marks(vectors)
    monkeypatch.setattr("nobackfill.vectors.matrix.BLOCK", 12)
    assert vector_marks(vectors).tolist() == expected.tolist()


def test_an_earlier_head_is_not_forgotten(files, head):
    first = [True] * 5 + [False] * 85
    new, _ = files(columns={"fitted": first})
    done = head(epochs=1).fit(*files(slice(30, 90)))
    assert flags(done.transform(new)) == first[:30] + [True] * 60


def test_a_column_of_that_name_with_something_else_is_told(files, head):
    done = head(epochs=1).fit(*files())
    new, _ = files(columns={"fitted": ["well"] * 90})
    with pytest.raises(DataError, match="`fitted` must be true .*'well'.*Rename it"):
        done.transform(new)


def test_marks_are_kept_with_the_head(files, head, tmp_path):
    done = head(epochs=1).fit(*files(slice(0, 60)))
    done.save_pretrained(tmp_path)
    stored = np.load(tmp_path / "fitted.npy", allow_pickle=False)
    assert stored.dtype == np.uint64
    assert stored.tolist() == sorted(stored.tolist())
    assert len(stored) == 120  # of ids and of vectors
    assert b"item" not in (tmp_path / "fitted.npy").read_bytes()
    read = nb.CompatibleHead.from_pretrained(tmp_path)
    assert flags(read.transform(files()[0])) == [True] * 60 + [False] * 30


def test_a_head_without_marks_is_read_as_before(files, head, tmp_path):
    head(epochs=1).fit(*files()).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "fitted": None}))
    unknown = nb.CompatibleHead.from_pretrained(tmp_path)  # of a version that told nothing
    assert "fitted" not in unknown.transform(files()[0]).columns
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "fitted.npy").unlink()
    assert nb.CompatibleHead.from_pretrained(tmp_path).fitted_ == ()


@pytest.mark.parametrize("damage", ["cut short", "of another head"])
def test_marks_that_do_not_belong_are_told(files, head, tmp_path, damage):
    head(epochs=1).fit(*files()).save_pretrained(tmp_path)
    path = tmp_path / "fitted.npy"
    if damage == "cut short":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        np.save(path, np.load(path)[1:])
    says = "cannot be read" if damage == "cut short" else "is of another head"
    with pytest.raises(DataError, match=f"{says}.*remove this file"):
        nb.CompatibleHead.from_pretrained(tmp_path)


def test_each_modality_has_marks_of_its_own(head, tmp_path):
    generator = torch.Generator().manual_seed(0)
    labels = np.arange(48) % 12

    def side(name, dim):
        ids = [f"{name} {i}" for i in range(48)]
        return nb.Vectors(ids, torch.randn(48, dim, generator=generator), labels)

    new = {"image": side("image", 8), "text": side("text", 5)}
    old = {name: side(name, 6) for name in new}
    some = {name: one.select(np.arange(36)) for name, one in new.items()}
    done = head(epochs=1).fit(stack_modalities(some), stack_modalities(old))
    done.save_pretrained(tmp_path)
    assert not (tmp_path / "fitted.npy").exists()
    expected = [True] * 36 + [False] * 12
    for one in (done, nb.CompatibleHead.from_pretrained(tmp_path)):
        assert flags(one.transform(stack_modalities(new))) == 2 * expected
        for name in new:
            assert flags(one.for_modality(name).transform(new[name])) == expected
    assert len(np.load(tmp_path / "text" / "fitted.npy")) == 72
    renamed = nb.Vectors([f"image {i}" for i in range(48)], torch.ones(48, 5))
    assert not any(flags(done.for_modality("text").transform(renamed)))
    (tmp_path / "text" / "fitted.npy").unlink()
    assert nb.CompatibleHead.from_pretrained(tmp_path).fitted_ == ()
