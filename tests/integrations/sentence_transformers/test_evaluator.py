import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

if find_spec("sentence_transformers") is None:
    pytest.skip("sentence-transformers is not installed", allow_module_level=True)
sys.path[:0] = [str(Path(__file__).parents[1])]

from tiny_models import pairs, tiny_model

from nobackfill.errors import ConfigError, DataError
from nobackfill.evaluation.evaluate import evaluate
from nobackfill.integrations.sentence_transformers import CompatibilityEvaluator, add_query_map
from nobackfill.integrations.sentence_transformers.query_map import query_map_of
from nobackfill.integrations.sentence_transformers.releases import evaluation
from nobackfill.vectors import Vectors

QUERIES, DOCUMENTS = pairs(40)
ASKED = {f"q{number}": text for number, text in enumerate(QUERIES)}
SEARCHED = {f"d{number}": text for number, text in enumerate(DOCUMENTS)}
RELEVANT = {f"q{number}": {f"d{number}", f"d{(7 * number) % 40}"} for number in range(40)}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return tiny_model(folder / "old", seed=1), tiny_model(folder / "new", seed=2)


def average_precision(scores, relevant):
    order = sorted(range(len(scores)), key=lambda row: -scores[row])
    hits, total = 0, 0.0
    for rank, row in enumerate(order, start=1):
        if row in relevant:
            hits += 1
            total += hits / rank
    return total / len(relevant)


def mean_by_loops(query, document):
    scores = (query.double() @ document.double().T).tolist()
    return (
        sum(average_precision(scores[number], {number, (7 * number) % 40}) for number in range(40))
        / 40
    )


def encoded(model, texts):
    return torch.from_numpy(model.encode(texts))


def test_pairs_are_those_of_loops_and_of_evaluate(models):
    old, new = models
    evaluator = CompatibilityEvaluator(ASKED, SEARCHED, RELEVANT, old, name="debian")
    metrics = evaluator(new)
    old_query, old_document = encoded(old, QUERIES), encoded(old, DOCUMENTS)
    new_query, new_document = encoded(new, QUERIES), encoded(new, DOCUMENTS)
    for pair, query, document in (
        ("old_old", old_query, old_document),
        ("new_old", new_query, old_document),
        ("new_new", new_query, new_document),
    ):
        assert metrics[f"debian_{pair}_map"] == pytest.approx(mean_by_loops(query, document))
    ids = [*ASKED, *SEARCHED]
    columns = {"is_query": [True] * 40 + [False] * 40, "is_gallery": [False] * 40 + [True] * 40}
    result = evaluate(
        Vectors(ids, torch.cat([old_query, old_document]), columns=columns),
        Vectors(ids, torch.cat([new_query, new_document]), columns=columns),
        pairs={key: sorted(relevant) for key, relevant in RELEVANT.items()},
    )
    assert metrics["debian_new_old_ndcg@10"] == pytest.approx(result.new_old.ndcg(10))
    assert metrics["debian_new_new_recall@1"] == pytest.approx(result.new_new.recall(1))
    assert metrics["debian_lost_first_hits"] == pytest.approx(result.flips(1).negative)
    assert metrics["debian_gained_first_hits"] == pytest.approx(result.flips(1).positive)
    assert (
        metrics["debian_compatible"]
        == {True: 1, False: 0, None: 0.5}[result.summary()["compatible"]]
    )
    assert evaluator.evaluation.verdict == result.verdict


def test_metrics_are_those_of_the_evaluator_of_sentence_transformers(models):
    old, new = models
    theirs = evaluation.InformationRetrievalEvaluator(
        ASKED, SEARCHED, RELEVANT, ndcg_at_k=[10], name="x", write_csv=False
    )(new)
    ours = CompatibilityEvaluator(ASKED, SEARCHED, RELEVANT, old)(new)
    assert ours["new_new_ndcg@10"] == pytest.approx(theirs["x_cosine_ndcg@10"])
    assert ours["new_new_map"] == pytest.approx(theirs["x_cosine_map@100"])
    assert ours["new_new_recall@1"] == pytest.approx(theirs["x_cosine_accuracy@1"])


def test_old_vectors_may_come_from_memory_together_or_apart(models):
    old, new = models
    texts, vectors = QUERIES + DOCUMENTS, encoded(old, QUERIES + DOCUMENTS)
    from_model = CompatibilityEvaluator(ASKED, SEARCHED, RELEVANT, old)(new)
    together = dict(zip(texts, vectors, strict=True))
    apart = (Vectors(QUERIES, vectors[:40]), Vectors(DOCUMENTS, vectors[40:]))
    for given in (together, (texts, vectors), apart):
        metrics = CompatibilityEvaluator(ASKED, SEARCHED, RELEVANT, given)(new)
        assert metrics == pytest.approx(from_model)


def test_mapped_queries_search_old_documents_and_plain_ones_new_documents(models, tmp_path):
    old, _ = models
    new = tiny_model(tmp_path / "wide", dim=48)
    new.prompts["query"] = "query: "
    before = CompatibilityEvaluator(
        ASKED, SEARCHED, RELEVANT, tiny_model(tmp_path / "other", dim=48)
    )(new)
    add_query_map(new, 32)
    with torch.no_grad():
        query_map_of(new).linear.weight.normal_(generator=torch.Generator().manual_seed(0))
    metrics = CompatibilityEvaluator(ASKED, SEARCHED, RELEVANT, old)(new)
    assert metrics["new_new_map"] == pytest.approx(before["new_new_map"])
    query = torch.from_numpy(new.encode_query(QUERIES))
    expected = mean_by_loops(query, encoded(old, DOCUMENTS))
    assert metrics["new_old_map"] == pytest.approx(expected)


def test_new_new_can_be_left_out(models):
    old, new = models
    embedded = []
    new.register_forward_hook(lambda _, given, output: embedded.append(len(given[0]["input_ids"])))
    metrics = CompatibilityEvaluator(ASKED, SEARCHED, RELEVANT, old, new_new=False)(new)
    new._forward_hooks.clear()
    assert sum(embedded) == 40
    assert not [name for name in metrics if name.startswith("new_new")]


def test_the_card_and_a_file_have_the_numbers(models, tmp_path):
    old, new = models
    evaluator = CompatibilityEvaluator(ASKED, SEARCHED, RELEVANT, old, name="debian")
    metrics = evaluator(new, output_path=str(tmp_path / "eval"), epoch=1.0, steps=5)
    evaluator(new, output_path=str(tmp_path / "eval"), epoch=2.0, steps=10)
    first, second = (tmp_path / "eval" / "compatibility_debian.jsonl").read_text().splitlines()
    assert json.loads(first) == {
        "epoch": 1.0, "steps": 5, "verdict": evaluator.evaluation.verdict, **metrics
    }  # fmt: skip
    assert json.loads(second)["steps"] == 10
    new.save_pretrained(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text(encoding="utf-8")
    for name in ("old_old_map", "new_old_map", "new_new_map", "compatible"):
        assert f"{metrics[f'debian_{name}']:.4g}" in card
        assert name in card


def test_queries_without_relevant_documents_are_not_asked(models):
    old, new = models
    some = {key: RELEVANT[key] for key in list(RELEVANT)[:10]} | {"q20": set()}
    evaluator = CompatibilityEvaluator(ASKED, SEARCHED, some, old)
    evaluator(new)
    assert len(evaluator.evaluation.query_ids) == 10
    with pytest.raises(ConfigError, match="No query has a relevant document"):
        CompatibilityEvaluator(ASKED, SEARCHED, {"d1": ["q1"]}, old)


def test_wrong_arguments_are_refused(models):
    old, _ = models
    with pytest.raises(ConfigError, match="primary must be one of old_old_map"):
        CompatibilityEvaluator(ASKED, SEARCHED, RELEVANT, old, primary="map")
    with pytest.raises(DataError, match="40 of 40 queries have no old vector"):
        CompatibilityEvaluator(ASKED, SEARCHED, RELEVANT, (DOCUMENTS, encoded(old, DOCUMENTS)))
