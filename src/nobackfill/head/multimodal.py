"""Heads with a map for each modality, such as images and texts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.evaluation.file_columns import check_agreement, columns_of
from nobackfill.head.inputs import MODALITY, check_complete, check_order, named
from nobackfill.head.network import Network
from nobackfill.vectors import Vectors
from nobackfill.vectors.matrix import blocks

FEWEST = 2  # smallest number of items of a modality that a map can be fitted to

Modality = str | int | Sequence[Any] | Tensor | NDArray[Any]  # one for all items, or one for each


def with_modality(new: Vectors, old: Vectors, modality: Modality) -> tuple[Vectors, Vectors]:
    """Returns both sides with a column of modalities, which are in the order of their rows."""
    check_order(new, old, MODALITY)
    names = as_names(modality, len(new))
    first, second = (
        replace(side, columns={**side.columns, MODALITY: names}) for side in (new, old)
    )
    return first, second


def modalities_of_items(
    new: Vectors, old: Vectors, ids: NDArray[Any]
) -> tuple[tuple[str, ...], Int[Tensor, " items"] | None]:
    """Returns the names of the modalities and each item's number; nothing for a single modality.

    The columns of both sides must agree.
    """
    check_agreement(MODALITY, named(old, new))
    values = columns_of((old, new), ids).get(MODALITY)
    if values is None:
        return (), None
    names, numbers = np.unique(as_names(values, len(ids)), return_inverse=True)
    if len(names) == 1:
        return (), None
    check_modality_names(names.tolist())
    return tuple(names.tolist()), torch.from_numpy(numbers.astype(np.int64))


def modalities_of_rows(
    new: Vectors, names: Sequence[str], modality: Modality | None
) -> Int[Tensor, " rows"] | None:
    """Returns the number of each row's modality; None for a head with a single map.

    Without `modality`, the column of the vectors is read.
    """
    if not names and modality is not None:
        raise ConfigError(
            f"This head has one map for all vectors and takes no `{MODALITY}`. Leave it out, or "
            f"fit a head on items of several modalities."
        )
    if not names:
        return None
    values: Any = new.columns.get(MODALITY) if modality is None else modality
    if values is None and len(names) == 1:
        return None
    if values is None:
        raise ConfigError(
            f"This head has a map for each of {', '.join(names)}, but the modality of the vectors "
            f"is unknown. Pass Vectors with a column `{MODALITY}`, or `{MODALITY}=`."
        )
    row_names = as_names(values, len(new)).tolist()
    if unknown := sorted(set(row_names) - set(names)):
        raise ConfigError(
            f"This head maps vectors of {' or '.join(names)}, but there are vectors of "
            f"{', '.join(map(repr, unknown[:3]))}. Drop them, or fit a head on these modalities."
        )
    if len(names) == 1:
        return None
    number = {name: place for place, name in enumerate(names)}
    return torch.tensor([number[name] for name in row_names])


def as_names(values: Modality, items: int) -> NDArray[Any]:
    """Returns modalities of any type as text, one for each item.

    Example:
        >>> as_names("text", 2)
        array(['text', 'text'], dtype='<U4')
    """
    if isinstance(values, str | int):
        values = [values] * items
    names = values.tolist() if isinstance(values, Tensor | np.ndarray) else list(values)
    if len(names) != items:
        raise DataError(
            f"There are {len(names)} modalities for {items} items. Pass one for each item."
        )
    check_complete("modalities", names)
    return np.array([str(name) for name in names])


def check_modality_names(names: Sequence[str]) -> None:
    """Raises DataError for names that are no folder names, or differ only in case."""
    invalid = [name for name in names if not re.fullmatch(r"\w[\w -]*", name)]
    if invalid or len({name.casefold() for name in names}) < len(names):
        raise DataError(
            f"Each modality names a folder, but these names cannot: "
            f"{', '.join(map(repr, invalid or names))}. Use letters and digits, in consistent "
            f"upper or lower case, such as image and text."
        )


def widths_of(
    new: Float[Tensor, "items new_dim"], modality: Int[Tensor, " items"] | None, number: int
) -> list[int]:
    """Returns the dimension of each modality's vectors, without the zeros at their end.

    The widest modality has all dimensions, even if some are zero.
    """
    if modality is None:
        return [new.shape[1]]
    used = torch.zeros(number, new.shape[1], dtype=torch.bool)
    for first, block in blocks(new):
        block_modality = modality[first : first + len(block)]
        for code in range(number):
            used[code] |= (block[(block_modality == code).to(block.device)] != 0).any(dim=0).cpu()
    widths = [int(dimensions.nonzero().max()) + 1 for dimensions in used]
    return [new.shape[1] if width == max(widths) else width for width in widths]


def check_padding(
    rows: Float[Tensor, "rows new_dim"], modality: Int[Tensor, " rows"], network: Network
) -> None:
    """Raises SpaceMismatch for vectors with values beyond the dimensions of their modality."""
    if min(network.widths) == network.new_dim:
        return
    width = torch.tensor(network.widths)[modality]
    for first, block in blocks(rows):
        behind = torch.arange(block.shape[1]) >= width[first : first + len(block), None]
        wrong = ((block != 0).cpu() & behind).any(dim=1)
        if wrong.any():
            row = int(wrong.nonzero()[0])
            raise SpaceMismatch(
                f"Row {first + row} must be zero behind the {int(width[first + row])} dimensions "
                f"of its modality, but it is not. Check its modality, and pass vectors of the "
                f"model that the head was fitted on."
            )


def check_fitted(
    names: Sequence[str], modality: Int[Tensor, " items"] | None, *, extra: int
) -> None:
    """Checks that a head of several modalities has no extra dimensions and enough items of each."""
    if modality is None:
        return
    if extra:
        raise ConfigError(
            f"`extra` must be 0 with several modalities, but it is {extra}: new vectors of "
            f"{' and '.join(names)} have no common directions. Leave it out, or fit a head for "
            f"each."
        )
    for name, count in zip(names, modality.bincount(minlength=len(names)).tolist(), strict=True):
        if count < FEWEST:
            raise DataError(
                f"A map needs {FEWEST} items or more, but there are {count} of {name!r}. Add "
                f"items, or leave this modality out."
            )


def stack_modalities(parts: Mapping[str, Vectors]) -> Vectors:
    """Stacks vectors of several modalities into one matrix, with a column `modality`.

    Shorter vectors are padded with zeros, which keeps lengths and cosines within a modality; a head
    removes the zeros again. Labels and columns are kept if all parts have them. The space is kept
    if all parts have the same.

    Args:
        parts: Vectors by the name of their modality; ids must differ between modalities.

    Example:
        >>> images, texts = Vectors(["a"], torch.ones(1, 3)), Vectors(["b"], torch.ones(1, 2))
        >>> both = stack_modalities({"image": images, "text": texts})
        >>> both.vectors.tolist(), both.columns["modality"].tolist()
        ([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]], ['image', 'text'])
    """
    if not parts:
        raise ConfigError("There are no vectors to stack. Pass vectors of one modality or more.")
    # Check ids.
    files = list(parts.values())
    for name in ("id", "label"):
        check_column_types(name, parts)
    ids = np.concatenate([file.ids for file in files])
    unique, count = np.unique(ids, return_counts=True)
    if (count > 1).any():
        raise DataError(
            f"{int((count > 1).sum())} ids occur in two modalities, the first is "
            f"{unique[count > 1][0].item()!r}. Write the modality into them: `image 7` and "
            f"`text 7`."
        )
    # Keep what all parts have.
    shared = [name for name in files[0].columns if all(name in file.columns for file in files)]
    for name in shared:
        check_column_types(name, parts)
    columns = {name: np.concatenate([file.columns[name] for file in files]) for name in shared}
    labels = [file.labels for file in files if file.labels is not None]
    spaces, width = {file.space for file in files}, max(file.dim for file in files)
    return Vectors(
        ids,
        torch.cat([F.pad(file.vectors, (0, width - file.dim)) for file in files]),
        np.concatenate(labels) if len(labels) == len(files) else None,
        columns={**columns, MODALITY: np.repeat(list(parts), [len(file) for file in files])},
        space=spaces.pop() if len(spaces) == 1 else None,
    )


def check_column_types(name: str, parts: Mapping[str, Vectors]) -> None:
    """Raises DataError if a column is text in one part and numbers in another."""
    modality_of_type: dict[str, str] = {}
    for modality, file in parts.items():
        values = {"id": file.ids, "label": file.labels}.get(name, file.columns.get(name))
        if values is not None:
            modality_of_type.setdefault(values.dtype.kind, modality)
    if len(modality_of_type) > 1:
        raise DataError(
            f"`{name}` has different types in {' and '.join(map(repr, modality_of_type.values()))}."
            f" Write it as text everywhere, or as whole numbers."
        )
