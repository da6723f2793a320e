"""Serves a model and a collection, if both pass every check under the lock of the gallery."""

from pathlib import Path
from typing import NamedTuple

from nobackfill.gallery.guard import Standing, check_standing, measured_in_training, standing_of
from nobackfill.gallery.provenance import fingerprint_of
from nobackfill.gallery.routing import Route, switch
from nobackfill.gallery.sketch import check_written_for
from nobackfill.gallery.status import check_share
from nobackfill.gallery.stores.base import Store
from nobackfill.vectors.records import space_of
from nobackfill.vectors.space import with_dim


class Served(NamedTuple):
    """What is served now, or would be."""

    route: Route
    standing: Standing  # of the model on the collection


def serve(
    store: Store,
    collection: str,
    model: Path,
    *,
    assumed: str | None = None,
    strict: bool = False,
    partial: bool = False,
    dry_run: bool = False,
) -> Served:
    """Serves a collection to a model from now on.

    Args:
        store: Gallery.
        collection: Collection to serve.
        model: Run, head or file of vectors.
        assumed: See `fingerprint_of`.
        strict: Whether the model must be measured to be compatible.
        partial: Whether a part of the items is enough.
        dry_run: Whether everything is checked, and nothing written.
    """
    space, training = space_of(model), measured_in_training(model)

    def check_and_switch() -> Served:
        standing = standing_of(store, collection, space, assumed, training=training)
        check_standing(standing, collection, strict=strict)
        share = check_share(store, collection, partial=partial)
        check_written_for(store, collection)
        query_space = with_dim(space, store.dim(collection)).fingerprint
        if dry_run:
            return Served(Route(collection, query_space, share), standing)
        route = switch(
            store,
            collection,
            query_space=query_space,
            share=share,
            standing=standing.in_words,
            model=str(model.resolve()),
            space=fingerprint_of(store, collection, assumed),
        )
        return Served(route, standing)

    if dry_run:
        return check_and_switch()
    return store.exclusively(f"serve `{collection}`", check_and_switch)
