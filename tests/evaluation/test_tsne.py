"""Layouts in two dimensions: PCA against its definition, t-SNE by its meaning."""

import importlib.util
import sys

import pytest
import torch
import torch.nn.functional as F

from nobackfill.evaluation.tsne import on_a_plane, principal_plane

wants_tsne = pytest.mark.skipif(
    importlib.util.find_spec("openTSNE") is None,
    reason="wants openTSNE: pip install 'nobackfill[tsne]'",
)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_plane_holds_what_differs_most():
    flat = torch.cat([random(50, 2) * torch.tensor([5.0, 2.0]), torch.zeros(50, 4)], dim=1).double()
    center, plane = principal_plane(flat)
    back = (flat - center) @ plane @ plane.T + center
    torch.testing.assert_close(back, flat)
    torch.testing.assert_close(plane.T @ plane, torch.eye(2).double())
    assert F.cosine_similarity(plane[:, 0], torch.eye(6).double()[0], dim=0) > 0.9


def test_the_largest_entry_of_a_direction_is_positive():
    for seed in range(5):
        _, plane = principal_plane(random(9, 4, seed=seed))
        largest = plane.gather(0, plane.abs().argmax(dim=0, keepdim=True))
        assert (largest > 0).all()


def test_the_plane_is_the_same_wherever_the_vectors_are():
    x = random(50, 6)
    torch.testing.assert_close(principal_plane(x + 100)[1], principal_plane(x)[1])


def test_directions_that_few_vectors_lack_are_zero():
    for x in (random(1, 5), random(2, 5), random(5, 1)):
        center, plane = principal_plane(x)
        assert plane.shape == (x.shape[1], 2)
        torch.testing.assert_close((x - center) @ plane @ plane.T + center, x)


def two_clusters(rows, seed=0):
    """Two bundles of directions, and the middle of each."""
    middle = torch.eye(6).double()[:2]
    items = middle.repeat_interleave(rows, dim=0) + 0.1 * random(2 * rows, 6, seed=seed)
    return {"items": F.normalize(items, dim=1), "means": middle}


@pytest.fixture
def without_tsne(monkeypatch):
    monkeypatch.setattr("nobackfill.evaluation.tsne._open_tsne", lambda: None)


def test_by_pca_all_parts_lie_on_one_plane(without_tsne):
    parts = two_clusters(20)
    kind, places = on_a_plane(parts)
    assert kind == "pca"
    assert {name: tuple(part.shape) for name, part in places.items()} == {
        "items": (40, 2),
        "means": (2, 2),
    }
    everything = torch.cat(list(parts.values()))
    center, plane = principal_plane(everything)
    torch.testing.assert_close(torch.cat(list(places.values())), (everything - center) @ plane)


def test_rows_are_compared_by_direction(without_tsne):
    parts = two_clusters(10)
    longer = {name: 3 * part for name, part in parts.items()}
    for one, other in zip(
        on_a_plane(parts)[1].values(),
        on_a_plane(longer)[1].values(),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "rows", [random(1, 4), random(9, 4), random(20, 1), random(1, 4).expand(20, 4)]
)
def test_few_rows_and_equal_rows_are_laid_out_by_pca(rows):
    done, places = on_a_plane({"some": rows, "none": rows[:0]})
    assert done == "pca"
    assert places["some"].shape == (len(rows), 2)
    assert places["none"].shape == (0, 2)
    assert places["some"].isfinite().all()


def test_without_open_tsne_it_is_pca(monkeypatch):
    monkeypatch.setitem(sys.modules, "openTSNE", None)  # importing it now fails
    assert on_a_plane(two_clusters(20))[0] == "pca"


@wants_tsne
def test_neighbours_stay_together_and_means_lie_among_their_items():
    done, places = on_a_plane(two_clusters(30))
    assert done == "tsne"
    first, second = places["items"].split(30)
    apart = (first.mean(dim=0) - second.mean(dim=0)).norm()
    assert max(first.std(dim=0).max(), second.std(dim=0).max()) < apart / 3
    for mean, mine, others in zip(places["means"], (first, second), (second, first), strict=True):
        assert (mine - mean).norm(dim=1).max() < (others - mean).norm(dim=1).min()


@wants_tsne
def test_the_same_rows_get_the_same_places():
    parts = {"items": random(60, 8)}
    first, again = (on_a_plane(parts)[1]["items"] for _ in range(2))
    assert torch.equal(first, again)
    assert first.isfinite().all()


@wants_tsne
@pytest.mark.parametrize("rows", [10, 11, 40])
def test_few_rows_have_fewer_neighbours(rows, monkeypatch):
    package, asked = importlib.import_module("openTSNE"), []

    class Watched(package.TSNE):
        def __init__(self, **options):
            asked.append(options)
            super().__init__(**options)

    monkeypatch.setattr(package, "TSNE", Watched)
    done, places = on_a_plane({"items": random(rows, 5).float()})
    assert (done, places["items"].shape) == ("tsne", (rows, 2))
    assert asked[0]["perplexity"] == pytest.approx((rows - 1) / 3)
    assert asked[0]["n_jobs"] == 1


@wants_tsne
def test_nine_rows_are_too_few():
    assert on_a_plane({"items": random(9, 5)})[0] == "pca"
