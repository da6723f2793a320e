"""Documents as classes: near-duplicates by the old model form one group, with one prototype."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.errors import ConfigError, OldSpaceError
from nobackfill.methods.checks import at_least_single, check_items
from nobackfill.methods.perturbation.near_pairs import near_pairs
from nobackfill.methods.prototypes import class_means
from nobackfill.ops.cells import near_in_cells
from nobackfill.ops.components import Edges, chain, components

NEAR_DUPLICATE = 0.98  # cosine of two old vectors above which they are one document
EXACT = 20_000  # documents up to which all pairs are compared
MINED = 32  # neighbours of each document, where not all documents are contrasted
PART = 2**16  # rows, or pairs of rows, that are processed at a time
MOST_PAIRS = 2**26  # near-duplicates that are listed

Groups = Int[Tensor, " rows"]


@dataclass(frozen=True, eq=False)
class DocumentGroups:
    """Groups of documents, and the old prototype of each.

    Attributes:
        of: Group of each document, from 0 in the order of their first documents.
        prototypes: Old prototype of each group, at unit length.
        near: Groups near each group; the group itself fills empty places. None if there are so few
            groups that each query is contrasted with all.
    """

    of: Groups
    prototypes: Float[Tensor, "groups old_dim"]
    near: Int[Tensor, "groups near"] | None

    @classmethod
    def find(
        cls,
        vectors: Float[Tensor, "rows old_dim"],
        *,
        groups: Int[Tensor, " known"] | None = None,
        near_duplicate: float = NEAR_DUPLICATE,
        exact: int = EXACT,
    ) -> "DocumentGroups":
        r"""Joins documents to groups, and computes their prototypes.

        Two documents are joined if the cosine of their old vectors is above `near_duplicate`, as
        they are and after the mean of all unit vectors was subtracted: some models give all texts
        high cosines. They are joined too if `groups` joins them, or if they are exact copies; and
        so are documents that a chain of such pairs connects. The prototype of a group is the mean
        of its unit vectors, made unit again.

        Args:
            vectors: Old vectors of the documents.
            groups: Known group of each document, such as a label or a source, numbered in any way.
            near_duplicate: Smallest cosine of near-duplicates.
            exact: Number of documents up to which all pairs are compared. Beyond, only those in one
                of :math:`\sqrt{N}` cells of k-means are.
        """
        check_documents(vectors, groups, near_duplicate)
        units = in_parts(unit, vectors.detach())
        edges: list[Edges] = [copies(vectors)]
        if groups is not None:
            edges.append(chain(groups.cpu().numpy()))

        # Find near-duplicates without the mean: all pairs of few documents, else those in cells.
        near_rows, pairs = None, None
        mean = torch.stack([part.float().sum(dim=0) for part in units.split(PART)]).sum(dim=0)
        center = in_parts(lambda rows: unit(rows - mean / len(units)), units)
        if len(units) <= exact:
            center = center.float()
            pairs = near_pairs(center, center, near_duplicate, most=MOST_PAIRS)
        else:
            near_rows, pairs = near_in_cells(center, MINED, near_duplicate)
        if pairs is None:
            raise OldSpaceError(
                f"More than {MOST_PAIRS:,} pairs of documents have an old cosine above "
                f"{near_duplicate}: by the old model, most documents are the same. Check the old "
                f"vectors, or raise `near_duplicate`."
            )
        del center
        edges.append(above(units, *pairs, near_duplicate))

        # Number the groups, and compute their prototypes.
        root = components(len(units), edges)
        first, of = np.unique(root, return_inverse=True)
        group_of = torch.from_numpy(of).to(units.device)
        prototypes = means(units, group_of, torch.from_numpy(first).to(units.device))
        near = None
        if near_rows is not None:
            near = group_of[near_rows[torch.from_numpy(first)].long()].int()
        return cls(group_of, prototypes, near)


def unit(rows: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows dim"]:
    """Returns rows at unit length; a zero row stays zero."""
    return F.normalize(rows, dim=1)


def in_parts(
    function: Callable[[Tensor], Tensor], vectors: Float[Tensor, "rows dim"]
) -> Float[Tensor, "rows dim"]:
    """Applies a function of rows part by part, in at least float32; keeps the precision."""
    result = torch.empty_like(vectors, memory_format=torch.contiguous_format)
    for part, rows in zip(result.split(PART), vectors.split(PART), strict=True):
        part.copy_(function(at_least_single(rows)))
    return result


def above(
    units: Float[Tensor, "rows dim"],
    left: Int[Tensor, " pairs"],
    right: Int[Tensor, " pairs"],
    threshold: float,
) -> Edges:
    """Returns the pairs of rows whose cosine is above a threshold."""
    kept = [torch.zeros(0, dtype=torch.bool)]
    for row, other in zip(left.split(PART), right.split(PART), strict=True):
        kept.append((units[row].float() * units[other].float()).sum(dim=1).cpu() > threshold)
    is_above = torch.cat(kept).numpy()
    return left.cpu().numpy()[is_above], right.cpu().numpy()[is_above]


def means(
    units: Float[Tensor, "rows dim"], groups: Groups, first: Int[Tensor, " groups"]
) -> Float[Tensor, "groups dim"]:
    """Returns the unit mean of each group: the vector itself if the group has only one.

    `first` is the first row of each group. The result is that of `class_means`, without a copy of
    all vectors.
    """
    if len(first) == len(units):
        return units
    prototypes = units[first]
    several = groups.bincount(minlength=len(first)) > 1
    row = several[groups].nonzero().flatten()
    if len(row):
        number = several.cumsum(0) - 1  # of the groups with several rows
        unit_means = class_means(units[row], number[groups[row]], int(several.sum()))
        prototypes[several] = unit_means.to(units.dtype)
    return prototypes


def copies(vectors: Float[Tensor, "rows dim"]) -> Edges:
    """Joins each row with the row before it that has the same values, if there is one."""
    rows = np.ascontiguousarray(vectors.detach().cpu().numpy())
    words = rows.view(f"i{rows.dtype.itemsize}")
    # A key of 64 bits per row: the sum of its words times random odd numbers.
    factors = np.random.default_rng(0).integers(2**63, size=rows.shape[1]) | 1
    parts = range(0, len(words), PART)
    keys = [(words[first : first + PART] * factors).sum(axis=1) for first in parts]
    return chain(np.concatenate(keys))


def check_documents(
    vectors: Float[Tensor, "rows dim"], groups: Int[Tensor, " known"] | None, near_duplicate: float
) -> None:
    """Raises unless the old vectors and the known groups can be used."""
    check_items(vectors, "embeddings")
    if groups is not None and len(groups) != len(vectors):
        raise OldSpaceError(
            f"Each document needs a group, but there are {len(groups)} groups and {len(vectors)} "
            f"old vectors. Take both from the same documents."
        )
    if not 0 < near_duplicate <= 1:
        raise ConfigError(
            f"near_duplicate is a cosine above 0 and at most 1, not {near_duplicate}. At 1, only "
            f"exact copies are joined."
        )
