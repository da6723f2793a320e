"""Damaged notes are repaired from what is still known, and what is not known is said."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from nobackfill.cli.main import app
from nobackfill.errors import DataError, SpaceMismatch
from nobackfill.gallery.backfill import FromFile, backfill
from nobackfill.gallery.cleanup import remove_new
from nobackfill.gallery.provenance import declared, token_of
from nobackfill.gallery.repair import Claim, repair
from nobackfill.gallery.routing import current, entries, rollback, switch
from nobackfill.gallery.sketch import Sketch, check_written_for, keep
from nobackfill.gallery.status import status_of
from nobackfill.gallery.stores import open_store
from nobackfill.gallery.stores.base import ours
from nobackfill.vectors import Vectors
from nobackfill.vectors.space import Space

NEW = Space(dim=8, weights="new")
CUT = ["", "{", "[]", "null", '{"collection": 5}', "\x00", "[" * 100_000, '{"time": "now"}']


@pytest.fixture
def full(store, items):
    """A gallery whose new vectors are served."""
    name = ours(store.main, "v2")
    rows = np.random.default_rng(2).normal(size=(len(items[0]), 8)).astype(np.float32)
    backfill(store, name, items[0], FromFile(Vectors(items[0], rows, space=NEW)))
    keep(store, name, Sketch.of(items[0][:16], items[1][:16]))
    switch(store, store.main, query_space="a" * 16, share=1.0)
    switch(store, name, query_space=NEW.fingerprint, share=1.0, model="somewhere")
    return name


def of(repairs, note):
    return next(one for one in repairs if one.note == note)


def log_keys(store):
    return sorted(key for key in store.notes() if key.startswith("log/"))


def test_where_nothing_is_damaged_nothing_is_done(store, full):
    before = store.notes()
    assert repair(store) == []
    assert store.notes() == before


@pytest.mark.parametrize("text", CUT)
def test_a_damaged_route_is_restored_from_the_log(fill_with, items, text):
    with open_store(fill_with("flat")) as store:
        new = full.__wrapped__(store, items)
        before = current(store)
        store.note("route", text)
        for look in (current, status_of, rollback):
            with pytest.raises(DataError, match="gallery repair"):
                look(store)
        with pytest.raises(DataError, match="gallery repair"):
            remove_new(store, new)
        assert of(repair(store, dry_run=True), "route").unknown is None
        with pytest.raises(DataError):
            current(store)
        assert of(repair(store), "route").remedy == f"`{new}` is served, by the log"
        assert current(store) == before
        assert repair(store) == []
        assert [entry["action"] for entry in entries(store)][-1] == "repair"


def test_a_lost_route_is_restored_with_all_that_was_before(store, full):
    before = current(store)
    store.note("route", None)
    assert of(repair(store), "route").problem == "the note is lost"
    assert current(store) == before
    assert rollback(store).query_space == "a" * 16
    store.note("route", None)
    repair(store)
    assert current(store).query_space == "a" * 16  # the log knows of the rollback


def test_where_the_log_is_damaged_too_that_is_said(store, full):
    last = log_keys(store)[-1]
    store.note(last, "torn")
    store.note("route", "torn")
    with pytest.raises(DataError, match="gallery repair"):
        entries(store)
    repairs = repair(store)
    assert of(repairs, last).unknown == "who did what then"
    assert "unreadable entry" in of(repairs, "route").unknown
    assert current(store).query_space == "a" * 16  # as far as the log can be read
    assert entries(store)[-2]["text"] == "torn"
    assert repair(store) == []


def test_a_lost_declaration_is_made_again_for_who_knows_the_model(store, full):
    key, token = f"space/{full}", token_of(store, full)
    store.note(key, "{}{")
    with pytest.raises(DataError, match="gallery repair"):
        declared(store, full)
    unknown = of(repair(store), key)
    assert NEW.fingerprint in unknown.unknown
    assert unknown.remedy == "left as it is"
    with pytest.raises(SpaceMismatch, match="not of the model that --model names"):
        repair(store, Claim(full, replace(NEW, weights="another")))
    assert of(repair(store, Claim(full, NEW)), key).unknown is None
    assert declared(store, full) == NEW
    assert token_of(store, full) not in (None, token)


def test_a_claim_that_nobody_can_check_is_called_that(store, full):
    for key in (*log_keys(store), "route", f"space/{full}"):
        store.note(key, None)
    unknown = of(repair(store), f"space/{full}")
    assert "nobody knows which" in unknown.unknown
    claimed = of(repair(store, Claim(full, NEW)), f"space/{full}")
    assert claimed.unknown == "whether these are its vectors: only you say so"
    assert declared(store, full) == NEW


def test_dimensions_that_cannot_be_right(store, full):
    store.note(f"space/{full}", Space(dim=3, weights="new").to_json())
    assert (
        "declares 3 dimensions, but the vectors have 8"
        in of(repair(store, dry_run=True), f"space/{full}").problem
    )


@pytest.mark.parametrize(
    "text", ["", '{"dim": 8, "digests": {"1": "zz"}}', '{"dim": 0, "digests": {}}']
)
def test_damaged_digests_are_removed(store, full, text):
    store.note(f"sketch/{full}", text)
    with pytest.raises(DataError, match="gallery repair"):
        check_written_for(store, full)
    assert "written for the items" in of(repair(store), f"sketch/{full}").unknown
    check_written_for(store, full)


def test_notes_of_what_is_gone_are_removed(store, full):
    switch(store, store.main, query_space=None, share=1.0)
    store.drop(full)
    assert {one.note for one in repair(store)} == {f"space/{full}", f"sketch/{full}"}
    assert not any(full in key for key in store.notes())


def test_what_is_served_and_gone_leads_back_to_what_is_there(store, full):
    store.drop(full)
    repairs = repair(store)
    assert of(repairs, "route").remedy == f"`{store.main}` is served, by the log"
    assert current(store).query_space == "a" * 16


def test_the_vectors_stay(store, full, items):
    before = store.count(full)
    rows = store.get(store.main, items[0][:9]).vectors
    for key in store.notes():
        store.note(key, "torn")
    repair(store)
    repair(store, Claim(full, NEW))
    assert store.count(full) == before
    np.testing.assert_array_equal(store.get(store.main, items[0][:9]).vectors, rows)


def test_the_command_says_what_it_does_not_know(fill_with, items, tmp_path):
    line = fill_with("flat")
    with open_store(line) as store:
        new = full.__wrapped__(store, items)
        store.note(f"space/{new}", "torn")

    def run(*arguments):
        return CliRunner().invoke(app, ["gallery", "repair", line, *map(str, arguments)])

    (tmp_path / "new.space.json").write_text(NEW.to_json())
    for options in (("--dry-run",), ()):
        result = run(*options)
        assert result.exit_code == 3
        assert "--name and --model" in " ".join(result.stdout.split())
    claim = ("--name", "v2", "--model", tmp_path / "new.space.json")
    told = json.loads(run(*claim, "--json").stdout)
    assert told["repairs"][0]["unknown"] is None
    result = run()
    assert (result.exit_code, "nothing to repair" in result.stdout) == (0, True)
    assert "belong together" in str(run("--name", "v2").exception)
