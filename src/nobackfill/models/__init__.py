"""Models: a backbone, and a projection of its features to the embedding."""

from nobackfill.models.backbones import BACKBONES, small
from nobackfill.models.base import Backbone
from nobackfill.models.dual import DualEncoder, make_dual
from nobackfill.models.embedder import Embedder, make_model, resolve_model
from nobackfill.models.weights import load_weights

__all__ = [
    "BACKBONES",
    "Backbone",
    "DualEncoder",
    "Embedder",
    "load_weights",
    "make_dual",
    "make_model",
    "resolve_model",
    "small",
]
