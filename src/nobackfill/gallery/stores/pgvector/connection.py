"""A connection to PostgreSQL that is made again when it is lost, and what its errors mean.

PostgreSQL keeps every statement whole: one that a lost connection cuts short has done all or
nothing. So whatever may be done twice without harm is simply done again.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import psycopg
from pgvector.psycopg.vector import register_vector_info
from psycopg import errors, sql
from psycopg.pq import TransactionStatus
from psycopg.types import TypeInfo
from psycopg.types.string import ByteaBinaryLoader

from nobackfill.errors import GalleryError
from nobackfill.gallery.stores.uri import HIDDEN

Answer = TypeVar("Answer")
Link = psycopg.Connection[tuple[Any, ...]]

PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 14.0)  # seconds before each further try
USUAL = {  # of the connection, where the line does not say otherwise
    "application_name": "nobackfill",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "tcp_user_timeout": "60000",
}
PASSING = (  # all undone by the server, and worth another try
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.TooManyConnections,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.LockNotAvailable,
    errors.ForeignKeyViolation,  # the owner deleted the item this very moment
    errors.DuplicateTable,  # somebody made the same table this very moment
    errors.UniqueViolation,  # the same, seen in the catalog
    errors.DuplicateObject,  # the same, seen in its type
)
REMEDIES: dict[type[psycopg.Error], str] = {
    errors.InsufficientPrivilege: "Ask the owner of the table to grant it to this user; what is "
    "only read wants SELECT on the table, what is written CREATE on its schema.",
    errors.ReadOnlySqlTransaction: "The connection or the server is read only: connect to the "
    "primary server, opened for writing.",
    errors.UndefinedTable: "Somebody removed it; look which tables there are.",
    errors.UndefinedColumn: "Somebody changed the table; open it again.",
    errors.DiskFull: "What was written before is whole; make room, and go on.",
    errors.DependentObjectsStillExist: "Remove or change first what depends on it.",
}
# Milliseconds to wait for what somebody else has locked, before another try: less than the second
# after which PostgreSQL ends one of two that wait for each other, which could be the owner's.
LOCK = 500
IDLE = TransactionStatus.IDLE
LATER = "What was written before is whole; go on once it can be reached again."


class Database:
    """One connection to PostgreSQL, for one thread at a time, made again when it is lost.

    Args:
        parameters: As libpq knows them.
        shown: Where it is, without credentials.
        read_only: Whether the server shall refuse every write of this connection.
    """

    def __init__(self, parameters: Mapping[str, str], shown: str, *, read_only: bool):
        self.shown, self.read_only = shown, read_only
        self._parameters = USUAL | dict(parameters)
        self._link: Link | None = None
        self._lock = threading.Lock()
        self.iterates = False  # whether pgvector's indexes can go on beyond their first items

    def ask(self, wanted: str, work: Callable[[Link], Answer], *, again: bool = True) -> Answer:
        """Does something, and does it again a few times where the connection was lost.

        Args:
            wanted: What it is, for an error.
            work: What is done with the connection.
            again: Whether it may be done twice without harm.
        """
        pauses = iter(PAUSES if again else ())
        while True:
            try:
                with self._lock:
                    return work(self.link())
            except psycopg.Error as error:
                self._close_if_stuck()
                passing = self._is_passing(error)
                pause = next(pauses, None) if passing else None
                if pause is None:
                    raise self._told(wanted, error, passing=passing) from None
            time.sleep(pause)

    def link(self) -> Link:
        """The connection, made if there is none."""
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
        found = link.execute(
            "select n.nspname, e.extversion from pg_extension e "
            "join pg_namespace n on n.oid = e.extnamespace where e.extname = 'vector'"
        ).fetchone()
        if found is None:
            raise GalleryError(
                f"wanted the extension pgvector in the database of {self.shown}, but it is not "
                f"there. Run `create extension vector` in it, as an administrator."
            )
        schema, version = found
        link.execute(  # wherever the extension is, its type and operators are found
            "select set_config('search_path', "
            "current_setting('search_path') || ', ' || quote_ident(%s), false)",
            (schema,),
        )
        self.iterates = tuple(int(part) for part in version.split(".")[:2]) >= (0, 8)
        register_vector_info(link, TypeInfo.fetch(link, sql.Identifier(schema, "vector")))
        for kind in ("vector", "halfvec"):
            info = TypeInfo.fetch(link, sql.Identifier(schema, kind))
            if info is not None:  # read as bytes: a whole page becomes one matrix at once
                link.adapters.register_loader(info.oid, ByteaBinaryLoader)

    def another(self) -> "Database":
        """A connection to the same, of its own."""
        return Database(self._parameters, self.shown, read_only=self.read_only)

    def close(self) -> None:
        """Ends the connection."""
        if self._link is not None:
            self._link.close()

    def _close_if_stuck(self) -> None:
        """A connection that was lost between several queries may not know it yet."""
        if self._link is not None and self._link.info.transaction_status != IDLE:
            self._link.close()

    def _is_passing(self, error: psycopg.Error) -> bool:
        lost = self._link is None or self._link.closed
        kinds = (psycopg.OperationalError, psycopg.InterfaceError)
        return isinstance(error, PASSING) or (lost and isinstance(error, kinds))

    def _told(self, wanted: str, error: psycopg.Error, *, passing: bool) -> GalleryError:
        remedy = next((told for kind, told in REMEDIES.items() if isinstance(error, kind)), "")
        why = " ".join((error.diag.message_primary or str(error)).split()).rstrip(".?")
        return GalleryError(
            f"wanted to {wanted} at {self.shown}, but {self._without_secrets(why)}. "
            f"{LATER if passing else remedy}".rstrip()
        )

    def _without_secrets(self, text: str) -> str:
        password = self._parameters.get("password", "")
        for secret in {password, quote(password), quote(password, safe="")} - {""}:
            text = text.replace(secret, HIDDEN)
        return text
