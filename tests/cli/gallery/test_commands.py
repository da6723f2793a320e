"""`nobackfill gallery` from the outside, on a file of vectors."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import chain, product

import numpy as np
import pytest
from typer.testing import CliRunner

from nobackfill.cli.gallery import output as show_gallery
from nobackfill.cli.main import app
from nobackfill.core.console import PlainConsole
from nobackfill.errors import ConfigError
from nobackfill.gallery.planning.plan_file import load_plan
from nobackfill.gallery.stores import open_store
from nobackfill.vectors import Vectors, load_vectors
from nobackfill.vectors.space import CompatibleWith, Space

OLD = Space(dim=6, weights="old")
NEW = Space(dim=6, weights="new", parent=OLD.fingerprint, method="ndpp")


@pytest.fixture
def place(tmp_path):
    """A gallery of 60 items of 12 classes, and files of both models."""
    draw = np.random.default_rng(0)
    labels = np.arange(60) % 12
    centres = draw.normal(size=(12, 6))
    ids = [f"item {number}" for number in range(60)]
    for name, space, noise in (("old", OLD, 1.2), ("new", NEW, 0.4)):
        rows = (centres[labels] + noise * draw.normal(size=(60, 6))).astype(np.float32)
        Vectors(ids, rows, labels, space=space).save(tmp_path / f"{name}.parquet")
    stored = load_vectors(tmp_path / "old.parquet")
    Vectors(ids, stored.vectors, columns={"colour": ["red"] * 60}).save(tmp_path / "stored.npz")
    return tmp_path


@pytest.fixture
def uri(place):
    return f"flat://{place / 'stored.npz'}"


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


def test_queries_without_a_known_space_are_refused(place, uri):
    old, new, bare = (place / f"{name}.parquet" for name in ("old", "new", "bare"))
    file = load_vectors(new)
    Vectors(file.ids, file.vectors).save(bare)
    assume = ("--assume-space", old)
    assert "Unknown space of" in refused("search", uri, "--queries", bare, *assume)
    queries = ("--old-queries", old, "--queries", bare)
    assert "Unknown space of" in refused("shadow", uri, *queries, *assume)


def test_the_whole_way_there_and_back(place, uri):
    old, new, plan = (place / f"{name}.parquet" for name in ("old", "new", "plan"))
    assert told("status", uri)["collections"][0]["items"] == 60
    assert "--assume-space" in refused("check", uri, "--model", new)
    assume = ("--assume-space", old)
    checked = run("check", uri, "--model", new, *assume, "--json")
    assert checked.exit_code == 0  # it was made for them, and never measured
    assert json.loads(checked.stdout)["may_search"]
    shadow = told("shadow", uri, "--old-queries", old, "--queries", new, "-k", 3, *assume)
    assert 0 < shadow["overlap"] < 1
    planned = told("plan", uri, "--old", old, "--new", new, "-o", plan)
    assert planned["items"] == 60
    aside = ("--plan", plan, "--vectors", new, "--name", "v2")
    ahead = told("backfill", uri, *aside, "--dry-run", "--rate", 30)
    assert (ahead["left"], ahead["seconds"], ahead["dry_run"]) == (60, 2.0, True)
    assert not (place / "stored.npz.nobackfill").exists()  # so far nothing was written
    half = told("backfill", uri, *aside, "--share", 0.5)
    assert (half["done"], half["planned"]) == (30, 30)
    switch = ("switch", uri, "--model", new, "--name", "v2")
    assert "has 30 of the 60 items of `stored` (50.0 %)" in refused(*switch, "--strict")
    assert told("backfill", uri, *aside)["done"] == 60
    for options in ((), ("--dry-run",)):
        index = told("index", uri, "--name", "v2", *options)
        assert (index["by_itself"], index["kind"], index["vectors"]) == (True, None, 60)
    assert "Backfill it first" in refused("index", uri, "--name", "v3")
    status = told("status", uri)
    assert [one["index"] for one in status["collections"]] == [None, None]
    assert [one["share"] for one in status["collections"]] == [1.0, 1.0]
    assert told("switch", uri, "--model", new, "--name", "v2", "--dry-run")["dry_run"]
    assert told("status", uri)["route"]["collection"] == "stored"
    told("switch", uri, "--model", new, "--name", "v2")
    assert told("status", uri)["route"]["query_space"] == NEW.fingerprint
    assert "rollback" in refused("clean", uri, "--name", "v2")
    assert told("rollback", uri, "--dry-run")["collection"] == "stored"
    assert told("rollback", uri)["collection"] == "stored"
    assert told("clean", uri, "--name", "v2", "--dry-run")["removed"] == 60
    assert told("clean", uri, "--name", "v2")["removed"] == 60
    actions = [one["action"] for one in told("log", uri)["log"]]
    assert actions == ["backfill", "backfill", "switch", "rollback", "clean"]
    np.testing.assert_array_equal(
        load_vectors(place / "stored.npz").vectors, load_vectors(old).vectors
    )


def test_people_can_read_it(place, uri):
    old, new = place / "old.parquet", place / "new.parquet"
    run("plan", uri, "--old", old, "--new", new, "-o", place / "plan.parquet")
    backfill = ("backfill", uri, "--plan", place / "plan.parquet", "--vectors", new)
    assert "Nothing was written. Of 60 planned items 0 have a new vector; 60 would be" in (
        run(*backfill, "--dry-run").stdout
    )
    assert "60 of 60 planned items have a new vector in `stored__nobackfill_new`" in (
        run(*backfill).stdout
    )
    status = run("status", uri).stdout
    assert "undeclared" in status
    assert NEW.fingerprint in status
    assert "Served: stored." in status
    assert "stored__nobackfill_new: no index, every vector is compared." in status
    indexed = run("index", uri)
    assert indexed.exit_code == 0
    assert "There is no index to build: each of the 60 vectors" in indexed.stdout
    assert "may search `stored`" in run("check", uri, "--model", new, "--assume-space", old).stdout
    assert "queries: of the first 10" in (
        run("shadow", uri, "--old-queries", old, "--queries", new, "--assume-space", old).stdout
    )
    assert "backfill" in run("log", uri).stdout


def test_without_a_backfill_nothing_is_written(place, uri):
    old, new = place / "old.parquet", place / "new.parquet"
    before = {path: path.read_bytes() for path in place.iterdir()}
    for arguments in (
        ("status", uri),
        ("check", uri, "--model", old, "--assume-space", old),
        ("search", uri, "--queries", new, "--assume-space", old),
        ("shadow", uri, "--old-queries", old, "--queries", new, "--assume-space", old),
        ("log", uri),
        ("switch", uri, "--model", new, "--assume-space", old, "--dry-run"),
    ):
        assert run(*arguments).exit_code == 0
    assert {path: path.read_bytes() for path in place.iterdir()} == before


MEASURED = CompatibleWith(OLD.fingerprint, "mAP", 0.5)


@pytest.mark.parametrize(
    ("space", "code", "says"),
    [
        (OLD, 0, "may search `stored`: the model made these vectors itself."),
        (
            NEW.with_measured(MEASURED),
            0,
            "may search `stored` (measured: compatible): the model was made compatible with them "
            "by ndpp; it was measured on them: mAP 0.5000.",
        ),
        (
            NEW,
            0,
            "may search `stored` (fitted or trained to be compatible, never measured): the model "
            "was made compatible with them by ndpp. Measure it with `nobackfill evaluate "
            "--declare`.",
        ),
        (
            NEW.with_measured(MEASURED, compatible=False),
            1,
            "should not search `stored` (measured: not compatible): the model was made compatible "
            "with them by ndpp; it was measured on them: mAP 0.5000.",
        ),
    ],
    ids=["itself", "yes", "never", "no"],
)
def test_check_and_switch_tell_what_was_measured_from_what_was_meant(place, uri, space, code, says):
    model, assume = place / "model.space.json", ("--assume-space", OLD.fingerprint)
    model.write_text(space.to_json())
    checked = run("check", uri, "--model", model, *assume)
    assert (checked.exit_code, checked.stdout) == (code, f"{model} {says}\n")
    checked = run("check", uri, "--model", model, *assume, "--json")
    verdict = json.loads(checked.stdout)["verdict"]
    assert (verdict == "not compatible") is (code == 1)
    assert json.loads(checked.stdout)["may_search"] is (code != 1)
    never = verdict == "never measured"
    strictly = run("check", uri, "--model", model, *assume, "--strict")
    assert strictly.exit_code == (3 if never else code)
    switch = ("switch", uri, "--model", model, *assume)
    for options in (("--dry-run",), ()):
        if code == 1:
            assert "is not compatible" in refused(*switch, *options)
            continue
        if never:
            assert "leave out --strict" in refused(*switch, "--strict", *options)
        served = run(*switch, *options, *(() if never else ("--strict",)), "--json")
        assert json.loads(served.stdout)["query_space"] == space.fingerprint
        assert ("never measured" in served.stderr) is never
    served = told("status", uri)["route"]["query_space"]
    assert served == (None if code == 1 else space.fingerprint)
    if never:
        assert "standing fitted or trained to be compatible, never measured" in " ".join(
            run("log", uri).stdout.split()
        )


def test_what_training_came_to_is_told_and_decides_for_the_strict(place, uri):
    numbers = {"old_old": 0.2, "new_old": 0.3, "new_new": 0.4}
    load_vectors(place / "new.parquet").save(place / "validation.parquet")  # a run, now
    model = ("--model", place, "--assume-space", OLD.fingerprint)
    for verdict in ("compatible", "not compatible", "undecided"):
        summary = json.dumps({**numbers, "verdict": verdict})
        (place / "evaluation.json").write_text(summary)
        checked = run("check", uri, *model)
        assert checked.exit_code == 0
        assert f"(measured: {verdict})" in checked.stdout
        assert ("should not search" in checked.stdout) is (verdict == "not compatible")
        served = run("switch", uri, *model, "--dry-run")
        assert served.exit_code == 0
        assert (f"measured: {verdict}" in served.stderr) is (verdict != "compatible")
        sure = verdict == "compatible"
        assert run("check", uri, *model, "--strict").exit_code == (0 if sure else 3)
        strictly = ("switch", uri, *model, "--strict", "--dry-run")
        if sure:
            assert run(*strictly).exit_code == 0
        else:
            assert "leave out --strict" in refused(*strictly)


def backfilled(place, uri, share):
    """Writes new vectors of a part of the items."""
    old, new, plan = (place / f"{name}.parquet" for name in ("old", "new", "plan"))
    told("plan", uri, "--old", old, "--new", new, "-o", plan)
    return told("backfill", uri, "--plan", plan, "--vectors", new, "--share", share)


def test_a_switch_says_how_much_is_served_and_refuses_a_part_without_partial(place, uri):
    backfilled(place, uri, 0.2)
    full = ("switch", uri, "--model", place / "new.parquet", "--name", "new")
    for options in product(((), ("--dry-run",)), ((), ("--strict",))):
        message = refused(*full, *chain(*options))
        assert "has 12 of the 60 items of `stored` (20.0 %)" in message
        assert "would no longer find the other 48. Finish the backfill first" in message
        assert "--partial if your service searches `stored` as well (MixedGallery)" in message
    both = run(*full, "--strict", "--partial")
    assert isinstance(both.exception, ConfigError)  # which exits with 2
    assert "Leave out --partial" in str(both.exception)
    switch = (*full, "--partial")
    assert told("status", uri)["route"]["collection"] == "stored"
    served = (
        f"stored__nobackfill_new, queried by {NEW.fingerprint}. It has 20.0 % of the items: "
        f"search `stored` too (MixedGallery).\n"
    )
    assert run(*switch, "--dry-run").stdout == f"Would be served: {served}"
    assert run(*switch).stdout == f"Served from now on: {served}"
    assert run("status", uri).stdout.endswith(f"Served: {served}")
    assert "20.0 %" in run("status", uri).stdout.splitlines()[2]
    backfilled(place, uri, 1.0)
    all_of_it = f"stored__nobackfill_new, queried by {NEW.fingerprint}. It has 100.0 % of the "
    assert run("status", uri).stdout.endswith(f"Served: {all_of_it}items.\n")
    assert run(*full).stdout == f"Served from now on: {all_of_it}items.\n"


def test_going_back_says_where_one_more_step_would_lead(place, uri):
    backfilled(place, uri, 1.0)
    model = ("--model", place / "new.parquet")
    told("switch", uri, *model, "--assume-space", place / "old.parquet")
    told("switch", uri, *model, "--name", "new")
    told("switch", uri, *model, "--name", "new")  # nothing new
    first = (
        f"stored, queried by {NEW.fingerprint}. It has 100.0 % of the items.\n"
        f"Another rollback would serve stored.\n"
    )
    assert run("rollback", uri, "--dry-run").stdout == f"Would be served: {first}"
    assert run("rollback", uri).stdout == f"Served from now on: {first}"
    assert told("clean", uri)["removed"] == 60
    assert run("rollback", uri).stdout == (
        "Served from now on: stored. It has 100.0 % of the items.\n"
        "This was served at first: there is nothing further to go back to.\n"
    )
    assert "every switch of it was taken back: `stored` is served" in refused("rollback", uri)


def test_a_short_record_is_a_way_in(place, uri):
    """Someone who has stored vectors and a name for what made them, and nothing else."""
    stored = load_vectors(place / "stored.npz")
    Vectors(stored.ids, stored.vectors).save(place / "shop.npz")
    record = place / "shop.space.json"
    record.write_text('{"name": "resnet50, March 2024", "dim": 6}')
    assert load_vectors(place / "shop.npz").space.weights == "resnet50, March 2024"
    made = replace(NEW, parent=load_vectors(place / "shop.npz").space.fingerprint)
    model = place / "model.space.json"
    model.write_text(made.to_json())
    for assumed in (record, place / "shop.npz", made.parent):
        assert run("check", uri, "--model", model, "--assume-space", assumed).exit_code == 0
    record.write_text('{"name": "another", "dim": 6}')
    assert "mean nothing" in refused("check", uri, "--model", model, "--assume-space", record)


def test_a_search_finds_and_a_stranger_is_refused(place, uri):
    new = place / "new.parquet"
    found = told("search", uri, "--queries", new, "-k", 2, "--assume-space", OLD.fingerprint)
    assert len(found["found"]) == 60
    with open_store(uri) as store:
        wanted = store.search("stored", load_vectors(new).vectors.numpy(), 2)
    assert [one["ids"] for one in found["found"]] == wanted.ids
    stranger = replace(NEW, weights="stranger", parent=None)
    vectors = load_vectors(new)
    Vectors(vectors.ids, vectors.vectors, space=stranger).save(place / "stranger.parquet")
    message = refused(
        "search", uri, "--queries", place / "stranger.parquet",
        "--assume-space", OLD.fingerprint,
    )  # fmt: skip
    assert "mean nothing" in message


def test_a_pulled_gallery_is_a_file_of_vectors(place, uri):
    assert told("pull", uri, "-o", place / "pulled.parquet")["items"] == 60
    found = load_vectors(place / "pulled.parquet")
    assert found.columns["colour"].tolist() == ["red"] * 60


def test_credentials_are_never_shown(place):
    line = "pgvector://ann:verysecret@localhost:1/shop/items?connect_timeout=1"
    done = subprocess.run(
        [sys.executable, "-m", "nobackfill", "gallery", "status", line],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert "verysecret" not in done.stdout + done.stderr


def test_a_plan_of_other_items_is_noticed(place, uri):
    vectors = load_vectors(place / "old.parquet")
    others = [f"other {number}" for number in range(60)]
    for name in ("old", "new"):
        known = load_vectors(place / f"{name}.parquet")
        Vectors(others, known.vectors, vectors.labels).save(place / f"{name}_other.parquet")
    message = refused(
        "plan", uri, "--old", place / "old_other.parquet", "--new", place / "new_other.parquet",
        "-o", place / "plan.parquet",
    )  # fmt: skip
    assert "none of" in message


def test_a_plan_of_another_models_vectors_than_the_gallerys_says_so(place, uri):
    old, new, plan = (place / f"{name}.parquet" for name in ("old", "new", "plan"))
    files = ("--old", old, "--new", new, "-o", plan)
    says = "vectors that the gallery does not contain"
    assert not any(says in note for note in told("plan", uri, *files)["notes"])
    assert not any(says in note for note in told("plan", f"flat://{old}", *files)["notes"])
    assert any(says in note for note in told("plan", f"flat://{new}", *files)["notes"])
    assert any(says in note for note in load_plan(plan).notes)


def test_every_option_of_a_plan_is_heard(place, uri):
    old, new = place / "old.parquet", place / "new.parquet"

    def plan(*options, old=old, new=new):
        return told("plan", uri, "--old", old, "--new", new, "-o", place / "p.parquet", *options)

    plain = plan()
    assert plain["scales"] is None  # the files declare one space
    assert plan("--no-compatible")["scales"] is not None
    assert plan("--query-for-old", new)["scales"] is not None
    told_so = plan("--rate", 4, "--cost", 0.5, "--order", "random")
    assert (told_so["seconds_per_item"], told_so["cost_per_item"]) == (0.25, 0.5)
    assert told_so["order"] == "random"
    random = plain["curves"]["random"]["values"]
    assert plan("--seed", 1)["curves"]["random"]["values"] != random
    known = load_vectors(old)
    columns = {"album": known.labels, "views": np.arange(60)}
    Vectors(known.ids, known.vectors, columns=columns, space=OLD).save(place / "columns.parquet")
    bare = load_vectors(new)
    Vectors(bare.ids, bare.vectors, space=NEW).save(place / "bare.parquet")
    files = {"old": place / "columns.parquet", "new": place / "bare.parquet"}
    by_group = plan("--label", "album", "--traffic", "views", **files)
    assert by_group["curves"]["random"]["values"] == random
    assert any("`views` weighs the order" in note for note in by_group["notes"])
    bare.select(np.arange(60) < 48).save(place / "some.parquet")
    assert plan("--intersect", new=place / "some.parquet")["counts"]["measured"] == 48


def test_a_page_of_a_plan_is_written_and_its_place_is_looked_at_first(place, uri):
    files = ("--old", place / "old.parquet", "--new", place / "new.parquet")
    plan, page = place / "plan.parquet", place / "plan.html"
    assert "html" in refused("plan", uri, *files, "-o", plan, "--report", place / "plan.pdf")
    assert not plan.exists()
    told("plan", uri, *files, "-o", plan, "--report", page)
    assert "Embedding the gallery again" in page.read_text()


LOG = [
    {"time": "2026-01-31T09:30:00.250+00:00", "by": "ann", "action": "backfill",
     "collection": "product_photos_of_2024__nobackfill_new", "written": 1234567, "there": 0,
     "removed": 12},
    {"time": "2026-01-31T10:00:00.125+00:00", "by": "ann", "action": "switch",
     "collection": "product_photos_of_2024__nobackfill_new", "query_space": "0cef4c9857f59104",
     "share": 0.30004},
    {"time": "2026-01-31T10:15:00.000+00:00", "by": "ben", "action": "rollback",
     "collection": "product_photos_of_2024", "query_space": None},
]  # fmt: skip


def printed_log(monkeypatch, capsys, entries, width):
    monkeypatch.setattr(show_gallery, "console", PlainConsole(width=width))
    show_gallery.print_log(entries, as_json=False)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [50, 80, 120])
def test_a_log_loses_nothing_and_fits(monkeypatch, capsys, width):
    lines = printed_log(monkeypatch, capsys, LOG, width)
    assert max(map(len, lines)) <= width
    said = " ".join(" ".join(lines).split())
    for one in LOG:
        facts = [f"{k} {v}" for k, v in one.items() if k in ("written", "there", "removed")]
        facts += [f"{k} {v}" for k, v in one.items() if k in ("query_space", "share") and v]
        date, time = one["time"].removesuffix("+00:00").split("T")
        for fact in (f"{date} {time} UTC", f"{one['action']} by {one['by']}", one["collection"]):
            assert fact in said
        for fact in facts:
            assert any(fact in line for line in lines)  # a name and its value are not torn apart
    assert "None" not in said


def test_a_log_at_80_columns(monkeypatch, capsys):
    assert printed_log(monkeypatch, capsys, LOG, 80) == [
        "2026-01-31 09:30:00.250 UTC  backfill by ann",
        "    product_photos_of_2024__nobackfill_new: written 1234567, there 0, removed 12",
        "2026-01-31 10:00:00.125 UTC  switch by ann",
        "    product_photos_of_2024__nobackfill_new: query_space 0cef4c9857f59104,",
        "    share 0.30004",
        "2026-01-31 10:15:00.000 UTC  rollback by ben",
        "    product_photos_of_2024",
    ]


def test_a_log_breaks_no_name(monkeypatch, capsys):
    name = "a-very-long-name-" * 4 + "[new]"
    entry = {**LOG[0], "collection": name, "by": "ann [shop]"}
    lines = printed_log(monkeypatch, capsys, [entry], 39)
    assert lines[0] == "2026-01-31 09:30:00.250 UTC  backfill by ann [shop]"
    assert lines[1:] == [f"    {name}:", "    written 1234567, there 0,", "    removed 12"]


def test_a_log_without_entries_says_so(monkeypatch, capsys):
    assert printed_log(monkeypatch, capsys, [], 80) == ["The log is empty."]


@pytest.mark.parametrize("verb", ["status", "pull", "check", "search", "plan", "backfill", "index",
                                  "shadow", "switch", "rollback", "log", "clean",
                                  "retire"])  # fmt: skip
def test_every_verb_has_help(verb):
    assert run(verb, "--help").exit_code == 0


def test_new_vectors_come_from_one_place(place, uri):
    plan = place / "plan.parquet"
    told("plan", uri, "--old", place / "old.parquet", "--new", place / "new.parquet", "-o", plan)
    both = ("--vectors", place / "new.parquet", "--model", place)
    for wrong in ((), both):
        result = run("backfill", uri, "--plan", plan, *wrong)
        assert isinstance(result.exception, ConfigError)  # which exits with 2
        assert "from one place" in str(result.exception)
