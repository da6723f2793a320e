"""Galleries in files; `FlatStore` searches a file of vectors exactly, as the reference engine."""

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from nobackfill.core.suggest import suggest_path
from nobackfill.errors import DataError, GalleryError
from nobackfill.gallery.stores.base import MARK, Answer, Index, Matrix, Rows, SearchResults, Store
from nobackfill.gallery.stores.sidecar import SideFile, search_exactly
from nobackfill.gallery.stores.uri import Uri, check_options
from nobackfill.vectors import load_vectors
from nobackfill.vectors.space import Space


class FileStore(Store):
    """A gallery in a read-only file; new vectors and notes are stored in `FILE.nobackfill`."""

    atomic = True
    ids: list[str]  # of the owner's items, in the order of the file
    main_dim: int  # number of dimensions of the owner's vectors

    def __init__(self, uri: Uri, *, read_only: bool):
        check_options(uri)
        path = Path(uri.path)
        super().__init__(path.stem, uri.shown, read_only=read_only)
        if not path.exists():
            raise DataError(f"No gallery at {path}: no such file. {suggest_path(path)}")
        self._path, self._stamp = path, stamp_of(path)
        self.side = SideFile(path.with_name(f"{path.name}.nobackfill"), like=path)

    @abstractmethod
    def main_rows(self, places: Sequence[int]) -> Rows:
        """Returns the owner's items at these positions."""

    @abstractmethod
    def main_search(self, query: Matrix, k: int) -> SearchResults:
        """Searches the owner's items."""

    @cached_property
    def place_of(self) -> dict[str, int]:
        """Position of each of the owner's items."""
        return {id: place for place, id in enumerate(self.ids)}

    def exists(self, collection: str) -> bool:
        """See `Store`."""
        return collection == self.main or self.side.exists(collection)

    def count(self, collection: str) -> int:
        """See `Store`."""
        return len(self.ids) if collection == self.main else self.side.count(collection)

    def dim(self, collection: str) -> int:
        """See `Store`."""
        return self.main_dim if collection == self.main else self.side.dim(collection)

    def scan(self, collection: str, *, after: str | None = None, limit: int = 1000) -> Rows:
        """See `Store`."""
        if collection != self.main:
            return self.side.scan(collection, after=after, limit=limit)
        first = 0 if after is None else self.first_after(after)
        return self.main_rows(range(first, min(first + limit, len(self.ids))))

    def first_after(self, after: str) -> int:
        """Returns the position after one of the owner's items."""
        if after not in self.place_of:
            raise GalleryError(
                f"Cannot continue after the item `{after}`: {self.shown} no longer has it, and "
                f"items are in the order of the file. Start again."
            )
        return self.place_of[after] + 1

    def id_pages(self, collection: str) -> Iterator[list[str]]:
        """See `Store`."""
        yield self.ids if collection == self.main else self.side.ids(collection)

    def contained(self, collection: str, ids: Sequence[str]) -> set[str]:
        """See `Store`."""
        if collection != self.main:
            return super().contained(collection, ids)
        return {id for id in ids if id in self.place_of}

    def get(self, collection: str, ids: Sequence[str]) -> Rows:
        """See `Store`."""
        if collection != self.main:
            return self.side.get(collection, ids)
        return self.main_rows([self.place_of[id] for id in ids if id in self.place_of])

    def search(self, collection: str, query: Matrix, k: int) -> SearchResults:
        """See `Store`."""
        if collection == self.main:
            return self.main_search(query, k)
        return self.side.search(collection, query, k)

    def exclusively(self, action: str, work: Callable[[], Answer], *, retry: bool = True) -> Answer:
        """See `Store`; one transaction. Raises if the owner has replaced the file meanwhile."""
        self.check_may_write()
        with self.side.transaction():
            if stamp_of(self._path) != self._stamp:
                raise GalleryError(
                    f"Could not {action} in {self.shown}: the file was replaced since it was "
                    f"opened. Earlier writes are kept: run the command again."
                )
            return work()

    def new_collections(self) -> list[str]:
        """See `Store`."""
        names = self.side.collections()
        return [name for name in names if name.startswith(f"{self.main}{MARK}")]

    def create(self, collection: str, dim: int) -> None:
        """See `Store`."""
        self.check_writable(collection)
        self.side.create(collection, dim)

    def upsert(self, collection: str, ids: Sequence[str], vectors: Matrix) -> None:
        """See `Store`; items that the owner has removed are left out."""
        self.check_writable(collection)
        rows = [row for row, id in enumerate(ids) if id in self.place_of]
        self.side.upsert(collection, [ids[row] for row in rows], vectors[rows])

    def remove(self, collection: str, ids: Sequence[str]) -> None:
        """See `Store`."""
        self.check_writable(collection)
        self.side.remove(collection, ids)

    def drop(self, collection: str) -> None:
        """See `Store`."""
        self.check_writable(collection)
        self.side.drop(collection)

    def index_of(self, collection: str) -> Index | None:
        """See `Store`; new vectors are searched exactly."""
        return super().index_of(collection) if collection == self.main else None

    def notes(self) -> dict[str, str]:
        """See `Store`."""
        return self.side.notes()

    def read_note(self, key: str) -> str | None:
        """See `Store`."""
        return self.side.read_note(key)

    def note(self, key: str, text: str | None) -> None:
        """See `Store`."""
        self.check_may_write()
        self.side.note(key, text)


def stamp_of(path: Path) -> tuple[int, ...] | None:
    """Returns numbers that change when a file is replaced or written; None for a folder's."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class FlatStore(FileStore):
    """A file of vectors as written by `Vectors.save`; .npy and .safetensors are memory-mapped.

    Args:
        uri: URI such as `flat://gallery.safetensors`.
        read_only: Whether every write is refused.
    """

    def __init__(self, uri: Uri, *, read_only: bool):
        super().__init__(uri, read_only=read_only)
        self.vectors = load_vectors(uri.path)
        self.ids, self.main_dim = [str(id) for id in self.vectors.ids.tolist()], self.vectors.dim

    def own_space(self) -> Space | None:
        """See `Store`; read from the file or from its space.json."""
        return self.vectors.space

    def main_rows(self, places: Sequence[int]) -> Rows:
        """See `FileStore`."""
        rows = np.asarray(places, dtype=np.int64)
        columns = {name: values[rows].tolist() for name, values in self.vectors.columns.items()}
        if self.vectors.labels is not None:
            columns["label"] = self.vectors.labels[rows].tolist()
        vectors = self.vectors.vectors[torch.from_numpy(rows)].float().numpy()
        return Rows([self.ids[place] for place in places], vectors, columns)

    @cached_property
    def _unit(self) -> torch.Tensor:
        return F.normalize(self.vectors.vectors.float(), dim=1)

    def main_search(self, query: Matrix, k: int) -> SearchResults:
        """See `FileStore`."""
        return search_exactly(query, self.ids, self._unit, k)
