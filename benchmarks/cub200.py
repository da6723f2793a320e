"""CUB-200: MobileNetV2 on half of the classes → ResNet-50 on all. One JSON line per run.

    NOBACKFILL_DATA=... python benchmarks/cub200.py --seeds 3 --processes 6 --device cuda

The recipes are recipes/cub200; `prepare.py` lays the data out. Wants timm and torchvision.
"""

import suite

METHODS = ("independent", "prototype_alignment", "ndpp", "odpp", "bct")
SIZES = {"embedding_dim": 256, "train_classes": 100}
WORKERS = 0


def make_recipe(name, old_run, *, seed, changes=()):
    """The recipe of the old model ("old") or of a method; every seed splits the classes anew."""
    return suite.recipe_of("cub200", name, old_run, seed=seed, changes=changes)


if __name__ == "__main__":
    suite.main("cub200", module="cub200", seeds=3, methods=METHODS)
