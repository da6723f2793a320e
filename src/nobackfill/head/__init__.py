"""A head: new vectors in, vectors that search the old gallery out, fitted from vectors alone.

Loaded when first asked for: `nobackfill.head.apply` needs no torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nobackfill.head.head import CompatibleHead

__all__ = ["CompatibleHead"]


def __getattr__(name: str) -> Any:
    """Imports the head."""
    if name not in __all__:
        raise AttributeError(f"module 'nobackfill.head' has no attribute {name!r}")
    from nobackfill.head import head

    return getattr(head, name)
