"""Galleries in Qdrant, on a server or embedded in a folder."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from qdrant_client import models

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import PAGE, Matrix, Rows, notes_of, unit
from nobackfill.gallery.stores.client import (
    as_columns,
    batches,
    choose_name,
    cosines_from,
    owner_collections,
)
from nobackfill.gallery.stores.client_store import ClientStore, Key
from nobackfill.gallery.stores.qdrant.points import (
    length_of,
    open_client,
    point_id,
    vectors_of,
    with_length,
    without_size_warning,
)
from nobackfill.gallery.stores.uri import Uri, check_options

OPTIONS = ("collection", "vector", "api_key", "https", "prefer_grpc", "timeout")
METRICS = (models.Distance.COSINE, models.Distance.DOT, models.Distance.EUCLID)


class QdrantStore(ClientStore):
    """A Qdrant collection; search is exact when embedded, and uses the index on a server.

    Qdrant stores vectors of a cosine collection with unit length. `scan` and `get` return the
    owner's vectors so, and new vectors as written: their lengths are stored in the payload. An
    item without a vector has a row of NaN.

    Args:
        uri: URI such as `qdrant:FOLDER?collection=photos` or `qdrant://db:6333/photos?api_key=…`.
        read_only: Whether every write is refused.
    """

    id_types = "a whole number or a UUID"

    def __init__(self, uri: Uri, *, read_only: bool):
        check_options(uri, *OPTIONS)
        self.exact = not uri.host
        super().__init__(uri, "qdrant-client", read_only=read_only)

    def _open_client(self) -> Any:
        return open_client(self._uri)

    def _owner_collections(self, name: str) -> list[str]:
        names = owner_collections(self._collections())
        aliases = self._call(self.client.get_aliases).aliases
        return [*names, *(alias.alias_name for alias in aliases if alias.alias_name == name)]

    def _collections(self) -> list[str]:
        collections = self._call(self.client.get_collections).collections
        return [collection.name for collection in collections]

    def _open_main(self, vector: str) -> None:
        vectors, shown = self._vectors(self.main), f"{self.shown} ({self.main})"
        self.vector = choose_name("vector", "vector", vector, sorted(vectors), shown)
        chosen = vectors[self.vector]
        self.metric = chosen.distance.value
        if chosen.distance not in METRICS or chosen.multivector_config is not None:
            raise GalleryError(
                f"Cannot compute cosines of one vector per item: `{self.main}` in {self.shown} has "
                f"the metric {self.metric}, or several vectors per item."
            )

    def _vectors(self, collection: str) -> dict[str, Any]:
        """Returns the vectors of a collection by name; the unnamed one has an empty name."""
        vectors = self._call(self.client.get_collection, collection).config.params.vectors or {}
        return vectors if isinstance(vectors, dict) else {"": vectors}

    def _name(self, collection: str) -> str:
        """Returns the name of the vector; new collections have an unnamed one."""
        return self.vector if collection == self.main else ""

    def _key(self, collection: str, id: str) -> Key | None:
        return point_id(id)

    def exists(self, collection: str) -> bool:
        """See `Store`."""
        return bool(self._call(self.client.collection_exists, collection))

    def count(self, collection: str) -> int:
        """See `Store`."""
        return int(self._call(self.client.count, collection, exact=True).count)

    def dim(self, collection: str) -> int:
        """See `Store`."""
        return int(self._vectors(collection)[self._name(collection)].size)

    def scan(self, collection: str, *, after: str | None = None, limit: int = 1000) -> Rows:
        """See `Store`; numbers come before UUIDs, each in ascending order."""
        first = None if after is None else self._require_key(collection, after)
        points, _ = self._call(
            self.client.scroll,
            collection,
            limit=limit if first is None else limit + 1,  # the result starts with `after` itself
            offset=first,
            with_payload=True,
            with_vectors=self._with_vectors(collection),
        )
        return self._rows(collection, [point for point in points if point.id != first][:limit])

    def id_pages(self, collection: str) -> Iterator[list[str]]:
        """See `Store`."""
        parts, offset = {"with_payload": False, "with_vectors": False}, None
        while True:
            points, offset = self._call(
                self.client.scroll, collection, limit=PAGE, offset=offset, **parts
            )
            yield [str(point.id) for point in points]
            if offset is None:
                return

    def _with_vectors(self, collection: str) -> list[str] | bool:
        name = self._name(collection)
        return [name] if name else True

    def _retrieve(self, collection: str, keys: Sequence[Key]) -> list[Any]:
        parts = {"with_payload": True, "with_vectors": self._with_vectors(collection)}
        return list(self._call(self.client.retrieve, collection, ids=keys, **parts))

    def _present(self, collection: str, keys: Sequence[Key]) -> list[Key]:
        parts = {"with_payload": False, "with_vectors": False}
        return [
            point.id for point in self._call(self.client.retrieve, collection, ids=keys, **parts)
        ]

    def _rows(self, collection: str, records: Sequence[Any]) -> Rows:
        payloads = [point.payload or {} for point in records]
        vectors = vectors_of(records, self._name(collection), self.dim(collection))
        ids = [str(point.id) for point in records]
        if collection != self.main:
            return Rows(ids, with_length(vectors, payloads), {})
        cosine = self.metric == models.Distance.COSINE
        return Rows(ids, unit(vectors) if cosine else vectors, as_columns(payloads))

    def _nearest(self, collection: str, query: Matrix, k: int) -> list[list[tuple[str, float]]]:
        name, results = self._name(collection) or None, []
        euclidean = collection == self.main and self.metric == models.Distance.EUCLID
        requests = [
            models.QueryRequest(query=row.tolist(), using=name, limit=max(k, 1)) for row in query
        ]
        for result in self._call(self.client.query_batch_points, collection, requests=requests):
            points = result.points[:k]
            cosines = [float(point.score) for point in points]
            if euclidean:
                squares = [distance**2 for distance in cosines]
                cosines = cosines_from(squares, squared_distances=True)
            results.append(list(zip((str(point.id) for point in points), cosines, strict=True)))
        return results

    def create(self, collection: str, dim: int) -> None:
        """See `Store`."""
        self.check_writable(collection)
        self._create(collection, dim)

    def _create(self, collection: str, dim: int) -> None:
        if self.exists(collection):
            return
        config = models.VectorParams(size=dim, distance=models.Distance.COSINE)
        try:
            self._call(self.client.create_collection, collection, vectors_config=config)
        except GalleryError:
            if not self.exists(collection):  # else another process has created it
                raise

    def _write(self, collection: str, vector_of: Mapping[Key, Matrix]) -> None:
        points = [
            models.PointStruct(id=id, vector=vector.tolist(), payload=length_of(vector))
            for id, vector in vector_of.items()
        ]
        self._write_points(collection, points)

    def _write_points(self, collection: str, points: Sequence[Any]) -> None:
        with without_size_warning():
            self._call(self.client.upsert, collection, points=points, wait=True)

    def _delete(self, collection: str, keys: Sequence[Key]) -> None:
        selector = models.PointIdsList(points=list(keys))
        self._call(self.client.delete, collection, points_selector=selector, wait=True)

    def _drop(self, collection: str) -> None:
        self._call(self.client.delete_collection, collection)

    def notes(self) -> dict[str, str]:
        """See `Store`."""
        collection, notes, offset = notes_of(self.main), {}, None
        if not self.exists(collection):
            return {}
        while True:
            points, offset = self._call(self.client.scroll, collection, limit=1000, offset=offset)
            notes.update({point.payload["key"]: point.payload["text"] for point in points})
            if offset is None:
                return notes

    def _note_key(self, key: str) -> Key:
        return str(uuid5(NAMESPACE_URL, key))

    def _write_note(self, key: str, text: str) -> None:
        collection, payload = notes_of(self.main), {"key": key, "text": text}
        self._create(collection, 1)
        point = models.PointStruct(id=self._note_key(key), vector=[1.0], payload=payload)
        self._write_points(collection, [point])

    def retire(self, collection: str) -> None:
        """See `Store`; only named vectors can be removed.

        The vectors of items without a new one stay, whenever the owner inserted them.
        """
        self.check_may_write()
        if not self.vector:
            super().retire(collection)
        self.check_is_covered(collection)
        for ids in self.id_pages(self.main):
            keys = self._keys(self.main, sorted(self.contained(collection, ids)))
            for batch in batches(keys, 1):
                self._call(
                    self.client.delete_vectors,
                    self.main,
                    vectors=[self.vector],
                    points=list(batch),
                    wait=True,
                )

    def close(self) -> None:
        """See `Store`."""
        self.client.close()
