import torch

from nobackfill.config import Choice
from nobackfill.data.collection import Batches
from nobackfill.data.collections import make_collection

SMALL = Choice(
    "glyphs", {"train_classes": 10, "test_classes": 5, "images_per_class": 7, "side": 16}
)


def test_a_shifted_glyph_is_still_ink_on_paper():
    collection = make_collection(SMALL)
    blank = torch.full((4, 1, 16, 16), collection.load(torch.arange(9)).min().item())
    assert torch.equal(collection.augment(blank, torch.Generator().manual_seed(0)), blank)


def test_batches_differ_by_at_most_one_and_cover_all():
    collection = make_collection(SMALL)
    rows = collection.training_rows(-1)
    batches = Batches(collection, rows, 17)
    sizes = [len(batch.labels) for batch in batches]
    assert sum(sizes) == len(rows) == 70
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == len(batches) == 5


def test_without_a_generator_neither_order_nor_pictures_change():
    collection = make_collection(SMALL)
    rows = collection.training_rows(-1)
    batches = list(Batches(collection, rows, 32))
    assert torch.equal(torch.cat([batch.items for batch in batches]), torch.arange(len(rows)))
    assert torch.equal(torch.cat([batch.images for batch in batches]), collection.load(rows))


def test_a_generator_shuffles_and_each_label_stays_with_its_picture():
    collection = make_collection(SMALL)
    rows = collection.training_rows(-1)
    unmoved = Batches(
        collection.__class__(**{**vars(collection), "augment": lambda images, _: images}),
        rows,
        32,
        torch.Generator().manual_seed(0),
    )
    for batch in unmoved:
        assert torch.equal(batch.labels, collection.labels[rows[batch.items]])
        assert torch.equal(batch.images, collection.load(rows[batch.items]))
