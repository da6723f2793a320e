"""Cars196: cars of 196 makes, models and years.

Krause et al., 3D Object Representations for Fine-Grained Categorization, 2013. Split as in metric
learning: the first half of the classes is for training, the second is searched, and every image is
a query for all others.
"""

from pathlib import Path
from typing import Any

import numpy as np

from nobackfill.data.listing import Dataset, Listing, invalid, require_folder, split_counts
from nobackfill.errors import DataError

LIST = "cars_annos.mat"
LAST_TRAINING_CLASS = 98
REMEDY = f"Fetch {LIST}, the list of all images, again."


def read_cars196(root: Path) -> Listing:
    """Reads the annotations of all images. Ids are their names there, such as car_ims/000001.jpg.

    Args:
        root: Folder that contains `cars_annos.mat` and `car_ims/`.
    """
    path = root / LIST
    contents = read_matlab(path)
    try:
        annotations = contents["annotations"]
        files = [str(file) for file in np.ravel(annotations["relative_im_path"])]
        numbers = np.array([int(number) for number in np.ravel(annotations["class"])])
        names = np.array([str(name) for name in np.ravel(contents["class_names"])])
    except (KeyError, IndexError, TypeError, ValueError):
        raise invalid(path, "it lacks `annotations` and `class_names`", REMEDY) from None
    if not files or numbers.min() < 1 or numbers.max() > len(names):
        raise invalid(path, f"it has {len(files)} images and {len(names)} class names", REMEDY)
    require_folder(root / "car_ims", "images of Cars196")
    return Listing(
        root=root,
        files=files,
        classes=names[numbers - 1],
        columns={"split": np.where(numbers <= LAST_TRAINING_CLASS, "train", "validation")},
    )


def read_matlab(path: Path) -> dict[str, Any]:
    """Reads a MATLAB file; matrices of one value become that value."""
    try:
        from scipy.io import loadmat  # type: ignore[import-untyped]
    except ImportError:
        raise DataError(
            f"Reading {path} requires SciPy, which is not installed. Run `pip install "
            f"'nobackfill[cars196]'`."
        ) from None
    if not path.is_file():
        raise DataError(
            f"No annotations of Cars196 at {path}: the file does not exist. Fetch the list of all "
            f"images; the lists in the devkit, for training and for test, are other files."
        )
    try:
        contents: dict[str, Any] = loadmat(path, squeeze_me=True)
    except Exception as error:  # SciPy raises many kinds of errors for broken files
        raise invalid(path, f"it cannot be read ({error})", REMEDY) from None
    return contents


CARS196 = Dataset(
    description="Cars196: 98 kinds of cars to train on, 98 others searched (Krause et al., 2013)",
    layout="cars_annos.mat\ncar_ims/000001.jpg …",
    read=read_cars196,
    counts=split_counts(train=(8_054, 98), searched=(8_131, 98)),
)
