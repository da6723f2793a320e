"""A head: new vectors in, vectors that search the old gallery out, fitted from vectors alone.

Loaded when first asked for: `nobackfill.head.apply` needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nobackfill.head.head import CompatibleHead
    from nobackfill.head.multimodal_stacking import stack_modalities

_HOME = {"CompatibleHead": "head", "stack_modalities": "multimodal_stacking"}

__all__ = ["CompatibleHead", "stack_modalities"]


def __getattr__(name: str) -> Any:
    """Imports a name from where it lives."""
    if name not in __all__:
        raise AttributeError(f"module 'nobackfill.head' has no attribute {name!r}")
    return getattr(import_module(f"nobackfill.head.{_HOME[name]}"), name)
