"""`nobackfill evaluate --declare`, and what a gallery then says, to a person and to a program."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.vectors.records import read_space
from nobackfill.vectors.space import Space

LABELS = np.arange(240) % 24
FIRST = Space(dim=8, weights="first")
SECOND = Space(dim=8, weights="second", parent=FIRST.fingerprint, method="ndpp")
THIRD = Space(dim=8, weights="third", parent=SECOND.fingerprint, method="ndpp")


@pytest.fixture
def place(tmp_path):
    """Three models of a sequence, each better than the one before; one of another sequence."""

    def save(name, seed, noise, space, centres=0):
        centre = torch.randn(24, 8, generator=torch.Generator().manual_seed(centres))
        drawn = torch.randn(240, 8, generator=torch.Generator().manual_seed(seed))
        rows = centre[LABELS] + noise * drawn
        nb.Vectors(np.arange(240), rows, LABELS, space=space).save(tmp_path / f"{name}.parquet")

    save("first", 1, 1.2, FIRST)
    save("second", 2, 0.9, SECOND)
    save("third", 3, 0.4, THIRD)
    save("stranger", 3, 0.4, replace(THIRD, weights="stranger"), centres=9)
    save("alike", 1, 1.2, replace(THIRD, weights="alike"))
    save("undeclared", 3, 0.4, None)
    stored = nb.load_vectors(tmp_path / "first.parquet")
    nb.Vectors(stored.ids, stored.vectors).save(tmp_path / "stored.npz")  # declares nothing
    return tmp_path


def declare(place, model, new=None, old="first"):
    files = ("--old", place / f"{old}.parquet", "--new", place / f"{new or model}.parquet")
    return "evaluate", *files, "--device", "cpu", "--declare", place / f"{model}.parquet"


def check(place, model, store="first.parquet", *more):
    return "gallery", "check", f"flat://{place / store}", "--model", place / model, *more


def records(place):
    return {path: path.read_bytes() for path in place.iterdir()}


def test_the_third_model_may_search_the_first_gallery_once_it_was_measured(command, place):
    assert command(*check(place, "second.parquet"))[0] == 0  # its parent, and never measured
    code, _, err = command(*check(place, "third.parquet"))
    assert code == 2
    assert "evaluate --declare" in err

    code, out, err = command(*declare(place, "third"))
    assert (code, err) == (0, "")
    vectors = [nb.load_vectors(place / f"{name}.parquet") for name in ("first", "third")]
    value = nb.evaluate(*vectors).summary()["new_old"]
    line = out.splitlines()[-1]
    assert line == (
        f"Declared in {place / 'third.parquet.space.json'}: may search the space "
        f"{FIRST.fingerprint}, mAP {value:.4f}."
    )
    for model in ("third.parquet", "third.space.json"):
        code, out, _ = command(*check(place, model))
        assert code == 0
        assert "(measured: compatible)" in out
        assert f"it was measured on them: mAP {value:.4f}" in out
    assert command(*check(place, "third.parquet", "second.parquet"))[0] == 0  # as before
    assert command(*check(place, "first.parquet", "third.parquet"))[0] == 2  # one way only
    assert command(*check(place, "stranger.parquet"))[0] == 2  # it, and no other

    assumed = ("--assume-space", FIRST.fingerprint)
    assert command(*check(place, "third.parquet", "stored.npz", *assumed))[0] == 0
    queries = ("--queries", place / "third.parquet")
    found = command("gallery", "search", f"flat://{place / 'first.parquet'}", *queries, "--json")
    assert found[0] == 0  # what is declared holds where vectors ask, too
    assert len(json.loads(found[1])["found"]) == 240


def test_programs_read_what_was_declared(command, place):
    code, out, err = command(*declare(place, "third"), "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["declared"] == {
        "fingerprint": FIRST.fingerprint, "metric": "mAP", "value": told["new_old"],
    }  # fmt: skip
    told = json.loads(command(*check(place, "third.parquet"), "--json")[1])
    assert told["may_search"] is True
    undeclared = json.loads(command(*declare(place, "third")[:-2], "--json")[1])
    assert "declared" not in undeclared  # nothing was asked for


@pytest.mark.parametrize(
    ("model", "code", "verdict"), [("stranger", 1, "not compatible"), ("alike", 3, "undecided")]
)
def test_a_verdict_of_no_is_written_and_one_in_doubt_is_not(command, place, model, code, verdict):
    before = records(place)
    kept = "Its record says so now" if code == 1 else "Nothing was written"
    found, out, err = command(*declare(place, model))
    assert found == code
    assert "query/gallery" in out  # what was measured is still told
    assert f"the verdict is {verdict}" in err
    assert kept in err
    found, out, err = command(*declare(place, model), "--json")
    assert (found, json.loads(out)["declared"]) == (code, None)
    assert kept in err
    value = json.loads(out)["new_old"]
    changed = {path for path, now in records(place).items() if before.get(path) != now}
    assert changed == ({place / f"{model}.parquet.space.json"} if code == 1 else set())
    checked, out, _ = command(*check(place, f"{model}.parquet"))
    assert checked == (1 if code == 1 else 2)
    assert (
        code == 3 or f"(measured: not compatible): it was measured on them: mAP {value:.4f}" in out
    )


def test_a_verdict_of_no_takes_back_an_earlier_yes(command, place):
    assert command(*declare(place, "third"))[0] == 0
    yes = read_space(place / "third.parquet")
    (place / "stranger.space.json").write_text(replace(yes, weights="stranger").to_json())
    assert command(*declare(place, "stranger"))[0] == 1
    told = read_space(place / "stranger.parquet")
    assert (told.compatible_with, len(told.not_compatible_with)) == ((), 1)
    assert nb.load_vectors(place / "stranger.parquet").space == told


@pytest.mark.parametrize(
    ("model", "new", "says"),
    [
        ("second", "third", "Pass the run, the head or the file"),
        ("third", "undeclared", "declare no space"),
        ("undeclared", "third", "no space.json in or beside it"),
        ("nowhere", "third", "no space.json in or beside it"),
    ],
)
def test_what_cannot_be_declared_is_two_before_any_search(command, place, model, new, says):
    before = records(place)
    code, out, err = command(*declare(place, model, new), "--report", place / "page.html")
    assert (code, out) == (2, "")
    assert says in err
    assert records(place) == before


def test_old_vectors_that_declare_nothing_declare_nothing(command, place):
    code, out, err = command(*declare(place, "third", old="undeclared"))
    assert (code, out) == (2, "")
    assert "the model of the old vectors" in err


def test_queries_that_a_model_maps_for_the_old_gallery_are_what_is_declared(command, place):
    run = place / "run"
    run.mkdir()
    asks, stored = (nb.load_vectors(place / f"{name}.parquet") for name in ("third", "stranger"))
    asks.save(run / "validation_query.parquet")
    stored.save(run / "validation.parquet")
    old, new = ("--old", place / "first.parquet"), ("--new", run / "validation.parquet")
    evaluate = ("evaluate", *old, *new, "--device", "cpu", "--declare", run)
    code, _, err = command(*evaluate)
    assert code == 2
    assert "--query-for-old" in err
    code, out, _ = command(*evaluate, "--query-for-old", run / "validation_query.parquet")
    assert code == 0
    assert f"Declared in {run / 'validation_query.parquet.space.json'}" in out
    assert read_space(run / "validation.parquet") == stored.space
    assert command(*check(place, "run"))[0] == 0


def test_a_record_that_cannot_be_written_is_two(command, place, monkeypatch):
    from nobackfill.core import atomic_files as files

    def full(*_):
        raise OSError(28, "No space left on device")

    before = records(place)
    monkeypatch.setattr(files.os, "replace", full)
    code, _, err = command(*declare(place, "third"))
    assert code == 2
    assert "No space left on device" in err
    assert records(place) == before


def test_several_directions_declare_nothing(command, place):
    code, _, err = command(*declare(place, "third"), "--by-modality")
    assert code == 2
    assert "--declare requires one direction" in err
    assert read_space(place / "third.parquet") == THIRD
