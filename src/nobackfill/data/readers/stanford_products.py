"""Stanford Online Products: objects for sale, photographed by their sellers.

Oh Song et al., Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016.
"""

from pathlib import Path

import numpy as np

from nobackfill.data.listing import (
    Dataset,
    Listing,
    invalid,
    read_table,
    require_folder,
    split_counts,
)

LISTS = {"Ebay_train.txt": "train", "Ebay_test.txt": "validation"}
HEADER = ["image_id", "class_id", "super_class_id", "path"]


def read_stanford_products(root: Path) -> Listing:
    """Reads both lists. Every searched image is a query for all others.

    Classes are the numbers of the objects; the column `kind` is their kind, such as "bicycle".

    Args:
        root: Folder that contains both lists and twelve folders of images.
    """
    require_folder(root, "folder of Stanford Online Products")
    files: list[str] = []
    classes: list[str] = []
    splits: list[str] = []
    for name, split in LISTS.items():
        header, *rows = read_table(root / name, "the list of images", separator=None, columns=4)
        if header != HEADER:  # or an image would be taken for it
            raise invalid(
                root / name,
                f"its first line must be {' '.join(HEADER)}, but it is {' '.join(header)[:80]!r}",
            )
        if not rows:
            raise invalid(root / name, "the list of images is empty")
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


STANFORD_PRODUCTS = Dataset(
    description="Stanford Online Products: things for sale (Oh Song et al., CVPR 2016)",
    layout="Ebay_train.txt\nEbay_test.txt\nbicycle_final/111085122871_0.JPG …",
    read=read_stanford_products,
    counts=split_counts(train=(59_551, 11_318), searched=(60_502, 11_316)),
)
