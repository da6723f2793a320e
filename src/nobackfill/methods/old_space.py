"""The known parts of the old model: sometimes its weights, often only its vectors."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.core.short import Short
from nobackfill.errors import OldSpaceError

Need = Literal["prototypes", "embeddings", "classifier", "independent"]

MEANING: dict[Need, str] = {
    "prototypes": "the mean old embedding of each class",
    "embeddings": "the old embedding of each training item",
    "classifier": "the weights of the old classification head",
    "independent": "the embeddings of an independently trained new model, one per training item",
}


@dataclass(frozen=True, eq=False, repr=False)
class OldSpace(Short):
    """The known parts of the old embedding space. Classes of the old model come first.

    Attributes:
        prototypes: One row for each class of the *new* training set, as of `class_means`.
        embeddings: One row per training item, in the order of the training set.
        classifier: One row for each class the old model was trained on.
        independent: Embeddings of an independently trained new model, rows as in `embeddings`.
        labels: Class of each training item. Without them, a method that needs them learns them from
            the batches, an epoch later.
        known_classes: Number of classes, the first, that the old model was trained on. None means
            all.
    """

    prototypes: Float[Tensor, "classes prototype_dim"] | None = None
    embeddings: Float[Tensor, "items item_dim"] | None = None
    classifier: Float[Tensor, "old_classes classifier_dim"] | None = None
    independent: Float[Tensor, "independent_items new_dim"] | None = None
    labels: Int[Tensor, " labels"] | None = None
    known_classes: int | None = None

    @property
    def given(self) -> frozenset[Need]:
        """Names of the known parts."""
        return frozenset(need for need in MEANING if getattr(self, need) is not None)

    @property
    def dim(self) -> int | None:
        """Dimension of the old vectors; None if none are known."""
        parts = {name: getattr(self, name) for name in ("prototypes", "embeddings", "classifier")}
        dims = {name: part.shape[1] for name, part in parts.items() if part is not None}
        if len(set(dims.values())) > 1:
            listed = ", ".join(f"{name} {dim}" for name, dim in dims.items())
            raise OldSpaceError(
                f"All parts of an old space must have the same dimension, but got {listed}. Take "
                f"them from one old model."
            )
        return next(iter(dims.values()), None)

    def get(self, need: Need) -> Float[Tensor, "rows columns"]:
        """Returns one part; `Method` has checked that it is known."""
        part: Tensor | None = getattr(self, need)
        assert part is not None
        return part

    def to(self, device: torch.device | str) -> "OldSpace":
        """Returns the same parts on another device."""
        tensors = {name: getattr(self, name) for name in (*MEANING, "labels")}
        moved: dict[str, Any] = {k: t.to(device) for k, t in tensors.items() if t is not None}
        return replace(self, **moved)
