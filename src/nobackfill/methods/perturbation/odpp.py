"""ODPP: old prototypes, moved until no two are too close (Zhou et al., 2025, Eqs. 9-11)."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.core.page import Readable
from nobackfill.errors import ConfigError
from nobackfill.methods.checks import check_prototypes, check_same_classes
from nobackfill.methods.perturbation.crowding import crowding_gradient, pair_gradient
from nobackfill.methods.perturbation.near_pairs import NearPairs
from nobackfill.methods.perturbation.summary import summary
from nobackfill.ops.matmul import matmul_precision
from nobackfill.ops.softmax_contrast import before_normalizing

Classes = Float[Tensor, "classes dim"]
Rows = Int[Tensor, " rows"]
Step = tuple[Rows, Float[Tensor, "rows dim"]]  # some classes, each once, and their gradient
Among = Callable[[Tensor], Tensor]  # from the prototypes to the gradient of the first sum
Towards = Callable[[Tensor, Tensor], Tensor]  # from old and new ones to that of the second
CHOICES = {
    "optimizer": ("adam", "sgd"),
    "hinge": ("inner", "cosine"),
    "pairs": ("all", "sampled", "inbatch"),
    "precision": ("float32", "tf32"),
}


def adam_step(gradient: Classes, first: Classes, second: Classes, step: int) -> Classes:
    r"""Returns the direction of Adam's step number `step`, and updates the moments in place.

    .. math::
        m \leftarrow .9 m + .1 g, \quad v \leftarrow .999 v + .001 g^2, \quad
        d = \frac{m / (1 - .9^t)}{\sqrt{v / (1 - .999^t)} + 10^{-8}}
    """
    first.lerp_(gradient, 0.1)
    second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
    return (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)


class OptimizedPerturbation(Readable, nn.Module):
    r"""Old prototypes plus a perturbation, optimised until no two prototypes are too close.

    .. math::
        \tilde p = p + r, \qquad r = \arg\min_r L(r), \qquad
        L = \underbrace{\sum_{c \ne j} [\tilde p_c^\top \tilde p_j - \theta_1]_+}_{\text{Eq. 9}} +
        \gamma \sum_{c \ne j} [\tilde p_c^\top q_j - \theta_2]_+

    Old prototypes :math:`p`, new ones :math:`q` and the perturbation :math:`r` are (classes, dim);
    sums are over *ordered* pairs. The constructor minimises the first sum alone (Eq. 9), starting
    from :math:`r = 0`; `update` continues with both (Eq. 11).

    The paper samples pairs because it holds all of them to be too many. In blocks of rows they are
    not: `pairs="all"` takes `steps` full gradients. `"sampled"` is the printed procedure: `steps`
    epochs of `pairs_per_epoch` random pairs (one random new prototype for each) in batches;
    `"inbatch"` takes as many batches, each with all pairs among `batch_size` random classes.

    Args:
        old: Old prototypes, one row per class.
        old_threshold: Largest similarity of two moved prototypes, :math:`\theta_1`.
        new_threshold: Largest similarity of a moved prototype and another class's new one,
            :math:`\theta_2`.
        new_weight: Weight of the new prototypes in the perturbation, :math:`\gamma`.
        steps: Number of full gradient steps, or of epochs of sampled pairs, in each training epoch.
        learning_rate: Learning rate of the perturbation.
        optimizer: "adam", as in unused code that the authors published, or "sgd" as printed, which
            at this learning rate hardly moves anything with thousands of classes.
        hinge: Similarity that the hinge compares with the threshold: the "inner" product as
            printed, which a shorter prototype satisfies too, or the "cosine".
        pairs: Pairs of classes that are compared: "all", "sampled" or "inbatch".
        pairs_per_epoch: Number of sampled pairs, or of classes in all batches, in each of the
            `steps` epochs. By default the number of training items, as in the paper; the method
            `odpp` reads it from `OldSpace.labels`. Without labels, the number of classes.
        batch_size: Number of sampled pairs, or of classes, in a batch.
        keep_state: Whether the optimiser's moments are kept from one epoch to the next. The
            perturbation itself is kept with `accumulate`.
        normalize: Whether prototypes are scaled to unit length first. If false, pass prototypes
            that are not scaled (`class_means(..., normalize=False)`), as the trainer does.
        accumulate: Whether each epoch continues from the perturbation of the last (Algorithm 2), or
            begins again at :math:`r = 0`.
        precision: Precision of comparing pairs that are too many to list: "float32", or on GPUs
            "tf32".
        generator: Random generator of the pairs. By default each update has one seeded with the
            number of updates so far, so that a resumed training draws the same pairs.
    """

    old: Classes
    perturbation: Classes
    first_moment: Classes
    second_moment: Classes
    counts: Int[Tensor, "2"]  # optimiser steps since its state was reset, updates so far

    def __init__(
        self,
        old: Classes,
        *,
        old_threshold: float = 0.6,
        new_threshold: float = 0.6,
        new_weight: float = 1.0,
        steps: int = 50,
        learning_rate: float = 1e-3,
        optimizer: str = "adam",
        hinge: str = "inner",
        pairs: str = "all",
        pairs_per_epoch: int | None = None,
        batch_size: int = 1024,
        keep_state: bool = True,
        normalize: bool = True,
        accumulate: bool = True,
        precision: str = "float32",
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        check_prototypes(old)
        self.old_threshold, self.new_threshold = old_threshold, new_threshold
        self.new_weight, self.steps, self.learning_rate = new_weight, steps, learning_rate
        self.optimizer, self.hinge, self.pairs = optimizer, hinge, pairs
        self.pairs_per_epoch = len(old) if pairs_per_epoch is None else pairs_per_epoch
        self.batch_size, self.keep_state, self.normalize = batch_size, keep_state, normalize
        self.accumulate, self.precision, self.generator = accumulate, precision, generator
        for name, known in CHOICES.items():
            if (value := getattr(self, name)) not in known:
                raise ConfigError(f"{name} must be one of {', '.join(known)}, not {value!r}.")
        for name in ("steps", "batch_size", "pairs_per_epoch"):
            if (number := getattr(self, name)) < 1:
                raise ConfigError(f"{name} must be at least 1, not {number}.")

        p = F.normalize(old.detach(), dim=-1) if normalize else old.detach().clone()
        self.register_buffer("old", p)
        self.register_buffer("perturbation", torch.zeros_like(p))
        self.register_buffer("first_moment", torch.zeros_like(p))
        self.register_buffer("second_moment", torch.zeros_like(p))
        self.register_buffer("counts", torch.zeros(2, dtype=torch.int64))
        self._minimize(None)

    @property
    def moved(self) -> Classes:
        """The prototypes at their present positions (Eq. 10)."""
        return self.old + self.perturbation

    def extra_repr(self) -> str:
        """Returns the prototypes and how far they have moved, for `repr`."""
        return summary(self, self.old, self.moved)

    def update(self, new: Float[Tensor, "new_classes new_dim"]) -> None:
        """Continues minimising both terms, given the new model's prototypes (Eq. 11)."""
        check_same_classes(self.old, new)
        q = new.detach().to(self.old.dtype)
        unit = self.normalize or self.hinge == "cosine"
        self._minimize(F.normalize(q, dim=-1) if unit else q)

    @torch.no_grad()
    def _minimize(self, q: Classes | None) -> None:
        """Takes the steps of one stage: the first term alone, or both."""
        if not self.keep_state:
            self.first_moment.zero_()
            self.second_moment.zero_()
            self.counts[0] = 0
        if not self.accumulate:
            self.perturbation.zero_()
        step = int(self.counts[0])
        with matmul_precision(self.precision):
            for rows, gradient in self._gradients(q):
                step += 1
                if self.optimizer == "sgd":  # moves only the classes of the batch
                    self.perturbation.index_add_(0, rows, gradient, alpha=-self.learning_rate)
                    continue
                if self.pairs != "all":
                    gradient = torch.zeros_like(self.old).index_copy(0, rows, gradient)
                direction = adam_step(gradient, self.first_moment, self.second_moment, step)
                self.perturbation.sub_(direction, alpha=self.learning_rate)
        self.counts[0] = step
        self.counts[1] += 1

    def _gradient(
        self,
        x: Float[Tensor, "rows dim"],
        q: Float[Tensor, "new_rows dim"] | None,
        among: Among,
        towards: Towards,
    ) -> Float[Tensor, "rows dim"]:
        r"""Returns the gradient of Eq. 11 in moved prototypes `x`; of Eq. 9 if `q` is None.

        .. math::
            \frac{\partial L}{\partial x_c} =
            2 \sum_{j \ne c} \mathbb{1}[x_c^\top x_j > \theta_1]\, x_j +
            \gamma \sum_{j \ne c} \mathbb{1}[x_c^\top q_j > \theta_2]\, q_j

        The functions `among` and `towards` compute the two sums, over all pairs or some of them.
        """
        at = F.normalize(x, dim=-1) if self.hinge == "cosine" else x
        gradient = among(at)  # (rows, dim)
        if q is not None:
            gradient += self.new_weight * towards(at, q)
        return before_normalizing(gradient, x, at) if self.hinge == "cosine" else gradient

    def _gradients(self, q: Classes | None) -> Iterator[Step]:
        """Yields some classes and their gradient at each step; that of all others is 0.

        The prototypes are those that the last step moved. No class occurs twice.
        """
        if self.pairs == "all":
            rows = torch.arange(len(self.old), device=self.old.device)
            near_old, near_new = NearPairs(self.old_threshold), NearPairs(self.new_threshold)
            for _ in range(self.steps):
                yield (
                    rows,
                    self._gradient(
                        self.moved, q, lambda at: 2 * near_old.gradient(at, at), near_new.gradient
                    ),
                )
            return

        # Each epoch of random pairs consists of batches; the last one may be smaller.
        generator = self.generator or torch.Generator().manual_seed(int(self.counts[1]))
        for _ in range(self.steps):
            for first in range(0, self.pairs_per_epoch, self.batch_size):
                if self.pairs == "inbatch":
                    yield self._batch_of_classes(q, generator)
                else:
                    count = min(self.batch_size, self.pairs_per_epoch - first)
                    yield self._batch_of_pairs(q, count, generator)

    def _batch_of_classes(self, q: Classes | None, generator: torch.Generator) -> Step:
        """Some random classes, and their gradient over all pairs among them."""
        drawn = torch.randperm(len(self.old), generator=generator)[: self.batch_size]
        rows = drawn.to(self.old.device)
        return rows, self._gradient(
            self.old[rows] + self.perturbation[rows],
            None if q is None else q[rows],
            lambda at: 2 * crowding_gradient(at, at, self.old_threshold),
            lambda at, q: crowding_gradient(at, q, self.new_threshold),
        )

    def _batch_of_pairs(self, q: Classes | None, count: int, generator: torch.Generator) -> Step:
        """Returns the classes of some random pairs, and their gradient over these pairs."""
        rows = torch.randint(len(self.old), (count,), generator=generator).to(self.old.device)
        pairs = torch.stack([rows, self._draw_others(rows, generator)])  # (2, pairs)
        drawn, (first, second) = pairs.unique(return_inverse=True)

        def among(at: Tensor) -> Tensor:
            of_first = pair_gradient(at, at, first, second, self.old_threshold)
            return of_first + pair_gradient(at, at, second, first, self.old_threshold)

        def towards(at: Tensor, q: Tensor) -> Tensor:
            new = self._draw_others(rows, generator)
            return pair_gradient(at, q, first, new, self.new_threshold)

        x = self.old[drawn] + self.perturbation[drawn]
        return drawn, self._gradient(x, q, among, towards)

    def _draw_others(self, rows: Rows, generator: torch.Generator) -> Rows:
        """Draws another random class for each class."""
        others = torch.randint(len(self.old) - 1, rows.shape, generator=generator).to(rows.device)
        return others + (others >= rows)
