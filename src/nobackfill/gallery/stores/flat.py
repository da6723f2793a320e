"""A gallery that is a file of vectors, searched exactly: what the others are compared with."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F

from nobackfill.errors import DataError, GalleryError
from nobackfill.gallery.stores.base import Found, Index, Matrix, Rows, Store
from nobackfill.gallery.stores.sidecar import SideFile, search_exactly
from nobackfill.gallery.stores.uri import Uri, check_options
from nobackfill.vectors import load_vectors
from nobackfill.vectors.space import Space


class FileStore(Store):
    """A gallery in a file that is only read; what we write goes into `FILE.nobackfill` beside it.

    Args:
        path: Of the owner's file.
        shown: Where it is.
        read_only: Whether every write is refused.
    """

    def __init__(self, path: Path, shown: str, *, read_only: bool):
        super().__init__(path.stem, shown, read_only=read_only)
        if not path.exists():
            raise DataError(f"wanted a gallery at {path}, but there is no such file.")
        self.side = SideFile(path.with_name(f"{path.name}.nobackfill"))

    @abstractmethod
    def main_ids(self) -> Sequence[str]:
        """The owner's ids, in the order of the file."""

    @abstractmethod
    def main_rows(self, places: Sequence[int]) -> Rows:
        """Some of the owner's items, by their places."""

    @abstractmethod
    def main_search(self, query: Matrix, k: int) -> Found:
        """Searches the owner's items."""

    @abstractmethod
    def main_dim(self) -> int:
        """Of the owner's vectors."""

    @property
    def place_of(self) -> dict[str, int]:
        """Where each of the owner's items is."""
        if not hasattr(self, "_place_of"):
            self._place_of = {one: place for place, one in enumerate(self.main_ids())}
        return self._place_of

    def exists(self, collection: str) -> bool:
        """See `Store`."""
        return collection == self.main or self.side.exists(collection)

    def count(self, collection: str) -> int:
        """See `Store`."""
        return len(self.main_ids()) if collection == self.main else self.side.count(collection)

    def dim(self, collection: str) -> int:
        """See `Store`."""
        return self.main_dim() if collection == self.main else self.side.dim(collection)

    def scan(self, collection: str, *, after: str | None = None, limit: int = 1000) -> Rows:
        """See `Store`."""
        if collection != self.main:
            return self.side.scan(collection, after=after, limit=limit)
        first = 0 if after is None else self.first_after(after)
        return self.main_rows(range(first, min(first + limit, len(self.main_ids()))))

    def first_after(self, after: str) -> int:
        """The place behind one of the owner's items, from which `scan` goes on."""
        if after not in self.place_of:
            raise GalleryError(
                f"wanted to go on after the item `{after}`, but {self.shown} has none of that id "
                f"any more, and its order is that of the file. Begin anew."
            )
        return self.place_of[after] + 1

    def contained(self, collection: str, ids: Sequence[str]) -> set[str]:
        """See `Store`."""
        if collection != self.main:
            return super().contained(collection, ids)
        return {one for one in ids if one in self.place_of}

    def get(self, collection: str, ids: Sequence[str]) -> Rows:
        """See `Store`."""
        if collection != self.main:
            return self.side.get(collection, ids)
        return self.main_rows([self.place_of[one] for one in ids if one in self.place_of])

    def search(self, collection: str, query: Matrix, k: int) -> Found:
        """See `Store`."""
        if collection == self.main:
            return self.main_search(query, k)
        return self.side.search(collection, query, k)

    def create(self, collection: str, dim: int) -> None:
        """See `Store`."""
        self.check_writable(collection)
        self.side.create(collection, dim)

    def upsert(self, collection: str, ids: Sequence[str], vectors: Matrix) -> None:
        """See `Store`; items that their owner has removed are left out."""
        self.check_writable(collection)
        there = [row for row, one in enumerate(ids) if one in self.place_of]
        self.side.upsert(collection, [ids[row] for row in there], vectors[there])

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """See `Store`."""
        self.check_writable(collection)
        self.side.remove(collection, ids)

    def drop(self, collection: str) -> None:
        """See `Store`."""
        self.check_writable(collection)
        self.side.drop(collection)

    def index_of(self, collection: str) -> Index | None:
        """See `Store`; new vectors are in a file beside, in which every one is looked at."""
        return super().index_of(collection) if collection == self.main else None

    def notes(self) -> dict[str, str]:
        """See `Store`."""
        return self.side.notes()

    def note(self, key: str, text: str | None) -> None:
        """See `Store`."""
        self.check_may_write()
        self.side.note(key, text)


class FlatStore(FileStore):
    """A file of vectors, as `Vectors.save` writes it; .npy and .safetensors are memory-mapped.

    Args:
        uri: Such as `flat://gallery.safetensors`.
        read_only: Whether every write is refused.
    """

    def __init__(self, uri: Uri, *, read_only: bool = False):
        check_options(uri)
        super().__init__(Path(uri.path), uri.shown, read_only=read_only)
        self.vectors = load_vectors(uri.path)
        self._ids = [str(one) for one in self.vectors.ids.tolist()]

    def own_space(self) -> Space | None:
        """See `Store`: what the file, or the record beside it, tells."""
        return self.vectors.space

    def main_ids(self) -> Sequence[str]:
        """See `FileStore`."""
        return self._ids

    def main_dim(self) -> int:
        """See `FileStore`."""
        return self.vectors.dim

    def main_rows(self, places: Sequence[int]) -> Rows:
        """See `FileStore`."""
        some = torch.tensor(list(places), dtype=torch.int64)
        columns = {
            name: values[some.numpy()].tolist() for name, values in self.vectors.columns.items()
        }
        if self.vectors.labels is not None:
            columns["label"] = self.vectors.labels[some.numpy()].tolist()
        rows = self.vectors.vectors[some].float().numpy()
        return Rows([self._ids[place] for place in places], rows, columns)

    def main_search(self, query: Matrix, k: int) -> Found:
        """See `FileStore`."""
        if not hasattr(self, "_unit"):
            self._unit = F.normalize(self.vectors.vectors.float(), dim=1)
        return search_exactly(query, self._ids, self._unit, k)
