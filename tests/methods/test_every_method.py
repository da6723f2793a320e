"""What holds for every method, so that a new one is tested the day it is written."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import nobackfill.methods as methods
from nobackfill.core.config import resolve_options
from nobackfill.errors import ConfigError, DataError, OldSpaceError, SpaceMismatch
from nobackfill.methods import METHODS, Method
from nobackfill.methods.old_space import MEANING, OldSpace

NUM_CLASSES, OLD_CLASSES, DIM, ITEMS = 7, 4, 6, 40
every_method = pytest.mark.parametrize("name", METHODS)
supervised = pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.supervised])
unsupervised = pytest.mark.parametrize("name", [n for n, m in METHODS.items() if not m.supervised])
looks_at_single_old_vectors = pytest.mark.parametrize(
    "name", [n for n, m in METHODS.items() if "embeddings" in m.needs and m.compares_items]
)
bound_to_the_old_dimension = pytest.mark.parametrize(
    "name", [n for n, m in METHODS.items() if m.needs and m.dimension != "any"]
)


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


SHARED = {
    "__init__", "base", "checks", "document_groups", "item_index", "losses", "old_space", "options",
    "pairs", "perturbed_alignment", "prototypes", "query_map",
}  # fmt: skip


def test_every_file_is_in_the_table():
    files = {path.stem for path in Path(methods.__file__).parent.glob("*.py")}
    assert files - SHARED == {method.__module__.rpartition(".")[2] for method in METHODS.values()}


def test_every_method_class_of_a_file_is_in_the_table():
    for method in METHODS.values():
        module = sys.modules[method.__module__]
        classes = {value for value in vars(module).values() if isinstance(value, type)}
        own = {c for c in classes if issubclass(c, Method) and c.__module__ == module.__name__}
        bases = {base for listed in METHODS.values() for base in listed.__mro__[1:]}
        assert own <= set(METHODS.values()) | bases


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
def test_every_term_moves_the_embedding_or_what_it_declares_in_the_middle_of_training(name):
    method = make(name)
    for epoch in range(5):
        start(method, epoch)
    new, labels, items = batch()
    new.requires_grad_()
    for term_name, term in method(new, labels, items=items).items():
        assert term.ndim == 0
        assert term.isfinite()
        assert term.requires_grad, f"`{term_name}` is detached"
        moved = dict(method.named_parameters()) | {"embedding": new}
        pulls = dict(
            zip(
                moved,
                torch.autograd.grad(
                    term, list(moved.values()), retain_graph=True, allow_unused=True
                ),
                strict=True,
            )
        )
        pulled = {key for key, pull in pulls.items() if pull is not None and pull.any()}
        if only := method.moves_only.get(term_name):
            assert pulled
            assert all(key.startswith(f"{only}.") for key in pulled), term_name
        else:
            assert "embedding" in pulled, f"`{term_name}` does not move the embedding"


@every_method
def test_a_batch_of_one_is_fine_or_told(name):
    method = make(name)
    start(method)
    new, labels, items = batch(1)
    if any(isinstance(part, torch.nn.BatchNorm1d) for part in method.modules()):
        with pytest.raises(DataError, match="drop_last"):
            method(new, labels, items=items)
    else:
        assert all(term.isfinite() for term in method(new, labels, items=items).values())


@every_method
def test_a_batch_of_one_class_is_fine(name):
    method = make(name)
    start(method, 5)
    new, labels, items = batch(6, labels=torch.full((6,), 2))
    new.requires_grad_()
    terms = method(new, labels, items=items)
    sum(terms.values()).backward()
    assert all(term.isfinite() for term in terms.values())
    assert new.grad.isfinite().all()


@every_method
def test_a_batch_of_new_classes_only_is_fine(name):
    method = make(name)
    start(method)
    new, labels, items = batch(4, labels=torch.tensor([5, 5, 6, 6]))
    assert all(term.isfinite() for term in method(new, labels, items=items).values())


class CountOperations(TorchDispatchMode):
    """Counts what is asked of torch."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "name", [n for n, m in METHODS.items() if "embeddings" in m.needs and not m.compares_items]
)
def test_who_does_not_compare_items_does_not_look_at_their_view(name):
    method = make(name)
    start(method, 5)
    new, labels, items = batch()
    method(new, labels, items=items)
    other = method(new, labels, items=items, old=torch.randn(len(new), DIM))
    assert method(new, labels, items=items) == other


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if not m.data_dependent])
def test_who_does_not_wait_looks_at_no_value(name):
    method = make(name)
    for epoch in range(5):
        start(method, epoch)
    new, labels, items = batch()
    method(new, labels, items=items)  # the first may find things out
    to_nowhere(method)
    new = new.to("meta").requires_grad_()
    sum(method(new, labels.to("meta"), items=items.to("meta")).values()).backward()


def to_nowhere(method):
    """Leaves shapes alone: tensors of the meta device have no values that could be looked at."""
    method.to("meta")
    for part in method.modules():
        if (index := getattr(part, "index", None)) is not None:
            moved = {key: value.to("meta") for key, value in vars(index).items()}
            part.index = replace(index, **moved)


@every_method
def test_a_larger_batch_takes_no_more_operations(name):
    method = make(name)
    start(method, 5)
    counts = []
    for size in (16, 16, 64):  # the first may find things out
        new, labels, items = batch(size)
        with CountOperations() as operations:
            sum(method(new.requires_grad_(), labels, items=items).values()).backward()
        counts.append(operations.count)
    assert counts[1] == counts[2]


@supervised
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


@unsupervised
def test_who_needs_no_labels_does_not_look_at_them(name):
    new, labels, items = batch()
    method = make(name)
    start(method)
    assert method(new, labels, items=items) == method(new, -1 - labels, items=items)


@every_method
def test_calls_are_repeatable(name):
    method = make(name)
    start(method)
    new, labels, items = batch()
    method(new, labels, items=items)  # whatever is found out at the first batch
    state = {key: value.clone() for key, value in method.state_dict().items()}
    once = method(new, labels, items=items)
    method.load_state_dict(state)
    assert once == method(new, labels, items=items)
    assert ("classification" in once) == METHODS[name].supervised


@every_method
def test_the_old_space_is_never_trained(name):
    known = everything()
    method = make(name)
    start(method)
    new, labels, items = batch()
    terms = method(new.requires_grad_(), labels, items=items)
    sum(terms.values()).backward()
    buffers = {part.data_ptr() for part in method.buffers()}
    assert not buffers & {parameter.data_ptr() for parameter in method.parameters()}
    assert not any(part.requires_grad for part in method.buffers())
    for parameter in method.parameters():
        parameter.grad = torch.ones_like(parameter)
    if list(method.parameters()):
        torch.optim.SGD(method.parameters(), lr=1.0).step()
    for need in METHODS[name].needs:
        given = known[need]
        kept = [part for part in method.buffers() if part.shape == given.shape]
        assert any(torch.equal(part, given) for part in kept), f"`{need}` was changed"


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if "embeddings" in m.needs])
def test_without_items_it_says_so(name):
    new, labels, _ = batch()
    with pytest.raises(DataError, match="`items=`"):
        make(name)(new, labels)


@looks_at_single_old_vectors
def test_old_vectors_of_the_same_view_take_the_place_of_the_stored_ones(name):
    new, labels, items = batch()
    method = make(name)
    start(method, 5)
    stored = method.embeddings[items]
    by_items = method(new, labels, items=items)
    assert method(new, labels, items=items, old=stored) == by_items
    other = method(new, labels, items=items, old=torch.randn_like(stored))
    assert other != by_items


@looks_at_single_old_vectors
def test_old_vectors_of_another_dimension_are_an_error(name):
    new, labels, items = batch()
    with pytest.raises(SpaceMismatch, match=f"{DIM} dimensions of the stored ones, but got 3"):
        make(name)(new, labels, items=items, old=torch.randn(len(new), 3))


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if len(m.needs) > 1])
def test_parts_of_different_old_spaces_are_refused(name):
    known = everything()
    first = sorted(METHODS[name].needs - {"independent"})[0]
    known[first] = torch.randn(len(known[first]), DIM + 1)
    with pytest.raises(OldSpaceError, match="same dimension.*one old model"):
        METHODS[name](OldSpace(**known), NUM_CLASSES)


@bound_to_the_old_dimension
def test_the_wrong_dimension_is_an_error_that_says_so(name):
    new, labels, items = batch()
    with pytest.raises(SpaceMismatch, match=f"{DIM} dimensions.*got {DIM + 1}"):
        make(name)(torch.randn(len(new), DIM + 1), labels, items=items)


@every_method
def test_goes_on_where_its_state_was_saved(name):
    one, other = make(name), make(name)
    new, labels, items = batch()
    start(one)
    one(new, labels, items=items)
    other(torch.randn_like(new), labels.flip(0), items=(items + 1) % ITEMS)  # another past
    other.load_state_dict(one.state_dict())
    assert next_terms(one) == next_terms(other)


def next_terms(method):
    """Those of the second epoch's first batch, with the chance of that moment."""
    new, labels, items = batch()
    torch.manual_seed(3)
    start(method, 1)
    return method(new, labels, items=items)


@every_method
def test_vectors_stay_as_they_are_unless_the_table_says_what_they_cost(name):
    vectors = torch.randn(3, DIM)
    if METHODS[name].at_inference in ("nothing", "one dimension per class"):
        assert torch.equal(make(name).query(vectors), vectors)
    else:
        assert not torch.equal(make(name).query(vectors)[:, :DIM], vectors)
    assert len(make(name).gallery(vectors)) == 3


@every_method
def test_a_saved_state_loads_into_a_method_that_has_seen_nothing(name):
    one, other = make(name), make(name)
    new, labels, items = batch()
    start(one)
    one(new, labels, items=items)
    other.load_state_dict(one.state_dict())
    assert next_terms(one) == next_terms(other)


@every_method
def test_each_vector_is_turned_into_a_query_for_itself(name):
    method = make(name)
    new, labels, items = batch()
    start(method)
    method(new, labels, items=items)
    before = {key: value.clone() for key, value in method.state_dict().items()}
    all_at_once = method.query(new)
    torch.testing.assert_close(method.query(new[:1]), all_at_once[:1])
    assert method.training
    assert all(torch.equal(before[key], value) for key, value in method.state_dict().items())


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if m.needs])
@pytest.mark.parametrize("precision", [torch.float16, torch.float64])
def test_the_old_space_may_be_stored_in_another_precision(name, precision):
    known = everything()
    new, labels, items = batch()
    terms = []
    for dtype in (precision, torch.float32):
        torch.manual_seed(0)
        parts = {need: known[need].to(precision).to(dtype) for need in METHODS[name].needs}
        method = METHODS[name](OldSpace(**parts), NUM_CLASSES)
        for epoch in range(5):
            torch.manual_seed(epoch)
            start(method, epoch)
        terms.append(method(new, labels, items=items))
    assert terms[0].keys() == terms[1].keys()
    for term in terms[0]:
        torch.testing.assert_close(terms[0][term].float(), terms[1][term], atol=1e-4, rtol=1e-3)


@every_method
def test_what_is_compared_can_be_rebuilt_from_the_saved_tensors(name):
    method = make(name)
    start(method)
    new, labels, items = batch()
    method(new, labels, items=items)
    method.eval()
    options = resolve_options(METHODS[name], {}, where="method")
    sides = METHODS[name].sides(method.state_dict(), options)
    sides.query.eval(), sides.gallery.eval()
    assert torch.equal(sides.query(new), method.query(new))
    assert torch.equal(sides.gallery(new), method.gallery(new))
    assert method.maps_queries == (not torch.equal(method.query(new), method.gallery(new)))


def test_an_old_vector_without_a_direction_is_refused():
    known = everything()
    known["embeddings"][2] = 0
    known["embeddings"][1, 0] = 0  # a single zero is no harm
    with pytest.raises(OldSpaceError, match="Row 2 of `embeddings` is all zeros .1 such rows"):
        METHODS["mimic"](OldSpace(**known), NUM_CLASSES)


@pytest.mark.parametrize("name", [n for n, m in METHODS.items() if "classifier" in m.needs])
def test_an_old_classifier_of_more_classes_than_there_are_is_refused(name):
    known = everything()
    METHODS[name](OldSpace(**known | {"classifier": torch.randn(NUM_CLASSES, DIM)}), NUM_CLASSES)
    known["classifier"] = torch.randn(NUM_CLASSES + 1, DIM)
    with pytest.raises(OldSpaceError, match="at most 7 classes.*got 8 rows"):
        METHODS[name](OldSpace(**known), NUM_CLASSES)


@pytest.mark.parametrize("name", ["advbct", "unibct_spr"])
def test_labels_are_those_of_the_same_items(name):
    known = everything()
    for wrong in (ITEMS - 1, ITEMS + 1):
        labels = torch.zeros(wrong, dtype=torch.int64)
        with pytest.raises(OldSpaceError, match=f"each of the {ITEMS} rows.*got {wrong}"):
            METHODS[name](OldSpace(**known, labels=labels), NUM_CLASSES)
    for label in (-1, NUM_CLASSES):
        labels = torch.full((ITEMS,), label)
        with pytest.raises(DataError, match=f"from 0 to {NUM_CLASSES - 1}.*are from {label}"):
            METHODS[name](OldSpace(**known, labels=labels), NUM_CLASSES)
    METHODS[name](OldSpace(**known, labels=torch.full((ITEMS,), NUM_CLASSES - 1)), NUM_CLASSES)


def test_all_that_is_known_moves_to_a_device():
    known = OldSpace(**everything(), labels=torch.zeros(ITEMS, dtype=torch.int64), known_classes=3)
    moved = known.to("meta")
    for part in (*everything(), "labels"):
        assert getattr(moved, part).device.type == "meta", part
    assert (moved.given, moved.known_classes) == (known.given, 3)


@every_method
def test_what_is_missing_is_told_by_its_meaning_and_only_what_would_do_is_suggested(name):
    for missing in METHODS[name].needs:
        given = {need: part for need, part in everything().items() if need != missing}
        with pytest.raises(OldSpaceError) as error:
            METHODS[name](OldSpace(**given), NUM_CLASSES)
        says, _, suggested = str(error.value).partition("no more than that: ")
        assert says.startswith(f"`{name}` needs {MEANING[missing]}, but")
        assert suggested.rstrip(".").split(", ") == [
            other for other, method in METHODS.items() if missing not in method.needs
        ]


@every_method
def test_vectors_of_single_items_are_not_saved(name):
    method = make(name)
    new, labels, items = batch()
    start(method)
    method(new, labels, items=items)
    saved = method.state_dict()
    assert not {"embeddings", "independent"} & saved.keys()
    assert all(value.ndim < 2 or len(value) != ITEMS for value in saved.values())


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(ConfigError, match="^unknown method `ndp`. Did you mean `ndpp`") as caught:
        METHODS["ndp"]
    assert isinstance(caught.value, KeyError)
    assert METHODS.get("ndp") is None
    assert "ndp" not in METHODS
