"""A gallery in Qdrant, on a server or embedded in a folder."""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from qdrant_client import models

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.base import MARK, Found, Matrix, Rows, Store, unit
from nobackfill.gallery.stores.client import (
    NOTES,
    Asking,
    as_columns,
    batches,
    check_dim,
    check_not_notes,
    check_unit_length,
    owners,
    squared_distance_as_cosine,
    the_only,
)
from nobackfill.gallery.stores.qdrant.points import (
    length_of,
    need_id,
    open_client,
    point_id,
    vectors_of,
    with_length,
    without_size_warning,
)
from nobackfill.gallery.stores.uri import Uri, check_options

OPTIONS = ("collection", "vector", "api_key", "https", "prefer_grpc", "timeout")
SAMPLE = 100  # vectors whose lengths are looked at
QUERIES = 100  # in one message


class QdrantStore(Store):
    """A collection of Qdrant; embedded it is searched exactly, on a server as its index does.

    Qdrant keeps vectors of a cosine collection with unit length: `scan` and `get` return them so,
    also where an embedded one, reopened, has them as its owner wrote them. Ours come back as they
    were written: their lengths are kept beside. An item that lacks the vector (after `retire`, or
    where its owner gave none) has a row of NaN.

    Args:
        uri: Such as `qdrant:FOLDER?collection=photos` or `qdrant://db:6333/photos?api_key=…`.
        read_only: Whether every write is refused.
    """

    def __init__(self, uri: Uri, *, read_only: bool = False):
        check_options(uri, *OPTIONS)
        self._ask = Asking(uri, f"qdrant-client {version('qdrant-client')}")
        self.client = self._ask(open_client, uri)
        try:
            asked = uri.options.get("collection") or (uri.path.strip("/") if uri.host else "")
            main = the_only("collection", "collection", asked, self._known(asked), uri.shown)
            super().__init__(main, uri.shown, read_only=read_only)
            self.exact = not uri.host
            self.vector, self.metric = self._choose_vector(uri.options.get("vector", ""))
            self._checked = self.metric == models.Distance.COSINE
            self._check_cosines()
        except BaseException:
            self.client.close()
            raise

    def _known(self, asked: str) -> list[str]:
        """The owner's collections, and what was asked for where it is another name of one."""
        known = owners([one.name for one in self._ask(self.client.get_collections).collections])
        aliases = self._ask(self.client.get_aliases).aliases
        return [*known, *(one.alias_name for one in aliases if one.alias_name == asked)]

    def _choose_vector(self, asked: str) -> tuple[str, Any]:
        """The name of the owner's vector, empty for the unnamed one, and its metric."""
        vectors = self._vectors(self.main)
        name = the_only("vector", "vector", asked, sorted(vectors), f"{self.shown} ({self.main})")
        metric = vectors[name].distance
        known = (models.Distance.COSINE, models.Distance.DOT, models.Distance.EUCLID)
        if metric not in known or vectors[name].multivector_config is not None:
            raise GalleryError(
                f"wanted cosines of one vector for each item, but `{self.main}` in {self.shown} "
                f"has the metric {metric.value}, or several vectors for each."
            )
        return name, metric

    def _vectors(self, collection: str) -> dict[str, Any]:
        """What vectors a collection has, by name; the unnamed one by the empty name."""
        told = self._ask(self.client.get_collection, collection).config.params.vectors or {}
        return told if isinstance(told, dict) else {"": told}

    def _check_cosines(self) -> None:
        """Whether scores of the owner's vectors can be told as cosines."""
        if not self._checked:
            sample = self.scan(self.main, limit=SAMPLE)
            check_unit_length(sample.vectors, f"the metric {self.metric.value}", self.shown)
            self._checked = bool(sample.ids)

    def exists(self, collection: str) -> bool:
        """See `Store`."""
        return bool(self._ask(self.client.collection_exists, collection))

    def count(self, collection: str) -> int:
        """See `Store`."""
        return int(self._ask(self.client.count, collection, exact=True).count)

    def dim(self, collection: str) -> int:
        """See `Store`."""
        return int(self._vectors(collection)[self._name(collection)].size)

    def _name(self, collection: str) -> str:
        """Of the vector; ours have none."""
        return self.vector if collection == self.main else ""

    def scan(self, collection: str, *, after: str | None = None, limit: int = 1000) -> Rows:
        """See `Store`; numbers come before UUIDs, each in ascending order."""
        first = None if after is None else need_id(after)
        points, _ = self._ask(
            self.client.scroll,
            collection,
            limit=limit if first is None else limit + 1,  # it begins with `after` itself
            offset=first,
            with_payload=True,
            with_vectors=self._with_vectors(collection),
        )
        return self._rows(collection, [point for point in points if point.id != first][:limit])

    def get(self, collection: str, ids: Sequence[str]) -> Rows:
        """See `Store`."""
        dim, points = self.dim(collection), []
        wanted = [one for one in map(point_id, ids) if one is not None]
        for some in batches(wanted, dim):
            points += self._ask(
                self.client.retrieve,
                collection,
                ids=some,
                with_payload=True,
                with_vectors=self._with_vectors(collection),
            )
        return self._rows(collection, points)

    def contained(self, collection: str, ids: Sequence[str]) -> set[str]:
        """See `Store`."""
        wanted = {one: point_id(one) for one in ids}
        there = self._there(collection, [one for one in wanted.values() if one is not None])
        return {one for one, point in wanted.items() if point in there}

    def _there(self, collection: str, points: Sequence[int | str]) -> set[int | str]:
        """The same for ids of Qdrant; nothing but ids is sent."""
        there: set[int | str] = set()
        for some in batches(points, 1):
            told = self._ask(
                self.client.retrieve, collection, ids=some, with_payload=False, with_vectors=False
            )
            there |= {point.id for point in told}
        return there

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
        asked = [
            models.QueryRequest(query=row.tolist(), using=name, limit=max(k, 1))
            for row in unit(query)
        ]
        for first in range(0, len(asked), QUERIES):
            some = asked[first : first + QUERIES]
            for told in self._ask(self.client.query_batch_points, collection, requests=some):
                ids.append([str(point.id) for point in told.points[:k]])
                scores = [float(point.score) for point in told.points[:k]]
                cosines.append(
                    [squared_distance_as_cosine(score**2) for score in scores]
                    if euclidean
                    else scores
                )
        return Found(ids, cosines)

    def create(self, collection: str, dim: int) -> None:
        """See `Store`."""
        self.check_writable(collection)
        check_not_notes(collection)
        self._make(collection, dim)

    def _make(self, collection: str, dim: int) -> None:
        if self.exists(collection):
            return
        config = models.VectorParams(size=dim, distance=models.Distance.COSINE)
        try:
            self._ask(self.client.create_collection, collection, vectors_config=config)
        except GalleryError:
            if not self.exists(collection):  # else another process was faster
                raise

    def upsert(self, collection: str, ids: Sequence[str], vectors: Matrix) -> None:
        """See `Store`; items that the owner has removed meanwhile are left out."""
        self.check_writable(collection)
        dim = self.dim(collection)
        check_dim(vectors, dim, collection)
        wanted = dict(zip(map(need_id, ids), vectors, strict=True))
        for some in batches(list(wanted), dim):
            points = [
                models.PointStruct(
                    id=one, vector=wanted[one].tolist(), payload=length_of(wanted[one])
                )
                for one in self._there(self.main, some)
            ]
            if points:
                self._write(collection, points)

    def _write(self, collection: str, points: Sequence[Any]) -> None:
        with without_size_warning():
            self._ask(self.client.upsert, collection, points=points, wait=True)

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """See `Store`."""
        self.check_writable(collection)
        self._remove(collection, [one for one in map(point_id, ids) if one is not None])

    def _remove(self, collection: str, points: Sequence[int | str]) -> None:
        for some in batches(points, 1):
            selector = models.PointIdsList(points=list(some))
            self._ask(self.client.delete, collection, points_selector=selector, wait=True)

    def drop(self, collection: str) -> None:
        """See `Store`."""
        self.check_writable(collection)
        if self.exists(collection):
            self._ask(self.client.delete_collection, collection)

    def notes(self) -> dict[str, str]:
        """See `Store`."""
        collection, found, offset = f"{self.main}{MARK}{NOTES}", {}, None
        if not self.exists(collection):
            return {}
        while True:
            points, offset = self._ask(self.client.scroll, collection, limit=1000, offset=offset)
            found.update({point.payload["key"]: point.payload["text"] for point in points})
            if offset is None:
                return found

    def note(self, key: str, text: str | None) -> None:
        """See `Store`."""
        self.check_may_write()
        collection, one = f"{self.main}{MARK}{NOTES}", str(uuid5(NAMESPACE_URL, key))
        if text is not None:
            self._make(collection, 1)
            payload = {"key": key, "text": text}
            self._write(collection, [models.PointStruct(id=one, vector=[1.0], payload=payload)])
        elif self.exists(collection):
            self._remove(collection, [one])

    def retire(self) -> None:
        """See `Store`; only where the owner's vector has a name, else Qdrant keeps it."""
        self.check_may_write()
        if not self.vector:
            super().retire()
        after = None
        while ids := self.scan(self.main, after=after).ids:
            self._ask(
                self.client.delete_vectors,
                self.main,
                vectors=[self.vector],
                points=[need_id(one) for one in ids],
                wait=True,
            )
            after = ids[-1]

    def close(self) -> None:
        """See `Store`."""
        self.client.close()
