"""Galleries in Qdrant, on a server or embedded in a folder."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from qdrant_client import models

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import Found, Matrix, Rows, Store, unit
from nobackfill.gallery.stores.client import (
    ClientCalls,
    as_columns,
    batches,
    check_dim,
    check_not_notes,
    check_unit_length,
    choose_name,
    cosines_from,
    notes_of,
    owner_collections,
)
from nobackfill.gallery.stores.qdrant.points import (
    length_of,
    open_client,
    point_id,
    require_id,
    vectors_of,
    with_length,
    without_size_warning,
)
from nobackfill.gallery.stores.uri import Uri, check_options

OPTIONS = ("collection", "vector", "api_key", "https", "prefer_grpc", "timeout")
SAMPLE = 100  # vectors whose lengths are checked
QUERIES = 100  # in one message


class QdrantStore(Store):
    """A Qdrant collection; search is exact when embedded, and uses the index on a server.

    Qdrant stores vectors of a cosine collection with unit length. `scan` and `get` return the
    owner's vectors so, and new vectors as written: their lengths are stored in the payload. An
    item without a vector has a row of NaN.

    Args:
        uri: URI such as `qdrant:FOLDER?collection=photos` or `qdrant://db:6333/photos?api_key=…`.
        read_only: Whether every write is refused.
    """

    def __init__(self, uri: Uri, *, read_only: bool = False):
        check_options(uri, *OPTIONS)
        self._call = ClientCalls(uri, f"qdrant-client {version('qdrant-client')}")
        self.client = self._call(open_client, uri)
        try:
            name = uri.options.get("collection") or (uri.path.strip("/") if uri.host else "")
            main = choose_name("collection", "collection", name, self._collections(name), uri.shown)
            super().__init__(main, uri.shown, read_only=read_only)
            self.exact = not uri.host
            self.vector, self.metric = self._choose_vector(uri.options.get("vector", ""))
            self._checked = self.metric == models.Distance.COSINE
            self._check_cosines()
        except BaseException:
            self.client.close()
            raise

    def _collections(self, name: str) -> list[str]:
        """Returns the owner's collections, and `name` if it is an alias."""
        collections = self._call(self.client.get_collections).collections
        names = owner_collections([collection.name for collection in collections])
        aliases = self._call(self.client.get_aliases).aliases
        return [*names, *(alias.alias_name for alias in aliases if alias.alias_name == name)]

    def _choose_vector(self, name: str) -> tuple[str, Any]:
        """Returns name (empty for the unnamed one) and metric of the owner's vector."""
        vectors = self._vectors(self.main)
        name = choose_name("vector", "vector", name, sorted(vectors), f"{self.shown} ({self.main})")
        metric = vectors[name].distance
        supported = (models.Distance.COSINE, models.Distance.DOT, models.Distance.EUCLID)
        if metric not in supported or vectors[name].multivector_config is not None:
            raise GalleryError(
                f"Cannot compute cosines of one vector per item: `{self.main}` in {self.shown} has "
                f"the metric {metric.value}, or several vectors per item."
            )
        return name, metric

    def _vectors(self, collection: str) -> dict[str, Any]:
        """Returns the vectors of a collection by name; the unnamed one has an empty name."""
        vectors = self._call(self.client.get_collection, collection).config.params.vectors or {}
        return vectors if isinstance(vectors, dict) else {"": vectors}

    def _check_cosines(self) -> None:
        """Raises if the scores of the owner's vectors do not give cosines."""
        if not self._checked:
            sample = self.scan(self.main, limit=SAMPLE)
            check_unit_length(sample.vectors, f"the metric {self.metric.value}", self.shown)
            self._checked = bool(sample.ids)

    def exists(self, collection: str) -> bool:
        """See `Store`."""
        return bool(self._call(self.client.collection_exists, collection))

    def count(self, collection: str) -> int:
        """See `Store`."""
        return int(self._call(self.client.count, collection, exact=True).count)

    def dim(self, collection: str) -> int:
        """See `Store`."""
        return int(self._vectors(collection)[self._name(collection)].size)

    def _name(self, collection: str) -> str:
        """Returns the name of the vector; new collections have an unnamed one."""
        return self.vector if collection == self.main else ""

    def scan(self, collection: str, *, after: str | None = None, limit: int = 1000) -> Rows:
        """See `Store`; numbers come before UUIDs, each in ascending order."""
        first = None if after is None else require_id(after)
        points, _ = self._call(
            self.client.scroll,
            collection,
            limit=limit if first is None else limit + 1,  # the result starts with `after` itself
            offset=first,
            with_payload=True,
            with_vectors=self._with_vectors(collection),
        )
        return self._rows(collection, [point for point in points if point.id != first][:limit])

    def get(self, collection: str, ids: Sequence[str]) -> Rows:
        """See `Store`."""
        dim, points = self.dim(collection), []
        point_ids = [id for id in map(point_id, ids) if id is not None]
        for batch in batches(point_ids, dim):
            points += self._call(
                self.client.retrieve,
                collection,
                ids=batch,
                with_payload=True,
                with_vectors=self._with_vectors(collection),
            )
        return self._rows(collection, points)

    def contained(self, collection: str, ids: Sequence[str]) -> set[str]:
        """See `Store`."""
        point_of = {id: point_id(id) for id in ids}
        present = self._present(collection, [id for id in point_of.values() if id is not None])
        return {id for id, point in point_of.items() if point in present}

    def _present(self, collection: str, ids: Sequence[int | str]) -> set[int | str]:
        """Returns those of Qdrant's ids that exist, without reading vectors."""
        present: set[int | str] = set()
        for batch in batches(ids, 1):
            points = self._call(
                self.client.retrieve, collection, ids=batch, with_payload=False, with_vectors=False
            )
            present |= {point.id for point in points}
        return present

    def _with_vectors(self, collection: str) -> list[str] | bool:
        name = self._name(collection)
        return [name] if name else True

    def _rows(self, collection: str, points: Sequence[Any]) -> Rows:
        payloads = [point.payload or {} for point in points]
        vectors = vectors_of(points, self._name(collection), self.dim(collection))
        ids = [str(point.id) for point in points]
        if collection != self.main:
            return Rows(ids, with_length(vectors, payloads), {})
        cosine = self.metric == models.Distance.COSINE
        return Rows(ids, unit(vectors) if cosine else vectors, as_columns(payloads))

    def search(self, collection: str, query: Matrix, k: int) -> Found:
        """See `Store`."""
        if collection == self.main:
            self._check_cosines()
        name, ids, cosines = self._name(collection) or None, [], []
        euclidean = collection == self.main and self.metric == models.Distance.EUCLID
        requests = [
            models.QueryRequest(query=row.tolist(), using=name, limit=max(k, 1))
            for row in unit(query)
        ]
        for first in range(0, len(requests), QUERIES):
            batch = requests[first : first + QUERIES]
            for result in self._call(self.client.query_batch_points, collection, requests=batch):
                ids.append([str(point.id) for point in result.points[:k]])
                scores = [float(point.score) for point in result.points[:k]]
                if euclidean:
                    scores = cosines_from([s**2 for s in scores], squared_distances=True)
                cosines.append(scores)
        return Found(ids, cosines)

    def create(self, collection: str, dim: int) -> None:
        """See `Store`."""
        self.check_writable(collection)
        check_not_notes(collection)
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

    def upsert(self, collection: str, ids: Sequence[str], vectors: Matrix) -> None:
        """See `Store`; items that the owner has removed are left out."""
        self.check_writable(collection)
        dim = self.dim(collection)
        check_dim(vectors, dim, collection)
        vector_of = dict(zip(map(require_id, ids), vectors, strict=True))
        for batch in batches(list(vector_of), dim):
            points = [
                models.PointStruct(
                    id=id, vector=vector_of[id].tolist(), payload=length_of(vector_of[id])
                )
                for id in self._present(self.main, batch)
            ]
            if points:
                self._write(collection, points)

    def _write(self, collection: str, points: Sequence[Any]) -> None:
        with without_size_warning():
            self._call(self.client.upsert, collection, points=points, wait=True)

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """See `Store`."""
        self.check_writable(collection)
        self._remove(collection, [id for id in map(point_id, ids) if id is not None])

    def _remove(self, collection: str, points: Sequence[int | str]) -> None:
        for batch in batches(points, 1):
            selector = models.PointIdsList(points=list(batch))
            self._call(self.client.delete, collection, points_selector=selector, wait=True)

    def drop(self, collection: str) -> None:
        """See `Store`."""
        self.check_writable(collection)
        if self.exists(collection):
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

    def note(self, key: str, text: str | None) -> None:
        """See `Store`."""
        self.check_may_write()
        collection, id = notes_of(self.main), str(uuid5(NAMESPACE_URL, key))
        if text is not None:
            self._create(collection, 1)
            payload = {"key": key, "text": text}
            self._write(collection, [models.PointStruct(id=id, vector=[1.0], payload=payload)])
        elif self.exists(collection):
            self._remove(collection, [id])

    def retire(self) -> None:
        """See `Store`; only named vectors can be removed."""
        self.check_may_write()
        if not self.vector:
            super().retire()
        after = None
        while ids := self.scan(self.main, after=after).ids:
            self._call(
                self.client.delete_vectors,
                self.main,
                vectors=[self.vector],
                points=[require_id(id) for id in ids],
                wait=True,
            )
            after = ids[-1]

    def close(self) -> None:
        """See `Store`."""
        self.client.close()
