"""Labelled collections, and how their classes are split over the models of an upgrade."""

from nobackfill.data.glyphs import Glyphs, augment, glyphs
from nobackfill.data.splits import ClassOrder, number_classes, order_classes

__all__ = ["ClassOrder", "Glyphs", "augment", "glyphs", "number_classes", "order_classes"]
