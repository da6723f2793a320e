"""Base classes of the methods. Options that several methods share are documented here once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.errors import DataError, OldSpaceError, SpaceMismatch
from nobackfill.methods.checks import check_dim, check_items, require_items
from nobackfill.methods.losses import cosine_logits
from nobackfill.methods.old_space import MEANING, Need, OldSpace
from nobackfill.methods.prototypes import check_labels

New = Float[Tensor, "batch dim"]
Labels = Int[Tensor, " batch"]
Items = Int[Tensor, " batch"] | None  # rows of OldSpace.embeddings
Old = Float[Tensor, "batch old_dim"] | None  # of the same views
Terms = dict[str, Float[Tensor, ""]]  # of the loss, by name
Prototypes = Callable[[], Float[Tensor, "classes dim"]]
Embeddings = Callable[[], Float[Tensor, "items dim"]]


@dataclass(frozen=True)
class Sides:
    """Maps of a new embedding before it is compared: the identity, for nearly all methods.

    Attributes:
        query: Map of a query for the old gallery.
        gallery: Map of a stored vector, and of a query for a new gallery.
    """

    query: nn.Module = field(default_factory=nn.Identity)
    gallery: nn.Module = field(default_factory=nn.Identity)


class Method(nn.Module):
    r"""A way to train a new model so that it can query the old gallery.

    A subclass lists in `needs` the parts of the old space that it uses; the trainer prepares only
    these. In formulas :math:`e` is a new embedding, :math:`f` the old vector of the same item,
    :math:`y` its class, :math:`p_c` an old prototype and :math:`W` the new classifier. The
    docstring of a method lists only what differs from the sections below.

    New classes:
        New classes take part like all others.

    Old view:
        Old vectors are the stored ones by default.

    Attributes:
        needs: Parts of the old space that the method uses.
        paper: Authors and venue.
        year: Year of publication.
        at_inference: Cost of a query beyond the new model's embedding.
        dimension: Dimension of the new embedding: the "same" as the old, or "longer" too (its first
            dimensions are then compared with the old gallery), or "any".
        old_classes_only: Whether some term leaves out the classes that are new.
        supervised: Whether the method uses labels.
        compares_items: Whether the method uses single old vectors, so that their view matters.
        maps_queries: Whether queries for the old gallery differ from the stored vectors.
        same_kind: Whether the old model must have been trained by this method too.
        moves_only: Terms without a gradient in the embedding, and the parameter that they move.
        data_dependent: Whether the operations of a step depend on values, so that a GPU cannot
            record a step and replay it.
        averaging: Options of `class_means` for the new prototypes.

    Args:
        old: Old space, with at least the parts in `needs`.
        num_classes: Number of training classes of the new model.
        weight: Weight of the term added to the classification loss, :math:`\lambda`.
        temperature: Temperature of the contrast, :math:`\tau`.
        cosine: Whether the new classifier compares cosines: :math:`s \cos(W_c, e)` with :math:`s =
            \sqrt{2} \ln C` for :math:`C` classes, in place of :math:`W_c e`.
        dim: Dimension of the new embedding; taken from the first batch by default.
        unit_items: Whether embeddings are scaled to unit length before they are averaged to
            prototypes, old and new.
    """

    needs: ClassVar[frozenset[Need]] = frozenset()
    paper: ClassVar[str] = "ours"
    year: ClassVar[int | None] = None
    at_inference: ClassVar[str] = "nothing"
    dimension: ClassVar[str] = "same"
    old_classes_only: ClassVar[bool] = False
    supervised: ClassVar[bool] = True
    compares_items: ClassVar[bool] = True
    maps_queries: ClassVar[bool] = False
    same_kind: ClassVar[bool] = False
    moves_only: ClassVar[Mapping[str, str]] = {}
    data_dependent: ClassVar[bool] = False
    averaging: Mapping[str, bool] = MappingProxyType({})
    embeddings: Float[Tensor, "items old_dim"]

    def __init__(self, old: OldSpace, num_classes: int):
        super().__init__()
        if num_classes < 2:
            raise DataError(
                f"Training needs at least two classes, but got {num_classes}. Check the label "
                f"column."
            )
        if missing := self.needs - old.given:
            raise OldSpaceError(_what_is_missing(type(self), missing, old))
        self.num_classes = num_classes
        _ = old.dim  # raises if its parts have different dimensions
        if "embeddings" in self.needs:  # not saved: one row per item
            self.register_buffer(
                "embeddings", check_items(old.get("embeddings"), "embeddings"), persistent=False
            )

    def start_epoch(
        self, epoch: int, epochs: int, *, new_prototypes: Prototypes, new_embeddings: Embeddings
    ) -> None:
        """Prepares epoch number `epoch`, from 0.

        The last two arguments are functions, because each costs a pass over the training set.
        """

    def forward(self, new: New, labels: Labels, *, items: Items = None, old: Old = None) -> Terms:
        """Returns the terms of the loss by name; the trainer minimises their sum.

        Args:
            new: New embeddings; their length is free.
            labels: Class of each embedding.
            items: Row of each embedding in `OldSpace.embeddings`.
            old: Old embeddings of the same views. By default the stored ones of `items`.
        """
        raise NotImplementedError

    def compared(self, new: New) -> Float[Tensor, "batch compared_dim"]:
        """Returns what a loss compares with old vectors: the embeddings, unless they are mapped.

        Class means of the new model that are compared with old ones are means of these.
        """
        return new

    def query(self, vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows query_dim"]:
        """Returns the queries for the old gallery."""
        return vectors

    def gallery(self, vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows gallery_dim"]:
        """Returns the vectors to store."""
        return vectors

    @classmethod
    def sides(cls, state: Mapping[str, Tensor], options: Mapping[str, Any]) -> Sides:
        """Rebuilds `query` and `gallery` of a trained method from its saved tensors."""
        return Sides()

    @staticmethod
    def tensors_of(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
        """Returns the saved tensors of one part of the method, by their names within the part."""
        return {k.removeprefix(prefix): t for k, t in state.items() if k.startswith(prefix)}

    def old_vectors(self, new: New, items: Items, old: Old) -> Float[Tensor, "batch old_dim"]:
        """Returns `old`, or else the stored old vectors of a batch, in the precision of `new`."""
        if old is None:
            return self.embeddings[require_items(items)].to(new.dtype)
        if old.shape[1] != self.embeddings.shape[1]:
            raise SpaceMismatch(
                f"Old embeddings must have the {self.embeddings.shape[1]} dimensions of the stored "
                f"ones, but got {old.shape[1]}. Take both from one old model."
            )
        return old.detach().to(new.dtype)


class ClassifyingMethod(Method):
    """A method whose first term is the classification loss of the new model.

    Attributes:
        smoothing: Label smoothing.
        classifies: Whether the new classifier learns; if not, its term is 0.
        cosine: Whether the classifier compares cosines (`cosine_logits`), not inner products.
    """

    smoothing: float = 0.0
    classifies: bool = True
    cosine: bool = False

    def __init__(self, old: OldSpace, num_classes: int, *, dim: int | None = None):
        super().__init__(old, num_classes)
        self.classifier = (
            nn.LazyLinear(num_classes, bias=False)
            if dim is None
            else nn.Linear(dim, num_classes, bias=False)
        )

    def classification(self, new: New, labels: Labels) -> Float[Tensor, ""]:
        """Returns the cross entropy of the new classifier on the embedding."""
        if not self.classifies:
            return new.new_zeros(())
        if labels.device.type == "cpu":  # on a GPU, the check would force a synchronisation
            check_labels(labels, self.num_classes)
        if self.classifier.in_features:  # 0 before the first batch
            check_dim(new, self.classifier.in_features)
        elif self.cosine:
            self.classifier(new)  # makes the weights
        logits = cosine_logits(new, self.classifier.weight) if self.cosine else self.classifier(new)
        return F.cross_entropy(logits, labels, label_smoothing=self.smoothing)


def _what_is_missing(method: type[Method], missing: frozenset[Need], old: OldSpace) -> str:
    """Returns the error of a method whose needs are not met; it lists methods to use instead."""
    from nobackfill.methods import METHODS

    name = next((name for name, kind in METHODS.items() if kind is method), method.__name__)
    meanings = " and ".join(MEANING[need] for need in sorted(missing))
    available = ", ".join(sorted(old.given)) or "nothing"
    enough = ", ".join(name for name, kind in METHODS.items() if kind.needs <= old.given)
    return (
        f"`{name}` needs {meanings}, but of the old model we have: {available}. "
        f"Pass {', '.join(f'`{need}=`' for need in sorted(missing))} to OldSpace, or choose a "
        f"method that needs no more than that: {enough}."
    )
