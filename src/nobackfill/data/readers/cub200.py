"""CUB-200-2011: birds of 200 species.

Wah et al., The Caltech-UCSD Birds-200-2011 Dataset, 2011. Split as in metric learning since Oh Song
et al., Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016: the first half of
the species is for training, the second is searched, and every image is a query for all others.
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

FOLDER = "CUB_200_2011"
LAST_TRAINING_CLASS = 100


def read_cub200(root: Path) -> Listing:
    """Reads the lists of images, labels and species. Ids are the names in the list of images.

    Args:
        root: Folder that contains the lists and `images/`, or `CUB_200_2011/` with these.
    """
    folder = root / FOLDER if (root / FOLDER).is_dir() else root
    files = read_numbered(folder / "images.txt", "the list of images")
    labels = read_numbered(folder / "image_class_labels.txt", "the classes of the images")
    names = read_numbered(folder / "classes.txt", "the names of the classes")
    for number, file in files.items():
        if labels.get(number) not in names:
            raise invalid(
                folder / "image_class_labels.txt",
                f"image {number} ({file}) has the class {labels.get(number)}, which is none of the "
                f"{len(names)} in classes.txt",
                "Unpack all three lists again.",
            )
    numbers = np.array([int(labels[number]) for number in files])
    return Listing(
        root=require_folder(folder / "images", "images of CUB-200-2011"),
        files=list(files.values()),
        classes=np.array([names[labels[number]] for number in files]),
        columns={"split": np.where(numbers <= LAST_TRAINING_CLASS, "train", "validation")},
    )


def read_numbered(path: Path, what: str) -> dict[str, str]:
    """Reads a list of two columns: a unique number, and its value."""
    table: dict[str, str] = {}
    for number, value in read_table(path, what, separator=None, columns=2):
        if not number.isdecimal() or number in table:
            problem = "is repeated" if number in table else "is not a number"
            raise invalid(path, f"a line starts with {number!r}, which {problem}")
        table[number] = value
    return table


CUB200 = Dataset(
    description="CUB-200-2011: birds; 100 species to train on, 100 searched (Wah et al., 2011)",
    layout=(
        "CUB_200_2011/images.txt (or without CUB_200_2011/, as all below)\n"
        "CUB_200_2011/image_class_labels.txt\n"
        "CUB_200_2011/classes.txt\n"
        "CUB_200_2011/images/001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg …"
    ),
    read=read_cub200,
    counts=split_counts(train=(5_864, 100), searched=(5_924, 100)),
)
