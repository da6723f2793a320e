"""Collections by name: the built-in glyphs, and everything that lies in files."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from nobackfill.config import Choice, ImagesConfig, check_keys, resolve_options, suggest
from nobackfill.data.collection import Collection
from nobackfill.data.datasets import DATASETS
from nobackfill.data.files import collect_files
from nobackfill.data.glyphs import augment, glyphs
from nobackfill.errors import ConfigError
from nobackfill.files import find_given

FILE_OPTIONS = {"shares", "counts", "order", "seed"}  # of [data], for any collection of files


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
        load=lambda rows, generator: drawn.images[rows],
        prepare=lambda pixels: pixels.float() / 127.5 - 1,
        augment=lambda images, generator: augment(images, generator, paper=-1.0),
        preprocessing=f"grey {drawn.images.shape[-1]} px, -1 to 1",
    )


COLLECTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Collection]]] = {
    "glyphs": (glyphs, glyph_collection),  # whose options it takes, and what makes it
}


def resolve_collection(choice: Choice, *, where: str = "data") -> Choice:
    """The same choice of collection with every default written out."""
    if choice.name in COLLECTIONS:
        signature, _ = COLLECTIONS[choice.name]
        return Choice(choice.name, resolve_options(signature, choice.options, where=where))
    if choice.name not in DATASETS:
        known = [*COLLECTIONS, *DATASETS]
        raise ConfigError(f"unknown collection `{choice.name}`. {suggest(choice.name, known)}")
    options = dict(choice.options)
    path = options.pop("path", choice.name)
    if not isinstance(path, str):
        raise ConfigError(f"wanted `path` in [{where}] to be text, but got {path!r}.")
    own = _own_options(choice.name)
    check_keys(options, [*own, *sorted(FILE_OPTIONS - own)], where=where)
    theirs = {key: value for key, value in options.items() if key in own}
    ours = {key: value for key, value in options.items() if key not in own}
    resolved = resolve_options(collect_files, ours, where=where)
    return Choice(
        choice.name,
        {
            "path": path,
            **{key: value for key, value in resolved.items() if key in FILE_OPTIONS},
            **resolve_options(DATASETS[choice.name].read, theirs, where=where),
        },
    )


def make_collection(
    choice: Choice,
    images: ImagesConfig | None = None,
    *,
    where: str = "data",
    workers: int = 0,
    keep: bool = False,
) -> Collection:
    """Opens, or draws, a collection by name.

    Args:
        choice: Its name and its options.
        images: What a model sees of image files.
        where: The table of the recipe that names it.
        workers: How many processes decode files.
        keep: Whether decoded images stay in memory.
    """
    resolved = resolve_collection(choice, where=where)
    if resolved.name in COLLECTIONS:
        _, make = COLLECTIONS[resolved.name]
        return make(**resolved.options)
    dataset, own = DATASETS[resolved.name], _own_options(resolved.name)
    options = resolved.options
    return collect_files(
        dataset.read(
            find_given(options["path"], "a collection"),
            **{key: options[key] for key in options if key in own},
        ),
        images or ImagesConfig(),
        protocol=dataset.protocol,
        workers=workers,
        keep=keep,
        **{key: options[key] for key in FILE_OPTIONS},
    )


def _own_options(name: str) -> set[str]:
    """What the reader of a collection may be told."""
    parameters = inspect.signature(DATASETS[name].read).parameters.values()
    return {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
