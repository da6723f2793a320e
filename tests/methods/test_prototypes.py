import numpy as np
import pytest
import torch

from nobackfill.errors import DataError
from nobackfill.methods.prototypes import class_means


def test_is_the_mean_direction_written_as_loops():
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    labels = torch.arange(40) % 7
    by_hand = torch.zeros(7, 6, dtype=torch.float64)
    for c in range(7):
        for v, y in zip(vectors, labels, strict=True):
            if y == c:
                by_hand[c] += v / (v * v).sum().sqrt()
        by_hand[c] /= (by_hand[c] * by_hand[c]).sum().sqrt()
    torch.testing.assert_close(class_means(vectors, labels, 7), by_hand, rtol=0, atol=1e-12)


@pytest.mark.parametrize("unit_items", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
def test_every_kind_of_mean_written_as_loops(unit_items, normalize):
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(30, 5, generator=generator, dtype=torch.float64)
    labels = torch.arange(30) % 4
    by_hand = torch.zeros(4, 5, dtype=torch.float64)
    for c in range(4):
        own = [v for v, y in zip(vectors, labels, strict=True) if y == c]
        for v in own:
            by_hand[c] += (v / (v * v).sum().sqrt() if unit_items else v) / len(own)
        if normalize:
            by_hand[c] /= (by_hand[c] * by_hand[c]).sum().sqrt()
    means = class_means(vectors, labels, 4, unit_items=unit_items, normalize=normalize)
    torch.testing.assert_close(means, by_hand, rtol=0, atol=1e-12)


def test_short_raw_vectors_do_not_cancel_out():
    tiny = torch.tensor([[1e-9, 0.0], [0.0, 2e-9]])
    means = class_means(tiny, [0, 1], 2, unit_items=False, normalize=False)
    assert torch.equal(means, tiny)
    with pytest.raises(DataError, match="cancel"):
        class_means(torch.tensor([[1e-9, 0.0], [-1e-9, 0.0]]), [0, 0], 1, unit_items=False)


def test_a_long_vector_counts_no_more_than_a_short_one():
    means = class_means(torch.tensor([[100.0, 0.0], [0.0, 0.01]]), torch.tensor([0, 0]), 1)
    torch.testing.assert_close(means, torch.full((1, 2), 0.5**0.5))


def test_takes_the_labels_of_vectors_as_they_are():
    rows, labels = torch.randn(6, 3), [0, 1, 0, 1, 0, 1]
    expected = class_means(rows, torch.tensor(labels), 2)
    assert torch.equal(class_means(rows, np.array(labels), 2), expected)
    assert torch.equal(class_means(rows, labels, 2), expected)
    torch.testing.assert_close(class_means(rows.half(), labels, 2), expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("vectors", "labels", "num_classes", "says"),
    [
        ([[1.0, 0.0], [0.0, 1.0]], [0, 2], 3, "1 of 3 classes have no items, the first is class 1"),
        ([[1.0, 0.0], [0.0, 1.0]], [0, 2], 2, "Labels must be from 0 to 1"),
        ([[1.0, 0.0], [0.0, 1.0]], [-1, 0], 2, "are from -1 to 0"),
        ([[1.0, 0.0], [0.0, 0.0]], [0, 1], 2, "Row 1 of the vectors is all zeros"),
        ([[1.0, float("nan")], [0.0, 1.0]], [0, 1], 2, "Row 0 of the vectors contains NaN"),
        ([[1.0, 0.0], [-1.0, 0.0]], [0, 0], 1, "cancel"),
        ([[1.0, 0.0], [0.0, 1.0]], [0], 1, "are 1 labels and 2 vectors"),
    ],
)
def test_says_what_is_wrong(vectors, labels, num_classes, says):
    with pytest.raises(DataError, match=says):
        class_means(torch.tensor(vectors), labels, num_classes)
