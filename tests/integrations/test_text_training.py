"""Fine-tuning on pairs: the rate, the batches, and resuming at any step."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

if find_spec("sentence_transformers") is None:
    pytest.skip("sentence-transformers is not installed", allow_module_level=True)
sys.path[:0] = [str(Path(__file__).parent)]

from sentence_transformers import SentenceTransformer
from tiny_models import pairs as draw_pairs
from tiny_models import tiny_model

try:
    from sentence_transformers.sentence_transformer.modules import Dense
except ImportError:
    from sentence_transformers.models import Dense

from nobackfill.data.texts import TextPair
from nobackfill.errors import ConfigError, DataError, TrainingDiverged
from nobackfill.integrations.sentence_transformers import CompatibleLoss
from nobackfill.integrations.text_training import (
    STATE,
    TextTraining,
    features_of,
    fine_tune,
    half_precision,
    planned_batches,
    rate_share,
)

SETTINGS = TextTraining(epochs=2, batch_size=16, learning_rate=1e-3)


def pairs(number=80):
    queries, documents = draw_pairs(number)
    return [
        TextPair(query, document, f"q{row}", f"d{row}")
        for row, (query, document) in enumerate(zip(queries, documents, strict=True))
    ]


@pytest.fixture
def make(tmp_path):
    """Makes the same model with dropout again and again, and a loss with old vectors."""
    folder = tmp_path / "bert"
    first = tiny_model(folder)
    for module in first.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.2
    documents = [pair.document for pair in pairs()]
    old = torch.as_tensor(first.encode(documents))
    weights = {name: tensor.clone() for name, tensor in first.state_dict().items()}

    def make(method="contrast", **options):
        first.load_state_dict(weights)
        return first, CompatibleLoss(first, (documents, old), method=method, **options)

    return make


def weights_of(model):
    return torch.cat([tensor.detach().flatten().clone() for tensor in model.parameters()])


class Stopped(Exception):
    """Raised in place of a kill."""


def stop_after(step):
    def watch(progress):
        if progress.step == step:
            raise Stopped

    return watch


@pytest.mark.parametrize("method", ["contrast", "odpp"])
@pytest.mark.parametrize("save_every", [0.0, 1e9])
def test_a_stopped_training_ends_with_the_weights_of_an_unbroken_one(
    make, tmp_path, method, save_every
):
    model, loss = make(method)
    unbroken = []
    assert fine_tune(model, loss, pairs(), SETTINGS, watch=unbroken.append)
    expected = weights_of(model)
    for step in (1, 4, 9):  # of 10; the state of a step is saved after it is watched
        model, loss = make(method)
        with pytest.raises(Stopped):
            fine_tune(
                model, loss, pairs(), SETTINGS,
                folder=tmp_path, save_every=save_every, watch=stop_after(step),
            )  # fmt: skip
        model, loss = make(method)
    resumed = []
    assert fine_tune(model, loss, pairs(), SETTINGS, folder=tmp_path, watch=resumed.append)
    assert resumed == unbroken[-len(resumed) :]
    assert (len(resumed) < len(unbroken)) == (save_every == 0)
    assert torch.equal(weights_of(model), expected)


def test_candidates_that_are_drawn_anew_are_the_same_after_a_stop(make, tmp_path):
    options = {"exact": 10, "memory": 8}  # so few that not all documents are compared
    model, loss = make(**options)
    fine_tune(model, loss, pairs(), SETTINGS)
    expected = weights_of(model)
    model, loss = make(**options)
    with pytest.raises(Stopped):
        fine_tune(
            model, loss, pairs(), SETTINGS, folder=tmp_path, save_every=0.0, watch=stop_after(5)
        )
    model, loss = make(**options)
    assert fine_tune(model, loss, pairs(), SETTINGS, folder=tmp_path)
    assert torch.equal(weights_of(model), expected)


def test_training_stops_when_the_time_is_over_and_continues(make, tmp_path):
    model, loss = make()
    steps = []
    assert not fine_tune(
        model, loss, pairs(), SETTINGS, folder=tmp_path, seconds=0.0, watch=steps.append
    )
    assert [one.step for one in steps] == [1]
    assert (tmp_path / STATE).exists()
    assert fine_tune(model, loss, pairs(), SETTINGS, folder=tmp_path, watch=steps.append)
    assert [one.step for one in steps] == list(range(1, 11))
    assert {one.steps for one in steps} == {10}


def test_training_moves_the_queries_towards_their_old_documents(make):
    model, loss = make()
    found = []
    fine_tune(model, loss, pairs(), TextTraining(epochs=8, batch_size=16, learning_rate=1e-3),
              watch=found.append)  # fmt: skip
    terms = [one.terms["compatibility"] for one in found]
    assert sum(terms[-5:]) < 0.7 * sum(terms[:5])
    assert not model.training


def test_the_seed_decides_the_weights(make):
    def trained(seed):
        model, loss = make()
        fine_tune(model, loss, pairs(), TextTraining(batch_size=16, seed=seed))
        return weights_of(model)

    assert torch.equal(trained(1), trained(1))
    assert not torch.equal(trained(1), trained(2))


def test_each_step_has_its_own_dropout(make):
    model, loss = make()
    states = []
    loss.register_forward_pre_hook(lambda *_: states.append(torch.get_rng_state()))
    fine_tune(model, loss, pairs(), SETTINGS)
    assert len(states) == 10
    assert len({tuple(state.tolist()) for state in states}) == 10


def test_negatives_are_further_columns(make):
    model, loss = make()
    with_negatives = [
        pair._replace(negatives=(f"{other.document} bab", other.query))
        for pair, other in zip(pairs(), pairs()[1:] + pairs()[:1], strict=True)
    ]
    columns = []
    loss.register_forward_pre_hook(lambda _, inputs: columns.append(len(inputs[0])))
    fine_tune(model, loss, with_negatives, TextTraining(batch_size=16))
    assert set(columns) == {4}


def test_pairs_of_a_group_are_never_in_one_batch():
    grouped = [pair._replace(group=str(row % 30)) for row, pair in enumerate(pairs())]
    batches = planned_batches(grouped, SETTINGS)
    assert len({row for batch in batches for row in batch}) == 80
    for batch in batches:
        assert len({grouped[row].group for row in batch}) == len(batch)
    alike = [pair._replace(document=pairs()[0].document) for pair in pairs()]
    assert planned_batches(alike, SETTINGS) == []


def test_the_rate_rises_and_falls_in_lines():
    shares = [rate_share(step, 100, 0.1) for step in range(100)]
    for step, share in enumerate(shares):
        expected = (step + 1) / 10 if step < 10 else (100 - step) / 90
        assert share == pytest.approx(expected)
    assert rate_share(0, 1, 0.0) == 1.0
    assert rate_share(0, 1, 1.0) == 1.0


def test_the_optimizer_gets_the_rate(make, monkeypatch):
    rates = []
    step = torch.optim.AdamW.step

    def record(self, *arguments, **options):
        rates.append(self.param_groups[0]["lr"])
        return step(self, *arguments, **options)

    monkeypatch.setattr(torch.optim.AdamW, "step", record)
    model, loss = make()
    fine_tune(model, loss, pairs(), SETTINGS)
    assert rates == pytest.approx([1e-3 * rate_share(step, 10, 0.1) for step in range(10)])


def test_bfloat16_is_used_inside_the_model_only(make):
    model, loss = make()
    kinds = []
    model[0].register_forward_hook(
        lambda *_: kinds.append(torch.get_autocast_dtype("cpu"))
        if torch.is_autocast_enabled("cpu") else None
    )  # fmt: skip
    model.eval()
    texts = [pair.document for pair in pairs()]
    exact = torch.as_tensor(model.encode(texts))
    with half_precision(model):
        half = model(features_of(model, pairs())[1])["sentence_embedding"].detach()
    bare = SentenceTransformer(modules=[model[0], model[1], Dense(32, 8)])  # ends in a product
    with half_precision(bare):
        assert bare(features_of(bare, pairs())[1])["sentence_embedding"].dtype == torch.float32
    assert set(kinds) == {torch.bfloat16}
    assert half.dtype == torch.float32
    assert 1e-6 < (half - exact).abs().max() < 0.02
    assert torch.equal(torch.as_tensor(model.encode(texts)), exact)


def test_a_loss_that_is_not_finite_stops_the_training(make):
    model, _ = make()

    class Diverging(nn.Module):
        def forward(self, features, labels):
            return model(features[0])["sentence_embedding"].sum() * float("nan")

    with pytest.raises(TrainingDiverged, match="step 1"):
        fine_tune(model, Diverging(), pairs(), SETTINGS)


def test_a_damaged_state_is_named(make, tmp_path):
    model, loss = make()
    (tmp_path / STATE).write_bytes(b"damaged")
    with pytest.raises(DataError, match="--resume"):
        fine_tune(model, loss, pairs(), SETTINGS, folder=tmp_path)


def test_one_pair_is_too_few(make):
    model, loss = make()
    with pytest.raises(DataError, match="two pairs"):
        fine_tune(model, loss, pairs()[:1], SETTINGS)


@pytest.mark.parametrize(
    "option",
    [{"epochs": 0}, {"batch_size": 1}, {"learning_rate": -1.0}, {"warmup": 1.5}, {"seed": -1}],
)
def test_settings_are_checked(option):
    with pytest.raises(ConfigError, match=next(iter(option))):
        TextTraining(**option)
