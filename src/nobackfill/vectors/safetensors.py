"""The format `.safetensors`: vectors and columns as tensors.

A column of text is two tensors; see `packed_text.py`.
"""

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.vectors.column_names import ANY, Columns
from nobackfill.vectors.contents import Contents
from nobackfill.vectors.named_arrays import choose_arrays
from nobackfill.vectors.packed_text import BYTES, OFFSETS, pack_text, unpack_texts


def read(path: Path, columns: Columns = ANY) -> Contents:
    """Memory-maps the vectors, copy on write: the file is never changed. Loads the columns."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        notes = file.metadata() or {}
    return choose_arrays(unpack_texts(tensors), columns, notes)


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
        if array.dtype.kind in "UT":
            tensors[name + BYTES], tensors[name + OFFSETS] = pack_text(array)
        else:
            tensors[name] = torch.from_numpy(array.copy())
    save_file(tensors, path, metadata=contents.notes)
