"""Vectors of several modalities in one matrix, whatever their lengths."""

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F

from nobackfill.errors import ConfigError, DataError
from nobackfill.head.multimodal import COLUMN
from nobackfill.vectors import Vectors


def stack_modalities(parts: Mapping[str, Vectors]) -> Vectors:
    """Vectors of several modalities one below the other, with a column `modality`.

    Shorter vectors get zeros behind. Nothing is lost by that: lengths and cosines within a modality
    stay as they are, and a head takes the zeros away again before it maps. Labels are kept where
    all parts have them, and so is each column that all have; a space, where all have the same.

    Args:
        parts: By the name of their modality; no id may be in two.

    Example:
        >>> images, texts = Vectors(["a"], torch.ones(1, 3)), Vectors(["b"], torch.ones(1, 2))
        >>> both = stack_modalities({"image": images, "text": texts})
        >>> both.vectors.tolist(), both.columns["modality"].tolist()
        ([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]], ['image', 'text'])
    """
    if not parts:
        raise ConfigError("wanted vectors of some modalities, but got none.")
    given = list(parts.values())
    for name in ("id", "label"):
        check_kinds(name, parts)
    ids = np.concatenate([one.ids for one in given])
    known, count = np.unique(ids, return_counts=True)
    if (count > 1).any():
        raise DataError(
            f"wanted ids that occur in one modality only, but {int((count > 1).sum())} are in two, "
            f"the first being {known[count > 1][0].item()!r}. Write the modality into them: "
            f"`image 7` and `text 7`."
        )
    width = max(one.dim for one in given)
    shared = [name for name in given[0].columns if all(name in one.columns for one in given)]
    for name in shared:
        check_kinds(name, parts)
    columns = {name: np.concatenate([one.columns[name] for one in given]) for name in shared}
    labels = [one.labels for one in given if one.labels is not None]
    spaces = {one.space for one in given}
    return Vectors(
        ids,
        torch.cat([F.pad(one.vectors, (0, width - one.dim)) for one in given]),
        np.concatenate(labels) if len(labels) == len(given) else None,
        columns={**columns, COLUMN: np.repeat(list(parts), [len(one) for one in given])},
        space=spaces.pop() if len(spaces) == 1 else None,
    )


def check_kinds(name: str, parts: Mapping[str, Vectors]) -> None:
    """Refuses a column that is text in one part and numbers in another: `1` is not `"1"`."""
    kinds: dict[str, str] = {}
    for modality, one in parts.items():
        values = {"id": one.ids, "label": one.labels}.get(name, one.columns.get(name))
        if values is not None:
            kinds.setdefault(values.dtype.kind, modality)
    if len(kinds) > 1:
        raise DataError(
            f"wanted `{name}` of one kind in all modalities, but those of "
            f"{' and '.join(map(repr, kinds.values()))} differ. Write both as text, or both as "
            f"whole numbers."
        )
