import hashlib
import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from nobackfill.errors import DataError
from nobackfill.space import CompatibleWith, Space, path_beside, read_space, write_space

SPACE = Space(
    dim=256,
    weights="ab" * 32,
    preprocessing="resize 224, centre crop",
    normalized=True,
    dtype="float16",
    parent="0123456789abcdef",
    method="ndpp",
    compatible_with=(CompatibleWith("0123456789abcdef", "mAP", 0.5),),
)


def record(**changes):
    return json.dumps({**json.loads(SPACE.to_json()), **changes})


def test_a_record_comes_back_as_it_was():
    assert Space.from_json(SPACE.to_json()) == SPACE
    assert Space.from_json(Space(dim=3).to_json()) == Space(dim=3)


def test_a_record_holds_every_key_and_the_schema_version():
    assert json.loads(SPACE.to_json()) == {
        "schema": 1,
        "weights": "ab" * 32,
        "preprocessing": "resize 224, centre crop",
        "dim": 256,
        "normalized": True,
        "dtype": "float16",
        "parent": "0123456789abcdef",
        "method": "ndpp",
        "compatible_with": [{"fingerprint": "0123456789abcdef", "metric": "mAP", "value": 0.5}],
    }


def test_a_space_does_not_change():
    with pytest.raises(FrozenInstanceError):
        SPACE.dim = 3


def test_the_fingerprint_by_hand():
    canonical = '{"dim":2,"normalized":false,"preprocessing":null,"weights":"f\\u00e4"}'
    space = Space(dim=2, weights="fä")
    assert space.fingerprint == hashlib.sha256(canonical.encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    "change",
    [{"weights": None}, {"preprocessing": "none"}, {"dim": 128}, {"normalized": False}],
    ids=str,
)
def test_other_vectors_have_another_fingerprint(change):
    assert replace(SPACE, **change).fingerprint != SPACE.fingerprint


@pytest.mark.parametrize(
    "change",
    [{"dtype": "float32"}, {"parent": None}, {"method": None}, {"compatible_with": ()}],
    ids=str,
)
def test_storage_lineage_and_measurements_leave_the_fingerprint(change):
    assert replace(SPACE, **change).fingerprint == SPACE.fingerprint


def test_a_measurement_replaces_that_on_the_same_space_and_no_other():
    other, better = (CompatibleWith(name, "mAP@100", 0.6) for name in ("ff", "0123456789abcdef"))
    both = SPACE.with_measured(other)
    assert both.compatible_with == (*SPACE.compatible_with, other)
    assert set(both.with_measured(better).compatible_with) == {other, better}
    assert replace(both, compatible_with=SPACE.compatible_with) == SPACE
    assert both.fingerprint == SPACE.fingerprint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "JSON object"),
        ("[1]", "JSON object"),
        (record(schema=2), "schema version 2.*Upgrade nobackfill"),
        (record(colour="red"), "unknown keys: colour.*Remove"),
        ("{}", "lacks schema, weights"),
        (json.dumps({"schema": 1, "dim": 3}), "lacks weights.*Add"),
        (record(dim="256"), "`dim` should be int, but is '256'"),
        (record(dim=True), "`dim` should be int"),
        (record(dim=0), "at least 1 dimension"),
        (record(weights=3), "`weights` should be str or null"),
        (record(compatible_with=["old"]), "compatible_with.*but one is 'old'"),
        (record(compatible_with=[{"metric": "mAP"}]), "compatible_with.*lacks fingerprint, value"),
        (
            record(compatible_with=[{"fingerprint": "a", "metric": "mAP", "value": float("nan")}]),
            "nan",
        ),
    ],
)
def test_a_wrong_record_is_refused_with_what_to_do(text, message):
    with pytest.raises(DataError, match=message):
        Space.from_json(text)


def test_a_whole_number_is_a_value_too():
    entry = {"fingerprint": "a", "metric": "mAP", "value": 1}
    (measured,) = Space.from_json(record(compatible_with=[entry])).compatible_with
    assert measured == CompatibleWith("a", "mAP", 1.0)


@pytest.mark.parametrize(
    ("artefact", "beside"),
    [
        ("old.parquet", "old.space.json"),
        ("runs/model.v2.safetensors", "runs/model.v2.space.json"),
        ("head", "head.space.json"),
    ],
)
def test_the_record_lies_beside_its_artefact(artefact, beside):
    assert path_beside(artefact) == Path(beside)


def test_written_beside_and_read_again(tmp_path):
    artefact = tmp_path / "old.parquet"
    assert read_space(artefact) is None
    assert write_space(artefact, SPACE) == tmp_path / "old.space.json"
    assert read_space(artefact) == SPACE


def test_an_error_names_the_file(tmp_path):
    (tmp_path / "old.space.json").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"old\.space\.json"):
        read_space(tmp_path / "old.parquet")
