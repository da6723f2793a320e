"""In-shop Clothes Retrieval: other photos of the same garment (a part of DeepFashion).

Liu et al., DeepFashion: Powering Robust Clothes Recognition and Retrieval with Rich Annotations,
CVPR 2016.
"""

from pathlib import Path

import numpy as np

from nobackfill.data.listing import Dataset, Listing, read_table, read_text, require_folder
from nobackfill.errors import DataError

LIST = "list_eval_partition.txt"
WHAT = "the partition of In-shop (in Eval/ or beside it)"
ROLES = ("train", "query", "gallery")


def read_inshop(root: Path) -> Listing:
    """Reads the partition of the images. Classes are items, such as "id_00000002".

    Args:
        root: The folder that holds the partition, in `Eval/` or itself, and the images, in
            `Img/img/` or `img/`. Ids are as the partition names images, wherever they are.
    """
    path = root / "Eval" / LIST
    if not path.exists() and (root / LIST).exists():
        path = root / LIST
    rows = read_table(path, WHAT, separator=None, columns=3, skip=2)
    _check_head(path, len(rows))
    strange = next((row for row in rows if row[2] not in ROLES), None)
    if strange is not None:
        raise DataError(
            f"wanted train, query or gallery as the third column of {path}, but {strange[0]} has "
            f"{strange[2]!r}. Unpack the file anew."
        )
    files, classes, roles = zip(*rows, strict=True)
    role = np.array(roles)
    return Listing(
        root=_image_root(root),
        files=list(files),
        classes=np.array(classes),
        columns={
            "split": np.where(role == "train", "train", "validation"),
            "is_query": role == "query",
            "is_gallery": role == "gallery",
        },
    )


def _check_head(path: Path, found: int) -> None:
    """Raises unless the first line says how many images follow, and they do."""
    said = read_text(path, WHAT).split("\n", 1)[0].strip()
    if not said.isdecimal():
        raise DataError(
            f"wanted the number of images in the first line of {path} and the names of the columns "
            f"in the second, but the first is {said[:80]!r}. Unpack the file anew."
        )
    if int(said) != found:
        raise DataError(
            f"wanted the {int(said):,} images that the first line of {path} promises, but "
            f"{found:,} follow. Unpack the file anew."
        )


def _image_root(root: Path) -> Path:
    """The folder that holds `img`: `Img`, as it is unpacked by the authors, or the root."""
    if (root / "Img" / "img").is_dir():
        return root / "Img"
    return require_folder(root / "img", "the images of In-shop (there, or in Img/img)").parent


INSHOP = Dataset(
    says="In-shop Clothes Retrieval: other photos of the same garment (Liu et al., CVPR 2016)",
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
