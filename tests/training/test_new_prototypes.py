"""What a method may ask of the new model before an epoch."""

from functools import partial

import pytest
import torch

from nobackfill.core.config import Choice
from nobackfill.data.registry import make_collection
from nobackfill.methods.prototypes import class_means
from nobackfill.models import make_model
from nobackfill.training.forward import WHOLE, ForwardPass
from nobackfill.training.new_prototypes import NewSpace, RunningMeans

DATA = Choice("glyphs", {"train_classes": 10, "test_classes": 5, "images_per_class": 6, "side": 16})


@pytest.fixture(scope="module")
def forward_pass():
    collection = make_collection(DATA)
    return ForwardPass(collection, collection.training_rows(-1))


@pytest.fixture
def passes():
    """The parts of the training set that were embedded."""
    return []


@pytest.fixture
def space(forward_pass, passes):
    """Makes a space whose passes are counted."""
    model = make_model(Choice("small", {"width": 4, "embedding_dim": 8}), seed=0)
    embed = partial(forward_pass.embed, model)

    def counted(*, part):
        passes.append(part)
        return embed(part=part)

    return lambda running=None: NewSpace(forward_pass, counted, 10, running)


def test_nothing_is_made_unless_asked_for(space, passes):
    space()
    assert passes == []


def test_one_pass_serves_both_however_often_they_are_asked_for(space, passes, forward_pass):
    new_space = space()
    prototypes, embeddings = new_space.prototypes(), new_space.embeddings()
    assert new_space.embeddings() is embeddings
    assert new_space.prototypes() is prototypes
    assert passes == [WHOLE]
    torch.testing.assert_close(prototypes, class_means(embeddings, forward_pass.labels(), 10))


def test_only_embeddings_are_freed(space, passes):
    new_space = space()
    prototypes, embeddings = new_space.prototypes(), new_space.embeddings()
    new_space.free_embeddings()
    assert new_space.prototypes() is prototypes
    assert passes == [WHOLE]
    assert torch.equal(new_space.embeddings(), embeddings)
    assert passes == [WHOLE, WHOLE]


def test_running_means_take_the_place_of_a_pass(space, passes, forward_pass):
    running = RunningMeans(10, 8)
    first = space(running).prototypes()  # nothing has run yet
    assert passes == [WHOLE]
    running.add(
        torch.randn(60, 8, generator=torch.Generator().manual_seed(0)), forward_pass.labels()
    )
    expected = torch.nn.functional.normalize(running.sums, dim=-1)
    new_space = space(running)
    found = new_space.prototypes()
    assert new_space.prototypes() is found  # taken once
    torch.testing.assert_close(found, expected)
    assert not torch.equal(found, first)
    assert passes == [WHOLE]
