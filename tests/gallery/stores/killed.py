"""Writes new vectors until it is killed.

python killed.py LINE loop|once      writes the same items over and over
python killed.py LINE VECTORS        for each line of seconds: a backfill, killed after as many
"""

import importlib
import os
import signal
import sys
import time
import warnings

import numpy as np

from nobackfill.gallery.backfill import FromFile, backfill
from nobackfill.gallery.stores import STORES, open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.gallery.stores.uri import read_uri
from nobackfill.vectors import load_vectors

BATCH = 5


def main(line, how):
    """Does as it is told."""
    if how in ("loop", "once"):
        write(line, how)
    else:
        obey(line, load_vectors(how))


def write(line, how):
    """Writes on and on."""
    with open_store(line) as store:
        ids = store.scan(store.main).ids
        new = ours(store.main, "v2")
        store.create(new, 4)
        turn = 0
        while True:
            turn += 1
            for first in range(0, len(ids), 20):
                some = ids[first : first + 20]
                store.upsert(new, some, np.full((len(some), 4), turn, dtype=np.float32))
                store.note("turn", str(turn))
                print(first + len(some), flush=True)
                if how == "once":
                    sys.stdin.read()  # until the kill


def obey(line, vectors):
    """Tells of each backfill its exit code, -9 where the kill came in time, and its seconds.

    Each is forked from here, where its engine is imported but nothing of it was begun.
    """
    importlib.import_module(f"nobackfill.gallery.stores.{STORES[read_uri(line).scheme].module}")
    warnings.filterwarnings("ignore", message="lancedb fork support")
    ids, source = [str(one) for one in vectors.ids.tolist()], FromFile(vectors)
    for seconds in map(float, sys.stdin):
        start, writer = time.monotonic(), os.fork()
        if not writer:
            with open_store(line) as store:
                backfill(store, ours(store.main, "v2"), ids, source, batch=BATCH)
            os._exit(0)
        if seconds != float("inf"):
            time.sleep(seconds)
            os.kill(writer, signal.SIGKILL)  # one that has ended was not waited for: no harm
        _, status = os.waitpid(writer, 0)
        print(os.waitstatus_to_exitcode(status), time.monotonic() - start, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
