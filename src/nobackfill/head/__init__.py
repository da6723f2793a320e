"""A head: new vectors in, vectors that search the old gallery out, fitted from vectors alone."""

from nobackfill.head.head import CompatibleHead

__all__ = ["CompatibleHead"]
