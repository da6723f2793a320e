"""ODPP: prototypes moved until no two are too close. Zhou et al., 2025, optimisation-driven."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.errors import ConfigError
from nobackfill.methods.checks import check_prototypes, check_same_classes
from nobackfill.methods.perturbation.crowding import (
    crowding_gradient,
    pair_gradient,
    project_out_length,
)
from nobackfill.methods.perturbation.near_pairs import NearPairs
from nobackfill.ops.matmul import matmul_precision

Rows = Int[Tensor, " rows"]
Crowding = Callable[[Tensor, Tensor], Tensor]  # places and their neighbours' in, gradient out


def adam_step(
    gradient: Float[Tensor, "classes dim"],
    first: Float[Tensor, "classes dim"],
    second: Float[Tensor, "classes dim"],
    step: int,
) -> Float[Tensor, "classes dim"]:
    r"""The direction Adam takes; the moments are brought up to date in place.

    .. math::
        m \leftarrow .9 m + .1 g, \quad v \leftarrow .999 v + .001 g^2, \quad
        d = \frac{m / (1 - .9^t)}{\sqrt{v / (1 - .999^t)} + 10^{-8}}
    """
    first.lerp_(gradient, 0.1)
    second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
    return (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)


class OptimizedPerturbation(nn.Module):
    r"""Old prototypes plus a perturbation that gradient steps make larger where it is crowded.

    .. math::
        \tilde p = p + r, \qquad r = \arg\min_r \;
        \sum_{c \ne c'} [\tilde p_c^\top \tilde p_{c'} - \theta_1]_+ \;+\;
        \gamma \sum_{c \ne c'} [\tilde p_c^\top q_{c'} - \theta_2]_+,

    over *ordered* pairs, with :math:`p` the old and :math:`q` the new prototypes. The constructor
    minimises the first term alone, starting from :math:`r = 0`; `update` goes on with both.

    The paper samples pairs, saying that all of them cannot be had; in blocks of rows they can, and
    those too far apart to matter soon are passed over: `pairs="all"` takes `steps` full gradients.
    `"sampled"` is the printed procedure: `steps` epochs of `pairs_per_epoch` random pairs (one
    random new prototype for each) in batches; `"inbatch"` takes as many batches, each with all
    pairs among `batch_size` random classes.

    Args:
        old: The old prototypes, one row per class.
        old_threshold: :math:`\theta_1`: old prototypes may come as near as this.
        new_threshold: :math:`\theta_2`.
        new_weight: :math:`\gamma`.
        steps: Full gradients, or epochs of sampled pairs, in the constructor and in each update.
        learning_rate: Of the perturbation.
        optimizer: "adam" as in left-over code of the authors, or "sgd" as printed, which at
            this learning rate hardly moves anything.
        hinge: On the "inner" product as printed, which a shorter prototype satisfies too, or on
            the "cosine".
        pairs: "all", "sampled" or "inbatch".
        pairs_per_epoch: For sampled and in-batch pairs; the paper takes the number of training
            images. By default the number of classes.
        batch_size: Of sampled pairs, or of classes in a batch.
        keep_state: Whether the optimiser's moments live on from one update to the next. The
            perturbation itself always does.
        normalize: Whether prototypes are made unit first.
        precision: In which all pairs are compared where they are too many to be listed: "float32",
            or for GPUs "tf32".
        generator: Draws the pairs. By default each update draws from a generator seeded with the
            number of updates so far, so that a resumed training draws the same ones.
    """

    old: Float[Tensor, "classes dim"]
    perturbation: Float[Tensor, "classes dim"]
    first_moment: Float[Tensor, "classes dim"]
    second_moment: Float[Tensor, "classes dim"]
    counts: Int[Tensor, "2"]  # optimiser steps since its state was reset, updates so far

    def __init__(
        self,
        old: Float[Tensor, "classes dim"],
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
        precision: str = "float32",
        generator: torch.Generator | None = None,
    ):
        super().__init__()
        check_prototypes(old)
        _check_choice("optimizer", optimizer, ("adam", "sgd"))
        _check_choice("hinge", hinge, ("inner", "cosine"))
        _check_choice("pairs", pairs, ("all", "sampled", "inbatch"))
        _check_choice("precision", precision, ("float32", "tf32"))
        _check_positive("steps", steps)
        _check_positive("batch_size", batch_size)
        _check_positive("pairs_per_epoch", len(old) if pairs_per_epoch is None else pairs_per_epoch)
        self.old_threshold, self.new_threshold = old_threshold, new_threshold
        self.new_weight, self.steps, self.learning_rate = new_weight, steps, learning_rate
        self.optimizer, self.hinge, self.pairs = optimizer, hinge, pairs
        self.pairs_per_epoch = pairs_per_epoch or len(old)
        self.batch_size, self.keep_state, self.normalize = batch_size, keep_state, normalize
        self.precision, self.generator = precision, generator
        p = F.normalize(old.detach(), dim=-1) if normalize else old.detach().clone()
        self.register_buffer("old", p)
        self.register_buffer("perturbation", torch.zeros_like(p))
        self.register_buffer("first_moment", torch.zeros_like(p))
        self.register_buffer("second_moment", torch.zeros_like(p))
        self.register_buffer("counts", torch.zeros(2, dtype=torch.int64))
        self._minimize(None)

    @property
    def moved(self) -> Float[Tensor, "classes dim"]:
        """The prototypes where they are now."""
        return self.old + self.perturbation

    def update(self, new: Float[Tensor, "new_classes new_dim"]) -> None:
        """Goes on minimising both terms, given the new model's prototypes."""
        check_same_classes(self.old, new)
        q = new.detach().to(self.old.dtype)
        unit = self.normalize or self.hinge == "cosine"
        self._minimize(F.normalize(q, dim=-1) if unit else q)

    @torch.no_grad()
    def _minimize(self, new: Float[Tensor, "classes dim"] | None) -> None:
        """Takes the steps of one stage: the old term alone, or both."""
        if not self.keep_state:
            self.first_moment.zero_()
            self.second_moment.zero_()
            self.counts[0] = 0
        step = int(self.counts[0])
        with matmul_precision(self.precision):
            for gradient in self._gradients(new):
                step += 1
                if self.optimizer == "adam":
                    gradient = adam_step(gradient, self.first_moment, self.second_moment, step)
                self.perturbation.sub_(gradient, alpha=self.learning_rate)
        self.counts[0] = step
        self.counts[1] += 1

    def _gradients(
        self, new: Float[Tensor, "classes dim"] | None
    ) -> Iterator[Float[Tensor, "classes dim"]]:
        """Yields one gradient per step, at the place the prototypes have reached by then."""
        if self.pairs == "all":
            among, towards_new = NearPairs(self.old_threshold), NearPairs(self.new_threshold)
            for _ in range(self.steps):
                yield self._all_pairs(self.moved, new, among.gradient, towards_new.gradient)
            return
        generator = self.generator or torch.Generator().manual_seed(int(self.counts[1]))
        batches = -(-self.pairs_per_epoch // self.batch_size)
        for step in range(self.steps * batches):
            if self.pairs == "inbatch":
                yield self._batch_of_classes(new, generator)
            else:
                drawn = step % batches * self.batch_size
                count = min(self.batch_size, self.pairs_per_epoch - drawn)
                yield self._batch_of_pairs(new, count, generator)

    def _all_pairs(
        self,
        x: Float[Tensor, "rows dim"],
        new: Float[Tensor, "rows dim"] | None,
        among: Crowding,
        towards_new: Crowding,
    ) -> Float[Tensor, "rows dim"]:
        """The gradient of both terms over all ordered pairs of the rows."""
        at = F.normalize(x, dim=-1) if self.hinge == "cosine" else x
        gradient = 2 * among(at, at)
        if new is not None:
            gradient += self.new_weight * towards_new(at, new)
        return project_out_length(gradient, x) if self.hinge == "cosine" else gradient

    def _batch_of_classes(
        self, new: Float[Tensor, "classes dim"] | None, generator: torch.Generator
    ) -> Float[Tensor, "classes dim"]:
        """The gradient over all pairs among some random classes, 0 for the others."""
        drawn = torch.randperm(len(self.old), generator=generator)[: self.batch_size]
        rows = drawn.to(self.old.device)
        part = self._all_pairs(
            self.moved[rows],
            None if new is None else new[rows],
            partial(crowding_gradient, threshold=self.old_threshold),
            partial(crowding_gradient, threshold=self.new_threshold),
        )
        return torch.zeros_like(self.old).index_copy(0, rows, part)

    def _batch_of_pairs(
        self, new: Float[Tensor, "classes dim"] | None, count: int, generator: torch.Generator
    ) -> Float[Tensor, "classes dim"]:
        """The gradient over some random pairs, 0 for the classes of none."""
        x = self.moved
        at = F.normalize(x, dim=-1) if self.hinge == "cosine" else x
        rows, others = self._draw_pairs(count, generator)
        gradient = pair_gradient(at, at, rows, others, self.old_threshold)
        gradient += pair_gradient(at, at, others, rows, self.old_threshold)
        if new is not None:
            others = self._other_than(rows, generator)
            gradient += self.new_weight * pair_gradient(at, new, rows, others, self.new_threshold)
        return project_out_length(gradient, x) if self.hinge == "cosine" else gradient

    def _draw_pairs(self, count: int, generator: torch.Generator) -> tuple[Rows, Rows]:
        """Draws random pairs of different classes."""
        rows = torch.randint(len(self.old), (count,), generator=generator).to(self.old.device)
        return rows, self._other_than(rows, generator)

    def _other_than(self, rows: Rows, generator: torch.Generator) -> Rows:
        """Draws, for each class, a random other one."""
        others = torch.randint(len(self.old) - 1, rows.shape, generator=generator).to(rows.device)
        return others + (others >= rows)


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"wanted {name} to be one of {', '.join(known)}, but got {value!r}.")


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ConfigError(f"wanted {name} of at least 1, but got {value}.")
