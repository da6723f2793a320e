"""Compatible training on pairs of a query and a document, where each document is its own class."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.methods.checks import at_least_single
from nobackfill.methods.document_groups import EXACT, NEAR_DUPLICATE, DocumentGroups
from nobackfill.methods.losses import mimic_loss, prototype_loss
from nobackfill.methods.perturbation import NeighborPerturbation, OptimizedPerturbation

TEMPERATURE = 0.05
MEMORY = 8192  # random groups among the candidates, if not all groups are candidates
PERTURBATIONS = {"ndpp": NeighborPerturbation, "odpp": OptimizedPerturbation}
PAIR_METHODS: Mapping[str, str] = {
    "contrast": "new queries against the old documents, beside the base loss",
    "ndpp": "the same, with the right document moved away from its neighbours",
    "odpp": "the same, with crowded documents moved apart",
    "frozen_documents": "new queries against the old documents alone, without the base loss",
    "distillation": "new documents close to their own old vectors, beside the base loss",
}


class CompatiblePairs(nn.Module):
    r"""The term that makes a model of pairs compatible with the old vectors of its documents.

    Documents whose old vectors are nearly equal form one group :math:`y`, which takes the place of
    a class: its prototype :math:`p_y` is the unit mean of their old vectors. The term is the
    contrast of `prototype_loss`, over a set :math:`C` of groups:

    .. math::
        -\frac{1}{B} \sum_i \log \frac{\exp(\cos(q_i, \tilde p_{y_i}) / \tau)}
        {\exp(\cos(q_i, \tilde p_{y_i}) / \tau) +
        \sum_{c \in C,\, c \ne y_i} \exp(\cos(q_i, p_c) / \tau)}

    with new queries :math:`q` (batch, old_dim), prototypes :math:`p` and moved prototypes
    :math:`\tilde p` (groups, old_dim). :math:`\tilde p = p`, but for "ndpp" and "odpp", which move
    them as `NeighborPerturbation` and `OptimizedPerturbation` do. :math:`C` contains all groups up
    to `exact` documents. With more, it contains the groups of the batch, their nearest groups, and
    `memory` groups drawn anew in each step, so that a step costs the same for any number.

    "distillation" is another term, :math:`1 - \cos(d_i, f_i)` between the new and the old vector of
    each document.

    New classes:
        A document that is not among the old vectors cannot be learned from: embed it with the old
        model first.

    Args:
        old: Old vectors of the documents.
        method: Name of the method, one of `PAIR_METHODS`.
        temperature: Temperature :math:`\tau`.
        groups: Known group of each document, with any numbering, such as labels or sources of
            copied texts.
        near_duplicate: Cosine above which two documents form one group. It must be exceeded by
            their old vectors both as they are and after subtracting the mean of all vectors.
        exact: Number of documents up to which all pairs of documents, and all groups in each step,
            are compared.
        memory: Number of random groups in :math:`C` with more than `exact` documents.
        epoch_items: Number of pairs in an epoch, after which "ndpp" and "odpp" move prototypes; by
            default the number of documents.
        seed: Seed of the random groups.
        perturbation: Options of `NeighborPerturbation` for "ndpp", or of `OptimizedPerturbation`
            for "odpp".
    """

    old: Float[Tensor, "rows old_dim"]
    group_of: Int[Tensor, " rows"]
    prototypes: Float[Tensor, "groups old_dim"]
    near: Int[Tensor, "groups near"] | None

    def __init__(
        self,
        old: Float[Tensor, "rows old_dim"],
        *,
        method: str = "contrast",
        temperature: float = TEMPERATURE,
        groups: Int[Tensor, " known"] | None = None,
        near_duplicate: float = NEAR_DUPLICATE,
        exact: int = EXACT,
        memory: int = MEMORY,
        epoch_items: int | None = None,
        seed: int = 0,
        **perturbation: Any,
    ):
        super().__init__()
        if method not in PAIR_METHODS:
            raise ConfigError(
                f"There is no method {method!r} for pairs. {suggest(method, PAIR_METHODS)} "
                f"All: {', '.join(PAIR_METHODS)}."
            )
        if perturbation and method not in PERTURBATIONS:
            raise ConfigError(
                f"Method {method!r} has no options {', '.join(perturbation)}: they belong to "
                f"{' and '.join(PERTURBATIONS)}."
            )
        self.method, self.temperature, self.memory = method, temperature, memory
        documents = DocumentGroups.find(
            old, groups=groups, near_duplicate=near_duplicate, exact=exact
        )
        if len(documents.prototypes) < 2:
            raise DataError(
                f"The {len(old)} documents are one group by their old vectors: there is nothing "
                f"to tell apart. Pass more documents, or raise `near_duplicate`."
            )
        # Stored old vectors are not saved with the model: there are as many as documents.
        self.register_buffer("prototypes", documents.prototypes, persistent=False)
        self.register_buffer("group_of", documents.of, persistent=False)
        self.register_buffer("near", documents.near, persistent=False)
        own = old if method == "distillation" else None
        self.register_buffer("old", own, persistent=False)
        self.perturb: NeighborPerturbation | OptimizedPerturbation | None = None
        if method in PERTURBATIONS:
            self.perturb = PERTURBATIONS[method](documents.prototypes.float(), **perturbation)
        self.generator = torch.Generator().manual_seed(seed)
        self.epoch_items = epoch_items or len(old)
        self.sums: Tensor | None = None  # of the new documents of each group, this epoch
        self.observed = 0

    @property
    def uses_base(self) -> bool:
        """Whether this term is added to another loss, and not a loss by itself."""
        return self.method != "frozen_documents"

    @property
    def targets(self) -> Float[Tensor, "groups old_dim"]:
        """The prototype that attracts the queries of each group, moved by "ndpp" and "odpp"."""
        return self.prototypes if self.perturb is None else self.perturb.moved

    @torch.no_grad()
    def observe(self, new: Float[Tensor, "batch old_dim"], rows: Int[Tensor, " batch"]) -> None:
        """Adds the new documents of a batch to the sums that move the prototypes.

        Only "ndpp" and "odpp" use them: after `epoch_items` documents, their prototypes move away
        from the mean new vectors of other groups. A group that was not observed has its old
        prototype in their place.

        Args:
            new: New vectors of documents, mapped to the old space if it differs.
            rows: Row of each of them among the old vectors.
        """
        if self.perturb is None:
            return
        if self.sums is None:
            self.sums = torch.zeros_like(self.prototypes, dtype=torch.float32)
        self.sums.index_add_(0, self.group_of[rows], F.normalize(new.float(), dim=1))
        self.observed += len(rows)
        if self.observed >= self.epoch_items:
            is_unseen = (self.sums == 0).all(dim=1, keepdim=True)
            self.perturb.update(torch.where(is_unseen, self.prototypes.float(), self.sums))
            self.sums, self.observed = None, 0

    def get_extra_state(self) -> dict[str, Any]:
        """Returns what a resumed training needs beside the buffers: generator, and sums so far."""
        return {
            "generator": self.generator.get_state(),
            "sums": self.sums,
            "observed": self.observed,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_extra_state` returned."""
        self.generator.set_state(state["generator"].cpu())
        sums, self.observed = state["sums"], state["observed"]
        self.sums = None if sums is None else sums.to(self.prototypes.device)

    def candidates(self, own: Int[Tensor, " batch"]) -> Int[Tensor, " candidates"]:
        """Returns the groups of a contrast, ascending: those of a batch, near and random ones."""
        assert self.near is not None, "without near groups, all groups are candidates"
        drawn = torch.randint(len(self.prototypes), (self.memory,), generator=self.generator)
        near = self.near[own.unique()].flatten().long()
        groups: Tensor = torch.cat([own, near, drawn.to(own.device)]).unique()
        return groups

    def forward(
        self,
        query: Float[Tensor, "batch old_dim"],
        rows: Int[Tensor, " batch"],
        *,
        document: Float[Tensor, "batch old_dim"] | None = None,
    ) -> Float[Tensor, ""]:
        """Returns the term for pairs of a query and a document.

        Args:
            query: New vectors of the queries, mapped to the old space if it differs.
            rows: Row of the right document of each query among the old vectors.
            document: New vectors of these documents. "distillation" needs them; "ndpp" and "odpp"
                `observe` them.
        """
        with torch.autocast(query.device.type, enabled=False):  # losses are in float32
            return self.term(
                at_least_single(query),
                rows,
                None if document is None else at_least_single(document),
            )

    def term(
        self,
        query: Float[Tensor, "batch old_dim"],
        rows: Int[Tensor, " batch"],
        document: Float[Tensor, "batch old_dim"] | None,
    ) -> Float[Tensor, ""]:
        """Returns the term for vectors in at least float32; see `forward`."""
        compared = document if self.method == "distillation" else query
        if compared is None:
            raise DataError("Method 'distillation' needs the new documents: pass `document=`.")
        if compared.shape[1] != self.prototypes.shape[1]:
            raise SpaceMismatch(
                f"The new vectors have {compared.shape[1]} dimensions and the old ones "
                f"{self.prototypes.shape[1]}. Map the new queries to the old dimension first."
            )
        if self.method == "distillation":
            return mimic_loss(compared, self.old[rows].to(compared.dtype))
        if document is not None and torch.is_grad_enabled():
            self.observe(document.detach(), rows)
        own, prototypes, targets = self.group_of[rows], self.prototypes, self.targets
        if self.near is not None:
            groups = self.candidates(own)
            own = torch.searchsorted(groups, own)
            prototypes, targets = prototypes[groups], targets[groups]
        return prototype_loss(query, own, targets, prototypes, temperature=self.temperature)
