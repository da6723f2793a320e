import numpy as np
import pytest
import torch

from nobackfill.errors import ConfigError, OldSpaceError
from nobackfill.methods.document_groups import DocumentGroups, copies, means
from nobackfill.methods.prototypes import class_means


def documents(number=60, dim=6, *, seed=0):
    return torch.randn(number, dim, generator=torch.Generator().manual_seed(seed)).double()


def groups_by_loops(vectors, near_duplicate, known=None):
    """Walks from each document over pairs above the threshold, copies, and known groups."""

    def made_unit(rows):
        return [[x / sum(y * y for y in row) ** 0.5 for x in row] for row in rows]

    unit = made_unit(vectors.tolist())
    number = len(unit)
    mean = [sum(column) / number for column in zip(*unit, strict=True)]
    centered = made_unit([[x - m for x, m in zip(row, mean, strict=True)] for row in unit])

    def joined(i, j):
        cosine = min(
            sum(a * b for a, b in zip(rows[i], rows[j], strict=True)) for rows in (unit, centered)
        )
        same_group = known is not None and known[i] == known[j]
        return cosine > near_duplicate or same_group or vectors[i].tolist() == vectors[j].tolist()

    group, count = [None] * number, 0
    for start in range(number):
        if group[start] is not None:
            continue
        waiting = [start]
        while waiting:
            here = waiting.pop()
            if group[here] is None:
                group[here] = count
                waiting += [other for other in range(number) if joined(here, other)]
        count += 1
    return group


@pytest.mark.parametrize("near_duplicate", [0.7, 0.9, 0.98])
@pytest.mark.parametrize("known", [None, [i // 5 for i in range(60)]], ids=["free", "known"])
def test_groups_and_prototypes_are_those_of_loops(near_duplicate, known):
    vectors = documents()
    vectors[20] = vectors[3]
    vectors[21] = 4 * vectors[3]  # the same direction
    groups = None if known is None else torch.tensor(known)
    found = DocumentGroups.find(vectors, groups=groups, near_duplicate=near_duplicate)
    expected = groups_by_loops(vectors, near_duplicate, known)
    assert found.of.tolist() == expected
    prototypes = class_means(vectors, expected, max(expected) + 1)
    torch.testing.assert_close(found.prototypes, prototypes, rtol=0, atol=1e-6)
    assert found.near is None


def test_groups_known_by_any_numbers_join_their_members_only():
    vectors = torch.eye(6)
    found = DocumentGroups.find(vectors, groups=torch.tensor([9, -4, 9, 7, -4, 0]))
    assert found.of.tolist() == [0, 1, 0, 2, 1, 3]


def test_a_chain_of_near_duplicates_is_one_group():
    angles = torch.arange(5) * 0.19  # neighbours have a cosine of 0.982, ends of 0.72
    vectors = torch.stack([angles.cos(), angles.sin()], dim=1)
    vectors = torch.cat([vectors, -vectors])
    assert DocumentGroups.find(vectors, near_duplicate=0.98).of.tolist() == [0] * 5 + [1] * 5
    assert DocumentGroups.find(vectors, near_duplicate=0.985).of.tolist() == list(range(10))


@pytest.mark.parametrize("exact", [20_000, 10])
def test_a_model_that_gives_all_texts_high_cosines_joins_only_near_duplicates(exact):
    vectors = documents(200, 16).float() + 40
    vectors[7] = vectors[3] + 0.01
    unit = torch.nn.functional.normalize(vectors, dim=1)
    assert (unit @ unit.T).min() > 0.98
    found = DocumentGroups.find(vectors, exact=exact)
    assert len(found.prototypes) == 199
    assert found.of[7] == found.of[3]


def test_rows_must_be_near_as_they_are_and_without_the_mean():
    def at(*degrees):
        angles = torch.tensor(degrees).deg2rad()
        return torch.stack([angles.cos(), angles.sin()], dim=1)

    opposite = at(0.0, 20.0, *[190.0] * 8)  # 0.94, but 0.98 without the mean
    assert DocumentGroups.find(opposite, near_duplicate=0.97).of[:2].tolist() == [0, 1]
    beside = at(0.0, 6.0, 30.0, -30.0, 40.0, -40.0)  # 0.99, far without the mean
    assert DocumentGroups.find(beside, near_duplicate=0.97).of[:2].tolist() == [0, 1]
    apart = at(0.0, 6.0, 180.0, 186.0)
    assert DocumentGroups.find(apart, near_duplicate=0.97).of.tolist() == [0, 0, 1, 1]


def test_copies_are_joined_at_any_threshold_and_whatever_cells_they_are_in():
    vectors = documents(400, 16).float()
    vectors[[7, 390]] = vectors[200].clone()
    for exact in (20_000, 10):
        found = DocumentGroups.find(vectors, near_duplicate=1.0, exact=exact)
        assert found.of[7] == found.of[200] == found.of[390]
        assert len(found.prototypes) == 398


def test_copies_of_half_precision_are_seen():
    vectors = documents(10).half()
    vectors[4] = vectors[9]
    left, right = copies(vectors)
    assert (left.tolist(), right.tolist()) == ([4], [9])
    assert DocumentGroups.find(vectors).prototypes.dtype == torch.float16


def test_beyond_exact_near_groups_are_other_groups_of_the_same_cell():
    centers = torch.eye(8) * 4
    vectors = (centers.repeat_interleave(50, 0) + documents(400, 8) * 0.8).float()
    vectors[50] = vectors[60] + 1e-4  # near-duplicates
    found = DocumentGroups.find(vectors, exact=100)
    assert found.of[50] == found.of[60]
    assert found.near.shape == (len(found.prototypes), 32)
    unit = torch.nn.functional.normalize(found.prototypes, dim=1)
    near = (unit[:, None] * unit[found.near.long()]).sum(dim=-1)  # (groups, near)
    assert near.mean() > 0.7 > (unit @ unit.T).mean()
    own = torch.arange(len(unit))[:, None]
    assert (found.near == own).sum() < 0.5 * found.near.numel()


def test_means_are_class_means():
    vectors = torch.nn.functional.normalize(documents(40), dim=1)
    names = torch.from_numpy(np.random.default_rng(0).integers(0, 25, 40))
    names = torch.from_numpy(np.unique(names, return_inverse=True)[1])
    first = torch.tensor([names.tolist().index(c) for c in range(int(names.max()) + 1)])
    torch.testing.assert_close(
        means(vectors, names, first), class_means(vectors, names, len(first))
    )


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"near_duplicate": 0.0}, ConfigError, "above 0 and at most 1"),
        ({"near_duplicate": 1.5}, ConfigError, "above 0 and at most 1"),
        ({"groups": torch.zeros(3, dtype=torch.int64)}, OldSpaceError, "3 groups and 60 old"),
    ],
)
def test_wrong_settings_are_refused(change, error, words):
    with pytest.raises(error, match=words):
        DocumentGroups.find(documents(), **change)


def test_vectors_without_direction_are_refused():
    vectors = documents()
    vectors[5] = 0
    with pytest.raises(OldSpaceError, match="Row 5"):
        DocumentGroups.find(vectors)


def test_documents_that_are_all_the_same_are_refused(monkeypatch):
    monkeypatch.setattr("nobackfill.methods.document_groups.MOST_PAIRS", 100)
    side = torch.tensor([1.0, -1.0]).repeat(30)[:, None]
    with pytest.raises(OldSpaceError, match="most documents are the same"):
        DocumentGroups.find(side + documents(60, 4).float() / 1000)
