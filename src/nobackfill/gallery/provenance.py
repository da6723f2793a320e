"""Which model made a collection: as a note next to it declares, or as its owner assumes."""

from pathlib import Path

from nobackfill.errors import DataError, GalleryError, SpaceMismatch
from nobackfill.gallery.stores.base import Store
from nobackfill.gallery.stores.client import check_exists
from nobackfill.vectors.records import space_of
from nobackfill.vectors.space import SAMPLE, Space, names_a_model, with_dim

SPACE = "space/"  # keys of notes begin with it
HEXADECIMAL = set("0123456789abcdef")


def declared(store: Store, collection: str) -> Space | None:
    """Returns the space of a collection as declared; None if nothing declares it."""
    if collection == store.main and (space := store.own_space()) is not None:
        return space
    text = store.notes().get(space_key(collection))
    return None if text is None else Space.from_json(text, where=f"the note of `{collection}`")


def declare(store: Store, collection: str, space: Space) -> None:
    """Records the space of a collection of new vectors."""
    store.check_writable(collection)
    store.note(space_key(collection), space.to_json())


def space_key(collection: str) -> str:
    """Returns the key of the note that declares a space."""
    return f"{SPACE}{collection}"


def fingerprint_of(store: Store, collection: str, assumed: str | None = None) -> str:
    """Returns the fingerprint of a collection as declared, or as the caller assumes.

    Args:
        store: Gallery.
        collection: Name of the collection.
        assumed: Fingerprint, or a file or folder of vectors, a run or a head that records one;
            required if the collection declares none.
    """
    check_exists(store, collection, "search")
    space, dim = declared(store, collection), store.dim(collection)
    if space is not None and names_a_model(space):
        if assumed is not None and assumed_fingerprint(assumed, dim) != space.fingerprint:
            raise SpaceMismatch(
                f"`{collection}` declares the space {space.fingerprint}, but --assume-space is "
                f"{assumed_fingerprint(assumed, dim)}. Leave that out: what is declared counts."
            )
        return space.fingerprint
    if assumed is None:
        raise GalleryError(
            f"Nothing declares which model made the vectors of `{collection}` in {store.shown}. If "
            f"you know, pass --assume-space with its space.json, its run, a file of its vectors, "
            f"or its fingerprint. A space.json can be as short as {SAMPLE}."
        )
    return assumed_fingerprint(assumed, dim)


def assumed_fingerprint(text: str, dim: int) -> str:
    """Returns a fingerprint as written, or that of a path; raises if it names no model.

    `dim` is that of the collection, for a record that does not contain it.
    """
    if len(text) == 16 and set(text) <= HEXADECIMAL:
        unnamed = {Space(dim, normalized=value).fingerprint for value in (False, True, None)}
        if text in unnamed:
            raise names_nothing(f"the fingerprint {text}", dim)
        return text
    try:
        space = with_dim(space_of(Path(text)), dim)
    except DataError as error:
        raise DataError(
            f"{error} If you have none, write into a file NAME.space.json which model made the "
            f"vectors, such as {SAMPLE}, and pass that."
        ) from error
    if not names_a_model(space):
        raise names_nothing(f"the record of {text}", dim)
    return space.fingerprint


def names_nothing(what: str, dim: int) -> GalleryError:
    """Returns the error for a space that could be that of any model."""
    return GalleryError(
        f"Unknown which model made the vectors: {what} contains neither `weights` nor "
        f"`preprocessing`, so any vectors of {dim} dimensions could be meant. Name the model, as "
        f"in {SAMPLE}."
    )
