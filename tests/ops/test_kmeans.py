import sys
from types import SimpleNamespace

import pytest
import torch

import nobackfill.ops.kmeans as quantize
from nobackfill.errors import ConfigError
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.sspl import SSPL
from nobackfill.ops.kmeans import assign, by_torch, largest_split, train_codebooks


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def random(*shape, seed):
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def assign_by_hand(rows, book):
    """The nearest centroid of each row of one part, and the squared distance to all of them."""
    nearest, error = [], 0.0
    for row in rows:
        distances = [((row - centroid) ** 2).sum().item() for centroid in book]
        nearest.append(distances.index(min(distances)))
        error += min(distances)
    return nearest, error


def lloyd_by_hand(rows, book, iterations):
    """One part alone; a centroid without rows stays."""
    book = book.clone()
    for _ in range(iterations):
        nearest, _ = assign_by_hand(rows, book)
        for k in range(len(book)):
            own = [row for row, centroid in zip(rows, nearest, strict=True) if centroid == k]
            if own:
                book[k] = sum(own) / len(own)
    return book


@pytest.mark.parametrize("block", [1, 4, 100])
def test_assign_is_its_meaning_written_as_loops_for_blocks_of_any_size(block):
    split, book = random(3, 11, 2, seed=0), random(3, 4, 2, seed=1)
    nearest, error = assign(split, book, block=block)
    for part in range(3):
        expected, left = assign_by_hand(split[part], book[part])
        assert nearest[part].tolist() == expected
        assert error[part].item() == pytest.approx(left, abs=1e-10)


@pytest.mark.parametrize("iterations", [0, 1, 2, 10])
def test_k_means_is_lloyds_iterations_of_each_part_alone(iterations):
    split, start = random(3, 12, 2, seed=0), random(3, 5, 2, seed=1)
    book, error = by_torch(split, start, iterations=iterations)
    for part in range(3):
        expected = lloyd_by_hand(split[part], start[part], iterations)
        torch.testing.assert_close(book[part], expected, rtol=0, atol=1e-10)
        assert error[part].item() == pytest.approx(assign_by_hand(split[part], expected)[1])


def test_a_centroid_that_loses_all_its_rows_stays_and_the_start_is_not_changed():
    split = torch.tensor([[[0.0], [0.2], [1.0], [1.2]]])
    start = torch.tensor([[[0.0], [-70.0], [1.0]]])
    book, error = by_torch(split, start, iterations=3)
    torch.testing.assert_close(book.flatten(), torch.tensor([0.1, -70.0, 1.1]))
    torch.testing.assert_close(error, torch.tensor([0.04]))
    assert start.flatten().tolist() == [0.0, -70.0, 1.0]


def test_blocks_of_any_size_give_the_same_codebooks(monkeypatch):
    vectors = random(12, 6, seed=0)
    at_once = train_codebooks(vectors, parts=3, centroids=4, generator=seeded(1))
    monkeypatch.setattr(quantize, "rows_per_block", lambda size: 5)
    in_blocks = train_codebooks(vectors, parts=3, centroids=4, generator=seeded(1))
    torch.testing.assert_close(in_blocks, at_once, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("iterations", "starts"), [(10, 2), (1, 5), (0, 3)])
def test_starts_from_rows_and_keeps_the_tightest_result_of_each_part(iterations, starts):
    vectors, generator = random(12, 6, seed=1), seeded(3)
    books = train_codebooks(
        vectors, parts=3, centroids=4, iterations=iterations, starts=starts, generator=seeded(3)
    )
    firsts = [torch.randperm(12, generator=generator)[:4] for _ in range(starts)]
    kept = []
    for part in range(3):
        rows = vectors[:, 2 * part : 2 * part + 2]
        tried = [lloyd_by_hand(rows, rows[first], iterations) for first in firsts]
        left = [assign_by_hand(rows, book)[1] for book in tried]
        kept.append(left.index(min(left)))
        torch.testing.assert_close(books[part], tried[kept[-1]], rtol=0, atol=1e-10)
    assert len(set(kept)) > 1, "each part has its own best start, or this test shows little"


def test_the_defaults_are_256_centroids_ten_iterations_and_two_starts():
    vectors = random(400, 2, seed=0)
    spelt_out = train_codebooks(
        vectors, parts=1, centroids=256, iterations=10, starts=2, generator=seeded(1)
    )
    assert torch.equal(train_codebooks(vectors, parts=1, generator=seeded(1)), spelt_out)


def test_there_are_no_more_centroids_than_rows():
    vectors = random(5, 4, seed=0)
    (book,) = train_codebooks(vectors, parts=1, centroids=256)
    assert sorted(book.tolist()) == sorted(vectors.tolist())


def test_beyond_256_rows_per_centroid_a_random_sample_is_enough():
    assert quantize.MOST_ROWS_PER_CENTROID == 256
    vectors = random(2 * 256 + 300, 1, seed=0)
    books = train_codebooks(vectors, parts=1, centroids=2, starts=1, generator=seeded(1))
    generator = seeded(1)
    sample = vectors[torch.randperm(len(vectors), generator=generator)[: 2 * 256]]
    start = sample[torch.randperm(2 * 256, generator=generator)[:2]]
    expected, _ = by_torch(sample[None], start[None], iterations=10)
    assert torch.equal(books, expected)
    full = train_codebooks(vectors[:512], parts=1, centroids=2, starts=1, generator=seeded(1))
    start = vectors[torch.randperm(512, generator=seeded(1))[:2]]
    assert torch.equal(full, by_torch(vectors[None, :512], start[None], iterations=10)[0])


@pytest.mark.parametrize("parts", [0, -1, 5, 32])
def test_parts_that_do_not_divide_the_dimension_are_an_error_that_names_some_that_do(parts):
    with pytest.raises(ConfigError, match=f"parts is {parts}, .*divides the 12 dimensions.*Try 6"):
        train_codebooks(random(5, 12, seed=0), parts=parts)


def test_an_unknown_engine_and_a_missing_one_are_errors_that_say_what_to_do(monkeypatch):
    with pytest.raises(ConfigError, match='"torch" or "faiss", not \'fais\''):
        train_codebooks(random(5, 2, seed=0), parts=1, engine="fais")
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ConfigError, match="not installed. Leave the engine.*install faiss-cpu"):
        train_codebooks(random(5, 2, seed=0), parts=1, engine="faiss")


@pytest.mark.parametrize("most", [1, 4, 32])
@pytest.mark.parametrize("dim", [1, 2, 3, 6, 7, 12, 64, 100, 256])
def test_the_largest_split_leaves_equal_parts_of_two_dimensions_or_more(dim, most):
    allowed = [n for n in range(1, most + 1) if dim % n == 0 and dim // n >= 2]
    assert largest_split(dim, most) == max(allowed, default=1)


def test_faiss_is_given_the_same_starts_and_as_many_iterations(monkeypatch):
    seen = []

    def kmeans(dim, centroids, *, niter, **_):
        def train(rows, init_centroids):
            seen.append((rows, init_centroids, dim, centroids, niter))

        return SimpleNamespace(train=train, centroids=random(2, 2, seed=5).float().numpy())

    monkeypatch.setitem(sys.modules, "faiss", SimpleNamespace(Kmeans=kmeans))
    split, start = random(3, 7, 2, seed=0), random(3, 2, 2, seed=1)
    books, error = quantize.by_faiss(split, start, iterations=4)
    assert books.dtype == error.dtype == torch.float64
    for part, (rows, first, *sizes) in enumerate(seen):
        assert sizes == [2, 2, 4]
        torch.testing.assert_close(torch.from_numpy(rows).double(), split[part])
        torch.testing.assert_close(torch.from_numpy(first).double(), start[part])
        assert error[part].item() == pytest.approx(assign_by_hand(split[part], books[part])[1])


@pytest.mark.parametrize(("rows", "centroids"), [(300, 16), (700, 2), (60, 50)])
def test_faiss_gives_the_same_codebooks_and_the_same_loss(rows, centroids):
    pytest.importorskip("faiss")
    vectors = random(rows, 16, seed=0).float()
    losses, books = [], []
    for engine in ("torch", "faiss"):
        torch.manual_seed(3)
        method = SSPL(OldSpace(embeddings=vectors), 4, parts=4, centroids=centroids, engine=engine)
        new, labels = random(9, 16, seed=1).float(), torch.zeros(9, dtype=torch.int64)
        losses.append(method(new, labels, items=torch.arange(9))["structure"])
        books.append(method.books)
    torch.testing.assert_close(books[0], books[1], rtol=0, atol=1e-6)
    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("wrong", [{"centroids": 0}, {"starts": 0}, {"iterations": -1}])
def test_counts_that_make_no_sense_are_told(wrong):
    with pytest.raises(ConfigError, match="at least one centroid and one start"):
        train_codebooks(torch.randn(8, 4), parts=2, **wrong)
