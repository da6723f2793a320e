"""Scores by which gallery items are embedded again first, from old vectors and known new ones."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.evaluation.metrics import unit
from nobackfill.ops.nearest import rows_per_block

CLEAR_FIRST, UNCLEAR_FIRST = 0.25, -0.25  # leans: how much more clear items gain than others
TEMPERATURE = 0.1  # of `uncertainty`; chosen on landmarks50 and omniglot


def margin(
    vectors: Float[Tensor, "items dim"], classes: Int[Tensor, " items"]
) -> Float[Tensor, " items"]:
    r"""Returns how much nearer an item is to its own class than to any other.

    .. math::
        m_i = \cos(v_i,\, s_{y_i} - v_i) - \max_{c \ne y_i} \cos(v_i, s_c), \qquad
        s_c = \sum_{j : y_j = c} v_j

    with vectors of unit length. An item that is alone in its class is compared with itself, and
    so is clear. A class whose vectors cancel out has a cosine of 0. There must be at least two
    classes. Memory is linear in the items.

    Example:
        >>> margin(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), torch.tensor([0, 0, 1]))
        tensor([ 0.6000, -0.2000,  0.5528])
    """
    vectors, classes, sums = _class_sums(vectors, classes)
    alone = (classes.bincount(minlength=len(sums)) == 1)[classes]
    margins = []
    for rows, cosine in _cosines(vectors, sums):
        item, own = vectors[rows], classes[rows]
        others = sums[own] - item * (~alone[rows, None])  # the class without the item itself
        cosine.scatter_(1, own[:, None], -torch.inf)
        margins.append((item * _direction(others)).sum(dim=1) - cosine.amax(dim=1))
    return torch.cat(margins)


def uncertainty(
    vectors: Float[Tensor, "items dim"],
    classes: Int[Tensor, " items"],
    *,
    temperature: float = TEMPERATURE,
) -> Float[Tensor, " items"]:
    r"""Returns how uncertain the class of an item is (RACT's order: highest first).

    .. math::
        H_i = -\sum_c \pi_{ic} \log \pi_{ic}, \qquad
        \pi_i = \mathrm{softmax}_c\big(\cos(v_i, s_c) / \tau\big)

    with the class sums :math:`s_c` of `margin`, from which nothing is left out, and the
    temperature :math:`\tau`. Zhang et al., Hot-Refresh Model Upgrades with Regression-Free
    Compatible Training, ICLR 2022.

    Example:
        >>> uncertainty(torch.eye(2), torch.tensor([0, 1]), temperature=1.0)
        tensor([0.5822, 0.5822])
    """
    vectors, _, sums = _class_sums(vectors, classes)
    entropies = []
    for _, cosine in _cosines(vectors, sums):
        log = F.log_softmax(cosine / temperature, dim=1)
        entropies.append(-(log.exp() * log).sum(dim=1))
    return torch.cat(entropies)


def expected_gain(
    old: Float[Tensor, " items"],
    new: Float[Tensor, " items"] | None = None,
    *,
    lean: float = CLEAR_FIRST,
    traffic: Float[Tensor, " items"] | None = None,
) -> Float[Tensor, " items"]:
    r"""Returns the expected gain of embedding an item again.

    .. math::
        g_i = t_i \cdot \mathrm{place}(x_i), \qquad x_i = \begin{cases}
            z'_i - z_i / 2 & \text{where its new vector is known} \\
            \lambda z_i & \text{elsewhere}
        \end{cases}

    with the margins :math:`z` of the old and :math:`z'` of the new vectors in deviations from
    their means, and the share of items whose :math:`x` is no higher as :math:`\mathrm{place}`.
    The first case is the mean of where an item will be (:math:`z'`) and of how far it rises
    (:math:`z' - z`): an item that rises but stays low is hardly found more often.

    Args:
        old: Margin of each item by old vectors.
        new: Margin by new vectors; NaN where it is unknown.
        lean: :math:`\lambda`: above 0 for clear items first, below for unclear ones.
        traffic: Number of requests of each item in any unit; None if equal.

    Example:
        >>> expected_gain(torch.tensor([0.1, 0.3, 0.2, 0.3]))
        tensor([0.2500, 1.0000, 0.5000, 1.0000])
    """
    score = lean * _standard(old)
    if new is not None:
        score = torch.where(new.isnan(), score, _standard(new) - _standard(old) / 2)
    return weighed(score, traffic)


def weighed(
    score: Float[Tensor, " items"], traffic: Float[Tensor, " items"] | None
) -> Float[Tensor, " items"]:
    r"""Returns the share of items with no higher score, times traffic.

    Example:
        >>> weighed(torch.tensor([-3.0, 8.0]), torch.tensor([10.0, 1.0]))
        tensor([5., 1.])
    """
    place = torch.searchsorted(score.sort().values, score, right=True) / len(score)
    return place if traffic is None else place * traffic


def best_first(score: Float[Tensor, " items"]) -> Int[Tensor, " items"]:
    """Returns the rows by descending score; equal ones keep their order."""
    return score.argsort(descending=True, stable=True).cpu()


def random_order(number: int, *, seed: int) -> Int[Tensor, " items"]:
    """Returns the rows in a random order, the same on every device."""
    return torch.randperm(number, generator=torch.Generator().manual_seed(seed))


def _class_sums(
    vectors: Float[Tensor, "items dim"], classes: Int[Tensor, " items"]
) -> tuple[Float[Tensor, "items dim"], Int[Tensor, " items"], Float[Tensor, "classes dim"]]:
    """Returns unit vectors, classes numbered from 0, and the sum of each class."""
    if len(classes) == 0 or classes.min() == classes.max():
        raise DataError(
            "Items must be of two classes or more, but all have the same class. Check the column "
            "`label`, or name a column of groups."
        )
    known, classes = classes.unique(return_inverse=True)
    vectors = unit(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), "gallery")
    sums = vectors.new_zeros(len(known), vectors.shape[1]).index_add(0, classes, vectors)
    return vectors, classes, sums


def _cosines(
    vectors: Float[Tensor, "items dim"], sums: Float[Tensor, "classes dim"]
) -> Iterator[tuple[Int[Tensor, " block"], Float[Tensor, "block classes"]]]:
    """Yields blocks of rows with their cosines to all class sums."""
    means = _direction(sums)
    block = rows_per_block(len(sums) * vectors.element_size())
    for rows in torch.arange(len(vectors), device=vectors.device).split(block):
        yield rows, vectors[rows] @ means.T


def _direction(sums: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows dim"]:
    """Returns rows of unit length; zeros where vectors cancel out."""
    length = sums.norm(dim=1, keepdim=True)
    return torch.where(length > 1e-6, sums / length.clamp(min=1e-6), 0.0)


def _standard(values: Float[Tensor, " items"]) -> Float[Tensor, " items"]:
    """Returns values in deviations from the mean of known ones; 0 if all are equal."""
    known = values[~values.isnan()]
    if len(known) < 2:
        return values - values
    return (values - known.mean()) / known.std().clamp(min=1e-9)
