"""The new model's space before an epoch, looked at only where a method asks for it."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from nobackfill.core import distributed
from nobackfill.methods.prototypes import class_means
from nobackfill.training.forward import WHOLE, Sight
from nobackfill.training.new_prototypes_running import RunningMeans


class NewSpace:
    """What a method may ask of the new model before an epoch: each is made once, if at all.

    Args:
        sight: Which items there are, and of which classes.
        embed: Embeds a part of them by the new model, as for a test.
        num_classes: Of the training set.
        running: Takes the place of a pass over the training set where prototypes are wanted.
    """

    def __init__(
        self,
        sight: Sight,
        embed: Callable[..., Float[Tensor, "items dim"]],
        num_classes: int,
        running: RunningMeans | None,
    ):
        self._sight, self._embed = sight, embed
        self._num_classes, self._running = num_classes, running
        self._embeddings: Tensor | None = None
        self._prototypes: Tensor | None = None

    def embeddings(self) -> Float[Tensor, "items dim"]:
        """Of every item; costs a pass over the training set."""
        if self._embeddings is None:
            self._embeddings = self._embed(part=WHOLE)
        return self._embeddings

    def prototypes(self) -> Float[Tensor, "classes dim"]:
        """Class means: running ones where there are any, else those of a pass."""
        if self._prototypes is None:
            means = None if self._running is None else self._running.take()
            self._prototypes = self._means_of_a_pass() if means is None else means
        return self._prototypes

    def forget_embeddings(self) -> None:
        """Lets go of what is as large as the training set."""
        self._embeddings = None

    def _means_of_a_pass(self) -> Float[Tensor, "classes dim"]:
        """Class means of all items, of which each process embeds its part."""
        part = distributed.part()
        with distributed.alone():
            embeddings = self.embeddings() if part == WHOLE else self._embed(part=part)
        labels = self._sight.labels(part).to(embeddings.device)
        return class_means(embeddings, labels, self._num_classes, over_processes=True)
