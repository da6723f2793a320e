"""ODPP and ODPP-old: align with old prototypes that gradient steps have moved apart.

Zhou et al., Prototype Perturbation for Relaxing Alignment Constraints in Backward-Compatible
Learning, 2025, Eqs. 9-11 and Algorithm 2. https://arxiv.org/abs/2503.14824
"""

from typing import Any

from nobackfill.methods.old_space import OldSpace
from nobackfill.methods.options import passes_on
from nobackfill.methods.perturbation.odpp import OptimizedPerturbation
from nobackfill.methods.perturbed_alignment import PerturbedAlignment


class ODPP(PerturbedAlignment):
    r"""`PrototypeAlignment` towards prototypes kept apart from each other and from new ones.

    A perturbation :math:`r` keeps the old prototypes :math:`p` apart (Eqs. 9-11). Before training,
    only the first sum is minimised. At the start of each epoch, both sums are minimised, with the
    new model's prototypes :math:`q`:

    .. math::
        \tilde p = p + r, \qquad
        r = \arg\min_r \; \sum_{c \ne c'} \max(0, \tilde p_c^\top \tilde p_{c'} - \theta_1) +
        \gamma \sum_{c \ne c'} \max(0, \tilde p_c^\top q_{c'} - \theta_2)

    The loss is that of `NDPP` (Eq. 6); only the prototype that attracts an embedding is moved:

    .. math::
        \mathrm{CE}(W e, y) - \lambda \log \frac{\exp(\cos(e, \tilde p_y) / \tau)}
        {\exp(\cos(e, \tilde p_y) / \tau) + \sum_{c \ne y} \exp(\cos(e, p_c) / \tau)}

    Shapes: :math:`p, \tilde p, q, r` are (classes, dim) and :math:`e` is (batch, dim). Both sums
    run over ordered pairs. :math:`r` starts at zero and takes `steps` steps each time.

    New classes:
        New classes take part like all others: their prototypes are means of the old model's
        vectors, although it was never trained on their images. They are kept apart too.

    Differences:
        The paper uses SGD (`optimizer = "sgd"`), which at the printed learning rate hardly moves
        anything with thousands of classes. The default here is Adam, as in unused code that the
        authors published. The paper draws as many random pairs as there are training images
        (`pairs = "sampled"`), but its count of operations fits all pairs in a batch
        (`pairs = "inbatch"`). The default here is all pairs. Recipes named `odpp_printed.toml`
        follow the printed procedure, with SGD and sampled pairs. Algorithm 2 continues from the
        last epoch's perturbation; `accumulate = false` starts again each epoch. The paper does not
        say whether embeddings, or their means, have unit length (`unit_items`, `normalize`); with
        shorter prototypes, fewer pairs exceed the thresholds. The hinge is on the inner product as
        printed (`hinge = "inner"`), which a shorter prototype satisfies too; `hinge = "cosine"`
        uses the cosine, as the loss does.

    Relations:
        `ODPPOld` stops after the first stage, which uses only the old prototypes.
    """

    perturb: OptimizedPerturbation
    __init__ = passes_on(OptimizedPerturbation, without=["generator"], before="warmup_epochs")(
        PerturbedAlignment.__init__
    )

    def make_perturbation(self, old: OldSpace, **options: Any) -> OptimizedPerturbation:
        """Moves the prototypes apart (Eqs. 9-10)."""
        if options.get("pairs_per_epoch") is None:
            options["pairs_per_epoch"] = count_items(old)
        return OptimizedPerturbation(self.old, **options)


def count_items(old: OldSpace) -> int | None:
    """Returns the number of training items; None if the old space does not contain it."""
    known = next((part for part in (old.labels, old.embeddings) if part is not None), None)
    return None if known is None else len(known)


class ODPPOld(ODPP):
    r"""`ODPP` with the old prototypes only (Eqs. 9-10), once before training.

    .. math::
        \mathrm{CE}(W e, y) - \lambda \log \frac{\exp(\cos(e, \tilde p_y) / \tau)}
        {\exp(\cos(e, \tilde p_y) / \tau) + \sum_{c \ne y} \exp(\cos(e, p_c) / \tau)}, \qquad
        \tilde p = p + r

    .. math::
        r = \arg\min_r \; \sum_{c \ne c'} \max(0, \tilde p_c^\top \tilde p_{c'} - \theta_1)

    Relations:
        `ODPP` continues from here with the new model's prototypes.
    """

    @passes_on(
        ODPP, without=["new_threshold", "new_weight", "keep_state", "accumulate", "warmup_epochs"]
    )
    def __init__(self, old: OldSpace, num_classes: int, **options: Any):
        super().__init__(old, num_classes, **options)

    def start_epoch(self, epoch: int, epochs: int, **unused: Any) -> None:
        """Does nothing: the prototypes moved before training."""
