"""What holds for every method, so that a new one is tested the day it is written."""

from pathlib import Path

import pytest
import torch

import nobackfill.methods as methods
from nobackfill.errors import DataError, OldSpaceError
from nobackfill.methods import METHODS
from nobackfill.oldspace import OldSpace

NUM_CLASSES, OLD_CLASSES, DIM, ITEMS = 7, 4, 6, 40
every_method = pytest.mark.parametrize("name", METHODS)


def everything(seed=0):
    """All that can be known of an old model that knew four of the seven classes."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "prototypes": torch.randn(NUM_CLASSES, DIM, generator=generator),
        "embeddings": torch.randn(ITEMS, DIM, generator=generator),
        "classifier": torch.randn(OLD_CLASSES, DIM, generator=generator),
        "independent": torch.randn(ITEMS, DIM, generator=generator),
    }


def make(name, **options):
    """The method, given exactly what it declares."""
    torch.manual_seed(0)
    known = everything()
    return METHODS[name](
        OldSpace(**{need: known[need] for need in METHODS[name].needs}), NUM_CLASSES, **options
    )


def start(method, epoch=0, epochs=10):
    method.start_epoch(
        epoch,
        epochs,
        new_prototypes=lambda: torch.randn(NUM_CLASSES, DIM),
        new_embeddings=lambda: torch.randn(ITEMS, DIM),
    )


def batch(size=32, labels=None):
    generator = torch.Generator().manual_seed(1)
    items = torch.randint(ITEMS, (size,), generator=generator)
    if labels is None:
        labels = torch.arange(size) % NUM_CLASSES
    return torch.randn(size, DIM, generator=generator), labels, items


def test_every_file_is_in_the_table():
    files = {path.stem for path in Path(methods.__file__).parent.glob("*.py")}
    assert files - {"__init__", "base"} == set(METHODS)


@every_method
def test_asks_for_no_more_than_it_declares(name):
    make(name)


@every_method
def test_says_what_is_missing_and_what_would_do(name):
    needs = METHODS[name].needs
    for missing in needs:
        given = {need: part for need, part in everything().items() if need != missing}
        with pytest.raises(OldSpaceError, match=f"`{name}` needs .* `{missing}=`.*independent"):
            METHODS[name](OldSpace(**given), NUM_CLASSES)


@every_method
def test_wants_at_least_two_classes(name):
    with pytest.raises(DataError, match="at least two classes"):
        METHODS[name](OldSpace(prototypes=torch.ones(1, 3), classifier=torch.ones(1, 3)), 1)


@every_method
def test_every_term_moves_the_embedding_in_the_middle_of_training(name):
    method = make(name)
    for epoch in range(5):
        start(method, epoch)
    new, labels, items = batch()
    new.requires_grad_()
    for term_name, term in method(new, labels, items=items).items():
        assert term.ndim == 0
        assert term.isfinite()
        assert term.requires_grad, f"`{term_name}` is detached"
        (pull,) = torch.autograd.grad(term, new, retain_graph=True)
        assert pull.any(), f"`{term_name}` does not move the embedding"


@every_method
def test_a_batch_of_new_classes_only_is_fine(name):
    method = make(name)
    start(method)
    new, labels, items = batch(4, labels=torch.tensor([5, 5, 6, 6]))
    assert all(term.isfinite() for term in method(new, labels, items=items).values())


@every_method
@pytest.mark.parametrize("label", [-1, -100, NUM_CLASSES])
def test_a_label_that_is_no_class_is_an_error(name, label):
    new, labels, items = batch()
    labels[3] = label
    with pytest.raises(DataError, match=f"from 0 to {NUM_CLASSES - 1}"):
        make(name)(new, labels, items=items)


@every_method
def test_refuses_an_old_space_that_holds_no_numbers(name):
    for need in METHODS[name].needs:
        known = everything()
        known[need][1] = torch.nan
        with pytest.raises((DataError, OldSpaceError), match="NaN"):
            METHODS[name](OldSpace(**known), NUM_CLASSES)


@every_method
def test_calls_are_repeatable(name):
    method = make(name)
    start(method)
    new, labels, items = batch()
    once, twice = (method(new, labels, items=items) for _ in range(2))
    assert once == twice
    assert list(once)[0] == "classification"


@every_method
def test_the_old_space_is_never_trained(name):
    method = make(name)
    start(method)
    old = {key: value.clone() for key, value in method.named_buffers()}
    new, labels, items = batch()
    sum(method(new, labels, items=items).values()).backward()
    known = {part.data_ptr() for part in method.buffers()}
    assert not known & {parameter.data_ptr() for parameter in method.parameters()}
    torch.optim.SGD(method.parameters(), lr=1.0).step()
    assert all(torch.equal(value, old[key]) for key, value in method.named_buffers())


@every_method
def test_goes_on_where_its_state_was_saved(name):
    one, other = make(name), make(name)
    start(one)
    new, labels, items = batch()
    one(new, labels, items=items)
    other(new, labels, items=items)
    other.load_state_dict(one.state_dict())
    torch.manual_seed(3)
    start(one, 1)
    torch.manual_seed(3)
    start(other, 1)
    assert one(new, labels, items=items) == other(new, labels, items=items)


@every_method
def test_vectors_go_to_the_gallery_as_they_are(name):
    vectors = torch.randn(3, DIM)
    assert make(name).query(vectors).shape[0] == 3
    assert make(name).gallery(vectors).shape[0] == 3
