"""A map for each modality, such as images and texts: each vector goes through that of its own."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.evaluation.file_columns import check_agreement, columns_of
from nobackfill.head.closed_form import Affine
from nobackfill.head.inputs import Rows, check_order
from nobackfill.head.network import HeadNetwork
from nobackfill.vectors import Vectors
from nobackfill.vectors.matrix import blocks

COLUMN = "modality"
FEWEST = 2  # items of a modality that a map can be fitted to

Modality = str | int | Sequence[Any] | Tensor | NDArray[Any]  # of all items, or of each


class ModalityNetwork(nn.Module):
    r"""New vectors of several modalities in, vectors of one old space out.

    .. math::
        h(v_i) = h_{m_i}(v_i)

    with the modality :math:`m_i` of each item and a network :math:`h_m` for each modality. It sees
    as many of the first dimensions as its modality has; behind them are zeros.

    Args:
        networks: One for each modality, in the order of their numbers; all into the same space.
    """

    extra = None  # dimensions behind the old ones are for heads of one modality

    def __init__(self, networks: Sequence[HeadNetwork]):
        super().__init__()
        self.networks = nn.ModuleList(networks)

    @property
    def parts(self) -> list[HeadNetwork]:
        """The networks, by the numbers of their modalities."""
        return [one for one in self.networks if isinstance(one, HeadNetwork)]

    @property
    def widths(self) -> list[int]:
        """How many dimensions each modality has."""
        return [one.new_dim for one in self.parts]

    @property
    def new_dim(self) -> int:
        """Of what comes in."""
        return max(self.widths)

    @property
    def old_dim(self) -> int:
        """Of what goes out."""
        return self.parts[0].old_dim

    def start_from(self, *affines: Affine) -> None:
        """Takes over maps in closed form, one for each modality."""
        for network, affine in zip(self.parts, affines, strict=True):
            network.start_from(affine)

    def forward(
        self, new: Float[Tensor, "rows new_dim"], modality: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows old_dim"]:
        """Maps vectors of any length; what comes out is not of unit length."""
        rows = [(modality == number).nonzero().flatten() for number in range(len(self.networks))]
        parts = [
            network(new[some, : network.new_dim])
            for network, some in zip(self.parts, rows, strict=True)
            if len(some)
        ]
        return torch.cat(parts)[torch.cat(rows).argsort()]

    def embed(
        self, new: Float[Tensor, "rows new_dim"], modality: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows old_dim"]:
        """Vectors as they are stored and ask: of unit length in the old space."""
        return nn.functional.normalize(self(new, modality), dim=1)


Network = HeadNetwork | ModalityNetwork


def make_network(widths: Sequence[int], old_dim: int, *, hidden: int, dropout: float) -> Network:
    """A network; where there are several widths, one for each modality.

    Args:
        widths: How many dimensions the new vectors of each modality have.
        old_dim: Of what goes out.
        hidden: Width of the correction.
        dropout: Of the correction.
    """
    made = [HeadNetwork(width, old_dim, hidden=hidden, dropout=dropout) for width in widths]
    return made[0] if len(made) == 1 else ModalityNetwork(made)


def told_modalities(
    new: Rows, old: Rows, ids: NDArray[Any], modality: Modality | None
) -> tuple[tuple[str, ...], Int[Tensor, " items"] | None]:
    """The names of the modalities and the number of each item's; nothing where all are of one.

    Args:
        new: New vectors, maybe with a column `modality`.
        old: Old vectors, likewise; both must say the same.
        ids: Of the items that both have.
        modality: In place of the column.
    """
    values: Any = modality
    if modality is not None:
        check_order(new, old, COLUMN)
    elif isinstance(new, Vectors) and isinstance(old, Vectors):
        check_agreement(COLUMN, {"the old file": old, "the new file": new}, ids)
        values = columns_of((old, new), ids).get(COLUMN)
    if values is None:
        return (), None
    told = as_names(values, len(ids))
    names, numbers = np.unique(told, return_inverse=True)
    if len(names) == 1:
        return (), None
    check_names(names.tolist())
    return tuple(names.tolist()), torch.from_numpy(numbers.astype(np.int64))


def asked_modalities(
    new: Rows, names: Sequence[str], rows: int, modality: Modality | None
) -> Int[Tensor, " rows"] | None:
    """The number of each row's modality; None for a head with one map, which fits all rows.

    Args:
        new: What is to be mapped, maybe with a column `modality`.
        names: Of the modalities that the head knows.
        rows: How many vectors there are.
        modality: In place of the column: that of all rows, or of each.
    """
    values: Any = modality
    if not names and modality is not None:
        raise ConfigError(
            f"wanted no `{COLUMN}`, as this head has one map for all vectors. Leave it out, or fit "
            f"a head on items of several modalities."
        )
    if not names:
        return None
    if values is None and isinstance(new, Vectors):
        values = new.columns.get(COLUMN)
    if values is None and len(names) == 1:
        return None
    if values is None:
        raise ConfigError(
            f"wanted to know the modality of each vector, as this head has a map each for "
            f"{', '.join(names)}, but nothing tells it. Pass Vectors with a column `{COLUMN}`, or "
            f"`{COLUMN}=`."
        )
    told = as_names(values, rows)
    if unknown := sorted(set(told.tolist()) - set(names)):
        raise ConfigError(
            f"wanted vectors of {' or '.join(names)}, as the head was fitted on, but got some of "
            f"{', '.join(map(repr, unknown[:3]))}. Drop them, or fit a head on these, too."
        )
    if len(names) == 1:
        return None
    number = {name: place for place, name in enumerate(names)}
    return torch.tensor([number[name] for name in told.tolist()])


def as_names(values: Modality, wanted: int) -> NDArray[Any]:
    """Modalities of any kind as text, one for each item.

    Example:
        >>> as_names("text", 2)
        array(['text', 'text'], dtype='<U4')
    """
    if isinstance(values, str | int):
        values = [values] * wanted
    listed = values.tolist() if isinstance(values, Tensor | np.ndarray) else list(values)
    if len(listed) != wanted:
        raise DataError(
            f"wanted one modality for each of {wanted} items, but got {len(listed)}. Check that "
            f"they are about these items."
        )
    missing = [row for row, one in enumerate(listed) if one is None or one != one]
    if missing:
        raise DataError(
            f"wanted a modality for each item, but {len(missing)} of {wanted} are missing, the "
            f"first being that of row {missing[0]}. Give these items one, or leave them out."
        )
    return np.array([str(one) for one in listed])


def check_names(names: Sequence[str]) -> None:
    """Refuses modalities that cannot name a folder, or that many systems take for the same."""
    odd = [name for name in names if not re.fullmatch(r"\w[\w -]*", name)]
    if odd or len({name.casefold() for name in names}) < len(names):
        raise DataError(
            f"wanted modalities with names such as image and text, of which each can name a "
            f"folder, but got {', '.join(map(repr, odd or names))}. Write them in letters and "
            f"digits, and always alike."
        )


def widths_of(
    new: Float[Tensor, "items new_dim"], modality: Int[Tensor, " items"] | None, number: int
) -> list[int]:
    """How many dimensions the vectors of each modality have: all, or less the zeros behind.

    The longest have all, whatever is in them.

    Args:
        new: Vectors, those of shorter modalities with zeros behind.
        modality: The number of each item's; where it is None, vectors have all dimensions.
        number: How many modalities there are.
    """
    if modality is None:
        return [new.shape[1]]
    used = torch.zeros(number, new.shape[1], dtype=torch.bool)
    for first, block in blocks(new):
        of_block = modality[first : first + len(block)]
        for one in range(number):
            used[one] |= (block[(of_block == one).to(block.device)] != 0).any(dim=0).cpu()
    widths = [int(some.nonzero().max()) + 1 for some in used]
    return [new.shape[1] if width == max(widths) else width for width in widths]


def check_padding(
    rows: Float[Tensor, "rows new_dim"], modality: Int[Tensor, " rows"], network: ModalityNetwork
) -> None:
    """Refuses vectors that are longer than those of their modality were: none is cut unasked."""
    if min(network.widths) == network.new_dim:
        return
    width = torch.tensor(network.widths)[modality]
    for first, block in blocks(rows):
        behind = torch.arange(block.shape[1]) >= width[first : first + len(block), None]
        wrong = ((block != 0).cpu() & behind).any(dim=1)
        if wrong.any():
            row = int(wrong.nonzero()[0])
            raise SpaceMismatch(
                f"wanted zeros behind the {int(width[first + row])} dimensions that vectors of "
                f"this modality had when the head was fitted, but row {first + row} has other "
                f"numbers there. Check its modality, and pass vectors of the same new model."
            )


def check_fitted(
    names: Sequence[str], modality: Int[Tensor, " items"] | None, *, extra: int
) -> None:
    """Refuses modalities of which too little is fitted on, and settings for one modality alone.

    Args:
        names: Of the modalities.
        modality: The number of each item's that is fitted on.
        extra: How many dimensions are asked for behind those of the old space.
    """
    if modality is None:
        return
    if extra:
        raise ConfigError(
            f"wanted `extra=0` with several modalities, as new vectors of {' and '.join(names)} "
            f"have no directions in common, but got {extra}. Leave it out, or fit a head for each."
        )
    for name, count in zip(names, modality.bincount(minlength=len(names)).tolist(), strict=True):
        if count < FEWEST:
            raise DataError(
                f"wanted {FEWEST} items or more of each modality to fit a map to, but of {name!r} "
                f"there are {count}. Add some, or leave this modality out."
            )
