"""Heads map new vectors into the old space; they are fitted from vectors alone.

Names are loaded on first use, so that `nobackfill.head.apply` needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nobackfill.head.head import CompatibleHead
    from nobackfill.head.multimodal import stack_modalities

_HOME = {"CompatibleHead": "head", "stack_modalities": "multimodal"}

__all__ = ["CompatibleHead", "stack_modalities"]


def __getattr__(name: str) -> Any:
    """Imports a public name from its module."""
    if name not in __all__:
        raise AttributeError(f"module 'nobackfill.head' has no attribute {name!r}")
    return getattr(import_module(f"nobackfill.head.{_HOME[name]}"), name)
