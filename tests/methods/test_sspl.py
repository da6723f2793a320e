from math import exp, log

import pytest
import torch
import torch.nn.functional as F

from nobackfill.errors import ConfigError, SpaceMismatch
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.sspl import SSPL, structure_loss
from nobackfill.ops.kmeans import train_codebooks


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


OLD, NEW = random(12, 8, seed=0), random(5, 8, seed=1)
ITEMS, LABELS = torch.tensor([3, 0, 11, 7, 7]), torch.tensor([0, 1, 2, 3, 3])


def make(old=OLD, **options):
    torch.manual_seed(0)
    return SSPL(OldSpace(embeddings=old), 4, **{"centroids": 6} | options)


def structure(method, new=NEW, labels=LABELS, **given):
    return method(new, labels, **given or {"items": ITEMS})["structure"]


def shares_by_hand(part, book, sharpness):
    """How like a part of a vector is to each centroid; the likenesses sum to 1."""
    cosines = [(part @ a / (part.norm() * a.norm())).item() for a in book]
    scores = [exp(sharpness * cosine) for cosine in cosines]
    return [score / sum(scores) for score in scores]


def structure_by_hand(new, old, books, sharpness):
    """KL(old || new), one item, one part and one centroid at a time."""
    parts, _, width = books.shape
    total = 0.0
    for e, f in zip(new, old, strict=True):
        for j in range(parts):
            cut = slice(j * width, (j + 1) * width)
            of_old = shares_by_hand(f[cut], books[j], sharpness)
            of_new = shares_by_hand(e[cut], books[j], sharpness)
            total += sum(p * log(p / q) for p, q in zip(of_old, of_new, strict=True))
    return total / (len(new) * parts)


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("sharpness", [10.0, 0.5])
def test_structure_is_its_formula_written_as_loops(parts, sharpness):
    books = random(parts, 6, 8 // parts, seed=2)
    loss = structure_loss(NEW, OLD[:5], books, sharpness=sharpness)
    by_hand = structure_by_hand(NEW, OLD[:5], books, sharpness)
    assert loss.item() == pytest.approx(by_hand, abs=1e-10)


@pytest.mark.parametrize("options", [{}, {"parts": 2, "sharpness": 3.0, "centroids": 4}])
def test_each_item_is_held_to_its_own_old_vector_by_the_sharpness_of_the_paper(options):
    method = make(**options)
    assert list(method(NEW, LABELS, items=ITEMS)) == ["structure"]
    assert len(method.books) == options.get("parts", 4), "parts of two dimensions, if not given"
    sharpness = options.get("sharpness", 10.0)
    by_hand = structure_by_hand(NEW, OLD[ITEMS], method.books, sharpness)
    assert structure(method).item() == pytest.approx(by_hand, abs=1e-10)
    given = structure_by_hand(NEW, OLD[:5], method.books, sharpness)
    assert structure(method, old=OLD[:5]).item() == pytest.approx(given, abs=1e-10)


def test_costs_nothing_where_every_part_points_as_it_did_and_something_elsewhere():
    method = make()
    assert structure(method, 3 * OLD[ITEMS]).item() == pytest.approx(0, abs=1e-12)
    lengths = torch.tensor([1.0, 1.0, 2.0, 2.0, 5.0, 5.0, 0.1, 0.1])  # of each part its own
    assert structure(method, lengths * OLD[ITEMS]).item() == pytest.approx(0, abs=1e-12)
    for column in range(8):
        elsewhere = OLD[ITEMS].clone()
        elsewhere[:, column] += 0.5
        assert structure(method, elsewhere).item() > 1e-4


def test_nothing_but_the_new_embedding_is_moved():
    method, old = make(), OLD[:5].clone().requires_grad_()
    new = NEW.clone().requires_grad_()
    structure(method, new, old=old).backward()
    assert new.grad.any()
    assert old.grad is None
    assert not list(method.parameters())
    assert not method.books.requires_grad


def test_classes_are_not_looked_at_new_ones_least_of_all():
    method = make()
    assert structure(method, labels=LABELS) == structure(method, labels=torch.full((5,), 3))
    assert structure(method, labels=LABELS) == structure(method, labels=torch.full((5,), -1))


def test_the_centroids_are_those_of_the_unit_old_vectors():
    lengths = torch.arange(1, 13, dtype=torch.float64)[:, None]
    torch.testing.assert_close(make(lengths * OLD).books, make().books)


@pytest.mark.parametrize(
    "options",
    [{"parts": 2}, {"centroids": 3}, {"iterations": 1}, {"starts": 1}, {"parts": 8, "starts": 7}],
)
def test_every_option_of_the_quantiser_reaches_it(options):
    torch.manual_seed(0)
    as_given = {"parts": 4, "centroids": 6, "iterations": 10, "starts": 2} | options
    expected = train_codebooks(F.normalize(OLD, dim=-1), **as_given)
    assert torch.equal(make(**options).books, expected)
    assert make().books.shape != expected.shape or not torch.equal(make().books, expected)


def test_32_parts_of_256_centroids_where_there_is_room_for_them():
    method = SSPL(OldSpace(embeddings=random(300, 64, seed=0)), 4)
    assert method.books.shape == (32, 256, 2)
    wider = SSPL(OldSpace(embeddings=random(9, 128, seed=0)), 4)
    assert wider.books.shape == (32, 9, 4)


def test_what_cannot_be_is_an_error_that_says_what_to_do():
    with pytest.raises(ConfigError, match="parts is 3, .*divides the 8 dimensions.*Try 4"):
        make(parts=3)
    with pytest.raises(ConfigError, match="engine"):
        make(engine="numpy")
    with pytest.raises(SpaceMismatch, match="8 dimensions.*got 7.*projection to 8"):
        make()(NEW[:, :7], LABELS, items=ITEMS)
