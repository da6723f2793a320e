"""Loss terms of APTM beside the contrast of images and texts: pure functions."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

LEAST = 1e-5  # added to the chance of each negative
IGNORED = -100  # target that costs nothing


@torch.no_grad()
def draw_negatives(
    query: Float[Tensor, "batch dim"],
    keys: Float[Tensor, "batch dim"],
    labels: Int[Tensor, " batch"],
    *,
    temperature: float | Float[Tensor, ""],
) -> Int[Tensor, " batch"]:
    r"""Draws for each query a key of another class; the more similar, the more probable.

    .. math::
        P(j \mid i) \propto [y_j \ne y_i] \left(
        \frac{\exp(\cos(q_i, k_j) / \tau)}{\sum_l \exp(\cos(q_i, k_l) / \tau)} + 10^{-5} \right)

    A query without a key of another class gets any key. Draws from torch's global generator.

    Example:
        >>> draw_negatives(torch.eye(2), torch.eye(2), torch.tensor([4, 5]), temperature=0.07)
        tensor([1, 0])
    """
    cosines = F.normalize(query, dim=-1) @ F.normalize(keys, dim=-1).T
    chances = (cosines / temperature).softmax(dim=-1) + LEAST
    chances = chances.masked_fill(labels[:, None] == labels, 0.0)
    chances = chances.masked_fill((chances == 0).all(dim=-1, keepdim=True), 1.0)
    return torch.multinomial(chances, 1).squeeze(dim=-1)


def matching_loss(
    logits: Float[Tensor, "batch 3 2"], labels: Int[Tensor, " batch"]
) -> Float[Tensor, ""]:
    """Returns the mean cross entropy of "no match" and "match" over pairs of an image and a text.

    Without other classes among the labels there are no negatives, and only the first pairs count.

    Args:
        logits: Of each image with its text, of the text with another image, and of the image with
            another text; first for no match, then for a match.
        labels: Classes of the batch that the negatives were drawn from.

    Example:
        >>> sure = torch.tensor([[[0.0, 9.0], [9.0, 0.0], [9.0, 0.0]]]).repeat(2, 1, 1)
        >>> matching_loss(sure, torch.tensor([0, 1]))
        tensor(0.0001)
    """
    targets = labels.new_tensor([1, 0, 0]).repeat(len(labels), 1)
    lacks = (labels[:, None] == labels).all(dim=-1)
    targets[:, 1:] = targets[:, 1:].masked_fill(lacks[:, None], IGNORED)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def masked_word_loss(
    logits: Float[Tensor, "batch places vocabulary"], targets: Int[Tensor, "batch places"]
) -> Float[Tensor, ""]:
    """Returns the mean cross entropy of the masked tokens; a target of -100 marks an unused place.

    Example:
        >>> masked_word_loss(torch.zeros(1, 2, 4), torch.tensor([[3, -100]]))
        tensor(1.3863)
    """
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
