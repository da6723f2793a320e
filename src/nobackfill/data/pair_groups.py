"""Groups of pairs: those that share a query or a document, or name the same group."""

from collections.abc import Hashable, Sequence

import torch

from nobackfill.data.texts import TextPair


def group_pairs(pairs: Sequence[TextPair]) -> list[TextPair]:
    """Returns the pairs with a group each: the id of the first document of a connected component.

    Two pairs are connected if they have the same query, the same document (by id or by text), or
    the same group. A document then answers every query of its group, and no document of the group
    is a wrong answer.

    Example:
        >>> pairs = [TextPair("a", "x", "1", "5"), TextPair("b", "x", "2", "5")]
        >>> [pair.group for pair in group_pairs([*pairs, TextPair("c", "z", "3", "6")])]
        ['5', '5', '6']
    """
    root = list(range(len(pairs)))

    def find(row: int) -> int:
        while root[row] != row:
            root[row] = root[root[row]]  # shorten the path
            row = root[row]
        return row

    first: dict[Hashable, int] = {}
    for row, pair in enumerate(pairs):
        keys = [
            ("query", pair.query),
            ("query id", pair.query_id),
            ("document", pair.document),
            ("document id", pair.document_id),
            *([("group", pair.group)] if pair.group else []),
        ]
        for key in keys:
            low, high = sorted((find(first.setdefault(key, row)), find(row)))
            root[high] = low
    return [pair._replace(group=pairs[find(row)].document_id) for row, pair in enumerate(pairs)]


def hold_out_pairs(
    pairs: Sequence[TextPair], share: float, *, seed: int
) -> tuple[list[TextPair], list[TextPair]]:
    """Divides pairs into those to train on and those to search; a group is in one of them.

    Args:
        pairs: Pairs with groups.
        share: Share of the groups that is held out, at least one group.
        seed: Random seed.
    """
    groups = list(dict.fromkeys(pair.group for pair in pairs))
    order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(seed))
    number = max(1, round(share * len(groups)))
    held_out = {groups[place] for place in order[:number].tolist()}
    return (
        [pair for pair in pairs if pair.group not in held_out],
        [pair for pair in pairs if pair.group in held_out],
    )
