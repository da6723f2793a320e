"""What every method looks like from the outside."""

from collections.abc import Callable
from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.errors import DataError, OldSpaceError
from nobackfill.oldspace import MEANING, Need, OldSpace
from nobackfill.prototypes import check_labels

Terms = dict[str, Float[Tensor, ""]]
Prototypes = Callable[[], Float[Tensor, "classes dim"]]
Embeddings = Callable[[], Float[Tensor, "items dim"]]


class Method(nn.Module):
    """One way to train a new model so that it can query the old gallery.

    A subclass says in `needs` what it asks of the old model; the trainer prepares exactly that.

    Args:
        old: What is known of the old model.
        num_classes: How many classes the new model is trained on.
    """

    needs: ClassVar[frozenset[Need]] = frozenset()

    def __init__(self, old: OldSpace, num_classes: int):
        super().__init__()
        if num_classes < 2:
            raise DataError(
                f"wanted at least two classes to train on, but got {num_classes}. "
                f"Check the label column."
            )
        if missing := self.needs - old.given:
            raise OldSpaceError(_what_is_missing(type(self), missing, old))

    def start_epoch(
        self, epoch: int, epochs: int, *, new_prototypes: Prototypes, new_embeddings: Embeddings
    ) -> None:
        """Called before each epoch, the first being 0.

        The last two are functions, because each costs a pass over the training set: a method that
        does not call them does not pay.
        """

    def forward(
        self,
        new: Float[Tensor, "batch dim"],
        labels: Int[Tensor, " batch"],
        *,
        items: Int[Tensor, " batch"] | None = None,
    ) -> Terms:
        """Returns the named terms of the loss; their sum is minimised, each is logged.

        Args:
            new: The new model's embeddings, of any length.
            labels: Their classes.
            items: Their rows in `OldSpace.embeddings`.
        """
        raise NotImplementedError

    def query(self, vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows query_dim"]:
        """Turns the new model's embeddings into query vectors."""
        return vectors

    def gallery(self, vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows gallery_dim"]:
        """Turns the new model's embeddings into gallery vectors."""
        return vectors


class ClassifyingMethod(Method):
    """A method whose first term is the classification loss of the new model, as nearly all have.

    Args:
        old: What is known of the old model.
        num_classes: How many classes the new model is trained on.
        dim: Of the new embedding; found at the first batch where it is not given.
    """

    def __init__(self, old: OldSpace, num_classes: int, *, dim: int | None = None):
        super().__init__(old, num_classes)
        self.num_classes = num_classes
        self.classifier = (
            nn.LazyLinear(num_classes, bias=False)
            if dim is None
            else nn.Linear(dim, num_classes, bias=False)
        )

    def classification(
        self, new: Float[Tensor, "batch dim"], labels: Int[Tensor, " batch"]
    ) -> Float[Tensor, ""]:
        """Cross entropy of the new classifier on the raw embedding."""
        if labels.device.type == "cpu":  # on a GPU, looking would stop it
            check_labels(labels, self.num_classes)
        return F.cross_entropy(self.classifier(new), labels)


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
