"""Which model made a collection: as a note beside it declares, or as its owner assumes."""

from pathlib import Path

from nobackfill.errors import DataError, GalleryError, SpaceMismatch
from nobackfill.gallery.stores.base import Store
from nobackfill.vectors.records import space_of
from nobackfill.vectors.space import SAMPLE, Space, names_a_model, with_dim

HEXADECIMAL = set("0123456789abcdef")


def declared(store: Store, collection: str) -> Space | None:
    """What made a collection, as the note beside it tells; None where nothing does."""
    if collection == store.main and (space := store.own_space()) is not None:
        return space
    text = store.notes().get(space_key(collection))
    return None if text is None else Space.from_json(text, where=f"the note of `{collection}`")


def declare(store: Store, collection: str, space: Space) -> None:
    """Writes down what made a collection of ours."""
    store.check_writable(collection)
    store.note(space_key(collection), space.to_json())


def space_key(collection: str) -> str:
    """The key of the note."""
    return f"space/{collection}"


def fingerprint_of(store: Store, collection: str, assumed: str | None = None) -> str:
    """The fingerprint of a collection: as it declares, or as the caller assumes.

    Args:
        store: Where it is.
        collection: Its name.
        assumed: A fingerprint, or a file or folder of vectors, a run or a head that tells one;
            only asked for where the collection declares none.
    """
    if not store.exists(collection):
        raise GalleryError(
            f"wanted to search `{collection}`, but {store.shown} has no such collection. Backfill "
            f"it first."
        )
    space, dim = declared(store, collection), store.dim(collection)
    if space is not None and names_a_model(space):
        if assumed is not None and assumed_fingerprint(assumed, dim) != space.fingerprint:
            raise SpaceMismatch(
                f"`{collection}` declares the space {space.fingerprint}, but --assume-space says "
                f"{assumed_fingerprint(assumed, dim)}. Leave that out: what is declared counts."
            )
        return space.fingerprint
    if assumed is None:
        raise GalleryError(
            f"wanted to know which model made the vectors of `{collection}` in {store.shown}, but "
            f"nothing declares it. If you know, pass --assume-space with its space.json, its run, "
            f"a file of its vectors, or its fingerprint. A space.json can be as short as {SAMPLE}."
        )
    return assumed_fingerprint(assumed, dim)


def assumed_fingerprint(told: str, dim: int) -> str:
    """A fingerprint as it is written, or that of what lies at a path; refused if it names no model.

    Args:
        told: The fingerprint, or the path.
        dim: Of the collection, for a record that does not tell it.
    """
    if len(told) == 16 and set(told) <= HEXADECIMAL:
        unnamed = {Space(dim, normalized=one).fingerprint for one in (False, True, None)}
        if told in unnamed:
            raise names_nothing(f"the fingerprint {told}", dim)
        return told
    try:
        space = with_dim(space_of(Path(told)), dim)
    except DataError as error:
        raise DataError(
            f"{error} Where you have none, write into a file NAME.space.json which model made the "
            f"vectors, such as {SAMPLE}, and pass that."
        ) from error
    if not names_a_model(space):
        raise names_nothing(f"the record of {told}", dim)
    return space.fingerprint


def names_nothing(what: str, dim: int) -> GalleryError:
    """The error for a space that could be that of any model."""
    return GalleryError(
        f"wanted to know which model made the vectors, but {what} tells neither `weights` nor "
        f"`preprocessing`: any vectors of {dim} dimensions could be meant. Name the model, as in "
        f"{SAMPLE}."
    )
