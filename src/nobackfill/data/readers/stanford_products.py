"""Stanford Online Products: objects for sale, photographed by their sellers.

Oh Song et al., Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016.
"""

from pathlib import Path

import numpy as np

from nobackfill.data.listing import Dataset, Listing, read_table, read_text, require_folder
from nobackfill.errors import DataError

LISTS = {"Ebay_train.txt": "train", "Ebay_test.txt": "validation"}
HEAD = ["image_id", "class_id", "super_class_id", "path"]


def read_stanford_products(root: Path) -> Listing:
    """Reads both lists. Every image that is searched asks for all others.

    Classes are the numbers of the objects; the column `kind` is what they are, such as "bicycle".

    Args:
        root: The folder that holds both lists and twelve folders of images.
    """
    require_folder(root, "Stanford Online Products")
    files: list[str] = []
    classes: list[str] = []
    splits: list[str] = []
    for name, split in LISTS.items():
        check_head(root / name)
        rows = read_table(root / name, "a list of images", separator=None, columns=4, skip=1)
        files += [row[3] for row in rows]
        classes += [row[1] for row in rows]
        splits += [split] * len(rows)
    return Listing(
        root=root,
        files=files,
        classes=np.array(classes),
        columns={
            "split": np.array(splits),
            "kind": np.array([file.split("/")[0].removesuffix("_final") for file in files]),
        },
    )


def check_head(path: Path) -> None:
    """Raises unless the first line names the columns: without it, an image would be lost."""
    head = read_text(path, "a list of images").split("\n", 1)[0]
    if head.split() != HEAD:
        raise DataError(
            f"wanted the columns {' '.join(HEAD)} in the first line of {path}, but it is "
            f"{head[:80]!r}. Unpack the file anew."
        )


STANFORD_PRODUCTS = Dataset(
    says="Stanford Online Products: things for sale (Oh Song et al., CVPR 2016)",
    layout="Ebay_train.txt\nEbay_test.txt\nbicycle_final/111085122871_0.JPG …",
    read=read_stanford_products,
    counts={
        "images": 120_053,
        "train_images": 59_551,
        "train_classes": 11_318,
        "queries": 60_502,
        "gallery": 60_502,
        "search_classes": 11_316,
    },
)
