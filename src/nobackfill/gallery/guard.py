"""The guard against mixing: may this model's queries search this collection?"""

from pathlib import Path

from nobackfill.errors import GalleryError, SpaceMismatch
from nobackfill.gallery.base import Store
from nobackfill.records import space_of
from nobackfill.space import Space

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
    space = declared(store, collection)
    if space is not None:
        if assumed is not None and assumed_fingerprint(assumed) != space.fingerprint:
            raise SpaceMismatch(
                f"`{collection}` declares the space {space.fingerprint}, but --assume-space says "
                f"{assumed_fingerprint(assumed)}. Leave that out: what is declared counts."
            )
        return space.fingerprint
    if assumed is None:
        raise GalleryError(
            f"wanted to know which model made the vectors of `{collection}` in {store.shown}, but "
            f"nothing declares it. If you know, pass --assume-space with its space.json, its run, "
            f"a file of its vectors, or its fingerprint."
        )
    return assumed_fingerprint(assumed)


def assumed_fingerprint(told: str) -> str:
    """A fingerprint as it is written, or that of what lies at a path."""
    if len(told) == 16 and set(told) <= HEXADECIMAL:
        return told
    return space_of(Path(told)).fingerprint


def check_model(store: Store, collection: str, model: Space, assumed: str | None = None) -> str:
    """Refuses a model whose queries were not made for a collection; returns why one may ask.

    Args:
        store: Where it is.
        collection: Its name.
        model: The space of the model's query vectors.
        assumed: See `fingerprint_of`.
    """
    gallery = fingerprint_of(store, collection, assumed)
    if model.fingerprint == gallery:
        return "the model made these vectors itself"
    reasons = []
    if model.parent == gallery:
        reasons.append(
            f"the model was made compatible with them by {model.method or 'some method'}"
        )
    reasons += [
        f"it was measured on them: {one.metric} {one.value:.4f}"
        for one in model.compatible_with
        if one.fingerprint == gallery
    ]
    if reasons:
        return "; ".join(reasons)
    made_for = f", and was made compatible with {model.parent}" if model.parent else ""
    raise SpaceMismatch(
        f"wanted a model that may search `{collection}` of {store.shown}, whose vectors are of the "
        f"space {gallery}, but this one is of {model.fingerprint}{made_for}: its scores there mean "
        f"nothing. Train or fit a model against these vectors (`nobackfill train`, `nobackfill "
        f"fit`), declare this one where it is measured to be compatible (`nobackfill evaluate "
        f"--declare`), or search a collection that it was made for."
    )
