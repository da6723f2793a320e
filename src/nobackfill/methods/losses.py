"""Loss formulas that several methods share: pure functions from tensors to a scalar."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nobackfill.core.config.defaults import DEFAULT_TEMPERATURE
from nobackfill.methods.prototypes import check_labels
from nobackfill.ops.softmax_contrast import SHARPEST, contrast_with_all

MANY = 2**20  # products of a batch with all classes; from this number on, in blocks


def known_class_loss(
    logits: Float[Tensor, "batch old_classes"], labels: Int[Tensor, " batch"]
) -> Float[Tensor, ""]:
    """Returns the mean cross entropy of the items of old classes; 0 if there are none.

    Example:
        >>> known_class_loss(torch.tensor([[0.0, 0.0], [9.0, 9.0]]), torch.tensor([1, 7]))
        tensor(0.6931)
        >>> known_class_loss(torch.tensor([[9.0, 9.0]]), torch.tensor([7]))
        tensor(0.)
    """
    known = labels < logits.shape[1]
    total = F.cross_entropy(logits, labels.where(known, -100), ignore_index=-100, reduction="sum")
    return total / known.sum().clamp(min=1)


def cosine_logits(
    new: Float[Tensor, "batch dim"], classes: Float[Tensor, "classes dim"]
) -> Float[Tensor, "batch classes"]:
    r"""Logits of a cosine classifier, at a scale that grows with the number of classes.

    .. math::
        s \cos(e_i, W_c), \qquad s = \sqrt{2} \ln C

    With more classes, the sum of the softmax over the others grows, and a cosine of the own class
    near 1 must still outweigh it. The scale is about that of the fixed AdaCos (Zhang et al., CVPR
    2019), which has :math:`C - 1` in place of :math:`C`.

    Example:
        >>> cosine_logits(torch.tensor([[3.0, 0.0]]), torch.eye(2)).round(decimals=4)
        tensor([[0.9803, 0.0000]])
    """
    scale = 2**0.5 * math.log(len(classes))
    return F.normalize(new, dim=-1) @ (scale * F.normalize(classes.to(new.dtype), dim=-1)).T


def prototype_loss(
    new: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    moved: Float[Tensor, "classes dim"],
    old: Float[Tensor, "classes dim"],
    *,
    temperature: float = DEFAULT_TEMPERATURE,
) -> Float[Tensor, ""]:
    r"""Pulls embeddings to the moved prototype of their class and away from all other classes.

    .. math::
        -\frac{1}{B} \sum_i \log \frac{\exp(\cos(e_i, \tilde p_{y_i}) / \tau)}
        {\exp(\cos(e_i, \tilde p_{y_i}) / \tau) + \sum_{c \ne y_i} \exp(\cos(e_i, p_c) / \tau)}

    This is the paper's Eq. 6, and its Eq. 2 if `moved` equals `old`: `class_contrast` with the
    moved prototype as the only positive. All vectors may have any length.

    Args:
        new: New embeddings, :math:`e`.
        labels: Class of each embedding, :math:`y`.
        moved: Moved prototypes, :math:`\tilde p`: targets of their own class.
        old: Old prototypes, :math:`p`: negatives of all other classes.
        temperature: Temperature :math:`\tau`.

    Example:
        >>> old = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> prototype_loss(torch.tensor([[1.0, 1.0]]), torch.tensor([0]), old, old)
        tensor(0.6931)
    """
    if labels.device.type == "cpu":  # on a GPU, the check would force a synchronisation
        check_labels(labels, len(old))
    return class_contrast(new, labels, moved[labels][None], old, temperature=temperature)


def class_contrast(
    new: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    positives: Float[Tensor, "positives batch dim"],
    classes: Float[Tensor, "classes dim"],
    *,
    temperature: float = DEFAULT_TEMPERATURE,
) -> Float[Tensor, ""]:
    r"""Pulls each embedding to its positives, one at a time, and away from all other classes.

    .. math::
        -\frac{1}{B K} \sum_i \sum_k \log \frac{\exp(\cos(e_i, m_{ik}) / \tau)}
        {\exp(\cos(e_i, m_{ik}) / \tau) + \sum_{c \ne y_i} \exp(\cos(e_i, p_c) / \tau)}

    Many classes are compared in blocks, see `ContrastWithAll`. All vectors may have any length.

    Args:
        new: New embeddings, :math:`e`.
        labels: Class of each embedding, :math:`y`.
        positives: Targets of each embedding, :math:`m`.
        classes: A vector of each class, :math:`p`; that of the own class does not count.
        temperature: Temperature :math:`\tau`.

    Example:
        >>> classes = torch.eye(2)
        >>> class_contrast(classes, torch.tensor([0, 1]), torch.zeros(1, 2, 2), classes)
        tensor(0.6931)
    """
    learned = torch.is_grad_enabled() and (classes.requires_grad or positives.requires_grad)
    if len(new) * len(classes) >= MANY and temperature >= SHARPEST and not learned:
        return contrast_with_all(new, labels, positives, classes, temperature)
    e = F.normalize(new, dim=-1)
    cosines = e @ F.normalize(classes.to(e.dtype), dim=-1).T
    losses = []
    for own in F.normalize(positives.to(e.dtype), dim=-1):
        to_own = (e * own).sum(dim=-1, keepdim=True)
        logits = cosines.scatter(1, labels[:, None], to_own) / temperature
        losses.append(F.cross_entropy(logits, labels))
    return torch.stack(losses).mean()


def mimic_loss(
    new: Float[Tensor, "batch dim"], old: Float[Tensor, "batch dim"]
) -> Float[Tensor, ""]:
    """Returns the mean cosine distance of each embedding from the old one of the same item.

    Example:
        >>> mimic_loss(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
        tensor(1.)
    """
    return 1 - F.cosine_similarity(new, old, dim=-1).mean()


def supervised_contrast(
    query: Float[Tensor, "query dim"],
    keys: Float[Tensor, "keys dim"],
    positive: Bool[Tensor, "query keys"],
    *,
    temperature: float | Float[Tensor, ""] = DEFAULT_TEMPERATURE,
    left_out: Bool[Tensor, "query keys"] | None = None,
) -> Float[Tensor, ""]:
    r"""Supervised contrast: pulls each query to its positive keys and away from all others.

    .. math::
        -\frac{1}{Q} \sum_i \frac{1}{|P_i|} \sum_{p \in P_i}
        \log \frac{\exp(\cos(q_i, k_p) / \tau)}{\sum_j \exp(\cos(q_i, k_j) / \tau)}

    A query without positives costs 0. Keys in `left_out`, such as the query itself, do not count.

    Example:
        >>> keys = torch.eye(2)
        >>> supervised_contrast(torch.ones(1, 2), keys, torch.tensor([[True, False]]))
        tensor(0.6931)
    """
    logits = F.normalize(query, dim=-1) @ F.normalize(keys, dim=-1).T / temperature
    if left_out is not None:
        logits, positive = logits.masked_fill(left_out, -torch.inf), positive & ~left_out
    log_share = logits.log_softmax(dim=-1).masked_fill(~positive, 0.0)
    count = positive.sum(dim=-1).clamp(min=1)
    return -(log_share.sum(dim=-1) / count).mean()


def pair_contrast(
    image: Float[Tensor, "batch dim"],
    text: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    *,
    temperature: float | Float[Tensor, ""] = DEFAULT_TEMPERATURE,
) -> Float[Tensor, ""]:
    """Supervised contrast of images with texts and of texts with images, averaged.

    All of the query's class is positive. If each class is one pair, this is CLIP's loss.

    Example:
        >>> pair_contrast(torch.ones(2, 3), torch.ones(2, 3), torch.tensor([0, 1]))
        tensor(0.6931)
    """
    positive = same_class(labels)
    return (
        supervised_contrast(image, text, positive, temperature=temperature)
        + supervised_contrast(text, image, positive, temperature=temperature)
    ) / 2


def smooth_average_precision(
    query: Float[Tensor, "query dim"],
    keys: Float[Tensor, "keys dim"],
    positive: Bool[Tensor, "query keys"],
    *,
    temperature: float = 0.01,
    gradient_temperature: float = 0.1,
) -> Float[Tensor, ""]:
    """Returns a differentiable mean average precision of queries that rank keys; see `RBCL`.

    Each query needs a positive. Only positive pairs are ranked, so work and memory grow with their
    number times that of the keys.

    Args:
        query: Vectors that receive the gradient.
        keys: Vectors that each query ranks.
        positive: Whether query and key belong together.
        temperature: Temperature of the sigmoid that counts.
        gradient_temperature: Temperature of the sigmoid's gradient.

    Example:
        >>> keys = torch.eye(2)
        >>> smooth_average_precision(keys, keys.flip(0), torch.eye(2, dtype=torch.bool))
        tensor(0.5000)
    """
    score = F.normalize(query, dim=-1) @ F.normalize(keys, dim=-1).T
    anchor, own = positive.nonzero(as_tuple=True)
    ahead = score[anchor] - score[anchor, own][:, None]  # (pairs, keys)
    gentle = (ahead / gradient_temperature).sigmoid()
    steep = (ahead.detach() / temperature).sigmoid()
    before = gentle + (steep - gentle).detach()  # value of steep, gradient of gentle
    before = before.scatter(1, own[:, None], 0.0)
    precision = (1 + (before * positive[anchor]).sum(dim=-1)) / (1 + before.sum(dim=-1))
    positives = positive.sum(dim=-1)[anchor]
    return (precision / positives).sum() / len(query)


def same_class(labels: Int[Tensor, " batch"]) -> Bool[Tensor, "batch batch"]:
    """Marks pairs of items of one class, including each item with itself."""
    return labels[:, None] == labels[None, :]


def first_dims(vectors: Float[Tensor, "rows columns"], dim: int) -> Float[Tensor, "rows {dim}"]:
    """Cuts vectors to their first `dim` dimensions, or pads them with zeros.

    Example:
        >>> first_dims(torch.tensor([[1.0, 2.0, 3.0]]), 2)
        tensor([[1., 2.]])
        >>> first_dims(torch.tensor([[1.0]]), 2)
        tensor([[1., 0.]])
    """
    return F.pad(vectors, (0, dim - vectors.shape[1]))
