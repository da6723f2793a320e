"""The loss that makes a SentenceTransformer compatible with vectors that are stored already."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.integrations.sentence_transformers.embeddings import (
    Columns,
    added_to_cached,
    cached_loss,
    columns_of,
    recorded,
)
from nobackfill.integrations.sentence_transformers.old_texts import Documents, OldTexts
from nobackfill.integrations.sentence_transformers.query_map import (
    embedding_dim,
    mapped,
    query_map_of,
)
from nobackfill.integrations.sentence_transformers.releases import (
    LOGS_TERMS,
    MultipleNegativesRankingLoss,
)
from nobackfill.integrations.sentence_transformers.token_rows import TokenRows
from nobackfill.methods.pairs import TEMPERATURE, CompatiblePairs
from nobackfill.ops.components import chain, components

MATCH = 0.5  # lowest label of a pair that belongs together

Rows = Int[Tensor, " batch"]  # among the old texts; -1 for none
Terms = dict[str, Tensor]


class CompatibleLoss(nn.Module):
    r"""Adds to a loss of sentence-transformers the term of `CompatiblePairs`.

    New queries then find the right document among the *old* vectors of all training documents, so
    that the documents of a search index need not be embedded again.

    .. math::
        L = L_\text{base} + \lambda \, L_\text{pairs}

    The data set is one that the base loss reads: (anchor, positive), (anchor, positive, negative…),
    or (text, label). The first column is the query and the second the document; with labels of
    pairs, those of at least 0.5 are matches. Of (text, label), a text is a query for the group of
    its label. Embeddings are those that the base loss computes: nothing is embedded twice.

    Documents are found by their tokens. Every document of the training data needs an old vector;
    data of an evaluation does not, and pairs without one do not count there. Documents that the
    model cannot tell apart, because it cuts them to the same tokens, form one group.

    Args:
        model: SentenceTransformer that is trained.
        old: Old vectors of the documents, or the old SentenceTransformer; see `OldTexts.read`.
        base: Loss of the training so far; `MultipleNegativesRankingLoss(model)` by default. Cached
            losses and `MatryoshkaLoss` may be passed.
        documents: Texts of the training documents that the old model embeds, or the text of each id
            of the old vectors.
        method: Name in `nobackfill.methods.pairs.PAIR_METHODS`.
        weight: Weight of the term, :math:`\lambda`.
        temperature: Temperature of the contrast.
        groups: Group of each old text, whose members are never negatives of each other: a column of
            the old file, or one value per text. (text, label) data needs it.
        document_prompt: Prompt that the training arguments put before documents. The prompts of the
            model are tried too.
        options: Further options of `CompatiblePairs`, such as `near_duplicate`.
    """

    def __init__(
        self,
        model: Any,
        old: Any,
        base: nn.Module | None = None,
        *,
        documents: Documents = None,
        method: str = "contrast",
        weight: float = 1.0,
        temperature: float = TEMPERATURE,
        groups: str | Sequence[Any] | None = None,
        document_prompt: str | Sequence[str] = (),
        **options: Any,
    ):
        super().__init__()
        self.model, self.weight = model, weight
        self.base = default_base(model) if base is None else base
        self.has_groups = groups is not None
        texts = OldTexts.read(old, documents).checked()
        self.check_dimensions(texts.vectors.shape[1])
        prompts = [document_prompt] if isinstance(document_prompt, str) else list(document_prompt)
        own_prompts = [prompt for prompt in (model.prompts or {}).values() if prompt]
        self.rows_of = TokenRows(model, texts.texts, [*prompts, "", *own_prompts])

        # Documents with the same tokens are one to the new model; so are those of a known group.
        edges = [chain(self.rows_of.keys.numpy())]
        if groups is not None:
            edges.append(chain(texts.groups(groups).numpy()))
        joined = torch.from_numpy(components(len(texts.texts), edges))
        self.pairs = CompatiblePairs(
            texts.vectors, groups=joined, method=method, temperature=temperature, **options
        )

    def forward(
        self, sentence_features: Iterable[Any], labels: Tensor | None = None
    ) -> Terms | Tensor:
        """Returns the terms, which the trainer adds and logs; if it cannot, returns their sum."""
        terms = self.terms(sentence_features, labels)
        return terms if LOGS_TERMS else torch.stack(list(terms.values())).sum()

    def terms(self, sentence_features: Iterable[Any], labels: Tensor | None = None) -> Terms:
        """Returns the terms "base" and "compatibility", whose sum is minimised."""
        features = list(sentence_features)
        rows, sizes = self.rows_of_batch(features, labels)  # before a module changes the features
        if query_map_of(self.model) is not None:  # the base loss compares embeddings without map
            features = [{**column, "task": "document"} for column in features]

        if not self.pairs.uses_base:
            query = self.model(features[0])["sentence_embedding"]
            return {"compatibility": self.weight * self.term([query], rows)}
        if (cached := cached_loss(self.base)) is not None:
            return self.with_cached(cached, features, labels, rows)
        with recorded(self.model) as calls:
            loss = self.base(features, labels)
        embeddings = columns_of(calls, features, sizes)
        if embeddings is None:  # the base loss embeds something else
            embeddings = [self.model(column)["sentence_embedding"] for column in features[:2]]
        return {**named(loss), "compatibility": self.weight * self.term(embeddings, rows)}

    def with_cached(
        self, cached: nn.Module, features: list[Any], labels: Tensor | None, rows: Rows
    ) -> Terms:
        """Returns the terms for a base loss that computes the gradient in the embeddings itself.

        The gradient of the query map waits for the trainer's `backward`, which may scale it.
        """
        query_map = query_map_of(self.model)
        weights = [] if query_map is None else list(query_map.parameters())
        value = torch.zeros(())
        gradients: list[Tensor] = []

        def term(embeddings: Columns) -> Float[Tensor, ""]:
            nonlocal value
            added = self.weight * self.term(embeddings, rows)
            value = added.detach()
            if weights and added.requires_grad:
                gradients.extend(torch.autograd.grad(added, weights, retain_graph=True))
                added = added - sum_without_value(weights, gradients)
            return added

        with added_to_cached(cached, term):
            total = self.base(features, labels)
        base = named(total)
        first = next(iter(base))
        base[first] = base[first] - value
        return {**base, "compatibility": value + sum_without_value(weights, gradients)}

    def term(self, embeddings: Columns, rows: Rows) -> Float[Tensor, ""]:
        """Returns the term of the pairs whose document has an old vector; 0 if none has."""
        known = (rows >= 0).nonzero().flatten().to(embeddings[0].device)
        if not len(known):
            return embeddings[0].sum() * 0.0
        query_map = query_map_of(self.model)
        query = mapped(query_map, embeddings[0][known])
        document = None
        if len(embeddings) > 1 and self.pairs.method != "contrast":
            document = mapped(query_map, embeddings[1][known])
        term: Tensor = self.pairs(query, rows.to(known.device)[known], document=document)
        return term

    def rows_of_batch(self, features: list[Any], labels: Tensor | None) -> tuple[Rows, list[int]]:
        """Returns the row of each query's document, and the number of texts in each column."""
        if len(features) == 1 and not self.has_groups:
            raise ConfigError(
                "The data set has one column of texts. To train with (text, label), pass the label "
                "of each old text: `CompatibleLoss(groups=…)`, a column of the old file or a list. "
                "For pairs, the data set needs a second column."
            )
        model = getattr(self.model, "module", self.model)
        column = features[min(1, len(features) - 1)]
        rows = self.rows_of.rows(model, column)
        is_match = torch.ones_like(rows, dtype=torch.bool)
        if len(features) == 2 and labels is not None and labels.ndim == 1:
            is_match = labels.cpu() >= MATCH
            rows = rows.where(is_match, -1)
        missing = ((rows < 0) & is_match).nonzero().flatten()
        if len(missing) and torch.is_grad_enabled():
            raise DataError(self.without_old_vector(model, column, missing, int(is_match.sum())))
        return rows, [len(rows)] * len(features)

    def without_old_vector(self, model: Any, column: Any, missing: Tensor, number: int) -> str:
        """Returns the error on documents without an old vector; it shows the first one's tokens."""
        ids = column["input_ids"]
        shown = ""
        if ids.ndim == 2 and getattr(model, "tokenizer", None) is not None:
            text = model.tokenizer.decode(ids[int(missing[0])], skip_special_tokens=True)
            shown = f", the first is {text[:80]!r}"
        return (
            f"{len(missing)} of {number} documents of a batch have no old vector{shown}. Embed "
            f"them with the old model and add them to `old`. If the training arguments have "
            f"prompts, pass that of the documents as `document_prompt=`."
        )

    def check_dimensions(self, old_dim: int) -> None:
        """Raises unless the model's queries have the dimension of the old vectors."""
        query_map = query_map_of(self.model)
        dim = embedding_dim(self.model) if query_map is None else int(query_map.out_features)  # type: ignore[arg-type]
        if dim != old_dim:
            raise SpaceMismatch(
                f"The old vectors have {old_dim} dimensions and the model {dim}. Before the loss, "
                f"call `add_query_map(model, {old_dim})`, and name the columns of queries in the "
                f'training arguments: `router_mapping={{"anchor": "query", "positive": '
                f'"document"}}`.'
            )

    def get_config_dict(self) -> dict[str, Any]:
        """Returns the settings for the model card."""
        return {
            "base": type(self.base).__name__,
            "method": self.pairs.method,
            "weight": self.weight,
            "temperature": self.pairs.temperature,
            "old_documents": len(self.pairs.group_of),
        }


def default_base(model: Any) -> nn.Module:
    """Returns the usual loss of pairs, `MultipleNegativesRankingLoss`."""
    loss: nn.Module = MultipleNegativesRankingLoss(model)
    return loss


def named(loss: Any) -> Terms:
    """Returns the terms of a base loss by name; the loss is a tensor or a dictionary."""
    return dict(loss) if isinstance(loss, dict) else {"base": loss}


def sum_without_value(weights: list[Any], gradients: list[Tensor]) -> Float[Tensor, ""]:
    """Returns a term of value 0 with a given gradient in each weight."""
    total = torch.zeros(())
    for weight, gradient in zip(weights, gradients, strict=False):
        inner = (weight * gradient).sum()
        total = total.to(inner.device) + inner - inner.detach()
    return total
