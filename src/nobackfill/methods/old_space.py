"""What is known of the old model: sometimes its weights, often only its vectors."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.errors import OldSpaceError

Need = Literal["prototypes", "embeddings", "classifier", "independent"]

MEANING: dict[Need, str] = {
    "prototypes": "the mean old embedding of each class",
    "embeddings": "the old embedding of each training item",
    "classifier": "the weights of the old classification head",
    "independent": "the embeddings of an independently trained new model, one per training item",
}


@dataclass(frozen=True)
class OldSpace:
    """The old embedding space, as far as it is known. Classes the old model knows come first.

    Attributes:
        prototypes: One unit row for each class of the *new* training set.
        embeddings: One row per training item, in the order of the training set.
        classifier: One row for each class the old model was trained on.
        independent: Embeddings of an independently trained new model, rows as in `embeddings`.
        labels: The class of each training item. A method that wants them learns them from the
            batches where they are not given, an epoch later.
        known_classes: How many classes, the first, the old model was trained on; where it is not
            given, all count as known.
    """

    prototypes: Float[Tensor, "classes prototype_dim"] | None = None
    embeddings: Float[Tensor, "items item_dim"] | None = None
    classifier: Float[Tensor, "old_classes classifier_dim"] | None = None
    independent: Float[Tensor, "independent_items new_dim"] | None = None
    labels: Int[Tensor, " labels"] | None = None
    known_classes: int | None = None

    @property
    def given(self) -> frozenset[Need]:
        """The parts that are known."""
        return frozenset(need for need in MEANING if getattr(self, need) is not None)

    @property
    def dim(self) -> int | None:
        """The dimension of the old vectors, where any are known."""
        parts = {"prototypes": self.prototypes, "embeddings": self.embeddings}
        dims = {
            name: part.shape[1]
            for name, part in (parts | {"classifier": self.classifier}).items()
            if part is not None
        }
        if len(set(dims.values())) > 1:
            listed = ", ".join(f"{name} {dim}" for name, dim in dims.items())
            raise OldSpaceError(
                f"wanted all parts of one old space in the same dimension, but got {listed}. Take "
                f"them from one old model."
            )
        return next(iter(dims.values()), None)

    def get(self, need: Need) -> Float[Tensor, "rows columns"]:
        """Returns one part of the old space, or says how to provide it."""
        part: Tensor | None = getattr(self, need)
        if part is None:
            given = ", ".join(sorted(self.given)) or "nothing"
            raise OldSpaceError(
                f"this method needs {MEANING[need]}, but of the old model we have: {given}. "
                f"Pass `{need}=` to OldSpace, or choose a method that needs less "
                f"(`nobackfill methods` lists what each one needs)."
            )
        return part

    def to(self, device: torch.device | str) -> "OldSpace":
        """Returns the same knowledge on another device."""
        tensors = {name: getattr(self, name) for name in (*MEANING, "labels")}
        moved: dict[str, Any] = {k: t.to(device) for k, t in tensors.items() if t is not None}
        return replace(self, **moved)
