"""CompatibleLoss around every kind of loss: its value, its gradients, and what it embeds."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

if find_spec("sentence_transformers") is None:
    pytest.skip("sentence-transformers is not installed", allow_module_level=True)
sys.path[:0] = [str(Path(__file__).parents[1])]

from tiny_models import pairs, tiny_model

from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.integrations.sentence_transformers import CompatibleLoss, OldTexts, add_query_map
from nobackfill.integrations.sentence_transformers.releases import Dense, losses
from nobackfill.integrations.sentence_transformers.token_rows import tokenized
from nobackfill.methods.pairs import CompatiblePairs
from nobackfill.vectors import Vectors

pytestmark = pytest.mark.filterwarnings("ignore:The .*Symmetric:DeprecationWarning")

QUERIES, DOCUMENTS = pairs(12)
BATCH = 6
NEGATIVES = DOCUMENTS[BATCH:]
MATCHES = torch.tensor([1, 0, 1, 1, 0, 1])

BASES = {
    "ranking": lambda model: losses.MultipleNegativesRankingLoss(model),
    "ranking_with_negatives": lambda model: losses.MultipleNegativesRankingLoss(model),
    "symmetric": lambda model: losses.MultipleNegativesSymmetricRankingLoss(model),
    "triplet_with_negatives": lambda model: losses.TripletLoss(model),
    "cosent_with_labels": lambda model: losses.CoSENTLoss(model),
    "contrastive_with_labels": lambda model: losses.ContrastiveLoss(model),
    "guided": lambda model: losses.GISTEmbedLoss(model, guide=GUIDE["model"]),
    "cached": lambda model: losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=4),
    "cached_with_negatives": lambda model: losses.CachedMultipleNegativesRankingLoss(
        model, mini_batch_size=4
    ),
    "cached_symmetric": lambda model: losses.CachedMultipleNegativesSymmetricRankingLoss(
        model, mini_batch_size=4
    ),
    "cached_guided": lambda model: losses.CachedGISTEmbedLoss(
        model, guide=GUIDE["model"], mini_batch_size=4
    ),
    "matryoshka": lambda model: losses.MatryoshkaLoss(
        model, losses.MultipleNegativesRankingLoss(model), [32, 16, 8]
    ),
    "matryoshka_with_negatives": lambda model: losses.MatryoshkaLoss(
        model, losses.MultipleNegativesRankingLoss(model), [32, 16]
    ),
    "matryoshka_cached": lambda model: losses.MatryoshkaLoss(
        model, losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=4), [32, 8]
    ),
}
GUIDE = {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    GUIDE["model"] = tiny_model(folder / "guide", seed=5)
    return folder


@pytest.fixture
def model(folder, request):
    name = request.node.name.translate(str.maketrans("[]:/", "____"))
    return tiny_model(folder / name, seed=1).train()


def old_vectors(dim=32, number=12):
    return torch.randn(number, dim, generator=torch.Generator().manual_seed(3))


def batch(model, *columns, prompt=None):
    return [dict(tokenized(model, column, prompt, None)) for column in columns]


def batch_of(name, model):
    """Features and labels that a base loss reads."""
    columns = [QUERIES[:BATCH], DOCUMENTS[:BATCH]]
    columns += [NEGATIVES] if name.endswith("with_negatives") else []
    labels = MATCHES.float() if name == "cosent_with_labels" else MATCHES
    return batch(model, *columns), labels if name.endswith("with_labels") else None


def gradients(model):
    """Gradient of each parameter; they are reset."""
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def total(terms):
    return sum(terms.values()) if isinstance(terms, dict) else terms


@pytest.mark.parametrize("name", BASES)
def test_value_and_gradient_are_the_sum_of_both_losses(name, model):
    old = old_vectors()
    base = BASES[name](model)
    # each alone
    features, labels = batch_of(name, model)
    alone = total(base(features, labels))
    alone.backward()
    of_base = gradients(model)
    rows = torch.arange(BATCH) if labels is None else MATCHES.nonzero().flatten()
    query = model(batch(model, QUERIES[:BATCH])[0])["sentence_embedding"][rows]
    term = CompatiblePairs(old, temperature=0.1)(query, rows)
    (0.7 * term).backward()
    of_term = gradients(model)
    # both together
    both = CompatibleLoss(model, (DOCUMENTS, old), base, weight=0.7, temperature=0.1)
    terms = both.terms(*batch_of(name, model))
    assert terms["compatibility"].item() == pytest.approx(0.7 * term.item(), rel=1e-4)
    assert total(terms).item() == pytest.approx(alone.item() + 0.7 * term.item(), rel=1e-4)
    total(terms).backward()
    found = gradients(model)
    for parameter, gradient in found.items():
        expected = of_base.get(parameter, 0) + of_term.get(parameter, 0)
        torch.testing.assert_close(gradient, expected + 0 * gradient, rtol=1e-3, atol=2e-5)
    assert "forward" not in vars(model) or name.startswith("matryoshka")


@pytest.mark.parametrize("name", BASES)
def test_nothing_is_embedded_twice(name, model):
    base = BASES[name](model)
    texts = []
    first = model[0].forward
    model[0].forward = lambda features, **kwargs: (
        texts.append(len(features["input_ids"])), first(features, **kwargs)
    )[1]  # fmt: skip
    total(base(*batch_of(name, model))).backward()
    of_base, texts[:] = sum(texts), []
    loss = CompatibleLoss(model, (DOCUMENTS, old_vectors()), base)
    total(loss.terms(*batch_of(name, model))).backward()
    assert sum(texts) == of_base


def test_the_trainer_gets_the_terms_or_their_sum(model, monkeypatch):
    loss = CompatibleLoss(model, (DOCUMENTS, old_vectors()))
    for logs in (True, False):
        monkeypatch.setattr("nobackfill.integrations.sentence_transformers.loss.LOGS_TERMS", logs)
        found = loss(*batch_of("ranking", model))
        assert isinstance(found, dict) == logs
        assert total(found).item() == pytest.approx(
            total(loss.terms(*batch_of("ranking", model))).item()
        )


def test_the_default_base_is_the_ranking_loss(model):
    loss = CompatibleLoss(model, (DOCUMENTS, old_vectors()))
    assert isinstance(loss.base, losses.MultipleNegativesRankingLoss)
    expected = losses.MultipleNegativesRankingLoss(model)(*batch_of("ranking", model))
    assert loss.terms(*batch_of("ranking", model))["base"].item() == pytest.approx(expected.item())


def test_frozen_documents_leave_the_base_out_and_embed_queries_only(model):
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    loss = CompatibleLoss(model, (DOCUMENTS, old_vectors()), method="frozen_documents")
    terms = loss.terms(*batch_of("ranking", model))
    assert list(terms) == ["compatibility"]
    assert len(calls) == 1


def test_distillation_compares_documents(model):
    old = old_vectors()
    loss = CompatibleLoss(model, (DOCUMENTS, old), method="distillation", weight=2.0)
    document = model(batch(model, DOCUMENTS[:BATCH])[0])["sentence_embedding"]
    expected = 2 * (1 - F.cosine_similarity(document, old[:BATCH]).mean())
    found = loss.terms(*batch_of("ranking", model))["compatibility"]
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("method", ["ndpp", "odpp"])
def test_moved_documents_are_observed(method, model):
    old = old_vectors() + 2  # near each other, but no duplicates
    loss = CompatibleLoss(model, (DOCUMENTS, old), method=method, epoch_items=BATCH)
    before = loss.pairs.targets.clone()
    loss.terms(*batch_of("ranking", model))
    assert not torch.equal(loss.pairs.targets, before)


def test_texts_with_labels_use_groups(model):
    labels = torch.tensor([0, 1, 0, 1, 2, 2])
    old = Vectors(DOCUMENTS, old_vectors(), labels=[0, 1, 0, 1, 2, 2] * 2)
    base = losses.BatchAllTripletLoss(model)
    loss = CompatibleLoss(model, old, base, groups="label", temperature=0.1)
    query = model(batch(model, DOCUMENTS[:BATCH])[0])["sentence_embedding"]
    expected = CompatiblePairs(
        old.vectors, groups=torch.tensor([0, 1, 0, 1, 2, 2] * 2), temperature=0.1
    )(query, torch.arange(BATCH))
    found = loss.terms(batch(model, DOCUMENTS[:BATCH]), labels)["compatibility"]
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)
    with pytest.raises(ConfigError, match=r"CompatibleLoss\(groups=…\)"):
        CompatibleLoss(model, old, base).terms(batch(model, DOCUMENTS[:BATCH]), labels)


def test_a_document_without_old_vector_is_named(model):
    loss = CompatibleLoss(model, (DOCUMENTS[:4], old_vectors(number=4)))
    with pytest.raises(DataError, match=f"2 of 6 documents .* '{DOCUMENTS[4]}'"):
        loss.terms(*batch_of("ranking", model))


def test_data_of_an_evaluation_needs_no_old_vectors(model):
    loss = CompatibleLoss(model, (DOCUMENTS[:4], old_vectors(number=4)), temperature=0.1)
    query = model(batch(model, QUERIES[:BATCH])[0])["sentence_embedding"][:4]
    with torch.no_grad():
        terms = loss.terms(*batch_of("ranking", model))
        nothing = loss.terms(batch(model, QUERIES[6:], DOCUMENTS[6:]))
    assert terms["compatibility"].item() == pytest.approx(
        loss.pairs(query, torch.arange(4)).item(), rel=1e-4
    )
    assert nothing["compatibility"] == 0
    assert nothing["base"] > 0


def test_documents_after_a_prompt_are_found(model):
    old = (DOCUMENTS, old_vectors())
    features = batch(model, QUERIES[:3]) + batch(model, DOCUMENTS[:3], prompt="passage: ")
    plain = CompatibleLoss(model, old).terms(batch(model, QUERIES[:3], DOCUMENTS[:3]))
    with pytest.raises(DataError, match="document_prompt="):
        CompatibleLoss(model, old).terms(features)
    named = CompatibleLoss(model, old, document_prompt="passage: ")
    assert named.terms(features)["compatibility"] == plain["compatibility"]
    model.prompts["document"] = "passage: "
    known = CompatibleLoss(model, old)
    assert known.terms(features)["compatibility"] == plain["compatibility"]


def test_documents_that_the_model_cannot_tell_apart_are_one_group(model):
    long = [f"{text} {text} {text} {text}" for text in DOCUMENTS[:2]]
    texts = [*DOCUMENTS, long[0] + " badat", long[0] + " bemin", long[1]]  # cut to 24 tokens
    loss = CompatibleLoss(model, (texts, old_vectors(number=len(texts))))
    groups = loss.pairs.group_of.tolist()
    assert groups[12] == groups[13]
    assert len(set(groups)) == len(texts) - 1


def test_the_dimension_must_be_that_of_the_old_vectors_or_mapped(model):
    with pytest.raises(SpaceMismatch, match=r"add_query_map\(model, 20\)"):
        CompatibleLoss(model, (DOCUMENTS, old_vectors(20)))


@pytest.mark.parametrize("name", ["ranking", "cached", "matryoshka", "ranking_with_negatives"])
def test_mapped_queries_meet_old_vectors_and_the_base_loss_does_not_see_the_map(name, model):
    base = BASES[name](model)
    alone = total(base(*batch_of(name, model)))
    add_query_map(model, 20)
    loss = CompatibleLoss(model, (DOCUMENTS, old_vectors(20)), base, temperature=0.1)
    terms = loss.terms(*batch_of(name, model))
    assert terms["base"].item() == pytest.approx(alone.item(), rel=1e-4)
    query = model(batch(model, QUERIES[:BATCH])[0] | {"task": "query"})["sentence_embedding"]
    assert query.shape == (BATCH, 20)
    expected = loss.pairs(query, torch.arange(BATCH))
    assert terms["compatibility"].item() == pytest.approx(expected.item(), rel=1e-4)
    # A trainer may scale the loss, and the gradient of the map with it.
    (total(terms) / 4).backward()
    scaled = gradients(model)
    expected.backward()
    (name_of_map,) = [n for n, m in model.named_modules() if isinstance(m, Dense)]
    whole = gradients(model)[f"{name_of_map}.linear.weight"]
    torch.testing.assert_close(
        4 * scaled[f"{name_of_map}.linear.weight"], whole, rtol=1e-3, atol=1e-5
    )


def test_one_set_of_old_texts_serves_several_losses(model, folder):
    old = OldTexts.read(GUIDE["model"], DOCUMENTS)
    one, other = CompatibleLoss(model, old), CompatibleLoss(model, old, weight=2.0)
    features = batch(model, QUERIES[:3], DOCUMENTS[:3])
    assert 2 * one.terms(features)["compatibility"] == other.terms(features)["compatibility"]
