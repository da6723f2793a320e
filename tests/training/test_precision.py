"""No product in half precision is made here: some processors cannot, so toys look on instead."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from nobackfill.core.config import Choice, TrainConfig
from nobackfill.data.registry import make_collection
from nobackfill.methods import METHODS
from nobackfill.methods.old_space import OldSpace
from nobackfill.ops.matmul import matmul_precision
from nobackfill.training.loop import train
from nobackfill.training.precision import Autocast, in_precision, scaler_for

CPU = torch.device("cpu")
DATA = Choice("glyphs", {"train_classes": 10, "test_classes": 5, "images_per_class": 6, "side": 16})
CONFIG = TrainConfig(epochs=1, batch_size=16, learning_rate=0.01)
HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Onlooker(nn.Module):
    """Two of each image's pixels, scaled; notes in which precision it was asked to work."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.seen = []

    def forward(self, images):
        half = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        self.seen.append((half, self.training))
        self.matmul = torch.get_float32_matmul_precision()
        out = images.flatten(1)[:, 100:102] * self.scale
        return out if half is None else out.to(half)  # as a layer in half precision answers


class WatchedLoss(METHODS["independent"]):
    """Notes in which precision the loss is computed."""

    def __init__(self):
        super().__init__(OldSpace(), 10, dim=2)
        self.seen = []

    def start_epoch(self, epoch, epochs, *, new_prototypes, new_embeddings):
        self.given = (new_prototypes().dtype, new_embeddings().dtype)
        self.matmul = torch.get_float32_matmul_precision()

    def forward(self, new, labels, *, items=None, old=None):
        self.seen.append((new.dtype, torch.is_autocast_enabled("cpu")))
        return super().forward(new, labels, items=items)


@pytest.mark.parametrize("precision", HALF)
def test_a_model_works_in_half_precision_and_answers_in_single(precision):
    model = Onlooker()
    embedding = in_precision(model, precision)(torch.rand(3, 1, 16, 16))
    assert model.seen == [(HALF[precision], True)]
    assert embedding.dtype == torch.float32
    assert not torch.is_autocast_enabled("cpu")  # no longer
    assert model.scale.dtype == torch.float32
    embedding.sum().backward()
    assert model.scale.grad.dtype == torch.float32


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_in_single_precision_the_model_is_left_alone(precision):
    model = Onlooker()
    assert in_precision(model, precision) is model


def test_weights_are_saved_under_their_own_names():
    model = Onlooker()
    wrapped = in_precision(model, "bfloat16")
    assert isinstance(wrapped, Autocast)
    assert next(wrapped.parameters()) is model.scale
    assert list(model.state_dict()) == ["scale"]


def test_only_float16_needs_its_gradients_scaled():
    enabled = {p: scaler_for(p, CPU).is_enabled() for p in ("float32", "tf32", *HALF)}
    assert enabled == {"float32": False, "tf32": False, "bfloat16": False, "float16": True}


def test_matrix_products_may_be_shorter_for_a_while_only():
    before = torch.get_float32_matmul_precision()
    with matmul_precision("tf32"):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before
    for precision in ("float32", "bfloat16", "float16"):
        with matmul_precision(precision):
            assert torch.get_float32_matmul_precision() == before
    with pytest.raises(ZeroDivisionError), matmul_precision("tf32"):
        raise ZeroDivisionError
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16", "float16"])
def test_in_the_loop_the_model_is_in_the_precision_and_the_loss_in_single(precision):
    collection = make_collection(DATA)
    model, method = Onlooker(), WatchedLoss()
    config = replace(CONFIG, precision=precision)
    before = torch.get_float32_matmul_precision()
    list(train(model, method, collection, collection.training_rows(-1), config))
    wanted = HALF.get(precision)
    # one pass as for a test, then four batches to learn from
    assert model.seen == [(wanted, False), *[(wanted, True)] * 4]
    assert method.seen == [(torch.float32, False)] * 4
    assert method.given == (torch.float32, torch.float32)
    high = "high" if precision == "tf32" else before
    assert (model.matmul, method.matmul) == (high, high)
    assert torch.get_float32_matmul_precision() == before
    assert not torch.equal(model.scale, torch.ones(2))  # it has learned


def test_scaled_gradients_are_scaled_back_before_the_step():
    """Without half precision in between, float16 trains as float32 does."""

    class Single(Onlooker):
        def forward(self, images):
            return images.flatten(1)[:, 100:102] * self.scale

    collection = make_collection(DATA)
    results = []
    for precision in ("float32", "float16"):
        torch.manual_seed(0)
        model, method = Single(), WatchedLoss()
        config = replace(CONFIG, precision=precision, momentum=0.0, weight_decay=0.0)
        list(train(model, method, collection, collection.training_rows(-1), config))
        results.append((model.scale.detach(), method.classifier.weight.detach()))
    torch.testing.assert_close(results[0], results[1])
    assert not torch.equal(results[0][0], torch.ones(2))


def test_a_scaler_that_was_given_is_the_one_that_is_used():
    """A resumed run hands over the scale at which it was stopped."""
    collection = make_collection(DATA)
    scaler = torch.amp.GradScaler("cpu", init_scale=1e30, growth_interval=1)
    model, method = Onlooker(), WatchedLoss()
    config = replace(CONFIG, precision="float16")
    rows = collection.training_rows(-1)
    list(train(model, method, collection, rows, config, scaler=scaler))
    assert scaler.get_scale() != 1e30
