"""From two files to what a head is fitted on."""

import numpy as np
import pytest

import nobackfill as nb
from nobackfill.errors import ConfigError, DataError
from nobackfill.head.inputs import read_for_fit


@pytest.fixture
def save(items, tmp_path):
    """Writes both files; returns their paths and the data."""

    def write(*, labels=True, columns=None, new_rows=None, new_columns=None, new_labels=None):
        data = items()
        known = data.labels.numpy() if labels else None
        old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
        nb.Vectors(data.ids, data.old, known, columns=columns or {}).save(old)
        vectors = nb.Vectors(data.ids, data.new, new_labels, columns=new_columns or {})
        (vectors if new_rows is None else vectors.select(new_rows)).save(new)
        return old, new, data

    return write


def test_items_are_matched_by_id(save):
    order = np.random.default_rng(0).permutation(90)[:70]
    old, new, data = save(new_rows=order)
    found = read_for_fit(old, new)
    rows = sorted(order.tolist())
    assert found.old.ids.tolist() == found.new.ids.tolist() == data.ids[rows].tolist()
    assert found.new.vectors.equal(data.new[rows])
    assert found.old.vectors.equal(data.old[rows])
    assert found.labels.tolist() == data.labels[rows].tolist()
    assert found.groups is None
    assert found.pairs is None


def test_other_columns_may_tell_the_classes(save):
    scene = np.array([f"scene {i % 12}" for i in range(90)])
    old, new, data = save(new_columns={"scene": scene})  # in whichever file
    assert read_for_fit(old, new, label="scene").labels.tolist() == scene.tolist()
    grouped = read_for_fit(old, new, group="scene")
    assert grouped.groups.tolist() == scene.tolist()
    assert grouped.labels is None
    with pytest.raises(ConfigError, match="no column `scen` in either file. Did you mean `scene`"):
        read_for_fit(old, new, label="scen")
    with pytest.raises(ConfigError, match="no column `scen`"):
        read_for_fit(old, new, group="scen")


def test_without_labels_none_are_used_unless_asked_for(save):
    old, new, _ = save(labels=False)
    found = read_for_fit(old, new)
    assert (found.labels, found.groups, found.pairs) == (None, None, None)
    with pytest.raises(ConfigError, match="no column `class`"):
        read_for_fit(old, new, label="class")


def test_pairs_may_be_a_table(save, tmp_path):
    old, new, _ = save()
    rows = [("item 0", "item 1"), ("item 0", "item 85"), ("item 2", "item 3"), ("item 0", "item 4")]
    path = tmp_path / "pairs.csv"
    path.write_text("\n".join(map(",".join, [("query", "relevant"), *rows])))
    assert read_for_fit(old, new, pairs=path).pairs == {
        "item 0": ["item 1", "item 85", "item 4"],
        "item 2": ["item 3"],
    }


@pytest.mark.parametrize("option", ["label", "group"])
def test_a_column_that_both_files_have_must_say_the_same(save, option):
    scene = np.array([f"scene {i % 9}" for i in range(90)])
    order = np.random.default_rng(0).permutation(90)[:70]
    old, new, _ = save(columns={"scene": scene}, new_columns={"scene": scene}, new_rows=order)
    found = read_for_fit(old, new, **{option: "scene"})
    assert getattr(found, f"{option}s").tolist() == scene[np.sort(order)].tolist()
    other = scene.copy()
    first, second = np.sort(order)[[3, 40]]
    other[[first, second]] = "other"
    save(columns={"scene": scene}, new_columns={"scene": other}, new_rows=order)
    with pytest.raises(
        DataError,
        match=rf"the same `scene` .*2 items differ: 'item {first}' is '{scene[first]}' in the old "
        r"file and 'other' in the new file\. .*drop its column `scene`",
    ):
        read_for_fit(old, new, **{option: "scene"})
    assert read_for_fit(old, new).labels is not None  # what is not used may differ


def test_labels_must_be_the_same_but_need_not_be_of_one_kind(save, items, tmp_path):
    labels = items().labels.numpy()
    old, new, _ = save(new_labels=labels.astype(str))
    assert read_for_fit(old, new).labels.tolist() == labels.tolist()
    old, new, _ = save(new_labels=np.where(np.arange(90) == 7, 99, labels))
    with pytest.raises(DataError, match="the same labels .*1 items differ: 'item 7' is 7 .*99"):
        read_for_fit(old, new)
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"query": "item 0", "relevant": ["item 1"]}')
    assert read_for_fit(old, new, pairs=path).labels is None  # then they are not used


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"pairs": "p", "group": "g"}, "--pairs and --group"),
        ({"pairs": "p", "label": "l"}, "--label and --pairs"),
        ({"group": "g", "label": "l"}, "--label and --group"),
    ],
)
def test_one_kind_of_supervision_is_enough(tmp_path, given, says):
    given = {**given, "pairs": tmp_path / "p"} if "pairs" in given else given
    with pytest.raises(ConfigError, match=says):
        read_for_fit(tmp_path / "old", tmp_path / "new", **given)


def test_files_of_other_items_are_told(save, tmp_path):
    old, _, data = save()
    for ids, says in (
        (np.arange(90), "ids of one kind"),
        (np.arange(90).astype(str), "none of 90"),
    ):
        nb.Vectors(ids, data.new).save(tmp_path / "other.parquet")
        with pytest.raises(DataError, match=says):
            read_for_fit(old, tmp_path / "other.parquet")


def test_items_without_a_partner_are_told(save):
    old, new, data = save(new_rows=np.arange(10, 90))
    notes = read_for_fit(old, new).notes
    assert notes == (
        "10 of 90 items of the old file are not in the new one and are not used "
        "(first: 'item 0', 'item 1', 'item 2')",
    )
    nb.Vectors([*data.ids[:80], "x", "y"], data.new[:82]).save(new)
    first, second = read_for_fit(old, new).notes
    assert first.startswith("10 of 90 items of the old file")
    assert second == (
        "2 of 82 items of the new file are not in the old one and are not used (first: 'x', 'y')"
    )
    save()
    assert read_for_fit(old, new).notes == ()


def test_items_that_are_not_fitted_on_need_no_partner(save):
    split = np.array(["train"] * 60 + ["validation"] * 30)
    old, new, _ = save(columns={"split": split}, new_rows=np.arange(60))
    assert read_for_fit(old, new).notes == ()
    assert read_for_fit(old, new, only_training=False).notes[0].startswith("30 of 90 items")
    save(columns={"split": split}, new_rows=np.arange(5, 90))
    assert read_for_fit(old, new).notes[0].startswith("5 of 60 items of the old file")


def test_notes_come_with_every_kind_of_supervision(save, tmp_path):
    kinds = np.array(["a", "b"] * 45)
    old, new, _ = save(columns={"scene": kinds, "modality": kinds}, new_rows=np.arange(80))
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"query": "item 0", "relevant": ["item 1"]}')
    for told in ({}, {"group": "scene"}, {"label": "scene"}, {"pairs": path}):
        assert len(read_for_fit(old, new, modality="modality", **told).notes) == 1
    save(labels=False, new_rows=np.arange(80))
    assert len(read_for_fit(old, new).notes) == 1


def test_a_head_fitted_in_python_tells_it_too(items, head):
    data = items()
    old = nb.Vectors(data.ids, data.old, data.labels.numpy())
    new = nb.Vectors(data.ids[:80], data.new[:80])
    notes = head(epochs=0).fit(new, old).notes_
    assert notes[0].startswith("10 of 90 items of the old file are")


@pytest.mark.parametrize("rows", [80, 95])
def test_rows_without_ids_must_be_as_many(items, tmp_path, rows):
    data = items(per_class=7)
    np.save(tmp_path / "old.npy", data.old[:90].numpy())
    np.save(tmp_path / "new.npy", data.new[:rows].numpy())
    says = rf"90 old and {rows} new rows, .* in \S*old\.npy and \S*new\.npy: .*files with ids"
    with pytest.raises(DataError, match=says):
        read_for_fit(tmp_path / "old.npy", tmp_path / "new.npy")
    nb.Vectors(np.arange(rows), data.new[:rows]).save(tmp_path / "counted.npz")
    with pytest.raises(DataError, match=r"matched by row in \S+old\.npy: a missing row"):
        read_for_fit(tmp_path / "old.npy", tmp_path / "counted.npz")
    named = nb.Vectors(np.arange(rows)[::2], data.new[:rows:2])  # by the rows of the other
    named.save(tmp_path / "named.npz")
    assert len(read_for_fit(tmp_path / "old.npy", tmp_path / "named.npz").notes) >= 1
    nb.Vectors(np.arange(90), data.old[:90]).save(tmp_path / "old.npz")
    assert len(read_for_fit(tmp_path / "old.npz", tmp_path / "counted.npz").notes) == 1
