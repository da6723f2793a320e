"""In-shop Clothes Retrieval: other photos of the same garment (a part of DeepFashion).

Liu et al., DeepFashion: Powering Robust Clothes Recognition and Retrieval with Rich Annotations,
CVPR 2016.
"""

from pathlib import Path

import numpy as np

from nobackfill.data.listing import (
    Dataset,
    Listing,
    invalid,
    read_table,
    read_text,
    require_folder,
    role_columns,
)

LIST = "list_eval_partition.txt"
WHAT = "the partition of In-shop (in Eval/ or beside it)"
ROLES = ("train", "query", "gallery")


def read_inshop(root: Path) -> Listing:
    """Reads the partition of the images. Classes are garments, such as "id_00000002".

    Args:
        root: Folder that contains the partition, in `Eval/` or itself, and the images, in
            `Img/img/` or `img/`. Ids are the names in the partition, wherever the images are.
    """
    path = root / "Eval" / LIST
    if not path.exists() and (root / LIST).exists():
        path = root / LIST
    # The first line is the number of images, the second names the columns.
    rows = read_table(path, WHAT, separator=None, columns=3, skip=2)
    count = read_text(path, WHAT).split("\n", 1)[0].strip()
    if count != str(len(rows)):
        raise invalid(
            path,
            f"its first line must be the number of images, but it is {count[:80]!r}, and "
            f"{len(rows):,} images follow",
        )
    for file, _, role in rows:
        if role not in ROLES:
            raise invalid(path, f"{file} has {role!r} instead of train, query or gallery")
    files, classes, roles = zip(*rows, strict=True)
    # The authors' archive unpacks to `Img`.
    images = root / "Img" if (root / "Img" / "img").is_dir() else root
    require_folder(images / "img", "images of In-shop (there, or in Img/img)")
    return Listing(
        root=images,
        files=list(files),
        classes=np.array(classes),
        columns=role_columns(np.array(roles)),
    )


INSHOP = Dataset(
    description="In-shop Clothes Retrieval: photos of the same garment (Liu et al., CVPR 2016)",
    layout=(
        "Eval/list_eval_partition.txt (or without Eval/)\n"
        "Img/img/WOMEN/Dresses/id_00000002/02_1_front.jpg … (or without Img/)"
    ),
    read=read_inshop,
    counts={
        "images": 52_712,
        "train_images": 25_882,
        "train_classes": 3_997,
        "queries": 14_218,
        "gallery": 12_612,
        "search_classes": 3_985,
    },
)
