"""Whole trainings with SentenceTransformerTrainer, as people write them."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

for package in ("sentence_transformers", "datasets", "accelerate"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)
sys.path[:0] = [str(Path(__file__).parents[1])]

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from tiny_models import pairs, tiny_model

from nobackfill.integrations.sentence_transformers import (
    CompatibilityEvaluator,
    CompatibleLoss,
    OldTexts,
    add_query_map,
)
from nobackfill.integrations.sentence_transformers.releases import LOGS_TERMS, losses
from nobackfill.vectors import Vectors

QUERIES, DOCUMENTS = pairs(160)
TEST_QUERIES, TEST_DOCUMENTS = pairs(60, seed=1)
PAIRS = Dataset.from_dict({"anchor": QUERIES, "positive": DOCUMENTS})


def numbered(texts):
    return {str(number): text for number, text in enumerate(texts)}


def evaluator_of(old, **options):
    relevant = {str(number): {str(number)} for number in range(60)}
    return CompatibilityEvaluator(
        numbered(TEST_QUERIES), numbered(TEST_DOCUMENTS), relevant, old, **options
    )


def arguments(folder, **options):
    settings = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": 32,
        "learning_rate": 3e-3,
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    return SentenceTransformerTrainingArguments(output_dir=str(folder), **(settings | options))


def trained(model, loss, folder, data=PAIRS, *, evaluator=None, **options):
    trainer = SentenceTransformerTrainer(
        model=model, args=arguments(folder, **options), train_dataset=data, loss=loss,
        evaluator=evaluator,
    )  # fmt: skip
    trainer.train()
    return trainer


@pytest.fixture
def old(tmp_path):
    return tiny_model(tmp_path / "old", seed=1)


@pytest.fixture
def model(tmp_path):
    return tiny_model(tmp_path / "model", seed=1)  # of the same weights: it is fine-tuned


def test_new_queries_find_more_among_untouched_documents(model, old, tmp_path):
    evaluator = evaluator_of(old)
    many = Dataset.from_dict(dict(zip(["anchor", "positive"], pairs(640, seed=2), strict=True)))
    loss = CompatibleLoss(model, old, documents=many["positive"])
    trainer = trained(model, loss, tmp_path / "run", many, num_train_epochs=4)
    metrics = evaluator(model)
    assert metrics["new_old_map"] > metrics["old_old_map"] + 0.05
    assert metrics["new_new_map"] > metrics["old_old_map"] + 0.15
    logged = [line for line in trainer.state.log_history if "compatibility" in line]
    assert len(logged) == 80 * LOGS_TERMS
    for line in logged:
        assert line["loss"] == pytest.approx(line["base"] + line["compatibility"], abs=2e-3)
    plain = tiny_model(tmp_path / "plain", seed=1)
    base = losses.MultipleNegativesRankingLoss(plain)
    trained(plain, base, tmp_path / "run", many, num_train_epochs=4)
    assert metrics["new_old_map"] > evaluator(plain)["new_old_map"] + 0.02


def test_two_runs_are_the_same(old, tmp_path):
    weights = []
    for name in ("one", "other"):
        model = tiny_model(tmp_path / name, seed=1)
        loss = CompatibleLoss(model, old, documents=DOCUMENTS, exact=50, memory=20)
        trained(model, loss, tmp_path / "run", num_train_epochs=1)
        weights.append(model.state_dict())
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name


def test_gradients_accumulate_as_in_one_batch(old, tmp_path):
    weights = []
    for size, steps in ((16, 1), (8, 2)):
        model = tiny_model(tmp_path / f"model{size}", seed=1)
        loss = CompatibleLoss(model, old, method="frozen_documents", documents=DOCUMENTS)
        trained(
            model, loss, tmp_path / "run", PAIRS.select(range(32)), num_train_epochs=1,
            per_device_train_batch_size=size, gradient_accumulation_steps=steps,
        )  # fmt: skip
        weights.append(model.state_dict())
    for name, weight in weights[0].items():
        torch.testing.assert_close(weight, weights[1][name], rtol=1e-2, atol=3e-4)


def test_the_best_checkpoint_is_kept_by_new_old(model, old, tmp_path):
    evaluator = evaluator_of(old, name="test")
    loss = CompatibleLoss(model, old, documents=DOCUMENTS)
    trainer = trained(
        model, loss, tmp_path / "run", evaluator=evaluator, num_train_epochs=3,
        eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True,
        metric_for_best_model="eval_test_new_old_map", learning_rate=2e-2,
    )  # fmt: skip
    scores = [
        line["eval_test_new_old_map"] for line in trainer.state.log_history
        if "eval_test_new_old_map" in line
    ]  # fmt: skip
    assert len(scores) == 3
    assert trainer.state.best_metric == max(scores)
    assert evaluator(model)["test_new_old_map"] == pytest.approx(max(scores))


def test_another_dimension_is_mapped_by_a_module_of_the_model(tmp_path):
    old = tiny_model(tmp_path / "old", seed=3, dim=20)
    model = tiny_model(tmp_path / "model", seed=1)
    add_query_map(model, 20)
    many = Dataset.from_dict(dict(zip(["anchor", "positive"], pairs(640, seed=2), strict=True)))
    loss = CompatibleLoss(model, old, documents=many["positive"])
    trained(
        model, loss, tmp_path / "run", many, num_train_epochs=12,
        router_mapping={"anchor": "query", "positive": "document"},
    )  # fmt: skip
    metrics = evaluator_of(old)(model)
    assert metrics["new_old_map"] > metrics["old_old_map"] + 0.05
    model.save_pretrained(str(tmp_path / "saved"))
    loaded = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    query, document = loaded.encode_query(TEST_QUERIES), loaded.encode_document(TEST_DOCUMENTS)
    assert (query.shape, document.shape) == ((60, 20), (60, 32))
    np.testing.assert_allclose(query, model.encode_query(TEST_QUERIES), atol=1e-6)


def test_several_data_sets_with_a_loss_each(model, old, tmp_path):
    labelled = Dataset.from_dict({"text": DOCUMENTS[:64], "label": [n % 8 for n in range(64)]})
    triplets = Dataset.from_dict(
        {"anchor": QUERIES, "positive": DOCUMENTS, "negative": DOCUMENTS[1:] + DOCUMENTS[:1]}
    )
    vectors = OldTexts.read(old, DOCUMENTS)
    by_label = Vectors(DOCUMENTS[:64], vectors.vectors[:64], labels=[n % 8 for n in range(64)])
    loss = {
        "labels": CompatibleLoss(
            model, by_label, losses.BatchAllTripletLoss(model), groups="label"
        ),
        "triplets": CompatibleLoss(model, vectors),
    }
    trainer = trained(model, loss, tmp_path / "run", {"labels": labelled, "triplets": triplets})
    values = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert len(values) == 14
    assert np.isfinite(values).all()


def test_prompts_of_the_training_arguments(model, old, tmp_path):
    loss = CompatibleLoss(model, old, documents=DOCUMENTS, document_prompt="passage: ")
    trainer = trained(
        model, loss, tmp_path / "run", num_train_epochs=1,
        prompts={"anchor": "query: ", "positive": "passage: "},
    )  # fmt: skip
    assert trainer.state.global_step == 5


@pytest.mark.parametrize("kind", ["cached", "matryoshka", "ndpp"])
def test_other_losses_and_methods_train(kind, model, old, tmp_path):
    base = {
        "cached": lambda: losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=8),
        "matryoshka": lambda: losses.MatryoshkaLoss(
            model, losses.MultipleNegativesRankingLoss(model), [32, 16]
        ),
    }.get(kind, lambda: None)()
    method = "ndpp" if kind == "ndpp" else "contrast"
    loss = CompatibleLoss(model, old, base, documents=DOCUMENTS, method=method)
    trained(model, loss, tmp_path / "run", num_train_epochs=4)
    metrics = evaluator_of(old)(model)
    assert metrics["new_old_map"] > metrics["old_old_map"] + 0.02


def test_a_resumed_training_equals_an_uninterrupted_one(old, tmp_path):
    weights = []
    for name in ("whole", "resumed"):
        model = tiny_model(tmp_path / name, seed=1)
        loss = CompatibleLoss(model, old, documents=DOCUMENTS)
        folder = tmp_path / f"run_{name}"
        options = {"save_strategy": "epoch", "num_train_epochs": 2}
        trainer = SentenceTransformerTrainer(
            model=model, args=arguments(folder, **options), train_dataset=PAIRS, loss=loss
        )
        if name == "resumed":
            copied = tmp_path / "run_whole" / "checkpoint-5"
            trainer.train(resume_from_checkpoint=str(copied))
        else:
            trainer.train()
        weights.append(model.state_dict())
    for name, weight in weights[0].items():
        torch.testing.assert_close(weight, weights[1][name], rtol=0, atol=1e-6)


def test_the_card_names_the_loss(model, old, tmp_path):
    loss = CompatibleLoss(model, old, documents=DOCUMENTS)
    trained(model, loss, tmp_path / "run", num_train_epochs=1)
    model.save_pretrained(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text(encoding="utf-8")
    assert "CompatibleLoss" in card
    assert re.search(r'"method": "contrast"', card)
    assert re.search(r'"old_documents": 160', card)
