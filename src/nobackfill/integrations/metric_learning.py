"""PyTorch Metric Learning: our methods as losses, and old vectors as reference embeddings.

Nothing is imported of that package: its losses and miners are called, with its argument names.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.errors import ConfigError, DataError
from nobackfill.integrations.method_loss import MethodLoss
from nobackfill.methods import ClassifyingMethod, Method
from nobackfill.methods.base import Items, Labels, New

Miner = Callable[..., Any]


class CompatibleLoss(MethodLoss):
    r"""A loss of PyTorch Metric Learning plus the compatibility terms of a method.

    .. math::
        L(e, y) + \sum_k M_k(e, y)

    :math:`L` is the base loss with its indices of pairs or triplets, :math:`M_k` are the terms of
    the method. A base loss takes the place of the method's own classification. Add `parameters()`
    to an optimizer, as for losses with weights.

    Args:
        base: Any loss of the package, `CrossBatchMemory` included. None: the method classifies.
        method: Method, such as `nb.METHODS["ndpp"](old, num_classes)`.
        running_means: See `MethodLoss`.
    """

    def __init__(self, base: nn.Module | None, method: Method, *, running_means: bool = False):
        super().__init__(method, running_means=running_means)
        self.base = base
        if base is not None and isinstance(method, ClassifyingMethod):
            method.classifies = False

    def forward(  # type: ignore[override]  # the arguments of that package
        self,
        embeddings: New,
        labels: Labels,
        indices_tuple: tuple[Tensor, ...] | None = None,
        ref_emb: Float[Tensor, "refs dim"] | None = None,
        ref_labels: Int[Tensor, " refs"] | None = None,
        *,
        items: Items = None,
    ) -> Float[Tensor, ""]:
        """Returns the loss.

        Args:
            embeddings: New embeddings.
            labels: Class of each embedding, from 0 to `num_classes` - 1.
            indices_tuple: Output of a miner, for the base loss.
            ref_emb: Reference embeddings, for the base loss.
            ref_labels: Class of each reference embedding.
            items: Row of each embedding in `OldSpace.embeddings`, for methods that compare items.
        """
        loss = super().forward(embeddings, labels, items=items)
        if self.base is None:
            return loss
        references = {} if ref_emb is None else {"ref_emb": ref_emb, "ref_labels": ref_labels}
        base: Tensor = self.base(embeddings, labels, indices_tuple, **references)
        self.terms["base"] = base.detach()
        return loss + base


class OldReferences(nn.Module):
    """A loss of PyTorch Metric Learning between new embeddings and old vectors (`ref_emb`).

    Each call draws old vectors: `positives` of each label of the batch, with repetition, and
    `negatives` of all. Use it with any loss that takes `ref_emb`, and with any miner. Like
    `CrossBatchMemory`, but the memory contains the old model's vectors.

    Args:
        loss: Loss that takes `ref_emb`, such as `SupConLoss` or `MultiSimilarityLoss`.
        vectors: Old vectors.
        labels: Class of each old vector.
        positives: Number of old vectors drawn for each item of the batch, of its class.
        negatives: Number of old vectors drawn from all.
        miner: Miner that selects pairs or triplets between new and old.
        weight: Factor of the loss.
    """

    vectors: Float[Tensor, "olds dim"]
    labels: Int[Tensor, " olds"]

    def __init__(
        self,
        loss: nn.Module,
        vectors: Float[Tensor, "olds dim"],
        labels: Int[Tensor, " labels"],
        *,
        positives: int = 1,
        negatives: int = 1024,
        miner: Miner | None = None,
        weight: float = 1.0,
    ):
        super().__init__()
        if len(vectors) != len(labels):
            raise DataError(
                f"Each old vector needs a label, but there are {len(vectors)} vectors and "
                f"{len(labels)} labels. Take both from the same items."
            )
        if positives + negatives < 1:
            raise ConfigError("`positives` and `negatives` are both 0. Set one of them.")
        order = labels.argsort(stable=True)  # items of a class are neighbours
        self.register_buffer("vectors", vectors[order].detach(), persistent=False)
        self.register_buffer("labels", labels[order], persistent=False)
        self.loss, self.miner, self.weight = loss, miner, weight
        self.positives, self.negatives = positives, min(negatives, len(vectors))

    def forward(self, embeddings: New, labels: Labels) -> Float[Tensor, ""]:
        """Returns the loss between the embeddings and the drawn old vectors."""
        rows = self.draw(labels)
        old, old_labels = self.vectors[rows].to(embeddings.dtype), self.labels[rows]
        pairs = None
        if self.miner is not None:
            pairs = self.miner(embeddings, labels, old, old_labels)
        loss: Tensor = self.loss(embeddings, labels, pairs, ref_emb=old, ref_labels=old_labels)
        return self.weight * loss

    def draw(self, labels: Labels) -> Int[Tensor, " drawn"]:
        """Draws rows of old vectors for a batch; a class without old vectors has no positives."""
        first = torch.searchsorted(self.labels, labels)
        count = torch.searchsorted(self.labels, labels, right=True) - first
        first, count = first[count > 0], count[count > 0]
        chance = torch.rand(self.positives, len(first), device=labels.device)
        own = (first + (chance * count).long()).flatten()
        others = torch.randperm(len(self.labels), device=labels.device)[: self.negatives]
        return torch.cat([own, others])
