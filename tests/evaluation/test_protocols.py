"""Each protocol against scikit-learn and loops; who is searched, and what is said meanwhile."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score

import nobackfill as nb
from nobackfill.data.listing import GroundTruth
from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.evaluate import evaluate
from nobackfill.evaluation.file_columns import rows_of
from nobackfill.evaluation.protocols import PROTOCOLS, protocol_named
from nobackfill.evaluation.search import PairVectors

COUNT, CLASSES, DIM = 60, 8, 5
LABELS = np.random.default_rng(0).integers(0, CLASSES, COUNT)
CAMERA = np.random.default_rng(1).integers(0, 3, COUNT)
ASKS = np.random.default_rng(2).random(COUNT) < 0.3


def vectors(seed, noise, *, labels=LABELS, **columns):
    """Items around the centres of their classes, in float64, so that loops give the same order."""
    random = np.random.default_rng(seed)
    centre = np.random.default_rng(9).normal(size=(int(labels.max()) + 1, DIM))
    values = centre[labels] + noise * random.normal(size=(len(labels), DIM))
    values *= random.uniform(0.1, 10, size=(len(labels), 1))
    return nb.Vectors([f"item {i}" for i in range(len(labels))], values, labels, columns=columns)


def both(**columns):
    return vectors(1, 1.2, **columns), vectors(2, 0.9, **columns)


ROLES = {"is_query": ASKS, "is_gallery": ~ASKS, "camera": CAMERA}


def cosine(one, other):
    return float(one @ other / (one.norm() * other.norm()))


def rankings(asks, holds, queries, gallery, hidden=lambda i, j: i == j):
    """For each query the gallery from the best on, without what is hidden from it."""
    for i in queries:
        score = {j: cosine(asks.vectors[i], holds.vectors[j]) for j in gallery if not hidden(i, j)}
        yield i, sorted(score, key=score.get, reverse=True), score


def precision_by_sklearn(i, order, score, labels=LABELS):
    hit = [labels[j] == labels[i] for j in order]
    return average_precision_score(hit, [score[j] for j in order]) if any(hit) else math.nan


def check_pairs(result, old, new, expected):
    """Compares all three pairs with what `expected` says of each."""
    pairs = {"old_old": (old, old), "new_old": (new, old), "new_new": (new, new)}
    for name, sides in pairs.items():
        found = result.pairs[name].average_precision
        torch.testing.assert_close(
            found, torch.tensor(expected(*sides), dtype=torch.float64), equal_nan=True
        )
    assert result.summary()["new_old"] != result.summary()["old_old"]


@pytest.mark.parametrize("protocol", ["plain", "inshop", None])
def test_plain_and_inshop_are_sklearns_average_precision(protocol):
    old, new = both(**ROLES)
    result = evaluate(old, new, protocol=protocol)
    queries, gallery = np.flatnonzero(ASKS), np.flatnonzero(~ASKS)
    check_pairs(
        result,
        old,
        new,
        lambda asks, holds: [
            precision_by_sklearn(*one) for one in rankings(asks, holds, queries, gallery)
        ],
    )
    assert result.protocol == (protocol or "plain")


def test_leave_one_out_asks_with_every_item_whatever_the_columns_say():
    old, new = both(**ROLES)
    result = evaluate(old, new, protocol="leave-one-out")
    everyone = range(COUNT)
    check_pairs(
        result,
        old,
        new,
        lambda asks, holds: [
            precision_by_sklearn(*one) for one in rankings(asks, holds, everyone, everyone)
        ],
    )
    assert result.num_gallery == COUNT


def test_market1501_passes_over_the_same_person_in_the_same_camera():
    old, new = both(**ROLES)
    result = evaluate(old, new, protocol="market1501")
    queries, gallery = np.flatnonzero(ASKS), np.flatnonzero(~ASKS)

    def hidden(i, j):
        return LABELS[i] == LABELS[j] and CAMERA[i] == CAMERA[j]

    check_pairs(
        result,
        old,
        new,
        lambda asks, holds: [
            precision_by_sklearn(*one) for one in rankings(asks, holds, queries, gallery, hidden)
        ],
    )
    first = [
        next((r for r, j in enumerate(order, 1) if LABELS[j] == LABELS[i]), 0)
        for i, order, _ in rankings(new, old, queries, gallery, hidden)
    ]
    assert result.new_old.first_hit.tolist() == first


def test_a_query_whose_person_is_in_no_other_camera_is_left_out_of_the_mean():
    labels = np.array([0, 0, 1, 1, 1, 2])
    camera = np.array([0, 0, 0, 1, 1, 1])
    asks = np.array([True, False, True, False, False, False])
    columns = {"camera": camera, "is_query": asks, "is_gallery": ~asks}
    old, new = (vectors(seed, 1.0, labels=labels, **columns) for seed in (1, 2))
    result = evaluate(old, new, protocol="market1501")
    assert result.old_old.average_precision.isnan().tolist() == [True, False]
    assert result.summary()["old_old"] == result.old_old.average_precision[1].item()


def test_gldv2_counts_a_hundred_and_divides_by_what_a_hundred_can_hold():
    labels = np.arange(460) % 3
    asks = np.arange(460) < 9
    roles = {"is_query": asks, "is_gallery": ~asks}
    old, new = (vectors(seed, 2.0, labels=labels, **roles) for seed in (1, 2))
    result = evaluate(old, new, protocol="gldv2")

    def at_a_hundred(asks_with, holds):
        found = []
        for i, order, _ in rankings(asks_with, holds, range(9), range(9, 460)):
            hits = total = 0
            for rank, j in enumerate(order[:100], start=1):
                if labels[j] == labels[i]:
                    hits += 1
                    total += hits / rank
            found.append(total / min(100, sum(labels[j] == labels[i] for j in order)))
        return found

    check_pairs(result, old, new, at_a_hundred)
    plain = evaluate(old, new)
    assert plain.summary()["old_old"] != result.summary()["old_old"]
    assert plain.summary()["metrics"]["old_old"]["map_at_100"] == result.summary()["old_old"]


def test_in_gldv2_a_query_with_nothing_in_the_top_hundred_counts_as_zero():
    labels = np.array([0, 0] + [1] * 150)
    values = torch.ones(152, 2, dtype=torch.float64)
    values[1] = torch.tensor([-1.0, -1.0])  # what it looks for is the farthest
    values[3, 1] = 1.5
    asks = np.arange(152) == 0
    files = nb.Vectors(range(152), values, labels, columns={"is_query": asks, "is_gallery": ~asks})
    result = evaluate(files, files, protocol="gldv2")
    assert result.summary()["old_old"] == 0.0
    assert result.old_old.first_hit.tolist() == [0]


@pytest.mark.parametrize(
    ("listed", "trapezoid", "step"),
    [
        ("pos pos neg neg pos", 0.85, 0.866667),
        ("neg neg pos", 0.166667, 0.333333),
        ("junk pos junk neg pos", 0.791667, 0.833333),
    ],
)
def test_golden_values_of_roxford_and_rparis(listed, trapezoid, step):
    """METHODS.md, section 2.3: ranks {0, 1, 4} of 5; a single one at rank 2; a list with junk."""
    kinds = listed.split()
    angle = torch.arange(len(kinds) + 1, dtype=torch.float64) / 10
    asks = np.arange(len(angle)) == 0
    files = nb.Vectors(
        ["q", *(f"{place}" for place in range(len(kinds)))],
        torch.stack([angle.cos(), angle.sin()], dim=1),
        columns={"is_query": asks, "is_gallery": ~asks},
    )
    relevant, ignored = (
        [f"{place}" for place, one in enumerate(kinds) if one == kind] for kind in ("pos", "junk")
    )
    truth = GroundTruth({"q": relevant}, {"q": ignored})
    for protocol, expected in (("roxford_rparis", trapezoid), ("plain", step)):
        result = evaluate(files, files, protocol=protocol, ground_truth=truth)
        assert result.summary()["new_old"] == pytest.approx(expected, abs=1e-6)


def test_roxford_is_counted_as_its_authors_count_it():
    """The public code's way: 0-based ranks of the clean list, trapezoids, divided by all."""
    old, new = both(**ROLES)
    result = evaluate(old, new, protocol="roxford_rparis")

    def trapezoids(asks, holds):
        found = []
        for i, order, _ in rankings(asks, holds, np.flatnonzero(ASKS), np.flatnonzero(~ASKS)):
            ranks = [rank for rank, j in enumerate(order) if LABELS[j] == LABELS[i]]
            parts = [
                ((1 if rank == 0 else j / rank) + (j + 1) / (rank + 1)) / 2
                for j, rank in enumerate(ranks)
            ]
            found.append(sum(parts) / len(parts) if parts else math.nan)
        return found

    check_pairs(result, old, new, trapezoids)


# RSTPReid: texts ask for images

KINDS = np.array(["text", "image", "image", "video"])[
    np.random.default_rng(3).integers(0, 4, COUNT)
]


@pytest.mark.parametrize("marked", [False, True])
def test_in_rstpreid_texts_ask_and_images_are_searched(marked):
    roles = {"is_query": ASKS, "is_gallery": np.arange(COUNT) % 7 > 0} if marked else {}
    old, new = both(modality=KINDS, **roles)
    result = evaluate(old, new, protocol="rstpreid")
    everyone = np.ones(COUNT, dtype=bool)
    queries = np.flatnonzero((KINDS == "text") & roles.get("is_query", everyone))
    gallery = np.flatnonzero((KINDS == "image") & roles.get("is_gallery", everyone))
    assert result.query_ids.tolist() == [f"item {i}" for i in queries]
    assert result.plan.gallery_ids.tolist() == [f"item {j}" for j in gallery]
    check_pairs(
        result,
        old,
        new,
        lambda asks, holds: [
            precision_by_sklearn(*one) for one in rankings(asks, holds, queries, gallery)
        ],
    )
    first = [
        LABELS[order[0]] == LABELS[i]
        for i, order, _ in rankings(new, old, queries, gallery)
        if LABELS[i] in LABELS[gallery]
    ]
    assert result.summary()["recall_at_1"]["new_old"] == pytest.approx(np.mean(first))


def test_the_modality_may_stand_in_the_new_file_alone():
    old, new = both(modality=KINDS)
    bare = nb.Vectors(old.ids, old.vectors, old.labels)
    expected = evaluate(old, new, protocol="rstpreid").summary()
    assert evaluate(bare, new, protocol="rstpreid").summary() == expected


def test_without_a_modality_the_roles_must_tell_texts_from_images():
    old, new = both(**ROLES)
    told = evaluate(old, new, protocol="rstpreid")
    assert told.summary()["new_old"] == evaluate(old, new).summary()["new_old"]
    bare = [nb.Vectors(file.ids, file.vectors, file.labels) for file in (old, new)]
    with pytest.raises(DataError, match="queries are in the gallery too.*column `modality`"):
        evaluate(*bare, protocol="rstpreid")
    overlapping = {**ROLES, "is_gallery": np.ones(COUNT, dtype=bool)}
    with pytest.raises(DataError, match="of the modality text and a gallery of image"):
        evaluate(*both(**overlapping), protocol="rstpreid")


def test_a_file_without_texts_has_nobody_to_ask():
    with pytest.raises(DataError, match="0 queries and"):
        evaluate(*both(modality=np.full(COUNT, "image")), protocol="rstpreid")


def test_other_protocols_do_not_look_at_the_modality():
    assert evaluate(*both(modality=KINDS)).num_gallery == COUNT


def test_rows_of_other_modalities_need_not_be_in_both_files():
    old, new = both(modality=KINDS)
    fewer = old.select(KINDS != "video")
    expected = evaluate(old, new, protocol="rstpreid").summary()["new_old"]
    assert evaluate(fewer, new, protocol="rstpreid").summary()["new_old"] == expected


# What holds for every protocol


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_results_do_not_depend_on_the_size_of_blocks(protocol, monkeypatch):
    kinds = PROTOCOLS[protocol].modalities or ("text", "image")
    old, new = both(**ROLES, modality=np.where(ASKS, *kinds))
    files = [nb.Vectors(f.ids, f.vectors.float(), f.labels, columns=f.columns) for f in (old, new)]
    whole = evaluate(*files, protocol=protocol)
    monkeypatch.setattr("nobackfill.ops.nearest.BLOCK_BYTES", 7 * 4 * COUNT)
    parts = evaluate(*files, protocol=protocol)
    for pair, expected in whole.pairs.items():
        torch.testing.assert_close(
            parts.pairs[pair].average_precision,
            expected.average_precision,
            rtol=0,
            atol=1e-6,
            equal_nan=True,
        )
        assert torch.equal(parts.pairs[pair].num_ranked, expected.num_ranked)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_has_a_name_and_words(protocol):
    name, rules = protocol_named(protocol)
    assert name == protocol
    assert rules is PROTOCOLS[protocol]
    assert rules.description


def test_no_protocol_is_the_plain_one_and_a_slip_is_told():
    assert protocol_named(None) == protocol_named("plain") == ("plain", PROTOCOLS["plain"])
    with pytest.raises(ConfigError, match="unknown protocol `market`. Did you mean `market1501`"):
        protocol_named("market")


# The plan of a search: whom it concerns, and what is taken from the files


def test_the_same_search_has_the_same_fingerprint_whatever_the_models():
    old, new = both(**ROLES)
    one = evaluate(old, new)
    other = evaluate(vectors(5, 0.1, **ROLES), vectors(6, 0.2, **ROLES))
    assert one.plan.fingerprint == other.plan.fingerprint == one.summary()["searched"]


def fingerprint(*, labels=LABELS, names=None, protocol=None, truth=None, **columns):
    old, new = (vectors(seed, 1.0, labels=labels, **{**ROLES, **columns}) for seed in (1, 2))
    if names is not None:
        old, new = (nb.Vectors(names, f.vectors, f.labels, columns=f.columns) for f in (old, new))
    return evaluate(old, new, protocol=protocol, ground_truth=truth).plan.fingerprint


def without_first(flags):
    return flags & (np.arange(COUNT) != np.flatnonzero(flags)[0])


def one_changed(numbers, most):
    return np.where(np.arange(COUNT) == 4, (numbers + 1) % most, numbers)


def renamed(flags):
    return [f"{'thing' if flag else 'item'} {i}" for i, flag in enumerate(flags)]


MARKET = {"protocol": "market1501"}
LISTED = {
    "is_query": np.arange(COUNT) == 0,
    "is_gallery": np.arange(COUNT) > 0,
    "truth": GroundTruth({"item 0": ["item 1"]}, {"item 0": ["item 2"]}),
}


@pytest.mark.parametrize(
    ("base", "change"),
    [
        pytest.param({}, {"is_query": without_first(ASKS)}, id="queries"),
        pytest.param({}, {"is_gallery": without_first(~ASKS)}, id="gallery"),
        pytest.param({}, {"is_gallery": ASKS | True}, id="both roles"),
        pytest.param({}, {"labels": one_changed(LABELS, CLASSES)}, id="labels"),
        pytest.param({}, {"names": renamed(ASKS)}, id="names that ask"),
        pytest.param({}, {"names": renamed(~ASKS)}, id="names that are searched"),
        pytest.param(MARKET, {"camera": one_changed(CAMERA, 3)}, id="cameras"),
        pytest.param(
            LISTED,
            {"truth": GroundTruth({"item 0": ["item 3"]}, LISTED["truth"].ignored)},
            id="lists",
        ),
        pytest.param(
            LISTED,
            {"truth": GroundTruth(LISTED["truth"].relevant, {"item 0": ["item 3"]})},
            id="junk",
        ),
    ],
)
def test_another_search_has_another_fingerprint(base, change):
    assert fingerprint(**base) == fingerprint(**base)
    assert fingerprint(**{**base, **change}) != fingerprint(**base)


def test_items_that_take_no_part_do_not_change_the_fingerprint():
    split = np.where(LABELS == 0, "train", "validation")
    old, new = both(split=split)
    fewer = [file.select(split == "validation") for file in (old, new)]
    whole, part = evaluate(old, new), evaluate(*fewer)
    assert whole.query_ids.tolist() == part.query_ids.tolist()
    assert whole.plan.fingerprint == part.plan.fingerprint


def test_rows_that_lie_together_are_not_copied():
    file = vectors(1, 1.0)
    together, apart = rows_of(file, file.ids[5:20]), rows_of(file, file.ids[[3, 4, 6]])
    assert together.data_ptr() == file.vectors[5].data_ptr()
    assert torch.equal(together, file.vectors[5:20])
    assert torch.equal(apart, file.vectors[[3, 4, 6]])
    for ids in (file.ids[[7, 6, 5]], file.ids[[4, 6, 5]], file.ids[[0, 2, 1, 3]], file.ids[[59]]):
        rows = [int(name.split()[1]) for name in ids]
        assert torch.equal(rows_of(file, ids), file.vectors[rows])
    with pytest.raises(DataError, match="1 items have no vector, the first is 'nobody'"):
        rows_of(file, np.array(["item 1", "nobody"]))


def test_a_search_leaves_the_files_as_they_were():
    old, new = both()  # all rows lie together: what is searched is the file's own memory
    before = [file.vectors.clone() for file in (old, new)]
    result = evaluate(old, new, independent=new)
    nb.compare(result).flipped(1)
    nb.compare(result).thresholds()
    assert all(map(torch.equal, before, (file.vectors for file in (old, new))))


def test_sides_are_taken_from_the_files_when_asked_for():
    old, new = both(**ROLES)
    longer = nb.Vectors(
        new.ids,
        torch.cat([new.vectors, new.vectors], dim=1),
        new.labels,
        columns=new.columns,
        compatible_dim=DIM,
    )
    sides = evaluate(old, longer, independent=new).vectors
    assert isinstance(sides, PairVectors)
    assert list(sides) == ["old_old", "new_old", "new_new", "independent"]
    assert len(sides) == 4
    expected = {
        "old_old": (old.vectors[ASKS], old.vectors[~ASKS]),
        "new_old": (new.vectors[ASKS], old.vectors[~ASKS]),
        "new_new": (longer.vectors[ASKS], longer.vectors[~ASKS]),
        "independent": (new.vectors[ASKS], new.vectors[~ASKS]),
    }
    for pair in (*sides, "old_old", "new_new", "new_old"):  # in any order, and again
        assert all(map(torch.equal, sides[pair], expected[pair]))
    assert sides["old_old"][0] is sides["old_old"][0]  # the last pair is held
    with pytest.raises(KeyError):
        sides["old_new"]


# What is told meanwhile


def test_a_search_tells_how_many_queries_are_done(monkeypatch):
    monkeypatch.setattr("nobackfill.ops.nearest.BLOCK_BYTES", 100 * COUNT)
    told = []
    old, _ = both()
    result = nb.retrieval(
        old.vectors, old.vectors, LABELS, LABELS, exclude_self=True, progress=told.append
    )
    assert len(told) > 3
    assert told == sorted(set(told))
    assert told[-1] == COUNT == len(result.average_precision)


@pytest.mark.parametrize("pairs", [2, 3, 4])
def test_an_evaluation_tells_how_many_searches_are_done_and_of_how_many(pairs, monkeypatch):
    monkeypatch.setattr("nobackfill.ops.nearest.BLOCK_BYTES", 100 * COUNT)
    old, new = both(**ROLES)
    told, queries = [], int(ASKS.sum())
    evaluate(
        old,
        new.select(ASKS) if pairs == 2 else new,
        independent=new if pairs == 4 else None,
        progress=lambda done, total: told.append((done, total)),
    )
    done = [number for number, _ in told]
    assert done == sorted(set(done))
    assert told[-1] == (pairs * queries, pairs * queries)
    assert {total for _, total in told} == {pairs * queries}
    assert {place * queries for place in range(1, pairs + 1)} <= set(done)
