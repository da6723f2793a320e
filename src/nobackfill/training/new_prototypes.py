"""Prototypes and embeddings of the new model before an epoch, computed only if a method needs them.

`RunningMeans` approximates the prototypes from the training batches and saves the extra pass over
the training set.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.core import distributed
from nobackfill.methods.prototypes import class_means
from nobackfill.training.forward import WHOLE, ForwardPass


class RunningMeans(nn.Module):
    r"""Sums of the unit embeddings of each class over an epoch.

    .. math::
        q_c = \frac{m_c}{\lVert m_c \rVert}, \qquad
        m_c = \frac{1}{n_c} \sum_{b} \sum_{i \in b : y_i = c} \frac{e_i}{\lVert e_i \rVert}

    Each :math:`e_i` is the embedding of an augmented image by the model in train mode, at batch
    `b`. The result approximates the class means over the training set at the end of the epoch. A
    class that occurs in no batch keeps its previous mean. `unit_items` and `normalize` are those of
    `class_means`.
    """

    sums: Float[Tensor, "classes dim"]
    counts: Float[Tensor, " classes"]
    last: Float[Tensor, "classes dim"]

    def __init__(
        self, num_classes: int, dim: int, *, unit_items: bool = True, normalize: bool = True
    ):
        super().__init__()
        self.unit_items, self.normalize = unit_items, normalize
        self.register_buffer("sums", torch.zeros(num_classes, dim))
        self.register_buffer("counts", torch.zeros(num_classes))
        self.register_buffer("last", torch.zeros(num_classes, dim))

    @torch.no_grad()
    def add(self, new: Float[Tensor, "batch dim"], labels: Int[Tensor, " batch"]) -> None:
        """Adds a training batch to the sums."""
        items = F.normalize(new, dim=-1) if self.unit_items else new.to(self.sums.dtype)
        self.sums.index_add_(0, labels, items)
        self.counts.index_add_(0, labels, torch.ones_like(labels, dtype=self.counts.dtype))

    def take(self) -> Float[Tensor, "classes dim"] | None:
        """Returns the means of the last epoch and resets the sums; None while a class has none."""
        has_items = self.sums.norm(dim=-1, keepdim=True) > 0
        means = self.sums / self.counts.clamp(min=1)[:, None]
        if self.normalize:
            means = F.normalize(self.sums, dim=-1)
        self.last = torch.where(has_items, means, self.last)
        self.sums.zero_()
        self.counts.zero_()
        return self.last.clone() if bool((self.last != 0).any(dim=-1).all()) else None


class NewSpace:
    """Embeddings and prototypes of the new model before an epoch; each is computed at most once.

    `embed` embeds a part of the items with the new model. Without `running_means` of the last
    epoch, the prototypes cost a pass over the training set. `averaging` are options of
    `class_means`; `compared` is that of the method: prototypes are means of what it returns.
    """

    def __init__(
        self,
        forward_pass: ForwardPass,
        embed: Callable[..., Float[Tensor, "items dim"]],
        num_classes: int,
        running_means: RunningMeans | None,
        averaging: Mapping[str, bool] = MappingProxyType({}),
        compared: Callable[[Tensor], Tensor] = lambda new: new,
    ):
        self._forward_pass, self._embed, self._compared = forward_pass, embed, compared
        self._num_classes, self._running_means = num_classes, running_means
        self._averaging = averaging
        self._embeddings: Tensor | None = None
        self._prototypes: Tensor | None = None

    def embeddings(self) -> Float[Tensor, "items dim"]:
        """Embeds every item; costs a pass over the training set."""
        if self._embeddings is None:
            self._embeddings = self._embed(part=WHOLE)
        return self._embeddings

    def prototypes(self) -> Float[Tensor, "classes dim"]:
        """Returns the class means: the running means if available, else those of a pass."""
        if self._prototypes is None and self._running_means is not None:
            self._prototypes = self._running_means.take()
        if self._prototypes is None:
            # Each process embeds its part; the processes add their class sums.
            part = distributed.part()
            with distributed.single_process():
                embeddings = self.embeddings() if part == WHOLE else self._embed(part=part)
            labels = self._forward_pass.labels(part).to(embeddings.device)
            with torch.no_grad():
                compared = self._compared(embeddings)
            self._prototypes = class_means(
                compared, labels, self._num_classes, over_processes=True, **self._averaging
            )
        return self._prototypes

    def free_embeddings(self) -> None:
        """Frees the embeddings, which are as large as the training set."""
        self._embeddings = None
