"""What a method may ask of the new model before an epoch."""

from functools import partial

import pytest
import torch

from nobackfill.core.config import Choice
from nobackfill.data.registry import make_collection
from nobackfill.methods.prototypes import class_means
from nobackfill.models import make_model
from nobackfill.training.forward import WHOLE, Images
from nobackfill.training.new_prototypes import NewSpace
from nobackfill.training.new_prototypes_running import RunningMeans

DATA = Choice("glyphs", {"train_classes": 10, "test_classes": 5, "images_per_class": 6, "side": 16})


@pytest.fixture(scope="module")
def sight():
    collection = make_collection(DATA)
    return Images(collection, collection.training_rows(-1))


@pytest.fixture
def passes():
    """The parts of the training set that were embedded."""
    return []


@pytest.fixture
def space(sight, passes):
    """Makes a space whose passes are counted."""
    model = make_model(Choice("small", {"width": 4, "embedding_dim": 8}), seed=0)
    embed = partial(sight.embed, model)

    def counted(*, part):
        passes.append(part)
        return embed(part=part)

    return lambda running=None: NewSpace(sight, counted, 10, running)


def test_nothing_is_made_unless_asked_for(space, passes):
    space()
    assert passes == []


def test_one_pass_serves_both_however_often_they_are_asked_for(space, passes, sight):
    looked_at = space()
    prototypes, embeddings = looked_at.prototypes(), looked_at.embeddings()
    assert looked_at.embeddings() is embeddings
    assert looked_at.prototypes() is prototypes
    assert passes == [WHOLE]
    torch.testing.assert_close(prototypes, class_means(embeddings, sight.labels(), 10))


def test_only_embeddings_are_forgotten(space, passes):
    looked_at = space()
    prototypes, embeddings = looked_at.prototypes(), looked_at.embeddings()
    looked_at.forget_embeddings()
    assert looked_at.prototypes() is prototypes
    assert passes == [WHOLE]
    assert torch.equal(looked_at.embeddings(), embeddings)
    assert passes == [WHOLE, WHOLE]


def test_running_means_take_the_place_of_a_pass(space, passes, sight):
    running = RunningMeans(10, 8)
    first = space(running).prototypes()  # nothing has run yet
    assert passes == [WHOLE]
    running.add(torch.randn(60, 8, generator=torch.Generator().manual_seed(0)), sight.labels())
    expected = torch.nn.functional.normalize(running.sums, dim=-1)
    looked_at = space(running)
    found = looked_at.prototypes()
    assert looked_at.prototypes() is found  # taken once
    torch.testing.assert_close(found, expected)
    assert not torch.equal(found, first)
    assert passes == [WHOLE]
