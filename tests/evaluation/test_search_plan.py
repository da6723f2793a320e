"""Any number of files matched by id: who asks, who is searched, and what is said of the rest."""

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import DataError
from nobackfill.evaluation.protocols import PROTOCOLS
from nobackfill.evaluation.search_plan import plan_search, plan_upgrade

PLAIN = PROTOCOLS["plain"]
IDS = np.array([f"item-{number:02}" for number in range(20)])
LABELS = np.arange(20) % 4
ASKS = np.arange(20) < 6
ROLES = {"is_query": ASKS, "is_gallery": ~ASKS}


def file(ids=IDS, labels=LABELS, **columns):
    return nb.Vectors(ids, torch.ones(len(ids), 3), labels, columns=columns)


FULL = file(**ROLES)


def without(*rows, of=FULL):
    return of.select(np.setdiff1d(np.arange(len(of)), rows))


def test_files_alike_are_planned_as_two_are():
    plan = plan_search({"a": FULL, "b": FULL, "c": FULL}, PLAIN)
    two = plan_upgrade(FULL, FULL, FULL)
    assert plan.query_ids.tolist() == two.query_ids.tolist() == IDS[ASKS].tolist()
    assert plan.gallery_ids.tolist() == two.gallery_ids.tolist() == IDS[~ASKS].tolist()
    assert torch.equal(plan.query_labels, two.query_labels)
    assert plan.fingerprint == two.fingerprint
    assert plan.notes == ()


def test_the_order_of_later_files_plays_no_part():
    shuffled = FULL.select(np.random.default_rng(0).permutation(20))
    expected = plan_search({"a": FULL, "b": FULL}, PLAIN).fingerprint
    assert plan_search({"a": FULL, "b": shuffled}, PLAIN).fingerprint == expected


@pytest.mark.parametrize("teller", [0, 1, 2])
def test_each_column_is_told_by_the_first_file_that_has_it(teller):
    camera = np.arange(20) % 3
    files = [file(labels=None) for _ in range(3)]
    order = np.random.default_rng(0).permutation(20) if teller else np.arange(20)
    files[teller] = file(**ROLES, camera=camera).select(order)
    plan = plan_search(dict(zip("abc", files, strict=True)), PROTOCOLS["market1501"])
    assert plan.query_ids.tolist() == IDS[ASKS].tolist()
    assert plan.query_labels.tolist() == LABELS[ASKS].tolist()
    assert plan.gallery_camera.tolist() == camera[~ASKS].tolist()


def test_the_first_that_tells_is_believed():
    others = {"is_query": ~ASKS, "is_gallery": ASKS}
    files = {"a": file(), "b": file(**ROLES), "c": file(**others)}
    assert plan_search(files, PLAIN).query_ids.tolist() == IDS[ASKS].tolist()


@pytest.mark.parametrize("intersect", [False, True])
def test_roles_may_be_told_by_a_file_that_knows_fewer_items(intersect):
    """Whom it does not name neither asks nor is searched."""
    files = {"a": file(), "b": without(0, 19), "c": file()}
    found = plan_search(files, PLAIN, intersect=intersect)
    assert found.query_ids.tolist() == IDS[1:6].tolist()
    assert found.gallery_ids.tolist() == IDS[6:19].tolist()
    assert found.notes == ()


def test_a_missing_role_is_an_error():
    with pytest.raises(DataError, match="`is_gallery`"):
        plan_search({"a": file(is_query=ASKS), "b": file()}, PLAIN)


def test_without_roles_every_item_queries_all_others():
    plan = plan_search({"a": file(), "b": file()}, PLAIN)
    assert plan.query_ids.tolist() == plan.gallery_ids.tolist() == IDS.tolist()
    assert plan.ignored == [[place] for place in range(20)]
    by_name = plan_search({"a": FULL, "b": FULL}, PROTOCOLS["leave-one-out"])
    assert by_name.fingerprint == plan.fingerprint


def test_only_the_validation_split_takes_part():
    split = np.where(np.arange(20) < 8, "train", "validation")
    files = {"a": file(split=split), "b": file(split=split).select(split == "validation")}
    plan = plan_search(files, PLAIN)
    assert plan.query_ids.tolist() == IDS[8:].tolist()
    turned = dict(reversed(files.items()))  # the training items of the later file are no strangers
    assert plan_search(turned, PLAIN).query_ids.tolist() == IDS[8:].tolist()


def test_texts_ask_for_images_where_the_protocol_says_so():
    modality = np.where(ASKS, "text", "image")
    plan = plan_search({"a": file(), "b": file(modality=modality)}, PROTOCOLS["rstpreid"])
    assert plan.query_ids.tolist() == IDS[ASKS].tolist()
    assert plan.gallery_ids.tolist() == IDS[~ASKS].tolist()


def test_what_a_file_lacks_is_counted_and_the_first_three_are_named():
    files = {"a": FULL, "b": without(1, 2, 3, 4, 17), "c": without(0)}
    with pytest.raises(DataError) as error:
        plan_search(files, PLAIN)
    assert str(error.value) == (
        "all files must have the same items, but "
        "b lacks 4 queries ('item-01', 'item-02', 'item-03', …); "
        "b lacks 1 gallery items ('item-17'); "
        "c lacks 1 queries ('item-00'). "
        "Embed the same items with every model, or leave these out with --intersect."
    )


def test_an_item_that_is_a_query_and_searched_beside_others_is_named_as_both():
    files = {"a": file(is_query=ASKS, is_gallery=np.arange(20) >= 5)}
    files["b"] = without(5, of=files["a"])
    with pytest.raises(DataError) as error:
        plan_search(files, PLAIN)
    both = "b lacks 1 queries ('item-05'); b lacks 1 gallery items ('item-05'). "
    assert both in str(error.value)


def test_items_that_ask_and_are_searched_are_counted_once():
    files = {"a": file(), "b": without(1, 2, 3, of=file())}
    with pytest.raises(DataError, match=r"b lacks 3 items \('item-01', 'item-02', 'item-03'\)\. "):
        plan_search(files, PLAIN)


def test_what_only_later_files_search_is_lacking_in_the_oldest():
    files = {"a": without(3, 9, 12, 15), "b": FULL, "c": without(3)}
    with pytest.raises(DataError) as error:
        plan_search(files, PLAIN)
    found = str(error.value)
    wanted = "items that other files search ('item-03'"
    assert f"a lacks 4 {wanted}, 'item-09', 'item-12', …)" in found
    assert "b lacks" not in found
    assert f"c lacks 1 {wanted})" in found
    idle = {role: flag & (np.arange(20) > 0) for role, flag in ROLES.items()}
    plan = plan_search({"a": without(0), "b": file(**idle)}, PLAIN)  # takes no part
    assert len(plan.query_ids) == 5


def test_what_a_file_lacks_may_be_left_out():
    files = {"a": without(9), "b": without(1, 17), "c": FULL}
    plan = plan_search(files, PLAIN, intersect=True)
    assert plan.query_ids.tolist() == [*IDS[:1], *IDS[2:6]]
    assert plan.gallery_ids.tolist() == [one for one in IDS[6:] if one[-2:] not in ("09", "17")]
    assert plan.query_labels.tolist() == [0, 2, 3, 0, 1]
    assert plan.notes == (
        "left out: a lacks 1 items that other files search ('item-09')",
        "left out: b lacks 1 queries ('item-01')",
        "left out: b lacks 1 gallery items ('item-17')",
    )


def test_files_with_nothing_in_common_are_an_error():
    renamed = file([f"x{one}" for one in IDS], **ROLES)
    with pytest.raises(DataError, match="0 queries and 0 gallery items are left"):
        plan_search({"a": FULL, "b": renamed}, PLAIN, intersect=True)


def test_files_that_only_cover_must_have_the_items_and_may_have_more():
    more = file([*IDS, "another"], [*LABELS + 1, 9])  # nor are their labels looked at
    expected = plan_search({"a": FULL, "b": FULL}, PLAIN)
    files = {"a": FULL, "b": FULL}
    plan = plan_search(files, PLAIN, covering={"free": more})
    assert plan.fingerprint == expected.fingerprint
    with pytest.raises(DataError, match=r"free lacks 1 queries \('item-04'\)"):
        plan_search(files, PLAIN, covering={"free": without(4, of=more)})
    fewer = plan_search(files, PLAIN, covering={"free": without(4, of=more)}, intersect=True)
    assert fewer.query_ids.tolist() == [*IDS[:4], IDS[5]]


def test_ids_must_be_of_one_kind():
    numbered = file(np.arange(20), **ROLES)
    for where in ("files", "covering"):
        files, covering = {"a": FULL}, {}
        (files if where == "files" else covering)["b"] = numbered
        with pytest.raises(DataError, match="a names items like 'item-00' and b like 0"):
            plan_search(files, PLAIN, covering=covering)


def test_labels_must_be_there_and_agree():
    unlabelled = file(labels=None, **ROLES)
    with pytest.raises(DataError, match="no file has a column `label`"):
        plan_search({"a": unlabelled, "b": unlabelled}, PLAIN)
    others = LABELS.copy()
    others[7:9] = 2, 1
    files = {"a": unlabelled, "b": FULL, "c": FULL, "d": file(labels=others, **ROLES)}
    with pytest.raises(DataError, match="2 items differ: 'item-07' is 3 in b and 2 in d"):
        plan_search(files, PLAIN)
    words = file(labels=LABELS.astype(str), **ROLES)
    plan_search({"a": FULL, "b": words}, PLAIN)  # the same, written in another way


def test_where_lists_are_given_labels_play_no_part():
    truth = GroundTruth({IDS[0]: [IDS[6], IDS[7]]}, {IDS[1]: [IDS[8]]})
    files = {"a": file(labels=None, **ROLES), "b": FULL, "c": file(labels=LABELS + 1, **ROLES)}
    plan = plan_search(files, PLAIN, ground_truth=truth)
    assert plan.query_labels is None
    assert plan.relevant[:2] == [[0, 1], []]
    assert plan.ignored[:2] == [[], [2]]


def test_what_is_listed_must_be_in_the_gallery_or_is_left_out():
    truth = GroundTruth({IDS[0]: [IDS[6], IDS[7]]})
    files = {"a": FULL, "b": without(7)}
    plan = plan_search(files, PLAIN, ground_truth=truth, intersect=True)
    assert plan.relevant[0] == [0]
    with pytest.raises(DataError, match="of query 'item-00' 1 items are not.*'item-01'"):
        plan_search({"a": FULL}, PLAIN, ground_truth=GroundTruth({IDS[0]: [IDS[1]]}))


def test_cameras_must_be_there_if_the_protocol_asks_for_them():
    with pytest.raises(DataError, match="column `camera`"):
        plan_search({"a": FULL, "b": FULL}, PROTOCOLS["market1501"])
