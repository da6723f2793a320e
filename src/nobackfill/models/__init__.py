"""Models: a backbone that sees, and a projection that gives the embedding its dimension."""

from nobackfill.models.backbones import BACKBONES, Backbone, small
from nobackfill.models.heads import Embedder, make_model, resolve_model

__all__ = ["BACKBONES", "Backbone", "Embedder", "make_model", "resolve_model", "small"]
