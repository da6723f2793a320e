"""A connection to PostgreSQL that reconnects, retries and explains errors.

Statements are atomic in PostgreSQL, even where the connection is lost. Work that is safe to repeat
is therefore retried.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from pgvector.psycopg.vector import register_vector_info
from psycopg import errors, sql
from psycopg.pq import TransactionStatus
from psycopg.types import TypeInfo
from psycopg.types.string import ByteaBinaryLoader

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.uri import forms_of, without_secrets

Answer = TypeVar("Answer")
Link = psycopg.Connection[tuple[Any, ...]]

PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 14.0)  # seconds before each retry
DEFAULTS = {  # connection parameters that the URI may override
    "application_name": "nobackfill",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "tcp_user_timeout": "60000",
}
TEMPORARY = (  # rolled back by the server, worth a retry
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.TooManyConnections,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.LockNotAvailable,
    errors.ForeignKeyViolation,  # the owner has just deleted the item
    errors.DuplicateTable,  # another process has just created the table
    errors.UniqueViolation,  # the same, in the catalog
    errors.DuplicateObject,  # the same, for its type
)
UNDONE = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable)
REMEDIES: dict[type[psycopg.Error], str] = {
    errors.InsufficientPrivilege: "Ask the owner of the table to grant it to this user: which "
    "grants each command needs is listed in docs/gallery.md (Least privilege).",
    errors.ReadOnlySqlTransaction: "The connection or the server is read only: connect to the "
    "primary server, and open it for writing.",
    errors.QueryCanceled: "The server ends statements that take so long (statement_timeout): raise "
    "that for this user (`alter role … set statement_timeout`). Earlier writes are kept: run the "
    "command again then.",
    errors.UndefinedTable: "Somebody removed it: check which tables exist.",
    errors.UndefinedColumn: "Somebody changed the table: open it again.",
    errors.DiskFull: "Earlier writes are kept: make room and run the command again.",
    errors.DependentObjectsStillExist: "First remove or change what depends on it.",
}
# Milliseconds to wait for a lock before a retry. After a second PostgreSQL cancels one of two
# transactions in a deadlock, which could be the owner's.
LOCK = 500
IDLE = TransactionStatus.IDLE
LATER = "Earlier writes are kept: run the command again once the server can be reached."


class Database:
    """A connection to PostgreSQL that reconnects; used by one thread at a time.

    If `read_only`, the server refuses every write of this connection.
    """

    def __init__(self, parameters: Mapping[str, str], shown: str, *, read_only: bool):
        self.shown, self.read_only = shown, read_only
        self._parameters = DEFAULTS | dict(parameters)
        self._link: Link | None = None
        self._lock = threading.Lock()
        self._thread: int | None = None  # which works with the connection
        self.iterates = False  # whether pgvector's indexes support iterative scans

    def run(self, action: str, work: Callable[[Link], Answer], *, retry: bool = True) -> Answer:
        """Runs `work` with the connection, and retries it after temporary errors.

        Work within other work of this connection is not retried: the outer work is.

        Args:
            action: Description for errors: "Could not ACTION at ...".
            work: Function of the connection.
            retry: Whether it is safe to repeat where it is unknown whether it was done.
        """
        if self._thread == threading.get_ident():
            return work(self.link())
        pauses = iter(PAUSES)
        while True:
            try:
                with self._working():
                    return work(self.link())
            except psycopg.Error as error:
                self._close_if_stuck()
                temporary = self._is_temporary(error)
                may_repeat = temporary and (retry or self._is_undone(error))
                pause = next(pauses, None) if may_repeat else None
                if pause is None:
                    raise self._explain(action, error, temporary=temporary) from None
            time.sleep(pause)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Keeps other threads from the connection."""
        with self._lock:
            self._thread = threading.get_ident()
            try:
                yield
            finally:
                self._thread = None

    def link(self) -> Link:
        """Returns the connection; connects if there is none."""
        if self._link is None or self._link.closed:
            self._link = None
            link = psycopg.connect(**self._parameters, autocommit=True)  # type: ignore[arg-type]
            try:
                self._prepare(link)
            except BaseException:
                link.close()
                raise
            self._link = link
        return self._link

    def _prepare(self, link: Link) -> None:
        link.execute(f"set lock_timeout = {LOCK}")
        if self.read_only:
            link.execute("set default_transaction_read_only = on")
        extension = link.execute(
            "select n.nspname, e.extversion from pg_extension e "
            "join pg_namespace n on n.oid = e.extnamespace where e.extname = 'vector'"
        ).fetchone()
        if extension is None:
            raise GalleryError(
                f"The database of {self.shown} does not have the extension pgvector. Run `create "
                f"extension vector` in it as an administrator."
            )
        schema, version = extension
        link.execute(  # makes the type and the operators visible, whatever schema they are in
            "select set_config('search_path', "
            "current_setting('search_path') || ', ' || quote_ident(%s), false)",
            (schema,),
        )
        self.iterates = tuple(int(part) for part in version.split(".")[:2]) >= (0, 8)
        register_vector_info(link, TypeInfo.fetch(link, sql.Identifier(schema, "vector")))
        for kind in ("vector", "halfvec"):
            info = TypeInfo.fetch(link, sql.Identifier(schema, kind))
            if info is not None:  # read as bytes, to convert a whole page at once
                link.adapters.register_loader(info.oid, ByteaBinaryLoader)

    def duplicate(self) -> "Database":
        """Returns a second connection to the same database."""
        return Database(self._parameters, self.shown, read_only=self.read_only)

    def close(self) -> None:
        """Closes the connection."""
        if self._link is not None:
            self._link.close()

    def _close_if_stuck(self) -> None:
        """Closes a connection that was lost inside a transaction."""
        if self._link is not None and self._link.info.transaction_status != IDLE:
            self._link.close()

    def _is_temporary(self, error: psycopg.Error) -> bool:
        lost = self._link is None or self._link.closed
        kinds = (psycopg.OperationalError, psycopg.InterfaceError)
        return isinstance(error, TEMPORARY) or (lost and isinstance(error, kinds))

    def _is_undone(self, error: psycopg.Error) -> bool:
        """Whether an error came from a connection that exists still, so that nothing was done."""
        return isinstance(error, UNDONE) and self._link is not None

    def _explain(self, action: str, error: psycopg.Error, *, temporary: bool) -> GalleryError:
        remedy = next((text for kind, text in REMEDIES.items() if isinstance(error, kind)), "")
        reason = " ".join((error.diag.message_primary or str(error)).split()).rstrip(".?")
        reason = without_secrets(reason, forms_of(self._parameters))
        return GalleryError(
            f"Could not {action} at {self.shown}: {reason}. "
            f"{LATER if temporary else remedy}".rstrip()
        )
