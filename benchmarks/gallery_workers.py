"""What the processes of gallery_races.py do to a gallery, and how its state is judged.

A process gets the URI of the gallery and a folder for files. A judge gets facts about the gallery
afterwards, how each process ended, and the folder; it returns whether vectors are mixed, and
whether something is lost.
"""

import json
import time
from pathlib import Path

import numpy as np

from nobackfill.errors import NobackfillError
from nobackfill.gallery.backfill import FromFile, backfill
from nobackfill.gallery.cleanup import remove_new, retire_old
from nobackfill.gallery.indexing import index_new
from nobackfill.gallery.provenance import declared, reading, space_key
from nobackfill.gallery.pull import pull
from nobackfill.gallery.repair import Claim, repair, replay
from nobackfill.gallery.routing import LOG, ROUTE, current, entries, rollback, switch
from nobackfill.gallery.serving import serve
from nobackfill.gallery.sketch import sketch_key
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.vectors import Vectors, load_vectors
from nobackfill.vectors.space import Space

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


def go_back(uri, folder):
    with open_store(uri) as store:
        rollback(store)


def prepare_damaged(uri, folder):
    """Served vectors, and notes that cannot be read or are of a collection that is gone."""
    prepare_served(uri, folder)
    with open_store(uri) as store:
        new, gone = ours(store.main, "v2"), ours(store.main, "gone")
        damaged = (ROUTE, f"{LOG}0000000001.000000", space_key(new), space_key(gone))
        for key in (*damaged, sketch_key(gone)):
            store.note(key, "{")


def mend(uri, folder):
    with open_store(uri) as store:
        repair(store, Claim(ours(store.main, "v2"), MODELS["one"]))


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
    """An index of the owner's vectors, made by his own client, and new vectors without one.

    Where the engine builds indexes by itself or searches exactly, there are new vectors only.
    """
    write("one")(uri, folder)
    scheme, _, rest = uri.partition(":")
    if scheme == "lancedb":
        import lancedb
        from lancedb.index import IvfFlat

        place, _, table = rest.removeprefix("//").rpartition("/")
        config = IvfFlat(distance_type="cosine", num_partitions=1)
        lancedb.connect(place).open_table(table).create_index("vector", config=config)
    elif scheme == "pgvector":
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


ALL = {name: vectors_of(name) for name in (*MODELS, OWN, "other")}


# What is there afterwards: whether it is mixed, and whether something is lost.


def look(uri, folder):
    """Facts about a gallery after a race."""
    with open_store(uri, read_only=True) as store:
        new = ours(store.main, "v2")
        facts, route = facts_of_vectors(store, new, folder), current(store)
        space = declared(store, new) if facts["exists"] else None
        return facts | {
            "declared": next((name for name in MODELS if MODELS[name] == space), None),
            "read": read_json(folder / "read.json", {}),
            "served": route.collection == new,
            "logged": replay(store)[0].collection == route.collection,
            "actions": sorted({entry["action"] for entry in entries(store)}),
            "damaged": len(repair(store, dry_run=True)),
            "lacks": lacking(store, new) if facts["exists"] else 0,
        }


def look_at_vectors(uri, folder):
    """Facts about the vectors of a gallery right after a kill, whatever its notes are."""
    with open_store(uri, read_only=True) as store:
        return facts_of_vectors(store, ours(store.main, "v2"), folder)


def facts_of_vectors(store, new, folder):
    exists, has_old = store.exists(new), store.exists(store.main)
    rows = store.get(new, [*IDS]) if exists else None
    makers = makers_of(rows) if rows else {}
    taken = read_json(folder / "taken.json", [])
    return {
        "makers": sorted(set(map(str, makers.values()))),
        "items": len(makers),
        "exists": exists,
        "neither": neither(store, new, [*IDS, *taken]),
        "altered": altered(store) if has_old else 0,
        "gone": len({*taken} - store.contained(store.main, taken)) if has_old else 0,
    }


def makers_of(rows):
    """Whose vector each item has."""
    return {id: maker_of(id, row) for id, row in zip(rows.ids, rows.vectors, strict=True)}


def altered(store):
    """How many items have an old vector that is not the owner's."""
    rows = store.get(store.main, [*IDS])
    if not rows.vectors.shape[1] or np.isnan(rows.vectors).all():
        return 0  # retired
    makers = makers_of(rows)
    stored = ~np.isnan(rows.vectors).any(axis=1)
    return sum(makers[id] != OWN for id, has in zip(rows.ids, stored, strict=True) if has)


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
    mixed = facts["makers"] not in ([], [str(facts["declared"])])
    ended = outcomes[-1] in ("done", "told")
    return mixed, is_lost(facts) or not ended or facts["damaged"] > 0


def judge_right_after(facts):
    """Right after the kill no item lacks both vectors, and there are new ones of one model only."""
    return len(facts["makers"]) > 1, is_lost(facts)


def is_lost(facts):
    return facts["neither"] > 0 or facts["altered"] > 0


def ends_with(**wanted):
    """Judges as `judge_killed`, and by facts that must hold once the command has ended."""

    def judge(facts, outcomes, folder):
        mixed, lost = judge_killed(facts, outcomes, folder)
        return mixed, lost or any(facts[name] != value for name, value in wanted.items())

    return judge


judge_indexed = ends_with(lacks=0, items=ITEMS)  # the index is whole, and every vector is there


def judge_pulled(facts, outcomes, folder):
    """The file is whole, of one gallery, and the command ended well."""
    mixed, lost = judge_file(facts, outcomes, folder)
    return mixed, lost or is_lost(facts) or outcomes[-1] != "done"


def judge_reader(facts, outcomes, folder):
    mixed, lost = judge_second(facts, outcomes[::-1], folder)
    return mixed or read_json(folder / "read.json", {"mixed": 1})["mixed"] > 0, lost
