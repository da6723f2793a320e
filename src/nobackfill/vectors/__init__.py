"""Vectors with their ids, labels and columns, in memory and on disk.

Files are read by `load.py`: any format of `paths.py`, with columns found by their usual names. Four
formats are also written. There, a file has the columns `id` and `vector`, and optionally `label`,
`split`, `is_query`, `is_gallery`, `camera`, `text`, and `fitted` (whether the head that made the
vectors was fitted on the item). Other columns are kept. The names are the same in every format:

* `.parquet`      one column each, `vector` a list of floats of fixed length; read in batches
* `.safetensors`  one tensor each, text as `NAME.bytes` and `NAME.offsets`; memory-mapped
* `.npz`          one array each, loaded whole
* `.npy`          vectors only, memory-mapped; ids are row numbers; `fitted` is in another file

The space and `compatible_dim` are stored under `nobackfill.space` and `nobackfill.compatible_dim`:
in the metadata of Parquet and safetensors, as scalar text arrays in .npz.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nobackfill.vectors.load import load_vectors
    from nobackfill.vectors.vectors import Vectors

__all__ = ["Vectors", "load_vectors"]


def __getattr__(name: str) -> Any:
    """Imports a public name on first use: `nobackfill.vectors.space` needs no torch."""
    if name not in __all__:
        raise AttributeError(f"module 'nobackfill.vectors' has no attribute {name!r}")
    module = "load" if name == "load_vectors" else "vectors"
    return getattr(import_module(f"nobackfill.vectors.{module}"), name)
