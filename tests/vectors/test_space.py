import hashlib
import json
from dataclasses import FrozenInstanceError, replace

import pytest

from nobackfill.errors import DataError
from nobackfill.vectors.space import (
    SAMPLE,
    CompatibleWith,
    Space,
    names_a_model,
    with_dim,
)

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


def test_a_verdict_of_no_takes_the_place_of_a_yes_on_the_same_space_and_the_other_way_round():
    other, worse, better = (
        CompatibleWith(name, "mAP", value)
        for name, value in (("ff", 0.6), ("0123456789abcdef", 0.1), ("0123456789abcdef", 0.7))
    )
    refused = SPACE.with_measured(other).with_measured(worse, compatible=False)
    assert (refused.compatible_with, refused.not_compatible_with) == ((other,), (worse,))
    assert Space.from_json(refused.to_json()) == refused
    assert refused.fingerprint == SPACE.fingerprint
    again = refused.with_measured(better)
    assert (again.compatible_with, again.not_compatible_with) == ((other, better), ())
    twice = refused.with_measured(replace(other, value=0.0), compatible=False)
    assert [one.fingerprint for one in twice.not_compatible_with] == [worse.fingerprint, "ff"]


@pytest.mark.parametrize("key", ["weights", "name"])
def test_a_short_record_names_its_model_and_leaves_the_rest_unknown(key):
    short = Space.from_json(json.dumps({key: "resnet50"}))
    assert short == Space(dim=None, weights="resnet50", normalized=None, dtype=None)
    assert Space.from_json(short.to_json()) == short
    more = Space.from_json(json.dumps({key: "resnet50", "dim": 8, "normalized": True}))
    assert more == Space(dim=8, weights="resnet50", normalized=True, dtype=None)


def test_what_is_not_known_is_not_the_same_as_what_is():
    short = Space(dim=None, weights="resnet50", normalized=None, dtype=None)
    known = [Space(dim=8, weights="resnet50"), Space(dim=8, weights="resnet50", normalized=True)]
    assert not {short.fingerprint, with_dim(short, 8).fingerprint} & {s.fingerprint for s in known}
    assert short.fingerprint != with_dim(short, 8).fingerprint


@pytest.mark.parametrize(
    ("space", "names"),
    [
        (Space(dim=8), False),
        (Space(dim=8, weights=""), False),
        (Space(dim=8, parent="0" * 16, method="ndpp"), False),
        (Space(dim=8, weights="old"), True),
        (Space(dim=8, preprocessing="32 px"), True),
    ],
)
def test_a_model_is_named_by_its_weights_or_what_it_sees(space, names):
    assert names_a_model(space) is names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[1]", "JSON object"),
        (record(schema=2), "schema version 2.*Upgrade nobackfill"),
        (record(colour="red"), "`colour` is unknown .known: dim, weights.*remove it"),
        ("{}", "lacks schema, weights"),
        (
            json.dumps({"schema": 1, "dim": 3}),
            "lacks weights.*does not name the model.*Add at least its name",
        ),
        (record(dim="256"), "`dim` must be a whole number or null, not '256'"),
        (record(dim=True), "`dim` must be a whole number"),
        (record(dim=0), "must be from 1 to"),
        ('{"dim": 3, "weights": null}', "lacks schema, preprocessing.*does not name the model"),
        (
            '{"name": ""}',
            r'does not name the model.*\{"name": "resnet50, March 2024", "dim": 512\}',
        ),
        ('{"name": 3}', "`weights` must be text or null, not 3"),
        (record(name="resnet50"), "`weights` and `name`.*Keep one"),
        ('{"name": "resnet50", "colour": "red"}', "`colour` is unknown"),
        ('{"name": "resnet50", "schema": 2}', "schema version 2"),
        (
            record(not_compatible_with=[{"metric": "mAP"}]),
            r"`not_compatible_with\[0\]\.fingerprint`",
        ),
        (record(weights=3), "`weights` must be text or null"),
        (record(compatible_with=["old"]), "compatible_with.*not 'old'"),
        (
            record(compatible_with=[{"metric": "mAP"}]),
            r"`compatible_with\[0\]\.fingerprint` is missing",
        ),
        (
            record(compatible_with=[{"fingerprint": "a", "metric": "mAP", "value": float("nan")}]),
            "NaN is no number",
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


def test_the_sample_of_the_error_is_a_record():
    assert Space.from_json(SAMPLE) == Space(512, "resnet50, March 2024", None, None, None)
