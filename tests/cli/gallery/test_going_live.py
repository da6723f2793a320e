"""What must not go live by mistake, from the outside: in a file and in LanceDB."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from nobackfill.cli.main import app
from nobackfill.gallery.routing import current
from nobackfill.gallery.stores import open_store
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import CompatibleWith, Space

OLD = Space(dim=6, weights="old")
NEW = Space(dim=6, weights="new", parent=OLD.fingerprint, method="ndpp")
NUMBER, CLASSES = 400, 20
PLANS = {}  # outcomes and files of plans, by gallery: they are made once


def run(*arguments):
    return CliRunner().invoke(app, ["gallery", *map(str, arguments)])


def told(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*arguments):
    result = run(*arguments)
    assert result.exit_code == 1  # raised: the command line turns it into exit code 2
    return str(result.exception)


def world(seed):
    """Labels, and vectors of both models: other ones for each seed."""
    draw = np.random.default_rng(seed)
    labels = np.arange(NUMBER) % CLASSES
    centres = draw.normal(size=(CLASSES, 6))
    rows = {}
    for name, noise in (("old", 1.2), ("new", 0.4)):
        rows[name] = (centres[labels] + noise * draw.normal(size=(NUMBER, 6))).astype(np.float32)
    return labels, rows


class Place:
    """A gallery whose ids are row numbers, and files of both models."""

    def __init__(self, kind, folder, seed=0, ids=range(NUMBER)):
        self.kind, self.folder, self.contents = kind, folder, (kind, seed, ids)
        folder.mkdir(exist_ok=True)
        labels, rows = world(seed)
        self.ids = [str(id) for id in ids]
        for name, space in (("old", OLD), ("new", NEW)):
            Vectors(self.ids, rows[name], labels, space=space).save(self.path(name))
        self.store(self.ids, rows["old"])

    def path(self, name):
        return self.folder / f"{name}.parquet"

    @property
    def uri(self):
        if self.kind == "flat":
            return f"flat://{self.folder / 'stored.npz'}"
        return f"lancedb://{self.folder}/galleries/stored"

    def store(self, ids, rows):
        """The owner stores these items, in half precision, in place of all before."""
        if self.kind == "flat":
            Vectors(ids, rows.astype(np.float16)).save(self.folder / "stored.npz")
            return
        lancedb = pytest.importorskip("lancedb")
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.astype(np.float16).ravel()), 6)
        table = pa.table({"id": ids, "vector": vectors})
        lancedb.connect(self.folder / "galleries").create_table("stored", table, mode="overwrite")

    def plan(self, uri=None):
        files = ("--old", self.path("old"), "--new", self.path("new"), "-o", self.path("plan"))
        if uri is not None:
            return told("plan", uri, *files)
        if self.contents not in PLANS:
            outcome = told("plan", self.uri, *files)
            PLANS[self.contents] = outcome, self.path("plan").read_bytes()
        outcome, file = PLANS[self.contents]
        self.path("plan").write_bytes(file)
        return outcome

    def backfill(self, *options, plan=None, vectors=None):
        """The command, without running it."""
        files = ("--plan", plan or self.path("plan"), "--new", vectors or self.path("new"))
        return "backfill", self.uri, *files, *options

    @property
    def switch(self):
        return "switch", self.uri, "--model", self.path("new"), "--name", "new"

    def notes(self):
        with open_store(self.uri) as store:
            return store.notes()


@pytest.fixture(params=["flat", "lancedb"])
def place(request, tmp_path):
    return Place(request.param, tmp_path / "shop")


@pytest.fixture
def other(place, tmp_path):
    """Another gallery with the same ids."""
    return Place(place.kind, tmp_path / "other", seed=1)


def test_a_part_is_served_on_request_only(place):
    place.plan()
    told(*place.backfill("--share", 0.3))
    for options in ((), ("--dry-run",), ("--strict",)):
        assert "has 120 of the 400 items of `stored` (30.0 %)" in refused(*place.switch, *options)
    assert told("status", place.uri)["route"]["collection"] == "stored"
    assert "Leave out --partial" in refused(*place.switch, "--partial", "--strict")
    assert told(*place.switch, "--partial", "--dry-run")["share"] == 0.3
    assert told(*place.switch, "--partial")["share"] == 0.3
    assert [entry["action"] for entry in told("log", place.uri)["log"]] == ["backfill", "switch"]
    assert told("rollback", place.uri)["collection"] == "stored"


def test_replaced_items_are_not_covered_although_totals_agree(place):
    place.plan()
    told(*place.backfill())
    old = world(0)[1]["old"]
    place.store([*(str(1000 + id) for id in range(40)), *place.ids[40:]], old)
    assert [held["share"] for held in told("status", place.uri)["collections"]] == [1.0, 0.9]
    assert "90.0 %" in run("status", place.uri).stdout
    check = ("check", place.uri, "--model", place.path("new"), "--name", "new")
    assert told(*check)["share"] == 0.9
    assert "It has 90.0 % of the items only." in run(*check).stdout
    assert "has 360 of the 400" in refused(*place.switch)
    assert told(*place.switch, "--partial")["share"] == 0.9


def test_a_plan_of_another_gallery_with_the_same_ids_writes_nothing(place, other):
    other.plan()
    for new in (place.path("new"), other.path("new")):
        for options in ((), ("--dry-run",), ("--share", 0.1)):
            foreign = place.backfill(*options, plan=other.path("plan"), vectors=new)
            assert "another gallery" in refused(*foreign)
    assert place.notes() == {}
    assert not any("will refuse this plan" in note for note in other.plan()["notes"])
    assert any("will refuse this plan" in note for note in other.plan(place.uri)["notes"])


def test_new_vectors_of_another_gallery_write_nothing(place, other):
    place.plan()
    for options in ((), ("--dry-run",)):
        foreign = place.backfill(*options, vectors=other.path("new"))
        assert "of other items than the plan" in refused(*foreign)
    assert place.notes() == {}
    assert told(*place.backfill())["notes"] == []


def test_new_vectors_are_not_served_on_other_items_with_the_same_ids(place):
    """The owner has imported another collection under the same row numbers."""
    place.plan()
    told(*place.backfill())
    assert told(*place.switch, "--dry-run")["share"] == 1.0
    place.store(place.ids, world(1)[1]["old"])
    for options in ((), ("--dry-run",), ("--partial",)):
        assert "written for other items" in refused(*place.switch, *options)
    assert told("status", place.uri)["route"]["collection"] == "stored"


def test_a_plan_of_an_earlier_version_is_taken_with_a_note(place):
    place.plan()
    table = pq.read_table(place.path("plan"))
    facts = json.loads(table.schema.metadata[b"nobackfill.backfill"])
    assert facts["schema"] == 1
    for name in ("old_sketch", "new_sketch"):
        assert len(facts.pop(name)["digests"]) == 16
    metadata = {b"nobackfill.backfill": json.dumps(facts).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), place.path("earlier"))
    earlier = place.path("earlier")
    ahead = told(*place.backfill("--dry-run", plan=earlier))
    assert "earlier version made the plan" in ahead["notes"][0]
    assert "earlier version made the plan" in " ".join(
        run(*place.backfill(plan=earlier)).stdout.split()
    )
    assert told(*place.switch)["share"] == 1.0


def test_a_plan_with_none_of_the_items_writes_nothing(place, tmp_path):
    elsewhere = Place(place.kind, tmp_path / "elsewhere", ids=range(5000, 5000 + NUMBER))
    elsewhere.plan()
    plan, new = elsewhere.path("plan"), elsewhere.path("new")
    for options in ((), ("--dry-run",), ("--share", 0.5)):
        assert "has none of the" in refused(*place.backfill(*options, plan=plan, vectors=new))
    assert place.notes() == {}
    assert len(told("status", place.uri)["collections"]) == 1


def declare(path, space):
    path.write_text(space.to_json())
    return path


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_going_back_to_a_model_declared_not_compatible_since_is_said(place, options):
    measured = CompatibleWith(OLD.fingerprint, "mAP", 0.5)
    first = declare(place.folder / "first.space.json", NEW.with_measured(measured))
    second = declare(place.folder / "second.space.json", replace(NEW, weights="second"))
    for model in (first, second):
        told("switch", place.uri, "--model", model, "--assume-space", OLD.fingerprint)
    quiet = run("rollback", place.uri, "--dry-run", "--json")
    assert (json.loads(quiet.stdout)["not_compatible"], quiet.stderr) == (None, "")

    # Measurements on other galleries, and of another model in its place, say nothing.
    elsewhere = replace(measured, fingerprint="f" * 16)
    negative = NEW.with_measured(replace(measured, value=0.25), compatible=False)
    for space in (
        NEW.with_measured(elsewhere, compatible=False),
        replace(negative, weights="trained again"),
    ):
        declare(first, space)
        assert told("rollback", place.uri, "--dry-run")["not_compatible"] is None

    declare(first, negative)
    back = run("rollback", place.uri, *options, "--json")
    assert back.exit_code == 0
    assert json.loads(back.stdout)["not_compatible"] == "it was measured on them: mAP 0.2500"
    assert "declared not to be compatible with these vectors by now" in back.stderr
    with open_store(place.uri) as store:
        model = second if options else first
        assert current(store).model == str(model.resolve())


def test_a_route_of_an_earlier_version_and_a_model_that_is_gone_say_nothing(place):
    model = declare(place.folder / "model.space.json", NEW)
    for _ in range(2):
        told("switch", place.uri, "--model", model, "--assume-space", OLD.fingerprint)
        model = declare(place.folder / "other.space.json", replace(NEW, weights="other"))
    (place.folder / "model.space.json").unlink()
    assert told("rollback", place.uri, "--dry-run")["not_compatible"] is None
    with open_store(place.uri) as store:
        route = json.loads(store.notes()["route"])
        for level in (route, route["before"], route["before"]["before"]):
            for name in ("model", "space"):
                level.pop(name)
        store.note("route", json.dumps(route))
    back = run("rollback", place.uri, "--json")
    assert (json.loads(back.stdout)["not_compatible"], back.stderr) == (None, "")
    assert json.loads(back.stdout)["query_space"] == NEW.fingerprint
