"""The map that janus and its controls share, and each control's loss, written as loops."""

from math import exp, log

import pytest
import torch
import torch.nn.functional as F

from nobackfill.core.config import build_recipe
from nobackfill.data.registry import make_collection
from nobackfill.methods import METHODS
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.prototypes import class_means
from nobackfill.training.forward import ForwardPass
from nobackfill.training.new_prototypes import NewSpace
from nobackfill.training.pipeline import train_run
from nobackfill.training.run import Run

CONTROLS = {
    "prototype_alignment_mapped": "prototype_alignment",
    "ndpp_mapped": "ndpp",
    "odpp_mapped": "odpp",
}
DIM, OLD_DIM, CLASSES = 5, 3, 4
every_control = pytest.mark.parametrize("name", CONTROLS)


def random(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


OLD, NEW, PUSHED = (
    random(CLASSES, OLD_DIM, seed=0),
    random(8, DIM, seed=1),
    random(CLASSES, OLD_DIM, seed=2),
)
LABELS = torch.tensor([0, 1, 2, 3, 0, 0, 2, 1])


def make(name, *, dim=DIM, begun=True, **options):
    torch.manual_seed(0)
    method = METHODS[name](OldSpace(prototypes=OLD), CLASSES, dim=dim, **options).double()
    if begun:
        method.start_epoch(0, 2, new_prototypes=lambda: PUSHED, new_embeddings=lambda: None)
    return method


def unit(vector):
    return vector / vector.norm()


def compatibility_by_hand(method, temperature):
    """Eq. 6 on the mapped embeddings, one query and one class at a time."""
    total = 0.0
    moved = method.old if method.perturb is None else method.perturb.moved
    for e, y in zip(NEW, LABELS.tolist(), strict=True):
        query = unit(torch.stack([row @ e for row in method.back.weight]) + method.back.bias)
        near = [(query @ unit((moved if c == y else method.old)[c])).item() for c in range(CLASSES)]
        scores = [exp(cosine / temperature) for cosine in near]
        total -= log(scores[y] / sum(scores))
    return total / len(NEW)


@every_control
@pytest.mark.parametrize("options", [{}, {"weight": 0.3}, {"temperature": 0.5}, {"share": 0.1}])
def test_the_loss_is_its_formula_on_mapped_embeddings(name, options):
    method = make(name, **options)
    terms = method(NEW, LABELS)
    weight, temperature = options.get("weight", 1.0), options.get("temperature", 0.07)
    expected = weight * compatibility_by_hand(method, temperature)
    torch.testing.assert_close(terms["compatibility"].item(), expected)
    logits = NEW @ method.classifier.weight.T  # of the embedding, not of the query
    torch.testing.assert_close(terms["classification"], F.cross_entropy(logits, LABELS))


@pytest.mark.parametrize("name", ["ndpp_mapped", "odpp_mapped"])
def test_prototypes_move_as_those_of_the_method_without_a_map(name):
    plain = METHODS[CONTROLS[name]](OldSpace(prototypes=OLD), CLASSES).double()
    plain.start_epoch(0, 2, new_prototypes=lambda: PUSHED, new_embeddings=lambda: None)
    torch.testing.assert_close(make(name).perturb.moved, plain.perturb.moved)
    assert not torch.equal(plain.perturb.moved, plain.old)


@pytest.mark.parametrize("name", [*CONTROLS, "janus"])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_share_of_the_gradient_reaches_the_model_and_all_of_it_the_map(name, share):
    def gradients(share):
        torch.manual_seed(0)
        old = OldSpace(prototypes=OLD, embeddings=random(8, OLD_DIM, seed=3))
        method = METHODS[name](old, CLASSES, dim=DIM, share=share).double()
        new = NEW.clone().requires_grad_()
        torch.manual_seed(0)
        term = list(method(new, LABELS, items=torch.arange(8)).values())[1]
        return torch.autograd.grad(term, [new, method.back.weight])

    (to_model, to_map), (all_to_model, all_to_map) = gradients(share), gradients(1.0)
    torch.testing.assert_close(to_model, share * all_to_model)
    torch.testing.assert_close(to_map, all_to_map)


@every_control
def test_with_the_identity_as_map_it_is_the_method_without_one(name):
    torch.manual_seed(0)
    mapped = METHODS[name](OldSpace(prototypes=OLD), CLASSES, dim=OLD_DIM, share=1.0).double()
    torch.manual_seed(0)
    plain = METHODS[CONTROLS[name]](OldSpace(prototypes=OLD), CLASSES).double()
    with torch.no_grad():
        mapped.back.weight.copy_(torch.eye(OLD_DIM))
        mapped.back.bias.zero_()
    new = random(8, OLD_DIM, seed=4)
    terms, expected = mapped(new, LABELS), plain(new, LABELS)
    assert terms.keys() == expected.keys()
    for term in expected:
        torch.testing.assert_close(terms[term], expected[term])


@every_control
def test_stored_vectors_are_the_embeddings_and_queries_have_the_old_dimension(name):
    method = make(name)
    assert torch.equal(method.gallery(NEW), NEW)
    assert method.query(NEW).shape == (8, OLD_DIM)
    torch.testing.assert_close(method.compared(NEW), method.query(NEW))


@pytest.mark.parametrize("name", ["ndpp", "rm"])
def test_without_such_a_map_embeddings_are_compared_as_they_are(name):
    known = {"prototypes": OLD, "embeddings": random(8, OLD_DIM, seed=3)}
    method = METHODS[name](OldSpace(**{need: known[need] for need in METHODS[name].needs}), CLASSES)
    vectors = random(4, OLD_DIM, seed=5)
    assert method.compared(vectors) is vectors


def test_the_new_prototypes_of_a_pass_are_means_of_mapped_embeddings():
    data = {"name": "glyphs", "train_classes": CLASSES, "images_per_class": 3, "test_classes": 2}
    collection = make_collection(build_recipe({"data": data | {"shares": [1.0]}}).data)
    rows = collection.training_rows(-1)
    method = make("ndpp_mapped").float()
    embeddings = random(len(rows), DIM, seed=6).float()
    space = NewSpace(
        ForwardPass(collection, rows),
        lambda part: embeddings,
        CLASSES,
        None,
        method.averaging,
        method.compared,
    )
    found = space.prototypes()
    expected = class_means(method.query(embeddings).detach(), collection.labels[rows], CLASSES)
    torch.testing.assert_close(found, expected)
    assert not found.requires_grad


@pytest.mark.parametrize("prototypes", ["pass", "running"])
def test_a_model_of_another_dimension_is_trained_and_its_queries_are_mapped(tmp_path, prototypes):
    tables = {
        "data": {
            "name": "glyphs", "train_classes": 10, "test_classes": 4, "images_per_class": 4,
            "side": 16, "shares": [0.4, 1.0],
        },
        "model": {"name": "small", "width": 4, "embedding_dim": 6},
        "train": {"epochs": 2, "batch_size": 8, "step": 0},
    }  # fmt: skip
    device = torch.device("cpu")
    list(train_run(build_recipe(tables), tmp_path / "old", device=device))
    tables["model"]["embedding_dim"] = 9
    tables |= {"method": {"name": "ndpp_mapped"}, "old": {"run": str(tmp_path / "old")}}
    tables["train"] |= {"step": 1, "new_prototypes": prototypes}
    list(train_run(build_recipe(tables), tmp_path / "new", device=device))
    run = Run.open(tmp_path / "new")
    assert run.maps_queries
    assert (run.folder / "validation_query.parquet").exists()
