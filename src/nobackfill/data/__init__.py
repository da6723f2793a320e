"""Labelled collections, and how their classes are split over the models of an upgrade."""

from nobackfill.data.collection import Collection
from nobackfill.data.registry import make_collection
from nobackfill.data.splits import ClassOrder, number_classes, order_classes

__all__ = ["ClassOrder", "Collection", "make_collection", "number_classes", "order_classes"]
