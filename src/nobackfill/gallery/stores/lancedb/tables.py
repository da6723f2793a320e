"""A database of LanceDB in a folder: tables as they are now, and writes beside other writers."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import lancedb
import pyarrow as pa

from nobackfill.errors import ConfigError, DataError, GalleryError
from nobackfill.gallery.stores.client import Asking
from nobackfill.gallery.stores.uri import Uri

TRIES = 8  # of a write, where another writer was faster
TIDY_AFTER = 50  # writes, then twice as many: many small ones leave many small files
KEPT = timedelta(minutes=10)  # earlier versions of our tables, for whoever reads them just now
# of the column by which rows are known: without it two writers at once insert the same row twice
KEY = {"lance-schema:unenforced-primary-key:position": "1"}
FASTER = ("conflict", "concurrent")  # words of LanceDB, where another writer was faster

Seen = tuple[int, int, list[str]]  # the folder of a table's versions: itself, its time, its files


class Kept(NamedTuple):
    """A table that stays open between searches.

    Attributes:
        seen: Its versions, before it was opened.
        table: Of LanceDB.
        told: What was looked up when it was opened.
    """

    seen: Seen | None
    table: Any
    told: Any


class Tables:
    """The tables of a database; LanceDB's errors become ours.

    Args:
        uri: Such as `lancedb://FOLDER/TABLE`.
    """

    def __init__(self, uri: Uri):
        self._ask = Asking(uri, f"lancedb {version('lancedb')}")
        self._folder = folder_of(uri)
        self._database = self._ask(lancedb.connect, self._folder)
        self._kept: dict[str, Kept] = {}
        self._writes, self._tidy_at = 0, TIDY_AFTER

    def exists(self, name: str) -> bool:
        """Whether there is such a table."""
        try:
            self._database.open_table(name)
        except ValueError as error:
            if "not found" in str(error):
                return False
            raise
        return True

    def read(self, name: str, what: Callable[[Any], Any]) -> Any:
        """What is asked of a table as it is now."""

        def read() -> Any:
            return what(self._database.open_table(name))

        return self._ask(read)

    def search(self, name: str, look: Callable[[Any], Any], what: Callable[[Any, Any], Any]) -> Any:
        """What is asked of a table as it is now, without opening it each time.

        It is opened anew where its folder has other versions, or is another one.

        Args:
            name: Of the table.
            look: What to look up once it is open.
            what: Is given the table, and what was looked up.
        """

        def search() -> Any:
            kept, seen = self._kept.get(name), self._seen(name)
            if kept is None or seen is None or kept.seen != seen:
                table = self._database.open_table(name)
                kept = self._kept[name] = Kept(seen, table, look(table))
            return what(kept.table, kept.told)

        try:
            return self._ask(search)
        except GalleryError:
            self._kept.pop(name, None)  # somebody may have changed the table
            raise

    def _seen(self, name: str) -> Seen | None:
        """What is another after each change; None where there is no such table.

        File systems tell times coarsely or not at all, and a table that was made anew has the
        names of earlier versions again: only both together tell.
        """
        history = f"{self._folder}/{name}.lance/_versions"
        try:
            told = os.stat(history)
            return told.st_ino, told.st_mtime_ns, os.listdir(history)
        except OSError:
            return None

    def version(self, table: Any) -> tuple[int, int]:
        """What is another after each change: the version, and the time of the last one.

        A table that was removed and made anew counts its versions from one again.
        """
        seen = self._seen(table.name)
        return table.version, seen[1] if seen else 0

    def make(self, name: str, fields: dict[str, pa.DataType]) -> None:
        """Makes a table whose rows are known by its first column; nothing where it is there."""
        key, *others = (pa.field(*field, nullable=False) for field in fields.items())
        schema = pa.schema([key.with_metadata(KEY), *others])
        if not self.exists(name):
            self._ask(self._database.create_table, name, schema=schema, exist_ok=True)

    def merge(self, name: str, columns: list[pa.Array]) -> None:
        """Writes rows, in place of those of the same first column; all or none."""

        def merge(table: Any) -> None:
            data = pa.table(columns, schema=table.schema)
            merging = table.merge_insert(table.schema.names[0])
            merging.when_matched_update_all().when_not_matched_insert_all().execute(data)

        if len(columns[0]):
            self.write(name, merge)
            self._tidy(name)

    def write(self, name: str, change: Callable[[Any], Any]) -> None:
        """Changes a table as it is now; again where another writer was faster."""

        def write() -> None:
            for number in range(TRIES):
                try:
                    change(self._database.open_table(name))
                    return
                except (RuntimeError, OSError, ValueError) as error:
                    faster = any(word in str(error).lower() for word in FASTER)
                    if not faster or number == TRIES - 1:
                        raise
                    time.sleep(0.05 * 2**number)

        self._ask(write)

    def _tidy(self, name: str) -> None:
        """Now and then makes one large file of many small ones."""
        self._writes += 1
        if self._writes >= self._tidy_at:
            self._tidy_at *= 2
            with suppress(Exception):  # another writer was faster, or there is no room: no harm
                self._database.open_table(name).optimize(cleanup_older_than=KEPT)

    def drop(self, name: str) -> None:
        """Removes a table; nothing where there is none."""
        self._ask(self._database.drop_table, name, ignore_missing=True)


def folder_of(uri: Uri) -> Path:
    """The folder of a database, which must be there."""
    if "://" in uri.path or not Path(uri.path).name:
        raise ConfigError(
            f"wanted a folder of this machine as lancedb://FOLDER/TABLE, but got {uri.shown}. "
            f"Tables elsewhere, such as in s3://, cannot be opened; copy or mount them."
        )
    folder = Path(uri.path).parent
    if not folder.is_dir():
        raise DataError(f"wanted a database of LanceDB in {folder}, but there is no such folder.")
    return folder


def delete(table: Any, *, where: str) -> None:
    """Removes the rows that a filter matches."""
    table.delete(where)
