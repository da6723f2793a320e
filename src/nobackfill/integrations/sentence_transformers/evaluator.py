"""Measures an upgrade during training: old/old, new/old, new/new, flips and the verdict."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from nobackfill.errors import ConfigError
from nobackfill.evaluation.evaluate import evaluate
from nobackfill.evaluation.result import Evaluation
from nobackfill.integrations.sentence_transformers.old_texts import BATCH, OldTexts, encode
from nobackfill.integrations.sentence_transformers.query_map import query_map_of
from nobackfill.integrations.sentence_transformers.releases import SentenceEvaluator
from nobackfill.vectors import Vectors

METRICS = {"map": "map", "ndcg@10": "ndcg_at_10", "recall@1": "recall_at_1"}
PAIRS = ("old_old", "new_old", "new_new")


class CompatibilityEvaluator(SentenceEvaluator):  # type: ignore[misc]
    """Evaluates new queries on old documents beside old queries on them, and new on new.

    The arguments are those of `InformationRetrievalEvaluator`, and the old vectors. It returns mAP,
    nDCG@10 and Recall@1 of each pair, named query/gallery, the shares of queries that lose and gain
    their first hit, and whether the upgrade is compatible: 1 yes, 0 no, 0.5 undecided. The model
    card shows them. To keep the best checkpoint, pass `load_best_model_at_end=True` and
    `metric_for_best_model="eval_NAME_new_old_map"` to the training arguments.

    Args:
        queries: Text of each query, by id.
        documents: Text of each document, by id.
        relevant: Ids of the relevant documents of each query, by id.
        old: Old vectors of queries and documents, or the old SentenceTransformer; see
            `OldTexts.read`. A pair is read as those of the queries and those of the documents.
        name: Name of the data, put before each metric.
        new_new: Whether the new model embeds the documents too, for new/new.
        primary: Metric that chooses a checkpoint.
        batch_size: Number of texts that the model embeds at a time.
    """

    def __init__(
        self,
        queries: Mapping[str, str],
        documents: Mapping[str, str],
        relevant: Mapping[str, Iterable[str]],
        old: Any,
        *,
        name: str = "",
        new_new: bool = True,
        primary: str = "new_old_map",
        batch_size: int = BATCH,
    ):
        super().__init__()
        keys = [key for key in queries if relevant.get(key)]  # of queries that can find something
        if not keys:
            raise ConfigError(
                "No query has a relevant document. The keys of `relevant` are ids of queries, and "
                "its values ids of documents."
            )
        self.name, self.new_new, self.batch_size = name, new_new, batch_size
        self.queries = [queries[key] for key in keys]
        self.documents = list(documents.values())
        self.ids = [f"query {key}" for key in keys] + [f"document {key}" for key in documents]
        self.relevant = {
            f"query {key}": [f"document {item}" for item in relevant[key]] for key in keys
        }
        self.old = self.vectors(*self.old_vectors(old))
        names = [f"{pair}_{metric}" for pair in PAIRS for metric in METRICS]
        if primary not in names:
            raise ConfigError(f"primary must be one of {', '.join(names)}, not {primary!r}.")
        self.primary_metric = f"{name}_{primary}" if name else primary
        self.evaluation: Evaluation | None = None

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """Evaluates a model; `evaluation` keeps the result, whose `print` shows all of it."""
        self.evaluation = self.evaluated(model)
        metrics = self.prefix_name_to_metrics(metrics_of(self.evaluation), self.name)
        self.store_metrics_in_model_card_data(model, metrics, epoch, steps)
        if output_path is not None:
            append_line(
                Path(output_path) / f"compatibility{'_' * bool(self.name)}{self.name}.jsonl",
                {"epoch": epoch, "steps": steps, "verdict": self.evaluation.verdict, **metrics},
            )
        return dict(metrics)

    def evaluated(self, model: Any) -> Evaluation:
        """Embeds queries and documents with the new model, and compares it with the old one."""
        query = encode(model, self.queries, "query", self.batch_size)
        if query_map_of(model) is None:
            new = self.vectors(query, self.new_documents(model))
            return evaluate(self.old, new, pairs=self.relevant)
        # Mapped queries search old documents, queries without the map search new ones.
        plain = encode(model, self.queries, "plain query", self.batch_size)
        new = self.vectors(plain, self.new_documents(model))
        return evaluate(self.old, new, query_for_old=self.vectors(query, None), pairs=self.relevant)

    def new_documents(self, model: Any) -> Float[Tensor, "documents dim"] | None:
        """Embeds the documents with the new model, if new/new is measured."""
        return encode(model, self.documents, "document", self.batch_size) if self.new_new else None

    def old_vectors(self, old: Any) -> tuple[Tensor, Tensor]:
        """Reads or makes the old vectors of the queries and of the documents."""
        if isinstance(old, tuple) and len(old) == 2 and not isinstance(old[0], list):
            query_side, document_side = old
        else:
            query_side = document_side = old
        queries = OldTexts.read(query_side, self.queries, role="query")
        documents = OldTexts.read(document_side, self.documents)
        return queries.of(self.queries, "queries"), documents.of(self.documents, "documents")

    def vectors(
        self, query: Float[Tensor, "queries dim"], document: Float[Tensor, "documents dim"] | None
    ) -> Vectors:
        """Returns queries and documents as vectors of one model."""
        rows = query if document is None else torch.cat([query, document.to(query.dtype)])
        is_query = torch.arange(len(rows)) < len(query)
        return Vectors(
            self.ids[: len(rows)],
            rows,
            columns={"is_query": is_query.numpy(), "is_gallery": (~is_query).numpy()},
        )

    def get_config_dict(self) -> dict[str, Any]:
        """Returns the settings for the model card."""
        return {"queries": len(self.queries), "documents": len(self.documents)}


def metrics_of(evaluation: Evaluation) -> dict[str, float]:
    """Returns the numbers of an evaluation, named as sentence-transformers does."""
    summary = evaluation.summary()
    metrics = {
        f"{pair}_{name}": summary["metrics"][pair][key]
        for pair in PAIRS
        if pair in summary["metrics"]
        for name, key in METRICS.items()
    }
    flips = evaluation.flips(1)
    compatible = {True: 1.0, False: 0.0, None: 0.5}[summary["compatible"]]
    return {
        **metrics,
        "lost_first_hits": flips.negative,
        "gained_first_hits": flips.positive,
        "compatible": compatible,
    }


def append_line(path: Path, values: Mapping[str, Any]) -> None:
    """Appends a JSON object to a file of lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")
