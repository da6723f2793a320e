"""Adapters of vector databases; `registry.py` lists them."""

from nobackfill.gallery.stores.registry import STORES, Engine, open_store

__all__ = ["STORES", "Engine", "open_store"]
