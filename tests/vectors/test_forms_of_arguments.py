"""Fits, maps, assessments and searches take vectors in every form, with the same numbers."""

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import nobackfill as nb
from nobackfill.errors import ConfigError, DataError, SpaceMismatch


def closed_form(**settings):
    return nb.CompatibleHead(epochs=0, **settings)


@pytest.fixture(scope="module")
def fitted(upgrade):
    return closed_form().fit(upgrade.new, upgrade.old, upgrade.labels)


@pytest.fixture(scope="module")
def expected(upgrade, fitted):
    return fitted.transform(torch.from_numpy(upgrade.new))


@pytest.fixture(scope="module")
def fitted_by_id(upgrade):
    """A head that was fitted on vectors with ids, so it keeps some classes for an evaluation."""
    sides = (nb.Vectors(upgrade.ids, side, upgrade.labels) for side in (upgrade.new, upgrade.old))
    return closed_form(test_share=0.1).fit(*sides)


def test_a_head_is_fitted_on_rows_of_every_form(upgrade, bare, fitted, expected):
    head = closed_form().fit(bare(upgrade.new), bare(upgrade.old), upgrade.labels)
    assert head.progress_ == fitted.progress_
    assert head.supervision_ == "labels"
    assert not any("position" in note for note in head.notes_)
    assert torch.equal(head.transform(torch.from_numpy(upgrade.new)), expected)


def test_a_head_maps_rows_of_every_form(upgrade, bare, fitted, expected):
    rows = bare(upgrade.new)
    mapped = fitted.transform(rows)
    kind = torch.Tensor if isinstance(rows, torch.Tensor) else np.ndarray
    if type(rows).__name__ == "DataFrame":
        kind = nb.Vectors
        mapped, found = mapped.vectors, type(mapped)
    else:
        found = type(mapped)
    assert issubclass(found, kind)
    assert torch.equal(torch.as_tensor(mapped), expected)


def test_a_head_is_fitted_on_tables_of_every_form(upgrade, table, fitted_by_id):
    order = np.random.default_rng(1).permutation(len(upgrade.ids))
    labels = dict(zip(upgrade.ids.tolist(), upgrade.labels.tolist(), strict=True))
    old, new = table(upgrade.ids, upgrade.old), table(upgrade.ids[order], upgrade.new[order])
    old = nb.as_vectors(old, labels=[labels[item] for item in nb.as_vectors(old).ids])
    head = closed_form(test_share=0.1).fit(new, old)
    assert head.progress_.closed == pytest.approx(fitted_by_id.progress_.closed)
    mapped, again = head.transform(new), fitted_by_id.transform(new)
    assert isinstance(mapped, nb.Vectors)
    assert mapped.ids.tolist() == upgrade.ids[order].tolist()
    assert mapped.columns["fitted"].tolist() == again.columns["fitted"].tolist()
    torch.testing.assert_close(mapped.vectors, again.vectors)


def test_ids_of_arrays_match_them(upgrade, fitted_by_id):
    order = np.random.default_rng(1).permutation(len(upgrade.ids))
    old = nb.Vectors(upgrade.ids, upgrade.old, upgrade.labels)
    head = closed_form(test_share=0.1).fit(upgrade.new[order], old, ids=upgrade.ids[order])
    assert head.progress_ == fitted_by_id.progress_
    assert len(head.fitted_) == 1
    head = closed_form(test_share=0.1).fit(
        upgrade.new, upgrade.old, upgrade.labels, ids=upgrade.ids
    )
    assert head.progress_ == fitted_by_id.progress_


def test_rows_beside_ids_are_matched_by_position_and_it_is_said(upgrade, fitted_by_id):
    old = nb.Vectors(upgrade.ids, upgrade.old, upgrade.labels)
    head = closed_form(test_share=0.1).fit(upgrade.new, old)
    assert head.progress_ == fitted_by_id.progress_
    assert head.notes_[0] == (
        "rows are matched by position with the ids of `old`: `new` has no ids"
    )
    with pytest.raises(DataError, match="`old` has 120 rows and `new` has 119"):
        closed_form().fit(upgrade.new[1:], old)


@pytest.mark.parametrize("kind", ["labels", "groups"])
def test_labels_come_in_every_form(upgrade, fitted, kind):
    names = [f"class {label:02}" for label in upgrade.labels]
    for values in (
        upgrade.labels.tolist(), torch.from_numpy(upgrade.labels), pd.Series(upgrade.labels),
        pd.Categorical(names), pl.Series(names), pa.array(names), names,
    ):  # fmt: skip
        head = closed_form().fit(upgrade.new, upgrade.old, **{kind: values})
        assert (head.progress_, head.supervision_) == (fitted.progress_, kind)


def test_pairs_come_in_every_form(upgrade, tmp_path):
    queries, items = list(range(96)), list(range(24, 120))  # each class is a chain
    (tmp_path / "pairs.csv").write_text(
        "query,relevant\n" + "\n".join(f"{q},{i}" for q, i in zip(queries, items, strict=True))
    )
    forms = [
        {query: [item] for query, item in zip(queries, items, strict=True)},
        list(zip(queries, items, strict=True)),
        pd.DataFrame({"query": queries, "relevant": items}),
        pl.DataFrame({"anchor": queries, "positive": items}),
        pa.table({"query": queries, "relevant": items}),
        tmp_path / "pairs.csv",
    ]
    heads = [closed_form().fit(upgrade.new, upgrade.old, pairs=pairs) for pairs in forms]
    assert all(head.progress_ == heads[0].progress_ for head in heads)
    assert {head.supervision_ for head in heads} == {"pairs"}
    by_label = closed_form().fit(upgrade.new, upgrade.old, upgrade.labels)
    assert heads[0].progress_.closed == by_label.progress_.closed


def test_files_fit_like_their_vectors(upgrade, fitted_by_id, tmp_path):
    for name in ("old", "new"):
        vectors = nb.Vectors(upgrade.ids, getattr(upgrade, name), upgrade.labels)
        vectors.save(tmp_path / f"{name}.parquet")
    new = tmp_path / "new.parquet"
    head = closed_form(test_share=0.1).fit(new, str(tmp_path / "old.parquet"))
    assert head.progress_ == fitted_by_id.progress_
    assert head.transform(new).ids.tolist() == upgrade.ids.tolist()


def test_columns_of_a_table_are_named(upgrade, fitted_by_id):
    old, new = (
        pd.DataFrame(
            {"sku": upgrade.ids, "a": list(side), "b": list(side), "scene": upgrade.labels}
        )
        for side in (upgrade.old, upgrade.new)
    )
    head = closed_form(test_share=0.1).fit(new, old, id="sku", vector="a", label="scene")
    assert head.progress_ == fitted_by_id.progress_
    mapped = head.transform(new, id="sku", vector="a")
    assert mapped.ids.tolist() == upgrade.ids.tolist()
    again = closed_form(test_share=0.1).fit_transform(new, old, id="sku", vector="a", label="scene")
    assert torch.equal(again.vectors, mapped.vectors)
    with pytest.raises(ConfigError, match="no column `scen` in the data. Did you mean `scene`"):
        closed_form().fit(new, old, id="sku", vector="a", label="scen")


def test_whatever_is_stored_as_it_is_comes_back(upgrade, fitted):
    fitted.progress_.stored = {"mapped": 0.1, "as they are": 0.2}
    try:
        assert fitted.transform(upgrade.new, side="gallery") is upgrade.new
        frame = pd.DataFrame({"id": upgrade.ids, "emb": list(upgrade.new)})
        assert np.array_equal(fitted.transform(frame, side="gallery").vectors, upgrade.new)
    finally:
        fitted.progress_.stored = {}


WRONG = {
    "one vector": (np.ones(6, np.float32), DataError, r"`new`: .*\(6,\).*`vector\[None\]`"),
    "objects": (np.array(["a", "b"], object), DataError, "`new`: `new` has text in row 0"),
    "rows of two lengths": ([[1.0] * 6, [1.0]], DataError, "1 dimensions in row 1, and 6 in row 0"),
    "another model": (
        np.ones((3, 5), np.float32),
        SpaceMismatch,
        r"of 6 dimensions, but these have 5",
    ),
    "nothing": (None, DataError, "`new`: NoneType holds no vectors"),
    "no vectors": (pd.DataFrame({"a": [1], "b": ["x"]}), DataError, "`new`: No column is known"),
}


@pytest.mark.parametrize(("new", "error", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_mapped_is_refused_by_name(fitted, new, error, message):
    with pytest.raises(error, match=message):
        fitted.transform(new)


def test_what_cannot_be_fitted_is_refused_by_name(upgrade):
    old, new, labels = upgrade.old, upgrade.new, upgrade.labels
    named = nb.Vectors(upgrade.ids, old)
    for arguments, options, message in (
        ((new, old[0]), {}, r"`old`: .*\(6,\)"),
        ((new, old, labels[:7]), {}, "7 labels for 120 of `old`"),
        ((new, old), {"groups": labels[:, None]}, r"`groups` has the shape \(120, 1\)"),
        ((new, old), {"ids": ["a", "b"]}, "2 ids for 120 rows of `old`"),
        ((new, old), {"ids": [*range(119), "a"]}, "`ids` must be text, whole numbers"),
        ((new, named), {"pairs": {"item 0": ["nobody"]}}, "the first are 'nobody'"),
        ((new, old), {"pairs": [(1, 2, 3)]}, "`pairs`: each pair has a query and a relevant"),
    ):
        with pytest.raises(DataError, match=message):
            closed_form().fit(*arguments, **options)


ASSESSED = {
    "numpy": lambda ids, matrix: matrix,
    "torch": lambda ids, matrix: torch.from_numpy(matrix),
    "lists": lambda ids, matrix: matrix.tolist(),
    "pandas": lambda ids, matrix: pd.DataFrame({"id": ids, "emb": list(matrix)}),
    "polars": lambda ids, matrix: pl.DataFrame({"id": ids, "emb": matrix}),
    "pyarrow": lambda ids, matrix: pa.table({"id": ids, "emb": pa.array(matrix.tolist())}),
    "Vectors": nb.Vectors,
}


@pytest.fixture(scope="module")
def larger():
    """Old and new vectors of 40 classes."""
    random = np.random.default_rng(3)
    labels = np.arange(200) % 40
    means = random.normal(size=(40, 6))[labels]
    sides = [means + noise * random.normal(size=means.shape) for noise in (1.0, 0.3)]
    return np.array([f"item {row}" for row in range(200)]), *np.float32(sides), labels


@pytest.fixture(scope="module")
def assessed(larger):
    ids, old, new, labels = larger
    return nb.assess(nb.Vectors(ids, old, labels), nb.Vectors(ids, new), epochs=0)


@pytest.mark.parametrize("kind", ["labels", "groups"])
@pytest.mark.parametrize("form", ASSESSED)
def test_an_upgrade_is_assessed_in_every_form(larger, assessed, form, kind):
    ids, old, new, labels = larger
    sides = [ASSESSED[form](ids, side) for side in (old, new)]
    verdict, expected = nb.assess(*sides, **{kind: labels}, epochs=0), assessed
    assert verdict.verdict == expected.verdict
    for way, other in zip(verdict.candidates, expected.candidates, strict=True):
        assert way.metrics == pytest.approx(other.metrics), way.name
    by_position = "rows are matched by position: `old` and `new` have no ids"
    assert (by_position in verdict.notes) == (form in ("numpy", "torch", "lists"))


def test_an_assessment_takes_pairs_and_columns(larger):
    ids, old, new, labels = larger
    expected = nb.assess(old, new, labels=labels, epochs=0)
    pairs = pd.DataFrame({"query": range(160), "relevant": range(40, 200)})
    assert nb.assess(old, new, pairs=pairs, epochs=0).verdict == expected.verdict
    old = pd.DataFrame({"sku": ids, "emb": list(old), "scene": labels})
    new = pl.DataFrame({"sku": ids, "emb": new})
    verdict = nb.assess(old, new, id="sku", label="scene", epochs=0)
    assert verdict.summary()["candidates"] == expected.summary()["candidates"]
    assert "`old`: `emb` is read as the vector" in verdict.notes
    fewer = nb.assess(old, new[:199], id="sku", label="scene", epochs=0)
    assert any(note.startswith("1 of 200 items of the old file") for note in fewer.notes)
    with pytest.raises(ConfigError, match="one kind of supervision, not labels and groups"):
        nb.assess(old, new, labels=labels, groups=labels)


def same_search(first, second):
    assert torch.equal(first.ranks, second.ranks)
    assert torch.equal(first.num_relevant, second.num_relevant)


def test_a_search_takes_rows_of_every_form(upgrade, bare):
    labels, sides = upgrade.labels, (upgrade.new, upgrade.old)
    expected = nb.retrieval(*map(torch.from_numpy, sides), labels, labels, exclude_self=True)
    found = nb.retrieval(*map(bare, sides), labels, labels, exclude_self=True)
    same_search(found, expected)


def test_a_search_takes_tables_and_their_labels(upgrade, table):
    query, gallery = (table(upgrade.ids, side) for side in (upgrade.new, upgrade.old))
    expected = nb.retrieval(upgrade.new, upgrade.old, upgrade.labels, upgrade.labels)
    same_search(nb.retrieval(query, gallery, upgrade.labels, upgrade.labels), expected)
    labelled = [nb.as_vectors(side, labels=upgrade.labels) for side in (query, gallery)]
    same_search(nb.retrieval(*labelled), expected)
    with pytest.raises(DataError, match="needs either labels or lists"):
        nb.retrieval(query, gallery)


def test_labels_and_cameras_of_a_search_may_be_text(upgrade):
    names = [f"class {label}" for label in upgrade.labels]
    numbers = np.arange(120) // 24 % 3  # they differ within a class
    cameras = [f"camera {number}" for number in numbers]
    sides = torch.from_numpy(upgrade.new), torch.from_numpy(upgrade.old)
    expected = nb.retrieval(
        *sides, upgrade.labels, upgrade.labels, query_camera=numbers, gallery_camera=numbers
    )
    for make in (list, np.array, pd.Series, pd.Categorical, pl.Series, pa.array):
        found = nb.retrieval(
            *sides, make(names), make(names),
            query_camera=make(cameras), gallery_camera=make(cameras),
        )  # fmt: skip
        same_search(found, expected)
    assert expected.num_relevant.tolist() == [3] * 48 + [4] * 24 + [3] * 48
    with pytest.raises(DataError, match="`query_labels` and `gallery_labels` must be of one kind"):
        nb.retrieval(*sides, names, upgrade.labels)


def test_pairs_name_what_a_search_must_find(upgrade):
    ids = upgrade.ids
    query, gallery = nb.Vectors(ids[:30], upgrade.new[:30]), nb.Vectors(ids, upgrade.old)
    relevant = [[row + 30, row + 60] if row != 7 else [] for row in range(30)]
    expected = nb.retrieval(query.vectors, gallery.vectors, relevant=relevant)
    assert expected.average_precision[7].isnan()
    by_id = {ids[row]: [ids[item] for item in items] for row, items in enumerate(relevant) if items}
    same_search(nb.retrieval(query, gallery, pairs=by_id), expected)
    rows = {row: items for row, items in enumerate(relevant) if items}
    same_search(nb.retrieval(upgrade.new[:30], upgrade.old, pairs=rows), expected)
    with pytest.raises(DataError, match="1 relevant items of the pairs .* 'nobody'"):
        nb.retrieval(query, gallery, pairs={ids[0]: ["nobody"]})
    with pytest.raises(DataError, match="1 queries of the pairs .* 'nobody'"):
        nb.retrieval(query, gallery, pairs={"nobody": [ids[0]]})
    with pytest.raises(DataError, match="not relevant and pairs"):
        nb.retrieval(query, gallery, relevant=relevant, pairs=by_id)


def test_nothing_is_imported_that_the_caller_has_not():
    code = """
import sys, numpy as np, nobackfill as nb
random, labels = np.random.default_rng(0), np.arange(200) % 40
old, new = random.normal(size=(2, 200, 4))
head = nb.CompatibleHead(epochs=0).fit(new, old, labels)
assert isinstance(head.transform(new), np.ndarray)
nb.retrieval(new, old, labels, labels)
verdict = nb.assess(old, new, labels=labels, epochs=0)
for result in (head, verdict, nb.evaluate(old, new, labels=labels), nb.as_vectors(new)):
    assert len(str(result)) and len(repr(result)) and len(result._repr_html_())
loaded = {"pandas", "polars", "sklearn", "datasets", "matplotlib", "jinja2"} & set(sys.modules)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)
