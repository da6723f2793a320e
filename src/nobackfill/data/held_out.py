"""Training classes that are searched in place of the test, to choose options without the test."""

from dataclasses import replace

import numpy as np

from nobackfill.core.config import ImagesConfig
from nobackfill.data.collection import Collection
from nobackfill.errors import ConfigError


def hold_out(collection: Collection, classes: int) -> Collection:
    """Leaves the last training classes out of training and searches them in place of the test.

    No model is trained on these classes, as on those of the test. Each of their items is a query
    for all others. Items of the test have the split "left out".

    Args:
        collection: Collection with training classes.
        classes: Number of classes to hold out; earlier models of the upgrade must not know them.
    """
    # Choose the classes with the last labels: only the last model would know them.
    counts = collection.class_counts
    room = counts[-1] - (counts[-2] if len(counts) > 1 else 2) if counts else 0
    if not 0 < classes < max(room, 1):
        raise ConfigError(
            f"`held_out_classes` in [data] is {classes}, but only classes that the last model adds "
            f"can be held out, and one must be left: from 1 to {room - 1} here."
            if room > 1
            else "`held_out_classes` in [data] requires training classes that only the last model "
            "knows, but this collection has none. Remove it."
        )
    first = counts[-1] - classes

    # Search them, and nothing else.
    labels, split = collection.labels.numpy(), collection.columns["split"]
    held = (split == "train") & (labels >= first) & (labels < counts[-1])
    parts = np.where(held, "validation", np.where(split == "train", "train", "left out"))

    def reopen(images: ImagesConfig) -> Collection:
        return hold_out(collection.seen_as(images), classes)

    return replace(
        collection,
        columns={**collection.columns, "split": parts, "is_query": held, "is_gallery": held},
        class_counts=(*counts[:-1], first),
        ground_truth={},
        reopen=None if collection.reopen is None else reopen,
    )
