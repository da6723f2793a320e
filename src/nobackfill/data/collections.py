"""Collections by name."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nobackfill.config import Choice, resolve_options, suggest
from nobackfill.data.collection import Collection
from nobackfill.data.glyphs import augment, glyphs
from nobackfill.errors import ConfigError


def glyph_collection(**options: Any) -> Collection:
    """The built-in glyphs, as a collection to train on."""
    drawn = glyphs(**options)
    return Collection(
        ids=drawn.ids,
        labels=drawn.labels,
        columns={
            "split": np.array(drawn.split),
            "is_query": drawn.is_query.numpy(),
            "is_gallery": drawn.is_gallery.numpy(),
            "family": drawn.family.numpy(),
        },
        class_counts=drawn.class_counts,
        load=lambda rows: drawn.images[rows].float() / 127.5 - 1,
        augment=lambda images, generator: augment(images, generator, paper=-1.0),
        preprocessing=f"grey {drawn.images.shape[-1]} px, -1 to 1",
    )


COLLECTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Collection]]] = {
    "glyphs": (glyphs, glyph_collection),  # whose options it takes, and what makes it
}


def resolve_collection(choice: Choice) -> Choice:
    """The same choice of collection with every default written out."""
    if choice.name not in COLLECTIONS:
        raise ConfigError(
            f"unknown collection `{choice.name}`. {suggest(choice.name, COLLECTIONS)}"
        )
    signature, _ = COLLECTIONS[choice.name]
    return Choice(choice.name, resolve_options(signature, choice.options, where="data"))


def make_collection(choice: Choice) -> Collection:
    """Opens, or draws, a collection by name."""
    resolved = resolve_collection(choice)
    _, make = COLLECTIONS[resolved.name]
    return make(**resolved.options)
