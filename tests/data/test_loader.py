"""Batches are the same whoever loads them, and however many share them."""

import os
import threading
import time
import traceback
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from nobackfill.core.config import ImagesConfig
from nobackfill.data.collection import Collection
from nobackfill.data.file_collection import collect_files
from nobackfill.data.listing import Listing
from nobackfill.data.loader import AHEAD, Batches, Task, ahead, crew_for, loading
from nobackfill.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on one core
ITEMS, CLASSES = 14, 4
RANDOM = ImagesConfig(size=(12, 10), crop=(8, 7), normalize="half", flip=0.5, pad=1, erase=0.5)
SEEN = replace(RANDOM, flip=0.0, pad=0, erase=0.0)  # cut anywhere, otherwise as they are


def seed(number):
    return torch.Generator().manual_seed(number)


@pytest.fixture(scope="module")
def listing(tmp_path_factory):
    """Images that know where a part of them was cut, and from which: y, x and row as colours."""
    root = tmp_path_factory.mktemp("images")
    y, x = np.meshgrid(np.arange(12), np.arange(10), indexing="ij")
    for row in range(ITEMS):
        pixels = np.stack([y, x, np.full_like(x, row)], axis=-1).astype(np.uint8)
        Image.fromarray(pixels).save(root / f"{row}.png")
    return Listing(
        root=root,
        files=[f"{row}.png" for row in range(ITEMS)],
        classes=np.array([f"class {row % CLASSES}" for row in range(ITEMS)]),
        columns={"split": np.full(ITEMS, "train")},
    )


def collection_of(listing, images=SEEN, **options):
    return collect_files(listing, images, order="first", **options)


def read_off(images):
    """Top, left and row of each image."""
    corner = ((images[:, :, 0, 0] + 1) * 127.5).round().int()
    return [tuple(values) for values in corner.tolist()]


ROWS = torch.tensor([3, 12, 0, 7, 5, 13, 8, 1, 10])


def all_of(batches):
    """The images, labels and places of all batches."""
    return tuple(torch.cat(part) for part in zip(*batches, strict=True))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [None, 5])
def test_worker_processes_change_nothing(listing, workers, number):
    def load(workers):
        generator = None if number is None else seed(number)
        collection = collection_of(listing, RANDOM, workers=workers)
        return list(Batches(collection, ROWS, 2, generator))

    ours, theirs = load(0), load(workers)
    assert len(ours) == len(theirs) == 5
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.labels, other.labels)
        assert torch.equal(one.items, other.items)


@pytest.mark.parametrize("workers", [0, 2])
def test_loading_leaves_the_global_randomness_as_it_was(listing, workers):
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    list(Batches(collection_of(listing, RANDOM, workers=workers), ROWS, 4, seed(0)))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]


def test_for_a_test_the_middle_is_cut(listing):
    images, labels, items = all_of(Batches(collection_of(listing), ROWS, 4))
    assert read_off(images) == [(2, 1, row) for row in ROWS.tolist()]  # of 4 and 3 pixels of room
    assert labels.tolist() == [row % CLASSES for row in ROWS.tolist()]
    assert items.tolist() == list(range(len(ROWS)))


def test_for_training_any_part_is_cut_each_by_itself(listing):
    collection = collection_of(listing)
    seen = [all_of(Batches(collection, ROWS, 4, seed(number))) for number in range(60)]
    places = Counter()
    for images, labels, items in seen:
        top, left, row = zip(*read_off(images), strict=True)
        assert list(row) == ROWS[items].tolist()
        assert labels.tolist() == [place % CLASSES for place in row]
        places.update(zip(top, left, strict=True))
    assert set(places) == {(top, left) for top in range(5) for left in range(4)}
    assert all(8 < times < 54 for times in places.values())  # 27 expected
    first, again = seen[7], all_of(Batches(collection, ROWS, 4, seed(7)))
    assert torch.equal(first[0], again[0])


def test_no_two_batches_are_cut_alike(listing):
    collection = collection_of(listing)
    rows = torch.zeros(60, dtype=torch.int64)  # the same image over and over
    cuts = [tuple(read_off(batch.images)) for batch in Batches(collection, rows, 6, seed(0))]
    assert len(set(cuts)) == 10
    other = [tuple(read_off(batch.images)) for batch in Batches(collection, rows, 6, seed(1))]
    assert not set(cuts) & set(other)


def test_with_a_generator_images_are_augmented(listing):
    plain = all_of(Batches(collection_of(listing, SEEN), ROWS, 4, seed(3)))
    mirrored = all_of(Batches(collection_of(listing, replace(SEEN, flip=1.0)), ROWS, 4, seed(3)))
    assert torch.equal(mirrored[0], plain[0].flip(-1))
    test = all_of(Batches(collection_of(listing, replace(SEEN, flip=1.0)), ROWS, 4))
    assert read_off(test[0]) == [(2, 1, row) for row in ROWS.tolist()]


@pytest.mark.parametrize("of", [2, 3])
def test_parts_together_make_the_whole(listing, of):
    collection = collection_of(listing)
    whole = list(Batches(collection, ROWS, 4))
    parts = [list(Batches(collection, ROWS, 4, part=(mine, of))) for mine in range(of)]
    for batch, *shares in zip(whole, *parts, strict=True):
        assert torch.equal(torch.cat([share.images for share in shares]), batch.images)
        sizes = [len(share.images) for share in shares]
        assert max(sizes) - min(sizes) <= 1
        for share in shares:  # labels and places are those of all
            assert torch.equal(share.labels, batch.labels)
            assert torch.equal(share.items, batch.items)


@pytest.mark.parametrize("items_per_class", [None, 2])
def test_parts_of_a_random_batch_are_of_the_same_order(listing, items_per_class):
    def load(mine, of):
        options = {"items_per_class": items_per_class, "part": (mine, of)}
        return list(Batches(collection_of(listing), ROWS, 6, seed(4), **options))

    for batch, *shares in zip(load(0, 1), load(0, 2), load(1, 2), strict=True):
        rows = [row for share in shares for _, _, row in read_off(share.images)]
        assert rows == ROWS[batch.items].tolist() == [row for _, _, row in read_off(batch.images)]
        for share in shares:
            assert torch.equal(share.labels, batch.labels)
            assert torch.equal(share.items, batch.items)


def test_processes_cut_and_augment_by_numbers_of_their_own(listing):
    rows = torch.zeros(40, dtype=torch.int64)
    cuts = [
        tuple(read_off(batch.images))
        for mine in (0, 1)
        for batch in Batches(collection_of(listing), rows, 20, seed(0), part=(mine, 2))
    ]
    assert len(set(cuts)) == 4
    flipping = collection_of(listing, replace(SEEN, size=(8, 7), flip=0.5))
    mine, other = (
        all_of(Batches(flipping, rows, 40, seed(0), part=(mine, 2)))[0] for mine in (0, 1)
    )
    assert not torch.equal(mine, other)
    again = all_of(Batches(flipping, rows, 40, seed(0), part=(1, 2)))[0]
    assert torch.equal(again, other)


def test_more_processes_than_items_leave_some_without(listing):
    (batch,) = Batches(collection_of(listing), ROWS[:2], 4, part=(2, 3))
    assert batch.images.shape == (0, 3, 8, 7)
    assert len(batch.items) == 2


@pytest.mark.parametrize("batch_size", [4, 5, 6, 8, 20])
@pytest.mark.parametrize("number", [None, 0])
@pytest.mark.parametrize("items_per_class", [None, 2])
def test_the_length_is_told_before(listing, batch_size, number, items_per_class):
    generator = None if number is None else seed(number)
    rows = torch.arange(ITEMS)
    if batch_size == 20:
        batch_size = 8 if items_per_class else 20
        rows = rows[:6]  # fewer than a batch
    batches = Batches(
        collection_of(listing), rows, batch_size, generator, items_per_class=items_per_class
    )
    assert len(batches) == len(list(batches))


def test_so_many_items_of_each_class(listing):
    rows = torch.arange(ITEMS)
    for _, labels, items in Batches(collection_of(listing), rows, 8, seed(0), items_per_class=2):
        assert sorted(Counter(labels.tolist()).values()) == [2, 2, 2, 2]
        assert labels.tolist() == [place % CLASSES for place in rows[items].tolist()]
    for_a_test = Batches(collection_of(listing), rows, 8, items_per_class=2)
    assert all_of(for_a_test)[2].tolist() == list(range(ITEMS))


@pytest.mark.parametrize("workers", [0, 2])
def test_kept_images_are_read_once_and_only_those_asked_for(listing, workers, tmp_path):
    for row in range(ITEMS):
        (tmp_path / f"{row}.png").write_bytes((listing.root / f"{row}.png").read_bytes())
    moved = replace(listing, root=tmp_path)
    (tmp_path / "2.png").unlink()  # nobody asks for it
    collection = collection_of(moved, keep=True, workers=workers)
    batches = Batches(collection, ROWS, 4, seed(0))
    before = all_of(batches)
    for path in tmp_path.iterdir():
        path.unlink()
    again = all_of(Batches(collection, ROWS, 4, seed(0)))
    assert torch.equal(before[0], again[0])
    with pytest.raises(DataError, match=r"2\.png: the file does not exist"):  # before any worker
        list(Batches(collection, torch.tensor([2, 3]), 2))


def test_what_is_asked_for_is_told_once_before_anything_is_loaded(listing):
    told = []
    collection = replace(
        collection_of(listing),
        ready=lambda rows: told.append(("ready", rows.tolist())),
        load=lambda rows, generator: told.append("load") or torch.zeros(len(rows), 3, 8, 7),
        prepare=lambda pixels: pixels,
    )
    list(Batches(collection, ROWS, 3))
    assert told == [("ready", ROWS.tolist()), "load", "load", "load"]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_image_is_named_whoever_reads_it(listing, workers, tmp_path):
    collection = collection_of(replace(listing, root=tmp_path), workers=workers)
    with pytest.raises(DataError, match=r"No image at .*3\.png") as caught:
        list(Batches(collection, ROWS, 4))
    traceback.clear_frames(caught.tb)  # worker processes end now, not when garbage is collected


# The thread that loads ahead for a GPU. Pinned memory is a matter of the GPU: here it is left out.


@pytest.fixture
def unpinned(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda pixels: pixels)


def ones(count):
    return [torch.full((1, 1, 1, 1), number) for number in range(count)]


def wait_for(happened):
    """Whether something happens within some seconds."""
    end = time.monotonic() + 5
    while not happened() and time.monotonic() < end:
        time.sleep(0.005)
    return happened()


@pytest.mark.usefixtures("unpinned")
def test_what_is_loaded_ahead_comes_in_order():
    images = ones(10)
    loaded = list(ahead(iter(images), threading.Event()))
    assert [one.item() for one in loaded] == list(range(10))
    assert list(ahead(iter([]), threading.Event())) == []


@pytest.mark.usefixtures("unpinned")
def test_the_same_is_loaded_for_a_gpu(listing):
    tasks = [Task(ROWS[:4], 3), Task(ROWS[4:], 9), Task(ROWS[:2], None)]
    collection = collection_of(listing)
    with loading(collection, tasks, torch.device("cpu")) as plain:
        ours = list(plain)
    with loading(collection, tasks, torch.device("cuda")) as by_thread:
        theirs = list(by_thread)
    assert len(ours) == 3
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)


class WhoLoads:
    """Pixels that tell the process which loaded them."""

    def __call__(self, rows, generator):
        return torch.full((len(rows), 1, 1, 1), os.getpid(), dtype=torch.int64)


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_crew_serves_many_passes_and_then_ends(listing):
    collection = replace(collection_of(listing, workers=2), load=WhoLoads())
    crew = crew_for(collection, torch.device("cpu"))
    tasks = [Task(ROWS[:1], None), Task(ROWS[1:2], 3), Task(ROWS[2:3], None)]
    seen = []
    for some in (tasks, tasks[:1], tasks):  # also fewer tasks than processes
        with loading(collection, some, torch.device("cpu"), crew) as loaded:
            seen.append([int(pixels) for pixels in loaded])
    assert [len(one) for one in seen] == [3, 1, 3]
    workers = set(sum(seen, []))
    assert len(workers) == 2
    assert os.getpid() not in workers
    del crew, loaded
    assert wait_for(lambda: not any(map(is_running, workers)))


def test_batches_are_the_same_with_a_crew(listing):
    collection = collection_of(listing, RANDOM, workers=2)
    crew = crew_for(collection, torch.device("cpu"))
    for generator in (seed(0), seed(1), None):
        ours = all_of(Batches(collection, ROWS, 4, generator, crew=crew))
        generator = generator and seed(generator.initial_seed())
        theirs = all_of(Batches(replace(collection, workers=0), ROWS, 4, generator))
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.usefixtures("unpinned")
def test_some_are_loaded_while_one_is_used_but_not_all():
    begun = []

    def each():
        for one in ones(50):
            begun.append(one.item())
            yield one

    stopped = threading.Event()
    loaded = ahead(each(), stopped)
    next(loaded)
    assert wait_for(lambda: len(begun) >= 1 + AHEAD)
    time.sleep(0.05)
    assert len(begun) <= 1 + AHEAD + 1  # one used, some waiting, one in hand
    stopped.set()


@pytest.mark.usefixtures("unpinned")
def test_an_error_comes_where_it_happened():
    def each():
        yield from ones(2)
        raise DataError("the third is broken")

    loaded = ahead(each(), threading.Event())
    assert [next(loaded).item(), next(loaded).item()] == [0, 1]
    with pytest.raises(DataError, match="the third is broken"):
        next(loaded)


def test_an_error_of_pinning_is_passed_on(monkeypatch):
    def refuse(pixels):
        raise RuntimeError("no memory that a GPU can read")

    monkeypatch.setattr(torch.Tensor, "pin_memory", refuse)
    with pytest.raises(RuntimeError, match="no memory"):
        list(ahead(iter(ones(2)), threading.Event()))


@pytest.mark.usefixtures("unpinned")
@pytest.mark.parametrize("leave", ["early", "by an error", "at the end"])
def test_the_thread_ends_with_the_loading(listing, leave):
    before, begun = set(threading.enumerate()), []
    collection = replace(
        collection_of(listing),
        load=lambda rows, generator: begun.append(rows) or torch.zeros(len(rows), 3, 8, 7),
    )
    tasks = [Task(ROWS[:1], None)] * 40

    def use():
        with loading(collection, tasks, torch.device("cuda")) as loaded:
            next(loaded)
            assert len(set(threading.enumerate()) - before) == 1
            if leave == "by an error":
                raise KeyboardInterrupt
            if leave == "at the end":
                list(loaded)

    if leave == "by an error":
        with pytest.raises(KeyboardInterrupt):
            use()
    else:
        use()
    assert wait_for(lambda: set(threading.enumerate()) <= before)
    assert len(begun) == 40 if leave == "at the end" else len(begun) <= 1 + AHEAD + 1


def test_a_collection_may_keep_its_pixels_anywhere():
    """What `load` returns need not be bytes, nor of files."""
    pixels = torch.randn(6, 1, 2, 2, generator=seed(0), dtype=torch.float64)
    collection = Collection(
        ids=[str(row) for row in range(6)],
        labels=torch.arange(6),
        columns={"split": np.full(6, "train")},
        class_counts=(6,),
        load=lambda rows, generator: pixels[rows],
        prepare=lambda stored: 2 * stored,
        augment=lambda images, generator: images + torch.rand(1, generator=generator).double(),
        preprocessing="none",
    )
    plain = all_of(Batches(collection, torch.arange(6), 4))[0]
    assert torch.equal(plain, 2 * pixels)
    moved = all_of(Batches(collection, torch.arange(6), 6, seed(0)))
    assert len((moved[0] - 2 * pixels[moved[2]]).flatten().round(decimals=6).unique()) == 1
