"""Vectors in every form: each gives the same as `Vectors`, bit for bit."""

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import nobackfill as nb
from nobackfill.errors import ConfigError, DataError


def same(first, second):
    """Whether two evaluations have the same numbers."""
    assert first.old_old.ranks.equal(second.old_old.ranks)
    assert first.old_old.first_hit.equal(second.old_old.first_hit)
    assert first.new_old.ranks.equal(second.new_old.ranks)
    assert first.new_new.ranks.equal(second.new_new.ranks)
    assert first.summary()["new_old"] == second.summary()["new_old"]
    assert first.verdict == second.verdict


@pytest.fixture(scope="module")
def expected(upgrade):
    sides = (nb.Vectors(upgrade.ids, side, upgrade.labels) for side in (upgrade.old, upgrade.new))
    return nb.evaluate(*sides)


def test_rows_of_every_form_are_evaluated_like_vectors(upgrade, bare, expected):
    result = nb.evaluate(bare(upgrade.old), bare(upgrade.new), labels=upgrade.labels)
    same(result, expected)
    assert "rows are matched by position: `old` and `new` have no ids" in result.notes


def test_tables_of_every_form_are_matched_by_id(upgrade, table, expected):
    order = np.random.default_rng(1).permutation(len(upgrade.ids))
    old, new = table(upgrade.ids, upgrade.old), table(upgrade.ids[order], upgrade.new[order])
    labels = dict(zip(upgrade.ids.tolist(), upgrade.labels.tolist(), strict=True))
    labelled = nb.as_vectors(old, labels=[labels[item] for item in nb.as_vectors(old).ids])
    result = nb.evaluate(labelled, new)
    same(result, expected)
    assert not any("position" in note for note in result.notes)


def test_labels_come_in_every_form(upgrade, expected):
    names = [f"class {label}" for label in upgrade.labels]
    for labels in (
        upgrade.labels.tolist(), torch.from_numpy(upgrade.labels), pd.Series(upgrade.labels),
        pd.Series(names), pd.Categorical(names), pl.Series(names), pa.array(names), names,
        upgrade.labels.astype(float),
    ):  # fmt: skip
        same(nb.evaluate(upgrade.old, upgrade.new, labels=labels), expected)
        same(nb.evaluate(upgrade.old, upgrade.new, groups=labels), expected)


def test_columns_of_a_table_are_found_or_named(upgrade, expected):
    old = pd.DataFrame({"sku": upgrade.ids, "emb": list(upgrade.old), "scene": upgrade.labels})
    new = pl.DataFrame({"sku": upgrade.ids, "emb": upgrade.new})
    result = nb.evaluate(old, new, id="sku", label="scene")
    same(result, expected)
    assert "`old`: `emb` is read as the vector" in result.notes
    category = old.rename(columns={"scene": "category", "sku": "item_id"})
    result = nb.evaluate(category, category.assign(emb=list(upgrade.new)))
    same(result, expected)
    with pytest.raises(ConfigError, match="no column `scen` in the data. Did you mean `scene`"):
        nb.evaluate(old, new, id="sku", label="scen")
    both = old.assign(uuid=upgrade.ids, key=upgrade.ids)
    with pytest.raises(DataError, match="`old`: the columns `sku`, `uuid` and `key`"):
        nb.evaluate(both, new)


def test_other_columns_are_used(upgrade):
    is_query = np.arange(len(upgrade.ids)) < 30
    old = pd.DataFrame({"id": upgrade.ids, "emb": list(upgrade.old), "label": upgrade.labels,
                        "is_query": is_query, "is_gallery": ~is_query,
                        "tags": [["a"]] * len(upgrade.ids)})  # fmt: skip
    result = nb.evaluate(old, old.assign(emb=list(upgrade.new)))
    assert len(result.query_ids) == 30
    assert result.num_gallery == 90


def test_ids_of_arrays_match_them(upgrade, expected):
    order = np.random.default_rng(1).permutation(len(upgrade.ids))
    old = nb.Vectors(upgrade.ids, upgrade.old, upgrade.labels)
    result = nb.evaluate(old, upgrade.new[order], ids=upgrade.ids[order])
    same(result, expected)
    result = nb.evaluate(upgrade.old, upgrade.new, ids=upgrade.ids, labels=upgrade.labels)
    same(result, expected)
    assert result.query_ids.tolist() == upgrade.ids.tolist()
    with pytest.raises(ConfigError, match="`old` and `new` have ids of their own. Leave `ids` out"):
        nb.evaluate(old, old, ids=upgrade.ids)
    with pytest.raises(DataError, match="3 ids for 120 rows of `new`"):
        nb.evaluate(old, upgrade.new, ids=["a", "b", "c"])


def test_rows_without_ids_take_those_of_the_other_side(upgrade, expected):
    old = nb.Vectors(upgrade.ids, upgrade.old, upgrade.labels)
    result = nb.evaluate(old, upgrade.new)
    same(result, expected)
    assert "rows are matched by position with the ids of `old`: `new` has no ids" in result.notes
    with pytest.raises(DataError, match="`old` has 120 rows and `new` has 119, and `new` has no"):
        nb.evaluate(old, upgrade.new[:-1])
    with pytest.raises(
        DataError, match="`old` has 120 rows and `new` has 119, and `old` and `new`"
    ):
        nb.evaluate(upgrade.old, upgrade.new[:-1], labels=upgrade.labels, intersect=True)


def test_a_bare_file_has_no_ids_either(upgrade, expected, tmp_path):
    for name in ("old", "new"):
        np.save(tmp_path / f"{name}.npy", getattr(upgrade, name))
    paths = tmp_path / "old.npy", str(tmp_path / "new.npy")
    same(nb.evaluate(*paths, labels=upgrade.labels), expected)
    same(nb.evaluate(*paths, labels=upgrade.labels, ids=upgrade.ids), expected)
    with pytest.raises(DataError, match="a missing row would match all later ones wrongly"):
        nb.evaluate(paths[0], upgrade.new[1:], labels=upgrade.labels, intersect=True)


def test_an_index_names_rows_unless_it_counts_them(upgrade, expected):
    old = pd.DataFrame({"emb": list(upgrade.old), "label": upgrade.labels})
    new = old.assign(emb=list(upgrade.new)).sample(frac=1, random_state=0)
    new.index = new.index + 1000
    old.index = old.index + 1000
    result = nb.evaluate(old, new)
    same(result, expected)
    assert "`new`: the index is read as the id" in str(result.notes)
    twice = pd.concat([old[:60], old[:60]]).assign(emb=list(upgrade.old), label=upgrade.labels)
    result = nb.evaluate(twice, new.sort_index())
    assert "`old`: the index is not used" in str(result.notes)
    assert "by position with the ids of `new`" in str(result.notes)


def test_labels_belong_to_the_only_side_that_has_as_many_rows(upgrade):
    old, new = (nb.Vectors(upgrade.ids, side) for side in (upgrade.old, upgrade.new))
    labelled = nb.Vectors(upgrade.ids, upgrade.old, upgrade.labels)
    fewer = new.select(np.arange(119)[::-1])
    expected = nb.evaluate(labelled, fewer, intersect=True)
    for labels in (upgrade.labels, upgrade.labels[:119][::-1]):  # of `old`, of `new`
        result = nb.evaluate(old, fewer, labels=labels, intersect=True)
        for pair in ("old_old", "new_old", "new_new"):
            assert result.summary()[pair] == expected.summary()[pair]


def test_labels_of_an_ambiguous_order_are_refused(upgrade):
    old, new = (nb.Vectors(upgrade.ids, side) for side in (upgrade.old, upgrade.new))
    shuffled = new.select(np.random.default_rng(0).permutation(120))
    with pytest.raises(DataError, match="The order of labels is ambiguous: `old` and `new`"):
        nb.evaluate(old, shuffled, labels=upgrade.labels)
    with pytest.raises(DataError, match="There are 7 labels for 120 of `old` and 120 of `new`"):
        nb.evaluate(old, new, labels=upgrade.labels[:7])
    with pytest.raises(ConfigError, match="pass label='scene'"):
        nb.evaluate(old, new, labels="scene")
    with pytest.raises(DataError, match="`labels` must have a value in each row, but 1 of 120"):
        nb.evaluate(old, new, labels=[None, *upgrade.labels[1:].tolist()])


PAIRS = {
    "mapping": lambda queries, items: {q: [i] for q, i in zip(queries, items, strict=True)},
    "tuples": lambda queries, items: list(zip(queries, items, strict=True)),
    "array": lambda queries, items: np.array([queries, items]).T,
    "pandas": lambda queries, items: pd.DataFrame({"query": queries, "relevant": items}),
    "pandas, other order": lambda queries, items: pd.DataFrame({"positive": items, "q": queries}),
    "polars": lambda queries, items: pl.DataFrame({"query": queries, "relevant": items}),
    "pyarrow": lambda queries, items: pa.table({"query": queries, "relevant": items}),
}


@pytest.mark.parametrize("make", PAIRS.values(), ids=PAIRS)
def test_pairs_come_in_every_form(upgrade, make):
    from nobackfill.data.listing import GroundTruth

    old, new = (nb.Vectors(upgrade.ids, side) for side in (upgrade.old, upgrade.new))
    queries, items = upgrade.ids[:24].tolist(), upgrade.ids[24:48].tolist()
    truth = GroundTruth({q: [i] for q, i in zip(queries, items, strict=True)})
    same(
        nb.evaluate(old, new, pairs=make(queries, items)), nb.evaluate(old, new, ground_truth=truth)
    )
    rows = list(range(24)), list(range(24, 48))
    by_row = nb.evaluate(upgrade.old, upgrade.new, pairs=make(*rows))
    same(by_row, nb.evaluate(old, new, ground_truth=truth))


def test_wrong_pairs_are_named(upgrade):
    sides = upgrade.old, upgrade.new
    with pytest.raises(DataError, match="`pairs`: each pair has a query and .* one is 'ab'"):
        nb.evaluate(*sides, pairs=["ab"])
    with pytest.raises(DataError, match="`pairs`: The relevant items of a query must be a list"):
        nb.evaluate(*sides, pairs={1: "2"})
    with pytest.raises(DataError, match="`pairs`: a table of pairs has the two columns"):
        nb.evaluate(*sides, pairs=pd.DataFrame({"query": [1], "relevant": [2], "score": [0.5]}))
    with pytest.raises(ConfigError, match="not pairs and labels"):
        nb.evaluate(*sides, pairs=[(1, 2)], labels=upgrade.labels)


WRONG = {
    "nothing": (None, "`new`: NoneType holds no vectors"),
    "a number": (3.0, "`new`: float holds no vectors"),
    "one vector": (np.ones(6), r"`new`: .*\(6,\)"),
    "no rows": (np.ones((0, 6)), r"`new`: .*\(0, 6\)"),
    "whole numbers": (np.ones((120, 6), int), "`new`: Vectors must be float16, float32 or float64"),
    "NaN": (np.full((120, 6), np.nan), "`new`: The vector of id 0 .* contains NaN"),
    "rows of two lengths": ([[1.0, 2.0], [1.0]], "1 dimensions in row 1, and 2 in row 0"),
    "text": (pd.DataFrame({"emb": ["[0.1, 0.2]"] * 120}), "`emb` has text in row 0: '.0.1, 0.2.'"),
    "a missing vector": (pl.DataFrame({"emb": [[1.0], None]}), "`emb` has no vector in row 1"),
    "no vectors": (pd.DataFrame({"a": [1], "b": ["x"]}), "`new`: No column is known to be the vec"),
}  # fmt: skip


@pytest.mark.parametrize(("new", "message"), WRONG.values(), ids=WRONG)
def test_what_holds_no_vectors_is_refused_by_name(upgrade, new, message):
    with pytest.raises(DataError, match=message):
        nb.evaluate(upgrade.old, new, labels=upgrade.labels)


def test_half_precision_of_every_library(upgrade):
    brain = torch.from_numpy(upgrade.old).bfloat16()
    assert nb.as_vectors(brain).vectors.equal(brain.float())
    assert nb.as_vectors(upgrade.old.astype(np.float16)).vectors.dtype == torch.float16


def test_nothing_is_imported_that_the_caller_has_not():
    code = """
import sys, numpy as np, nobackfill as nb
random = np.random.default_rng(0)
labels = np.arange(80) % 20
result = nb.evaluate(random.normal(size=(80, 4)), random.normal(size=(80, 4)), labels=labels)
head = nb.CompatibleHead(epochs=1).fit(random.normal(size=(80, 5)), random.normal(size=(80, 4)))
loaded = {"pandas", "polars", "sklearn", "datasets", "matplotlib"} & set(sys.modules)
assert not loaded, loaded
import polars as pl
frame = pl.DataFrame({"id": range(80), "vec": random.normal(size=(80, 4))})
nb.evaluate(frame, frame, labels=labels)
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
