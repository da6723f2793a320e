"""Collections by name: the built-in glyphs, characters drawn by fonts, all datasets in files."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from nobackfill.core.atomic_files import find_path
from nobackfill.core.config import Choice, ImagesConfig, check_keys, resolve_options
from nobackfill.core.suggest import suggest
from nobackfill.data.captions import collect_captions
from nobackfill.data.collection import Collection
from nobackfill.data.file_collection import collect_files
from nobackfill.data.fonts import fonts
from nobackfill.data.glyph_captions import describe
from nobackfill.data.glyphs import augment, glyphs
from nobackfill.data.han import han
from nobackfill.data.held_out import hold_out
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

# A new dataset requires a reader, a line here, and a test on a tiny folder.
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

# Collections that are drawn, with a description.
DRAWN = {
    "fonts": "Characters drawn by any font files: a class per character, an image per typeface.",
    "glyphs": "Built-in look-alike characters, the same on every machine.",
    "han": "27,484 Han characters, drawn by up to 16 typefaces of free fonts.",
}

HELD_OUT = "held_out_classes"  # option in [data] of every collection, see `hold_out`
FILE_OPTIONS = {"shares", "counts", "order", "seed"}  # options in [data] of any dataset in files


def glyph_collection(*, captions: int = 0, **options: Any) -> Collection:
    """Draws the built-in glyphs.

    Args:
        captions: Number of texts of each image.
        options: Options of `glyphs`.
    """
    drawn = glyphs(**options)
    texts = None
    if captions:
        classes, numbers = np.array([name.split("-")[1:] for name in drawn.ids], dtype=np.int64).T
        family_size, seed = options["family_size"], options["seed"]
        written = describe(classes, numbers, captions=captions, family_size=family_size, seed=seed)
        texts = collect_captions(written, drawn.ids)
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


# By name: the functions whose options a collection has; the last one makes the collection.
COLLECTIONS: dict[str, tuple[Callable[..., Any], ...]] = {
    "fonts": (fonts,),
    "glyphs": (glyphs, glyph_collection),
    "han": (han,),
}


def resolve_collection(choice: Choice, *, where: str = "data") -> Choice:
    """Returns the choice of a collection with all default options."""
    options, resolved = dict(choice.options), {}
    held_out = options.pop(HELD_OUT, 0)
    if not isinstance(held_out, int) or held_out < 0:
        raise ConfigError(
            f"`{HELD_OUT}` in [{where}] must be a number of classes, not {held_out!r}."
        )
    if choice.name in COLLECTIONS:
        functions = COLLECTIONS[choice.name]
    elif choice.name in DATASETS:
        functions = (collect_files, DATASETS[choice.name].read)
        resolved["path"] = options.pop("path", choice.name)
        if not isinstance(resolved["path"], str):
            raise ConfigError(f"`path` in [{where}] must be text, not {resolved['path']!r}.")
    else:
        known = [*COLLECTIONS, *DATASETS]
        raise ConfigError(f"unknown collection `{choice.name}`. {suggest(choice.name, known)}")
    # Each option belongs to the last function that has it.
    owners = {
        name: function
        for function in functions
        for name in keywords_of(function)
        if function is not collect_files or name in FILE_OPTIONS
    }
    check_keys(options, [*owners, HELD_OUT], where=where)
    for function in functions:
        own = {key: value for key, value in options.items() if owners[key] is function}
        values = resolve_options(function, own, where=where)
        resolved |= {key: value for key, value in values.items() if key in owners}
    return Choice(choice.name, resolved | ({HELD_OUT: held_out} if held_out else {}))


def make_collection(
    choice: Choice,
    images: ImagesConfig | None = None,
    *,
    where: str = "data",
    workers: int = 0,
    keep: bool = False,
) -> Collection:
    """Opens or draws a collection by name.

    Args:
        choice: Name and options of the collection.
        images: Preprocessing of image files.
        where: Table of the recipe that names the collection, for errors.
        workers: Number of processes that decode files.
        keep: Whether decoded images stay in memory.
    """
    options = dict(resolve_collection(choice, where=where).options)
    if held_out := options.pop(HELD_OUT, 0):
        whole = Choice(choice.name, options)
        opened = make_collection(whole, images, where=where, workers=workers, keep=keep)
        return hold_out(opened, held_out)
    resolved = Choice(choice.name, options)
    if resolved.name in COLLECTIONS:
        collection: Collection = COLLECTIONS[resolved.name][-1](**options)
        return collection
    dataset = DATASETS[resolved.name]
    path = find_path(options["path"], "collection")
    return collect_files(
        dataset.read(path, **{key: options[key] for key in keywords_of(dataset.read)}),
        images or ImagesConfig(),
        protocol=dataset.protocol,
        workers=workers,
        keep=keep,
        **{key: options[key] for key in FILE_OPTIONS},
    )


def keywords_of(function: Callable[..., Any]) -> list[str]:
    """Returns the names of the keyword-only parameters of a function."""
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
