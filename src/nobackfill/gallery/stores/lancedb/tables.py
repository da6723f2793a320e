"""A LanceDB database in a folder: opens current tables, and retries writes that conflict."""

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import lancedb
import pyarrow as pa

from nobackfill.errors import ConfigError, DataError, GalleryError
from nobackfill.gallery.stores.client import ClientCalls
from nobackfill.gallery.stores.uri import Uri

TRIES = 8  # of a write that conflicts with another writer
TIDY_AFTER = 50  # writes, then twice as many: small writes leave small files
EMPTIED = 100_000  # values removed at once
KEPT = timedelta(minutes=10)  # earlier versions of new tables are kept for current readers
# metadata of the key column: without it two concurrent writers can insert the same row twice
KEY = {"lance-schema:unenforced-primary-key:position": "1"}
CONFLICT = ("conflict", "concurrent")  # in errors of LanceDB, after a concurrent write

Answer = TypeVar("Answer")
Info = TypeVar("Info")
Stamp = tuple[int, int, list[str]]  # folder of a table's versions: inode, time, file names


class OpenTable(NamedTuple):
    """A table that stays open between searches."""

    stamp: Stamp | None  # of its versions before it was opened
    table: Any
    info: Any  # what `Tables.search` read when it was opened


class Tables:
    """The tables of a database; errors of LanceDB become `GalleryError`."""

    def __init__(self, uri: Uri):
        self._call = ClientCalls(uri, "lancedb")
        self.folder = folder_of(uri)
        self._database = self._call(lancedb.connect, self.folder)
        self._open: dict[str, OpenTable] = {}
        self._writes, self._tidy_at = 0, TIDY_AFTER

    def names(self, start: str) -> list[str]:
        """Returns the names of the tables that begin with `start`."""
        names = (path.name.removesuffix(".lance") for path in self.folder.glob("*.lance"))
        return [name for name in names if name.startswith(start) and self.exists(name)]

    def exists(self, name: str) -> bool:
        """Whether the table exists."""
        try:
            self._database.open_table(name)
        except ValueError as error:
            if "not found" in str(error):
                return False
            raise
        return True

    def read(self, name: str, work: Callable[[Any], Answer]) -> Answer:
        """Returns `work(table)` for the current version of a table."""

        def read() -> Answer:
            return work(self._database.open_table(name))

        return self._call(read)

    def has_any(self, name: str, filter: str) -> bool:
        """Whether a row of a table matches a filter."""
        return bool(self.read(name, lambda table: table.search().where(filter).limit(1).to_list()))

    def search(
        self, name: str, info: Callable[[Any], Info], work: Callable[[Any, Info], Answer]
    ) -> Answer:
        """Returns `work(table, info(table))`; keeps table and info until the table changes."""

        def search() -> Answer:
            opened, stamp = self._open.get(name), self._stamp(name)
            if opened is None or stamp is None or opened.stamp != stamp:
                table = self._database.open_table(name)
                opened = self._open[name] = OpenTable(stamp, table, info(table))
            return work(opened.table, opened.info)

        try:
            return self._call(search)
        except GalleryError:
            self._open.pop(name, None)  # somebody may have changed the table
            raise

    def _stamp(self, name: str) -> Stamp | None:
        """Returns a value that differs after each change; None if the table does not exist.

        Times of file systems are coarse, and a table that was created again repeats the names of
        earlier versions, so both are compared.
        """
        history = f"{self.folder}/{name}.lance/_versions"
        try:
            status = os.stat(history)
            return status.st_ino, status.st_mtime_ns, os.listdir(history)
        except OSError:
            return None

    def version(self, table: Any) -> tuple[int, int]:
        """Returns a value that differs after each change: version and time of the last change.

        A table that was removed and created again counts its versions from one again.
        """
        stamp = self._stamp(table.name)
        return table.version, stamp[1] if stamp else 0

    def make(self, name: str, fields: dict[str, pa.DataType]) -> None:
        """Creates a table whose first column is the key; does nothing if it exists."""
        key, *others = (pa.field(*field, nullable=False) for field in fields.items())
        schema = pa.schema([key.with_metadata(KEY), *others])
        if not self.exists(name):
            self._call(self._database.create_table, name, schema=schema, exist_ok=True)

    def merge(self, name: str, columns: list[pa.Array]) -> None:
        """Inserts or replaces rows by their first column, atomically."""

        def merge(table: Any) -> None:
            data = pa.table(columns, schema=table.schema)
            builder = table.merge_insert(table.schema.names[0])
            builder.when_matched_update_all().when_not_matched_insert_all().execute(data)

        if len(columns[0]):
            self.write(name, merge)
            self._tidy(name)

    def empty(self, name: str, column: str, key: str, keys: pa.ChunkedArray) -> None:
        """Removes the values of a column in rows with these keys; other rows stay as they are."""
        nullable = {"path": column, "nullable": True}
        self.write(name, lambda table: table.alter_columns(nullable))

        def empty(table: Any, page: pa.Array) -> None:
            nothing = pa.nulls(len(page), table.schema.field(column).type)
            data = pa.table({key: page.cast(table.schema.field(key).type), column: nothing})
            builder = table.merge_insert(key).when_matched_update_all()
            builder.execute(data, on_bad_vectors="null")

        for first in range(0, len(keys), EMPTIED):
            page = keys.slice(first, EMPTIED).combine_chunks()
            self.write(name, partial(empty, page=page))

    def write(self, name: str, change: Callable[[Any], Any]) -> None:
        """Changes the current version of a table; retries after a conflict."""

        def write() -> None:
            for number in range(TRIES):
                try:
                    change(self._database.open_table(name))
                    return
                except (RuntimeError, OSError, ValueError) as error:
                    conflict = any(word in str(error).lower() for word in CONFLICT)
                    if not conflict or number == TRIES - 1:
                        raise
                    time.sleep(0.05 * 2**number)

        self._call(write)

    def delete(self, name: str, filter: str) -> None:
        """Removes the rows that match a filter."""
        self.write(name, lambda table: table.delete(filter))

    def _tidy(self, name: str) -> None:
        """Compacts small files after many writes."""
        self._writes += 1
        if self._writes >= self._tidy_at:
            self._tidy_at *= 2
            with suppress(Exception):  # a conflict or a full disk does no harm here
                self._database.open_table(name).optimize(cleanup_older_than=KEPT)

    def drop(self, name: str) -> None:
        """Removes a table in one step; does nothing if it does not exist.

        LanceDB removes file by file: a kill would leave a table that can be neither read nor made.
        """
        removed = self.folder / f".{name}.removed"
        shutil.rmtree(removed, ignore_errors=True)  # of a killed process
        try:
            os.rename(self.folder / f"{name}.lance", removed)
        except FileNotFoundError:
            return
        except OSError as error:
            raise GalleryError(
                f"Could not remove {self.folder / name}.lance: {error.strerror or error}. Nothing "
                f"was removed: run the command again."
            ) from None
        shutil.rmtree(removed, ignore_errors=True)


def folder_of(uri: Uri) -> Path:
    """Returns the folder of a database; raises if it does not exist."""
    if "://" in uri.path or not Path(uri.path).name:
        raise ConfigError(
            f"{uri.shown} is not a local folder of the form lancedb://FOLDER/TABLE. Remote tables, "
            f"such as in s3://, are not supported: copy or mount them."
        )
    folder = Path(uri.path).parent
    if not folder.is_dir():
        raise DataError(f"No LanceDB database in {folder}: no such folder.")
    return folder
