"""Columns of text as two arrays, for formats that have none of text, or only of padded text.

`NAME.bytes` is the UTF-8 of all texts, one after the other; `NAME.offsets` is the start of each
text and the end of the last one.
"""

from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from numpy.typing import NDArray
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.vectors.columns import as_column

BYTES, OFFSETS = ".bytes", ".offsets"

Array = Tensor | NDArray[Any]


def pack_text(array: NDArray[Any]) -> tuple[UInt8[Tensor, " bytes"], Int64[Tensor, " ends"]]:
    """Returns the bytes of all texts, and the start of each and the end of the last.

    Example:
        >>> pack_text(np.array(["a", "", "ß"]))
        (tensor([ 97, 195, 159], dtype=torch.uint8), tensor([0, 1, 1, 3]))
    """
    encoded = [text.encode() for text in array.tolist()]
    joined = np.frombuffer(b"".join(encoded), dtype=np.uint8).copy()
    offsets = torch.tensor([0, *accumulate(map(len, encoded))])
    return torch.from_numpy(joined), offsets


def unpack_texts(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Returns arrays by name, with a column in place of each two that `pack_text` made.

    Example:
        >>> unpack_texts({"t.bytes": torch.tensor([97, 98]).byte(), "t.offsets": torch.arange(3)})
        {'t': array(['a', 'b'], dtype='<U1')}
    """
    rest = dict(arrays)
    names = sorted(name.removesuffix(OFFSETS) for name in arrays if name.endswith(OFFSETS))
    texts: dict[str, Array] = {}
    for name in names:
        # A column of numbers that is called so is never of single bytes.
        if name + BYTES in rest and str(rest[name + BYTES].dtype).endswith("uint8"):
            joined, offsets = (torch.as_tensor(rest.pop(name + end)) for end in (BYTES, OFFSETS))
            texts[name] = unpack_text(joined, offsets, name)
    return {**texts, **rest}


def unpack_text(texts: Tensor, offsets: Tensor, name: str) -> NDArray[Any]:
    """Returns the texts that `pack_text` packed."""
    joined, ends = texts.numpy().tobytes(), offsets.long().flatten().tolist()
    if ends[:1] != [0] or ends[-1] != len(joined) or ends != sorted(ends):
        raise DataError(
            f"`{name}{OFFSETS}` must rise from 0 to {len(joined)}, the length of "
            f"`{name}{BYTES}`, but does not. Write the file again."
        )
    return as_column([joined[start:end].decode() for start, end in pairwise(ends)], name)
