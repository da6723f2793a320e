"""Writes new vectors until it is killed: `python killed.py LINE loop|once`."""

import sys

import numpy as np

from nobackfill.gallery.base import ours
from nobackfill.gallery.stores import open_store


def main(line, how):
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


if __name__ == "__main__":
    main(*sys.argv[1:])
