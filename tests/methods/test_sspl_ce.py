from math import exp, log

import pytest
import torch

from nobackfill.errors import ConfigError, SpaceMismatch
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.sspl import SSPL, SSPLCE


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


OLD, NEW = random(12, 8, seed=0), random(5, 8, seed=1)
ITEMS, LABELS = torch.tensor([3, 0, 11, 7, 7]), torch.tensor([0, 1, 2, 3, 3])


def pair(known_classes=None, **options):
    """The method, and `SSPL` with the same options but the weight, from the same seed."""
    old = OldSpace(embeddings=OLD, known_classes=known_classes)
    torch.manual_seed(0)
    method = SSPLCE(old, 4, **options).double()
    options.pop("weight", None)
    torch.manual_seed(0)
    torch.nn.Linear(8, 4, bias=False)  # draws what the classifier drew
    return method, SSPL(old, 4, **options)


def classification_by_hand(method, new, labels):
    """Cross entropy without bias on the embedding as it is, one item and one class at a time."""
    total = 0.0
    for e, y in zip(new, labels.tolist(), strict=True):
        scores = [exp((e @ row).item()) for row in method.classifier.weight]
        total -= log(scores[y] / sum(scores))
    return total / len(new)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight": 0.3},
        {"parts": 2, "centroids": 4, "sharpness": 3.0},
        {"iterations": 1, "centroids": 5, "starts": 1},
        {"weight": 2.0, "centroids": 5, "starts": 4},
    ],
)
def test_is_the_classification_and_its_share_of_the_structure(options):
    method, structure_alone = pair(**options)
    terms = method(NEW, LABELS, items=ITEMS)
    assert list(terms) == ["classification", "structure"]
    by_hand = classification_by_hand(method, NEW, LABELS)
    assert terms["classification"].item() == pytest.approx(by_hand, abs=1e-10)
    expected = structure_alone(NEW, LABELS, items=ITEMS)["structure"].item()
    assert terms["structure"].item() == pytest.approx(options.get("weight", 1.0) * expected)
    assert torch.equal(method.books, structure_alone.books)
    assert method.sharpness == options.get("sharpness", 10.0)


def test_old_vectors_that_are_given_take_the_place_of_the_stored_ones():
    method, structure_alone = pair()
    expected = structure_alone(NEW, LABELS, old=OLD[:5])["structure"]
    assert torch.equal(method(NEW, LABELS, old=OLD[:5])["structure"], expected)


def test_new_classes_take_part_like_all_others():
    all_known, some_known = pair()[0], pair(known_classes=2)[0]
    by_hand = classification_by_hand(some_known, NEW, LABELS)
    terms = some_known(NEW, LABELS, items=ITEMS)
    assert terms == all_known(NEW, LABELS, items=ITEMS)
    assert terms["classification"].item() == pytest.approx(by_hand, abs=1e-10)


def test_only_the_embedding_and_the_new_classifier_are_moved():
    method, _ = pair()
    assert [name for name, _ in method.named_parameters()] == ["classifier.weight"]
    new, old = NEW.clone().requires_grad_(), OLD[:5].clone().requires_grad_()
    method(new, LABELS, old=old)["structure"].backward()
    assert new.grad.any()
    assert old.grad is None
    assert method.classifier.weight.grad is None


def test_what_cannot_be_is_an_error_that_says_what_to_do():
    with pytest.raises(ConfigError, match="parts is 3, .*divides the 8 dimensions.*Try 4"):
        SSPLCE(OldSpace(embeddings=OLD), 4, parts=3)
    with pytest.raises(ConfigError, match="engine"):
        SSPLCE(OldSpace(embeddings=OLD), 4, engine="numpy")
    with pytest.raises(SpaceMismatch, match="8 dimensions.*got 7.*projection to 8"):
        pair()[0](NEW[:, :7], LABELS, items=ITEMS)
