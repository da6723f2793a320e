"""The format `.safetensors`: vectors and columns as tensors.

A column of text is two tensors: `NAME.bytes`, the UTF-8 of all texts one after the other, and
`NAME.offsets`, the start of each text and the end of the last one.
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
from nobackfill.vectors.column_names import ANY, Columns
from nobackfill.vectors.columns import as_column
from nobackfill.vectors.contents import Contents
from nobackfill.vectors.named_arrays import choose_arrays

BYTES, OFFSETS = ".bytes", ".offsets"


def read(path: Path, columns: Columns = ANY) -> Contents:
    """Memory-maps the vectors, copy on write: the file is never changed. Loads the columns."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        notes = file.metadata() or {}
    texts = {name.removesuffix(OFFSETS) for name in tensors if name.endswith(OFFSETS)}
    packed = {
        name: unpack_text(tensors.pop(name + BYTES), tensors.pop(name + OFFSETS), name)
        for name in sorted(texts)
        if name + BYTES in tensors
    }
    return choose_arrays({**packed, **tensors}, columns, notes)


def read_notes(path: Path) -> dict[str, str]:
    """Reads the texts about the whole file."""
    with safe_open(path, framework="np") as file:
        return dict(file.metadata() or {})


def write(path: Path, contents: Contents) -> None:
    """Writes the vectors and each column as one tensor, or as two if it is text."""
    assert isinstance(contents.vector, Tensor)
    tensors = {"vector": contents.vector}
    for name, array in contents.columns.items():
        if name.endswith((BYTES, OFFSETS)) or name == "__metadata__":
            raise DataError(
                f"Column `{name}` cannot be saved as .safetensors, which reserves the name. Rename "
                f"the column, or save as .parquet or .npz."
            )
        if array.dtype.kind == "U":
            tensors[name + BYTES], tensors[name + OFFSETS] = pack_text(array)
        else:
            tensors[name] = torch.from_numpy(array.copy())
    save_file(tensors, path, metadata=contents.notes)


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


def unpack_text(texts: Tensor, offsets: Tensor, name: str) -> NDArray[Any]:
    """Returns the texts that `pack_text` packed."""
    joined, ends = texts.numpy().tobytes(), offsets.long().flatten().tolist()
    if ends[:1] != [0] or ends[-1] != len(joined) or ends != sorted(ends):
        raise DataError(
            f"`{name}{OFFSETS}` must rise from 0 to {len(joined)}, the length of "
            f"`{name}{BYTES}`, but does not. Write the file again."
        )
    return as_column([joined[start:end].decode() for start, end in pairwise(ends)], name)
