"""Labelled collections, and the split of their classes among the models of an upgrade."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nobackfill.data.collection import Collection
    from nobackfill.data.registry import make_collection
    from nobackfill.data.splits import ClassOrder, number_classes, order_classes

_HOME = {"Collection": "collection", "make_collection": "registry"} | dict.fromkeys(
    ("ClassOrder", "number_classes", "order_classes"), "splits"
)

__all__ = ["ClassOrder", "Collection", "make_collection", "number_classes", "order_classes"]


def __getattr__(name: str) -> Any:
    """Imports a public name on first use: `nobackfill.data.listing` needs no dataset readers."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
