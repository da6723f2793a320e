"""All methods on the built-in glyphs, over seeds: appends one JSON line per method and seed.

    python benchmarks/glyphs.py --seeds 5 --processes 2

Every seed draws other glyphs, splits classes anew, and trains its own old model, which starts from
other weights than the new ones. `render.py` makes RESULTS.md of the lines.
"""

import suite

from nobackfill.demo import demo_recipe as make_recipe

__all__ = ["SIZES", "make_recipe"]

SIZES = {"embedding_dim": 64, "train_classes": 200}  # of the demo's recipe

if __name__ == "__main__":
    suite.main("glyphs", module="glyphs", seeds=5)
