"""Which model made a collection: as a note next to it declares, or as its owner assumes.

The note of a new collection carries a random token, made when the collection is. A process that
writes the collection, or reads much of it, compares the token: another one, or none, means that the
collection was removed meanwhile, or is that of another model now.
"""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from nobackfill.core.json_files import parse_object
from nobackfill.errors import DataError, GalleryError, SpaceMismatch
from nobackfill.gallery.stores.base import REPAIR, Answer, Store
from nobackfill.gallery.stores.client import check_exists
from nobackfill.vectors.records import space_of
from nobackfill.vectors.space import SAMPLE, Space, names_a_model, with_dim

SPACE = "space/"  # keys of notes begin with it
TOKEN = "token"  # key in the note of a collection
HEXADECIMAL = set("0123456789abcdef")


class Declaration(NamedTuple):
    """What the note of a collection declares."""

    space: Space
    token: str | None  # None in galleries of earlier versions


def declaration(store: Store, collection: str) -> Declaration | None:
    """Returns what the note of a collection declares; None if there is none."""
    text = store.read_note(space_key(collection))
    if text is None:
        return None
    where = f"the note of `{collection}` in {store.shown}"
    record = parse_object(text, where, REPAIR)
    token = record.pop(TOKEN, None)
    try:
        space = Space.from_record(record, where=where)
    except DataError as error:
        raise DataError(f"{error} {REPAIR}") from None
    return Declaration(space, None if token is None else str(token))


def declared(store: Store, collection: str) -> Space | None:
    """Returns the space of a collection as declared; None if nothing declares it."""
    if collection == store.main and (space := store.own_space()) is not None:
        return space
    known = declaration(store, collection)
    return None if known is None else known.space


def declare(store: Store, collection: str, space: Space) -> str:
    """Declares a collection to be of a space unless it is already; returns its token.

    Raises if it is of another space. What was written is read again: where the engine has no lock,
    another process may have written at the same time.
    """
    store.check_writable(collection)

    def write() -> str:
        known = declaration(store, collection)
        if known is None or known.token is None:
            check_same(collection, None if known is None else known.space, space)
            record = {**space.to_record(), TOKEN: secrets.token_hex(8)}
            store.note(space_key(collection), json.dumps(record))
            known = declaration(store, collection)
        check_same(collection, None if known is None else known.space, space)
        assert known is not None
        assert known.token is not None
        return known.token

    return store.exclusively(f"declare `{collection}`", write)


def check_same(collection: str, space: Space | None, new: Space) -> None:
    """Raises if a collection is of another space than vectors that are to be written."""
    if space is not None and space.fingerprint != new.fingerprint:
        raise SpaceMismatch(
            f"Cannot continue with `{collection}`: its vectors are of the space "
            f"{space.fingerprint}, but the new ones are of {new.fingerprint}. Choose another name, "
            f"or remove the collection with `nobackfill gallery clean`."
        )


def token_of(store: Store, collection: str) -> str | None:
    """Returns the token of a collection; None if it has none."""
    known = declaration(store, collection)
    return None if known is None else known.token


def check_token(store: Store, collection: str, token: str) -> None:
    """Raises if a collection no longer carries a token."""
    if token_of(store, collection) != token:
        raise GalleryError(
            f"Stopped: `{collection}` was removed meanwhile by another process, or is being "
            f"written anew. Nothing more was written. Look with `nobackfill gallery log`, then run "
            f"the command again, or choose another name."
        )


@contextmanager
def writing(store: Store, collection: str, token: str) -> Iterator[None]:
    """Says that a collection was removed in place of the engine's errors that come from that."""
    try:
        yield
    except GalleryError:
        check_token(store, collection, token)
        raise


def while_declared(
    store: Store, collection: str, token: str, action: str, work: Callable[[], Answer]
) -> Answer:
    """Runs `work` under the lock of the gallery if a collection carries a token, else raises."""

    def checked() -> Answer:
        check_token(store, collection, token)
        return work()

    return store.exclusively(action, checked)


@contextmanager
def reading(store: Store, collection: str) -> Iterator[None]:
    """Raises at the end of a block if a collection was written anew while it was read.

    Errors of the engine that come from that are replaced by one that says so.
    """
    token = token_of(store, collection)
    try:
        yield
    except GalleryError:
        if token_of(store, collection) == token:
            raise
    if token_of(store, collection) != token:
        raise was_rebuilt(collection) from None


def was_rebuilt(collection: str) -> GalleryError:
    """Returns the error for a collection that was written anew while it was read."""
    return GalleryError(
        f"`{collection}` was removed or written anew by another process while it was read, so "
        f"what was read may be of two models, and is discarded. Run the command again."
    )


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
