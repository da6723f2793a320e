"""Ridge regressions onto mixtures of an item's own old vector and the mean of its class."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from nobackfill.head import closed_form
from nobackfill.head.closed_form import Affine, Moments, moments, ridge_of
from nobackfill.head.examples import Examples
from nobackfill.methods.prototypes import class_means

SHARES = (0.25, 0.5, 0.75)  # shares of the class mean in a target
STRENGTH = 0.1  # of the ridge regressions onto mixtures


def target_moments(examples: Examples, widths: list[int]) -> list[Moments]:
    """Computes the statistics of new vectors and both targets, for each modality.

    The old rows are an item's unit old vector followed by the mean of its class, so that one pass
    serves every mixture.
    """
    assert examples.classes is not None
    means = class_means(examples.old, examples.classes, examples.number)

    def blocks(modality: int | None, width: int) -> Iterator[tuple[Tensor, Tensor]]:
        for places in examples.places(modality):
            own = F.normalize(examples.old[places].float(), dim=1)
            targets = torch.cat([own, means[examples.classes[places]]], dim=1)  # type: ignore[index]
            yield examples.new_of(places)[:, :width], targets

    if examples.modality is None:
        return [moments(blocks(None, widths[0]), unit_old=False)]
    return [
        moments(blocks(modality, width), unit_old=False) for modality, width in enumerate(widths)
    ]


def mixture(statistics: Moments, share: float) -> Moments:
    r"""Returns the statistics of new vectors and mixed targets.

    .. math::
        t_i = (1 - \beta)\, \hat o_i + \beta\, p_{y_i}

    with the unit old vector :math:`\hat o_i` of an item, the mean :math:`p_{y_i}` of its class and
    the share :math:`\beta`. Both statistics are linear in the targets. An item's own vector places
    the map in the old space; the mean of its class lets it forget what differs within classes.
    """
    dim = len(statistics.old_mean) // 2

    def mixed(both: Float[Tensor, "two_targets ..."]) -> Float[Tensor, "target ..."]:
        return (1 - share) * both[:dim] + share * both[dim:]

    return Moments(
        statistics.new_mean,
        mixed(statistics.old_mean),
        statistics.new_new,
        mixed(statistics.old_new),
        statistics.rows,
    )


def forms_of(statistics: Moments) -> dict[str, Affine]:
    """Returns every closed form by name: rotation, ridge regressions, and those onto mixtures."""
    forms = closed_form.forms_of(mixture(statistics, 0.0))
    for share in SHARES:
        form = ridge_of(mixture(statistics, share), strength=STRENGTH)
        forms[f"ridge {STRENGTH:g}, {share:.0%} class means"] = form.to(torch.float32)
    return forms
