"""Collections by name: the built-in glyphs, and everything that lies in files."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from nobackfill.core.atomic_files import find_path
from nobackfill.core.config import Choice, ImagesConfig, check_keys, resolve_options, suggest
from nobackfill.data.captions import collect_captions
from nobackfill.data.collection import Collection
from nobackfill.data.file_collection import collect_files
from nobackfill.data.glyph_captions import describe
from nobackfill.data.glyphs import augment, glyphs
from nobackfill.data.listing import Dataset
from nobackfill.data.readers.cars196 import CARS196
from nobackfill.data.readers.cub200 import CUB200
from nobackfill.data.readers.flickr8k import FLICKR8K
from nobackfill.data.readers.folder import FOLDER
from nobackfill.data.readers.gldv2 import GLDV2
from nobackfill.data.readers.inshop import INSHOP
from nobackfill.data.readers.manifest import MANIFEST
from nobackfill.data.readers.market1501 import MARKET1501
from nobackfill.data.readers.omniglot import OMNIGLOT
from nobackfill.data.readers.roxford_rparis import ROXFORD5K, RPARIS6K
from nobackfill.data.readers.rstpreid import RSTPREID
from nobackfill.data.readers.stanford_products import STANFORD_PRODUCTS
from nobackfill.errors import ConfigError

# A new dataset is a reader, a line here, and a test on a tiny folder.
DATASETS: dict[str, Dataset] = {
    "cars196": CARS196,
    "cub200": CUB200,
    "flickr8k": FLICKR8K,
    "folder": FOLDER,
    "gldv2": GLDV2,
    "inshop": INSHOP,
    "manifest": MANIFEST,
    "market1501": MARKET1501,
    "omniglot": OMNIGLOT,
    "roxford5k": ROXFORD5K,
    "rparis6k": RPARIS6K,
    "rstpreid": RSTPREID,
    "stanford_products": STANFORD_PRODUCTS,
}

FILE_OPTIONS = {"shares", "counts", "order", "seed"}  # of [data], for any collection of files


def glyph_texts(*, captions: int = 0) -> None:
    """What else may be told of glyphs.

    Args:
        captions: How many texts describe each image.
    """


def glyph_collection(*, captions: int = 0, **options: Any) -> Collection:
    """The built-in glyphs, as a collection to train on."""
    drawn = glyphs(**options)
    texts = None
    if captions:
        classes, numbers = np.array([name.split("-")[1:] for name in drawn.ids], dtype=np.int64).T
        told = describe(
            classes,
            numbers,
            captions=captions,
            family_size=options["family_size"],
            seed=options["seed"],
        )
        texts = collect_captions(told, drawn.ids)
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
        captions=texts,
    )


# by name: the functions whose options it takes, and what makes it
COLLECTIONS: dict[str, tuple[tuple[Callable[..., Any], ...], Callable[..., Collection]]] = {
    "glyphs": ((glyphs, glyph_texts), glyph_collection),
}


def resolve_collection(choice: Choice, *, where: str = "data") -> Choice:
    """The same choice of collection with every default written out."""
    if choice.name in COLLECTIONS:
        functions, _ = COLLECTIONS[choice.name]
        known = [name for one in functions for name in keywords_of(one)]
        check_keys(choice.options, known, where=where)
        options: dict[str, Any] = {}
        for one in functions:
            theirs = {k: v for k, v in choice.options.items() if k in keywords_of(one)}
            options |= resolve_options(one, theirs, where=where)
        return Choice(choice.name, options)
    if choice.name not in DATASETS:
        known = [*COLLECTIONS, *DATASETS]
        raise ConfigError(f"unknown collection `{choice.name}`. {suggest(choice.name, known)}")
    options = dict(choice.options)
    path = options.pop("path", choice.name)
    if not isinstance(path, str):
        raise ConfigError(f"wanted `path` in [{where}] to be text, but got {path!r}.")
    own = keywords_of(DATASETS[choice.name].read)
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
    dataset = DATASETS[resolved.name]
    own = keywords_of(dataset.read)
    options = resolved.options
    return collect_files(
        dataset.read(
            find_path(options["path"], "collection"),
            **{key: options[key] for key in options if key in own},
        ),
        images or ImagesConfig(),
        protocol=dataset.protocol,
        workers=workers,
        keep=keep,
        **{key: options[key] for key in FILE_OPTIONS},
    )


def keywords_of(function: Callable[..., Any]) -> set[str]:
    """What a function may be told by name only."""
    parameters = inspect.signature(function).parameters.values()
    return {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
