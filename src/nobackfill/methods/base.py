"""What every method looks like from the outside."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.errors import DataError, OldSpaceError, SpaceMismatch
from nobackfill.oldspace import MEANING, Need, OldSpace
from nobackfill.prototypes import check_labels

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
            return self.embeddings[check_given(items)].to(new.dtype)
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
    """

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
        *,
        smoothing: float = 0.0,
    ) -> Float[Tensor, ""]:
        """Cross entropy of the new classifier on the raw embedding."""
        if labels.device.type == "cpu":  # on a GPU, looking would stop it
            check_labels(labels, self.num_classes)
        if self.classifier.in_features:  # 0 while it waits for its first batch
            check_dim(new, self.classifier.in_features)
        return F.cross_entropy(self.classifier(new), labels, label_smoothing=smoothing)


class ItemClasses(nn.Module):
    """The class of each training item: told at once, or learned from the batches.

    Attributes:
        told: Whether all are known from the start.
        known: One class per item, -1 where it is not known yet.

    Args:
        labels: Where they are known.
        embeddings: Of the items.
        num_classes: How many classes there are.
    """

    known: Int[Tensor, " items"]

    def __init__(
        self,
        labels: Int[Tensor, " labels"] | None,
        embeddings: Float[Tensor, "items dim"],
        num_classes: int,
    ):
        super().__init__()
        if labels is not None and len(labels) != len(embeddings):
            raise OldSpaceError(
                f"wanted one label for each of the {len(embeddings)} rows of `embeddings`, but got "
                f"{len(labels)}. Take both from the same items."
            )
        if labels is not None:
            check_labels(labels, num_classes)
        self.told = labels is not None
        known = torch.full((len(embeddings),), -1) if labels is None else labels
        self.register_buffer("known", known.to(embeddings.device, torch.int64))

    def see(self, items: Int[Tensor, " batch"] | None, labels: Int[Tensor, " batch"]) -> None:
        """Remembers the classes of a batch."""
        if not self.told:
            self.known[check_given(items)] = labels


def at_least_single(vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows dim"]:
    """Half precision as float32; all else as it is."""
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))


def check_dim(new: Float[Tensor, "batch dim"], dim: int) -> None:
    """Raises where an embedding has not the length that the method was made for."""
    if new.shape[1] != dim:
        raise SpaceMismatch(
            f"wanted new embeddings of {dim} dimensions, for which this method was made, but got "
            f"{new.shape[1]}. Where the old vectors set the dimension, give the new model a "
            f"projection to {dim}; where the method takes `dim`, pass dim={new.shape[1]}."
        )


def check_not_alone(new: Float[Tensor, "batch dim"]) -> None:
    """Raises where a batch of one would meet a BatchNorm."""
    if len(new) < 2:
        raise DataError(
            "wanted at least two items in a batch, as this method normalises over it, but got one. "
            "Drop the last batch of an epoch where it is that small (`drop_last=True`)."
        )


def check_given(items: Int[Tensor, " batch"] | None) -> Int[Tensor, " batch"]:
    """Returns the rows of a batch's items; raises where they were not given."""
    if items is None:
        raise DataError(
            "wanted to know which training items this batch is made of, but got no `items`. Pass "
            "`items=`, their rows in OldSpace.embeddings."
        )
    return items


def check_items(vectors: Float[Tensor, "items dim"], need: Need) -> Float[Tensor, "items dim"]:
    """Returns vectors of the training items; raises where one has no direction."""
    bad = ~vectors.isfinite().all(dim=-1) | (vectors == 0).all(dim=-1)
    if bad.any():
        row = int(bad.nonzero()[0])
        kind = "is all zeros" if vectors[row].isfinite().all() else "holds NaN or infinity"
        raise OldSpaceError(
            f"wanted {MEANING[need]}, finite and with a direction, but row {row} of `{need}` "
            f"{kind} ({int(bad.sum())} such rows). Drop these items, or embed them again."
        )
    return vectors


def check_classifier(old: OldSpace, num_classes: int) -> Float[Tensor, "old_classes dim"]:
    """Returns the old classifier; raises where it cannot be one of the first classes."""
    rows = at_least_single(old.get("classifier"))
    finite = bool(rows.isfinite().all())
    if len(rows) > num_classes or not finite:
        raise OldSpaceError(
            f"wanted the finite weights of at most {num_classes} old classes, the first of the "
            f"new, but got {len(rows)} rows{'' if finite else ' with NaN or infinity'}. Number the "
            f"classes again, those of the old model first."
        )
    return rows


def _what_is_missing(method: type[Method], missing: frozenset[Need], old: OldSpace) -> str:
    """The error of a method that was not given all it needs, with those that would do."""
    from nobackfill.methods import METHODS  # the table knows this file, so not at the top

    name = next((name for name, known in METHODS.items() if known is method), method.__name__)
    wanted = " and ".join(MEANING[need] for need in sorted(missing))
    given = ", ".join(sorted(old.given)) or "nothing"
    enough = ", ".join(name for name, known in METHODS.items() if known.needs <= old.given)
    return (
        f"`{name}` needs {wanted}, but of the old model we have: {given}. "
        f"Pass {', '.join(f'`{need}=`' for need in sorted(missing))} to OldSpace, or choose a "
        f"method that needs no more than that: {enough}."
    )
