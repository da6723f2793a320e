"""Vectors and columns as tensors: `.safetensors`.

A column of text is two tensors: `NAME.bytes`, all texts in UTF-8 one after the other, and
`NAME.offsets`, where each begins, and at last where the last one ends.
"""

from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.vectors.columns import as_column
from nobackfill.vectors.contents import Contents, require_id_and_vector

BYTES, OFFSETS = ".bytes", ".offsets"


def read(path: Path) -> Contents:
    """Maps the vectors into memory, copy on write: the file is never changed. Loads the columns."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        notes = file.metadata() or {}
    texts = {name.removesuffix(OFFSETS) for name in tensors if name.endswith(OFFSETS)}
    columns = {
        name: unpack_text(tensors.pop(name + BYTES), tensors.pop(name + OFFSETS), name)
        for name in sorted(texts)
        if name + BYTES in tensors
    }
    require_id_and_vector([*tensors, *columns])
    vector = tensors.pop("vector")
    columns |= {name: as_column(tensor.clone(), name) for name, tensor in tensors.items()}
    return Contents(vector, columns, notes)


def write(path: Path, contents: Contents) -> None:
    """Writes the vectors and each column as one tensor, or as two if it is text."""
    assert isinstance(contents.vector, Tensor)
    tensors = {"vector": contents.vector}
    for name, array in contents.columns.items():
        tensors |= pack(name, array)
    save_file(tensors, path, metadata=contents.notes)


def pack(name: str, array: NDArray[Any]) -> dict[str, Tensor]:
    """Returns a column as tensors by name, on memory of their own."""
    if name.endswith((BYTES, OFFSETS)) or name == "__metadata__":
        raise DataError(
            f"the column `{name}` cannot be saved as .safetensors, which uses such names itself. "
            f"Rename the column, or save as .parquet or .npz."
        )
    if array.dtype.kind != "U":
        return {name: torch.from_numpy(array.copy())}
    texts, offsets = pack_text(array)
    return {name + BYTES: texts, name + OFFSETS: offsets}


def pack_text(array: NDArray[Any]) -> tuple[UInt8[Tensor, " bytes"], Int64[Tensor, " ends"]]:
    """Returns all texts as bytes, and where each begins and the last one ends.

    Example:
        >>> pack_text(np.array(["a", "", "ß"]))
        (tensor([ 97, 195, 159], dtype=torch.uint8), tensor([0, 1, 1, 3]))
    """
    encoded = [text.encode() for text in array.tolist()]
    joined = np.frombuffer(b"".join(encoded), dtype=np.uint8).copy()
    offsets = torch.tensor([0, *accumulate(map(len, encoded))])
    return torch.from_numpy(joined), offsets


def unpack_text(texts: Tensor, offsets: Tensor, name: str) -> NDArray[Any]:
    """Returns the texts that `pack_text` put together."""
    joined, ends = texts.numpy().tobytes(), offsets.long().flatten().tolist()
    if ends[:1] != [0] or ends[-1] != len(joined) or ends != sorted(ends):
        raise DataError(
            f"`{name}{OFFSETS}` should rise from 0 to {len(joined)}, the length of "
            f"`{name}{BYTES}`, but does not. Write the file again."
        )
    return np.array([joined[start:end].decode() for start, end in pairwise(ends)], dtype=np.str_)
