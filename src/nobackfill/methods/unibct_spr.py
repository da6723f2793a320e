"""UniBCT with structural prototype refinement: the new model decides which old vectors to trust.

Zhang et al., Towards Universal Backward-Compatible Representation Learning, IJCAI 2022.
https://arxiv.org/abs/2203.01583
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.errors import ConfigError
from nobackfill.methods.base import (
    ClassifyingMethod,
    Embeddings,
    Items,
    Labels,
    New,
    Old,
    Prototypes,
    Terms,
)
from nobackfill.methods.item_index import ItemClasses
from nobackfill.methods.losses import known_class_loss
from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.unibct import margin_logits


class UniBCTSPR(ClassifyingMethod):
    r"""`UniBCT` for all classes, with prototypes that weigh old vectors by new neighbourhoods.

    .. math::
        A = \mathrm{softmax}(E_c E_c^\top / \tau), \; A_{ii} = 0, \qquad
        S = (1 - \ell)(I - \ell A)^{-1}, \qquad p_c = \frac{1}{n_c} \mathbf 1^\top S F_c

    :math:`E_c` and :math:`F_c` are the new and old embeddings of a class's items. The old vectors
    spread along the new model's neighbourhoods: an item far from its class in the new space gets a
    small weight. Prototypes are refined twice, at the shares `refine_at` of the training; there is
    no compatibility term before the first refinement.

    Old view:
        Prototypes are computed from images without augmentation.

    Differences:
        Each row of :math:`A` sums to one, because each item passes its weight to its neighbours. A
        public re-implementation normalises the columns (`transition = "columns"`): then
        :math:`\mathbf 1^\top S = \mathbf 1^\top`, and the refined prototype *is* the plain mean,
        whatever the new model. As there, embeddings are raw, not unit. The margin is that of
        `UniBCT`. Without `OldSpace.labels`, the classes of the items are learned from the batches.

    Relations:
        `UniBCT` uses the plain means of the old classes.

    Args:
        scale: Scale of the cosines.
        margin: Margin added to the angle to the own prototype.
        spread: Share of its weight that an item passes on, :math:`\ell`.
        temperature: Temperature of the neighbourhoods, :math:`\tau`.
        transition: Whether "rows" or "columns" of :math:`A` sum to one.
        refine_at: Times of the refinements, as shares of the training.
    """

    needs = frozenset({"embeddings"})
    data_dependent = True
    paper = "Zhang et al., IJCAI"
    year = 2022
    compares_items = False
    old: Float[Tensor, "classes dim"]

    def __init__(
        self,
        old: OldSpace,
        num_classes: int,
        *,
        weight: float = 1.0,
        scale: float = 30.0,
        margin: float = 0.3,
        spread: float = 0.9,
        temperature: float = 0.05,
        transition: str = "rows",
        refine_at: tuple[float, ...] = (10 / 35, 20 / 35),
    ):
        super().__init__(old, num_classes, dim=old.dim)
        if transition not in ("rows", "columns"):
            raise ConfigError(f'transition must be "rows" or "columns", not {transition!r}.')
        self.weight, self.scale, self.margin = weight, scale, margin
        self.spread, self.temperature, self.transition = spread, temperature, transition
        self.refine_at = refine_at
        self.classes = ItemClasses(old.labels, self.embeddings, num_classes)
        self.register_buffer("old", torch.zeros(num_classes, self.embeddings.shape[1]))
        self.active = False
        self.waiting: Tensor | None = None  # new embeddings, until the items' classes are known

    def start_epoch(
        self, epoch: int, epochs: int, *, new_prototypes: Prototypes, new_embeddings: Embeddings
    ) -> None:
        """Refines the prototypes at the shares `refine_at` of the training."""
        due = [round(share * epochs) for share in self.refine_at]
        self.active = epoch >= min(due, default=0)
        # Also refine if that has not happened yet and, without labels, while a class has no
        # prototype because none of its items is known.
        never = not self.old.any()
        lacking = not self.classes.complete and not self.old.any(dim=-1).all()
        if epoch in due or (self.active and (never or lacking)):
            self.waiting = new_embeddings()
            if self.classes.complete:
                self.refine()

    def refine(self) -> None:
        """Computes the prototypes from the items whose class is known."""
        assert self.waiting is not None
        known = self.classes.known >= 0
        self.old = refined_prototypes(
            self.waiting[known],
            self.embeddings[known],
            self.classes.known[known],
            self.num_classes,
            spread=self.spread,
            temperature=self.temperature,
            transition=self.transition,
        )
        self.waiting = None

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms `classification` and `compatibility`, 0 before the first refinement."""
        classification = self.classification(new, labels)
        self.classes.learn(items, labels)
        if self.waiting is not None:
            self.refine()
        if not self.active:
            return {"classification": classification, "compatibility": new.new_zeros(())}
        logits = margin_logits(new, labels, self.old, scale=self.scale, margin=self.margin)
        return {
            "classification": classification,
            "compatibility": self.weight * known_class_loss(logits, labels),
        }


def refined_prototypes(
    new: Float[Tensor, "items new_dim"],
    old: Float[Tensor, "items dim"],
    labels: Int[Tensor, " items"],
    num_classes: int,
    *,
    spread: float,
    temperature: float,
    transition: str = "rows",
) -> Float[Tensor, "classes dim"]:
    """Computes the formula of `UniBCTSPR`; solves classes of equal size together, a few at a time.

    A class with a single item keeps it; one without items gets zeros.
    """
    count = labels.bincount(minlength=num_classes)
    start, order = count.cumsum(0) - count, labels.argsort(stable=True)
    prototypes = new.new_zeros(num_classes, old.shape[1])
    for size in count.unique().tolist():
        if size == 0:
            continue
        place = torch.arange(size, device=labels.device)
        for classes in (count == size).nonzero().flatten().split(max(1, 2**24 // size**2)):
            rows = order[start[classes][:, None] + place]  # (classes, size)
            weights = item_weights(
                new[rows], spread=spread, temperature=temperature, transition=transition
            )
            prototypes[classes] = (weights[:, None, :] @ old[rows].to(new.dtype)).squeeze(1)
    return prototypes


def item_weights(
    new: Float[Tensor, "classes size dim"], *, spread: float, temperature: float, transition: str
) -> Float[Tensor, "classes size"]:
    r"""Weight of each item in its class's prototype, :math:`\mathbf 1^\top S / n`.

    Solves :math:`(I - \ell A)^\top w = (1 - \ell) \mathbf 1 / n`; no inverse is computed.
    """
    size = new.shape[1]
    even = new.new_full(new.shape[:2], 1 / size)
    if size == 1:
        return even
    similarity = new @ new.transpose(1, 2) / temperature
    similarity.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    passed_on = similarity.softmax(dim=2 if transition == "rows" else 1)
    system = torch.eye(size, dtype=new.dtype, device=new.device) - spread * passed_on
    weights: Tensor = torch.linalg.solve(system.transpose(1, 2), (1 - spread) * even)
    return weights
