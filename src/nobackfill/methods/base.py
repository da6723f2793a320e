"""What every method looks like from the outside."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.errors import DataError, OldSpaceError, SpaceMismatch
from nobackfill.methods.checks import check_dim, check_items, require_items
from nobackfill.methods.old_space import MEANING, Need, OldSpace
from nobackfill.methods.prototypes import check_labels

New = Float[Tensor, "batch dim"]
Labels = Int[Tensor, " batch"]
Items = Int[Tensor, " batch"] | None  # rows of OldSpace.embeddings
OldVectors = Float[Tensor, "batch old_dim"] | None  # of the same views
Terms = dict[str, Float[Tensor, ""]]  # of the loss, by name
Prototypes = Callable[[], Float[Tensor, "classes dim"]]
Embeddings = Callable[[], Float[Tensor, "items dim"]]


@dataclass(frozen=True)
class Sides:
    """What becomes of a new embedding before it is compared. Nothing, for nearly all methods.

    Attributes:
        query: Before it asks the old gallery.
        gallery: Before it is stored, or asks a gallery of its own kind.
    """

    query: nn.Module = field(default_factory=nn.Identity)
    gallery: nn.Module = field(default_factory=nn.Identity)


class Method(nn.Module):
    """One way to train a new model so that it can query the old gallery.

    A subclass says in `needs` what it asks of the old model; the trainer prepares exactly that.

    Attributes:
        needs: What must be known of the old model.
        paper: Who proposed it, and where.
        year: When.
        at_inference: What a query costs beyond the new model's embedding.
        dimension: Of the new embedding: the "same" as the old, or "longer" too (its first
            dimensions then meet the old gallery), or "any".
        known_only: Whether classes that the old model never saw are left out of some term.
        supervised: Whether labels are looked at.
        compares_items: Whether old embeddings are looked at one by one, so that the view matters.
        maps_queries: Whether the old gallery is asked with other vectors than are stored.
        same_kind: Whether the old model must have been trained by this very method.
        moves_only: Terms that leave the embedding alone, and the parameter that they move.
        waits: Whether a step may look at values, such as how many there are of something, or do
            other things than the one before, so that a GPU cannot record and repeat it.

    Args:
        old: What is known of the old model.
        num_classes: How many classes the new model is trained on.
    """

    needs: ClassVar[frozenset[Need]] = frozenset()
    paper: ClassVar[str] = "ours"
    year: ClassVar[int | None] = None
    at_inference: ClassVar[str] = "nothing"
    dimension: ClassVar[str] = "same"
    known_only: ClassVar[bool] = False
    supervised: ClassVar[bool] = True
    compares_items: ClassVar[bool] = True
    maps_queries: ClassVar[bool] = False
    same_kind: ClassVar[bool] = False
    moves_only: ClassVar[Mapping[str, str]] = {}
    waits: ClassVar[bool] = False
    embeddings: Float[Tensor, "items old_dim"]

    def __init__(self, old: OldSpace, num_classes: int):
        super().__init__()
        if num_classes < 2:
            raise DataError(
                f"wanted at least two classes to train on, but got {num_classes}. "
                f"Check the label column."
            )
        if missing := self.needs - old.given:
            raise OldSpaceError(_what_is_missing(type(self), missing, old))
        self.num_classes = num_classes
        _ = old.dim  # raises where its parts are of different spaces
        if "embeddings" in self.needs:  # not saved: as many rows as items, and made again from them
            self.register_buffer(
                "embeddings", check_items(old.get("embeddings"), "embeddings"), persistent=False
            )

    def start_epoch(
        self, epoch: int, epochs: int, *, new_prototypes: Prototypes, new_embeddings: Embeddings
    ) -> None:
        """Called before each epoch, the first being 0.

        The last two are functions, because each costs a pass over the training set: a method that
        does not call them does not pay.
        """

    def forward(
        self, new: New, labels: Labels, *, items: Items = None, old: OldVectors = None
    ) -> Terms:
        """Returns the named terms of the loss; their sum is minimised, each is logged.

        Args:
            new: The new model's embeddings, of any length.
            labels: Their classes.
            items: Their rows in `OldSpace.embeddings`.
            old: The old model's embeddings of the very same views; the stored ones of `items`
                where they are not given.
        """
        raise NotImplementedError

    def query(self, vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows query_dim"]:
        """Turns the new model's embeddings into vectors that ask the old gallery."""
        return vectors

    def gallery(self, vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows gallery_dim"]:
        """Turns the new model's embeddings into vectors that are stored."""
        return vectors

    @classmethod
    def sides(cls, state: Mapping[str, Tensor], options: Mapping[str, Any]) -> Sides:
        """What `query` and `gallery` do after training, rebuilt from the saved tensors alone."""
        return Sides()

    def old_vectors(
        self, new: New, items: Items, old: OldVectors
    ) -> Float[Tensor, "batch old_dim"]:
        """The old vectors of a batch: those of the same views where given, else the stored ones.

        They come in the precision of the new ones; half the memory will do to store them.
        """
        if old is None:
            return self.embeddings[require_items(items)].to(new.dtype)
        if old.shape[1] != self.embeddings.shape[1]:
            raise SpaceMismatch(
                f"wanted old embeddings of the {self.embeddings.shape[1]} dimensions of the stored "
                f"ones, but got {old.shape[1]}. Take both from one old model."
            )
        return old.detach().to(new.dtype)


class ClassifyingMethod(Method):
    """A method whose first term is the classification loss of the new model, as nearly all have.

    Args:
        old: What is known of the old model.
        num_classes: How many classes the new model is trained on.
        dim: Of what is classified; found at the first batch where it is not given.

    Attributes:
        smoothing: Of the labels that the new classifier learns.
        classifies: Whether it learns at all; without, its term is 0 and costs nothing.
    """

    smoothing: float = 0.0
    classifies: bool = True

    def __init__(self, old: OldSpace, num_classes: int, *, dim: int | None = None):
        super().__init__(old, num_classes)
        self.classifier = (
            nn.LazyLinear(num_classes, bias=False)
            if dim is None
            else nn.Linear(dim, num_classes, bias=False)
        )

    def classification(
        self,
        new: Float[Tensor, "batch dim"],
        labels: Int[Tensor, " batch"],
    ) -> Float[Tensor, ""]:
        """Cross entropy of the new classifier on the raw embedding."""
        if not self.classifies:
            return new.new_zeros(())
        if labels.device.type == "cpu":  # on a GPU, looking would stop it
            check_labels(labels, self.num_classes)
        if self.classifier.in_features:  # 0 while it waits for its first batch
            check_dim(new, self.classifier.in_features)
        return F.cross_entropy(self.classifier(new), labels, label_smoothing=self.smoothing)


def _what_is_missing(method: type[Method], missing: frozenset[Need], old: OldSpace) -> str:
    """The error of a method that was not given all it needs, with those that would do."""
    from nobackfill.methods import METHODS

    name = next((name for name, known in METHODS.items() if known is method), method.__name__)
    wanted = " and ".join(MEANING[need] for need in sorted(missing))
    given = ", ".join(sorted(old.given)) or "nothing"
    enough = ", ".join(name for name, known in METHODS.items() if known.needs <= old.given)
    return (
        f"`{name}` needs {wanted}, but of the old model we have: {given}. "
        f"Pass {', '.join(f'`{need}=`' for need in sorted(missing))} to OldSpace, or choose a "
        f"method that needs no more than that: {enough}."
    )
