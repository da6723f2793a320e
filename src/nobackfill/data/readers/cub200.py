"""CUB-200-2011: birds of 200 species.

Wah et al., The Caltech-UCSD Birds-200-2011 Dataset, 2011. Split as metric learning does, since Oh
Song et al., Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016: the first half
of the species is for training, the second is searched, every image asking for all others.
"""

from pathlib import Path

import numpy as np

from nobackfill.data.listing import Dataset, Listing, read_table, require_folder
from nobackfill.errors import DataError

FOLDER = "CUB_200_2011"
LAST_TRAINING_CLASS = 100


def read_cub200(root: Path) -> Listing:
    """Reads the lists of images, labels and species. Ids are as the list names images.

    Args:
        root: The folder that holds the lists and `images/`, or `CUB_200_2011/` with these.
    """
    folder = root / FOLDER if (root / FOLDER).is_dir() else root
    files = read_numbered(folder / "images.txt", "the list of images")
    labels = read_numbered(folder / "image_class_labels.txt", "the classes of the images")
    names = read_numbered(folder / "classes.txt", "the names of the classes")
    for number in files:
        if names.get(labels.get(number, "")) is None:
            raise DataError(
                f"wanted a class of every image, and its name, but in {folder} image {number} "
                f"({files[number]}) has the class {labels.get(number, 'None')}, of the "
                f"{len(names)} that classes.txt names. Unpack all three lists anew."
            )
    numbers = np.array([int(labels[number]) for number in files])
    return Listing(
        root=require_folder(folder / "images", "the images of CUB-200-2011"),
        files=list(files.values()),
        classes=np.array([names[labels[number]] for number in files]),
        columns={"split": np.where(numbers <= LAST_TRAINING_CLASS, "train", "validation")},
    )


def read_numbered(path: Path, what: str) -> dict[str, str]:
    """Returns a list of two columns: a number, and what it stands for."""
    table: dict[str, str] = {}
    for number, value in read_table(path, what, separator=None, columns=2):
        if not number.isdecimal() or number in table:
            problem = "is there twice" if number in table else "is none"
            raise DataError(
                f"wanted every line of {path} to begin with a number of its own, but {number!r} "
                f"{problem}. Unpack the file anew."
            )
        table[number] = value
    return table


CUB200 = Dataset(
    says="CUB-200-2011: birds; 100 species to train on, 100 others searched (Wah et al., 2011)",
    layout=(
        "CUB_200_2011/images.txt (or without CUB_200_2011/, as all below)\n"
        "CUB_200_2011/image_class_labels.txt\n"
        "CUB_200_2011/classes.txt\n"
        "CUB_200_2011/images/001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg …"
    ),
    read=read_cub200,
    counts={
        "images": 11_788,
        "train_images": 5_864,
        "train_classes": 100,
        "queries": 5_924,
        "gallery": 5_924,
        "search_classes": 100,
    },
)
