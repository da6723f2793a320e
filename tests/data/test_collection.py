from dataclasses import replace

import numpy as np
import torch

from nobackfill.data.collection import Collection
from nobackfill.data.glyphs import glyphs
from nobackfill.data.loader import Batches
from nobackfill.data.registry import glyph_collection
from nobackfill.models.embed import to_vectors

ROWS = torch.tensor([7, 3, 5, 9, 1])
COLLECTION = Collection(
    ids=[str(row) for row in range(10)],
    labels=torch.arange(10) * 10,
    columns={"split": np.array(["train"] * 10)},
    class_counts=(100,),
    load=lambda rows, generator: rows[:, None, None, None],  # one pixel: the number of the row
    prepare=lambda pixels: pixels.float(),
    augment=lambda images, generator: images + 0.5,
    preprocessing="none",
)


def test_images_labels_and_places_belong_together():
    batches = list(Batches(COLLECTION, ROWS, 2, torch.Generator().manual_seed(0)))
    for images, labels, items in batches:
        assert (images.flatten() - 0.5).tolist() == ROWS[items].tolist()  # and are augmented
        assert labels.tolist() == (10 * ROWS[items]).tolist()
    assert sorted(torch.cat([batch.items for batch in batches]).tolist()) == [0, 1, 2, 3, 4]


def test_without_a_generator_neither_order_nor_images_are_changed():
    images = torch.cat([batch.images for batch in Batches(COLLECTION, ROWS, 2)])
    assert images.flatten().tolist() == ROWS.tolist()


def test_no_batch_is_left_with_one():
    sizes = [len(batch.items) for batch in Batches(COLLECTION, ROWS, 4)]
    assert sorted(sizes) == [2, 3]


def test_vectors_keep_the_dimension_that_is_compatible():
    vectors = to_vectors(torch.ones(5, 4), COLLECTION, ROWS, compatible_dim=2)
    assert vectors.compatible_dim == 2
    assert vectors.labels.tolist() == (10 * ROWS).tolist()


def test_glyphs_keep_their_roles():
    options = {"train_classes": 8, "test_classes": 3, "images_per_class": 6, "side": 16}
    collection, drawn = glyph_collection(**options), glyphs(**options)
    assert collection.columns["is_query"].tolist() == drawn.is_query.tolist()
    assert collection.columns["is_gallery"].tolist() == drawn.is_gallery.tolist()


def test_only_the_training_split_is_trained_on():
    split = np.array(["train", "validation"] * 5)
    mixed = replace(COLLECTION, columns={"split": split})
    assert mixed.training_rows(0).tolist() == [0, 2, 4, 6, 8]
    assert mixed.validation_rows().tolist() == [1, 3, 5, 7, 9]
