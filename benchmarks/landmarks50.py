"""50 landmarks → ROxford5k: MobileNetV2 on half of the classes → ResNet-50 on all.

    NOBACKFILL_DATA=... python benchmarks/landmarks50.py --seeds 3 --processes 6 --device cuda

The recipes are recipes/landmarks50; `prepare.py` lays the data out. Wants timm and torchvision.
"""

import suite

METHODS = ("independent", "prototype_alignment", "ndpp", "odpp", "bct")
SIZES = {"embedding_dim": 256, "train_classes": 50}
WORKERS = 0


def make_recipe(name, old_run, *, seed, changes=()):
    """The recipe of the old model ("old") or of a method; every seed splits the classes anew."""
    return suite.recipe_of("landmarks50", name, old_run, seed=seed, changes=changes)


if __name__ == "__main__":
    suite.main("landmarks50", module="landmarks50", seeds=3, methods=METHODS)
