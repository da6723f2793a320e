"""The format `.pt`: a tensor, or a dictionary of tensors and lists, by `torch.save`; read only."""

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nobackfill.vectors.column_names import ANY, Columns
from nobackfill.vectors.columns import as_column
from nobackfill.vectors.contents import Contents
from nobackfill.vectors.named_arrays import choose_arrays

ARCHIVE = b"PK"  # first bytes of a zip file


def read(path: Path, columns: Columns = ANY) -> Contents:
    """Loads the file as weights are loaded: it cannot run code. Rows of a bare tensor are items.

    Tensors are memory-mapped, copy on write, unless a version of torch before 1.6 wrote them.
    """
    with path.open("rb") as file:
        is_archive = file.read(len(ARCHIVE)) == ARCHIVE
    try:
        value = torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)
    except (UnpicklingError, RuntimeError) as error:
        raise ValueError(str(error).partition("\n")[0]) from None
    if isinstance(value, Tensor):
        return Contents(_floats(value), {"id": np.arange(len(value))}, {}, has_ids=False)
    if not isinstance(value, dict):
        raise ValueError(f"it contains a {type(value).__name__}, not a tensor or a dictionary")
    arrays = {str(name): _array(item) for name, item in value.items()}
    named = {name: array for name, array in arrays.items() if array is not None}
    return choose_arrays(named, columns, {})


def _array(value: Any) -> Any:
    """Returns a tensor, or a list of texts or numbers as an array; None for anything else."""
    if isinstance(value, Tensor):
        return _floats(value)
    if isinstance(value, list | tuple) and value and isinstance(value[0], str | int | float):
        return as_column(value, "list")
    return None


def _floats(tensor: Tensor) -> Tensor:
    """Returns a tensor that NumPy can hold."""
    tensor = tensor.detach()
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor
