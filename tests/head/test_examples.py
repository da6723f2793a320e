"""What a head learns from: rows that are read when they are wanted, in an order by chance."""

from itertools import groupby

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.head import examples as module
from nobackfill.head import fitting
from nobackfill.head import validation as heldout
from nobackfill.head.examples import Examples, shuffle_by_class

SOME_METHODS = ["cross_supcon", "prototype_alignment", "ndpp", "mimic", "rbcl", "unibct_spr"]


def generator(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("precision", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [None, [9, 2, 5, 0]])
def test_new_vectors_are_those_of_the_places(precision, rows):
    stored = torch.randn(12, 3, generator=generator(0)).to(precision)
    number = 12 if rows is None else len(rows)
    chosen = None if rows is None else torch.tensor(rows)
    some = Examples(stored, torch.randn(number, 2), None, rows=chosen)
    assert len(some) == number
    found = some.new_of(torch.tensor([3, 0, 3]))
    assert found.dtype == torch.float32
    for vector, place in zip(found, (3, 0, 3), strict=True):
        assert torch.equal(vector, stored[place if rows is None else rows[place]].float())


@pytest.mark.parametrize("block", [1, 3, 4, 100])
@pytest.mark.parametrize("with_rows", [False, True])
def test_blocks_are_all_items_in_order(monkeypatch, block, with_rows):
    monkeypatch.setattr(module, "BLOCK", block)
    stored, old = torch.randn(10, 3).half(), torch.randn(10, 2).half()
    order = torch.tensor([9, 7, 5, 3, 1, 0, 2, 4, 6, 8]) if with_rows else torch.arange(10)
    rows = order if with_rows else None
    parts = list(Examples(stored, old, None, rows=rows).blocks())
    assert [len(new) for new, _ in parts] == [min(block, 10 - at) for at in range(0, 10, block)]
    assert {side.dtype for part in parts for side in part} == {torch.float32}
    assert torch.equal(torch.cat([new for new, _ in parts]), stored[order].float())
    assert torch.equal(torch.cat([part for _, part in parts]), old.float())


def test_the_number_of_classes_counts_from_zero():
    assert Examples(torch.ones(3, 1), torch.ones(3, 1), torch.tensor([0, 2, 1])).number == 3


@pytest.fixture
def stored(items, tmp_path):
    """Writes both sides in half precision and reads them back; returns the data too."""

    def write(suffix=".safetensors"):
        data = items()
        data.new, data.old = data.new.half(), data.old.half()
        for name, vectors in (("old", data.old), ("new", data.new)):
            known = None if suffix == ".npy" else data.labels.numpy()
            ids = np.arange(90) if suffix == ".npy" else data.ids
            nb.Vectors(ids, vectors, known).save(tmp_path / f"{name}{suffix}")
        sides = [nb.load_vectors(tmp_path / f"{name}{suffix}") for name in ("new", "old")]
        return data, *sides

    return write


@pytest.fixture
def seen(monkeypatch):
    """All examples that a fit was given."""
    found = []
    for name in ("choose_closed_form", "fit_network"):
        kept = getattr(fitting, name)

        def record(network, *parts, kept=kept, **more):
            found.extend(parts)
            return kept(network, *parts, **more)

        monkeypatch.setattr(f"nobackfill.head.learn.{name}", record)
    return found


@pytest.mark.parametrize("suffix", [".safetensors", ".npy"])
def test_vectors_in_a_file_are_never_copied_as_a_whole(stored, seen, head, suffix):
    data, new, old = stored(suffix)
    done = head().fit(new, old, data.labels)
    place = new.vectors.untyped_storage().data_ptr()
    assert len(seen) == 4
    for examples in seen:
        assert examples.new.untyped_storage().data_ptr() == place
        assert examples.new.dtype == torch.float16
    in_memory = head().fit(data.new, data.old, data.labels)
    assert done.progress_ == in_memory.progress_
    assert torch.equal(done.transform(data.new), in_memory.transform(data.new))


def test_without_classes_they_are_not_copied_either(stored, seen, head):
    _, new, old = stored()
    head().fit(nb.Vectors(new.ids, new.vectors), nb.Vectors(old.ids, old.vectors))
    assert [examples for examples in seen[1:] if examples] == []  # nothing is held out
    assert seen[0].new.untyped_storage().data_ptr() == new.vectors.untyped_storage().data_ptr()


def test_no_more_than_a_batch_is_read_at_a_time(stored, head, monkeypatch):
    _, new, old = stored()
    monkeypatch.setattr(module, "BLOCK", 16)
    read, kept = [], Examples.new_of
    monkeypatch.setattr(
        Examples, "new_of", lambda self, places: read.append(len(places)) or kept(self, places)
    )
    monkeypatch.setattr(heldout, "QUERIES", 8)
    done = head(batch_size=16).fit(new, old)
    assert done.progress_.best > 0
    assert max(read) == 16


@pytest.mark.parametrize("method", SOME_METHODS)
def test_half_precision_will_do_for_every_kind_of_method(items, head, method):
    data = items()
    half = data.new.half(), data.old.half()
    made = [head(method, epochs=1) for _ in range(2)]
    found = made[0].fit(*half, data.labels)
    single = made[1].fit(*(side.float() for side in half), data.labels)
    assert found.progress_ == single.progress_
    assert torch.equal(found.transform(data.new), single.transform(data.new))


def cut(length, together):
    """Runs that so many items make."""
    whole, rest = divmod(length, together)
    return [together] * whole + [rest] * (rest > 0)


@pytest.mark.parametrize("together", [2, 3, 4, 7, 100])
@pytest.mark.parametrize("seed", range(3))
def test_items_of_a_class_come_together_in_whole_runs(together, seed):
    sizes = torch.arange(40) % 9 + 1
    classes = torch.arange(40).repeat_interleave(sizes)
    classes = classes[torch.randperm(len(classes), generator=generator(seed))]
    order = shuffle_by_class(classes, together, generator(seed))
    assert sorted(order.tolist()) == list(range(len(classes)))  # each exactly once
    runs = {one: [] for one in range(40)}
    for one, neighbours in groupby(classes[order].tolist()):
        runs[one] += cut(len(list(neighbours)), together)  # two runs may meet by chance
    for one, lengths in runs.items():
        assert sorted(lengths) == sorted(cut(int(sizes[one]), together))


def test_both_the_runs_and_what_is_in_them_are_by_chance():
    classes = torch.arange(400) % 50
    one, other = (shuffle_by_class(classes, 4, generator(seed)) for seed in range(2))
    assert torch.equal(one, shuffle_by_class(classes, 4, generator(0)))
    assert not torch.equal(one, other)
    firsts = classes[one[::4]]  # each run has four: of these, the classes
    assert not torch.equal(firsts, classes[other[::4]])
    assert not torch.equal(firsts, firsts.sort().values)
    of_a_class = [{frozenset(run) for run in order.view(-1, 4).tolist()} for order in (one, other)]
    assert len(of_a_class[0] & of_a_class[1]) < 10  # of 100: others stand together
    assert (firsts.diff() == 0).sum() < 10  # the two runs of a class are seldom neighbours


def test_pure_chance_is_a_permutation():
    expected = torch.randperm(30, generator=generator(5))
    assert torch.equal(shuffle_by_class(torch.arange(30) % 3, 1, generator(5)), expected)


def test_the_orders_of_two_epochs_differ():
    source, classes = generator(0), torch.arange(60) % 10
    assert not torch.equal(
        shuffle_by_class(classes, 4, source), shuffle_by_class(classes, 4, source)
    )
