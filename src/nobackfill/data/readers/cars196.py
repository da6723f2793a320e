"""Cars196: cars of 196 makes, models and years.

Krause et al., 3D Object Representations for Fine-Grained Categorization, 2013. Split as metric
learning does: the first half of the classes is for training, the second is searched, every image
asking for all others.
"""

from pathlib import Path
from typing import Any

import numpy as np

from nobackfill.data.listing import Dataset, Listing, require_folder
from nobackfill.errors import DataError

LIST = "cars_annos.mat"
LAST_TRAINING_CLASS = 98


def read_cars196(root: Path) -> Listing:
    """Reads the annotations of all images. Ids are as they name images, such as car_ims/000001.jpg.

    Args:
        root: The folder that holds `cars_annos.mat` and `car_ims/`.
    """
    path = root / LIST
    contents = read_matlab(path)
    try:
        notes = contents["annotations"]
        files = [str(file) for file in np.ravel(notes["relative_im_path"])]
        numbers = np.array([int(number) for number in np.ravel(notes["class"])])
        names = np.array([str(name) for name in np.ravel(contents["class_names"])])
    except (KeyError, IndexError, TypeError, ValueError):
        raise not_the_list(path, "without `annotations` and `class_names`") from None
    if not files or numbers.min() < 1 or numbers.max() > len(names):
        raise not_the_list(path, f"with {len(files)} images and {len(names)} names of classes")
    require_folder(root / "car_ims", "the images of Cars196")
    return Listing(
        root=root,
        files=files,
        classes=names[numbers - 1],
        columns={"split": np.where(numbers <= LAST_TRAINING_CLASS, "train", "validation")},
    )


def read_matlab(path: Path) -> dict[str, Any]:
    """Returns what a MATLAB file holds, one value where MATLAB has a matrix of one."""
    try:
        from scipy.io import loadmat  # type: ignore[import-untyped]
    except ImportError:
        raise DataError(
            f"wanted SciPy to read {path}, but it is not installed. Run `pip install "
            f"'nobackfill[cars196]'`."
        ) from None
    if not path.is_file():
        raise DataError(
            f"wanted the annotations of Cars196 at {path}, but there is no such file. Fetch the "
            f"list of all images; those of the devkit, for training and for test, are others."
        )
    try:
        contents: dict[str, Any] = loadmat(path, squeeze_me=True)
    except Exception as error:  # SciPy raises many kinds of errors about broken files
        raise not_the_list(path, f"which cannot be read: {error}") from None
    return contents


def not_the_list(path: Path, how: str) -> DataError:
    """Returns the error for a file that is not the list of all cars."""
    return DataError(
        f"wanted the annotations of all images of Cars196, but {path} is a file {how}. Fetch "
        f"{LIST} anew."
    )


CARS196 = Dataset(
    says="Cars196: 98 kinds of cars to train on, 98 others searched (Krause et al., 2013)",
    layout="cars_annos.mat\ncar_ims/000001.jpg …",
    read=read_cars196,
    counts={
        "images": 16_185,
        "train_images": 8_054,
        "train_classes": 98,
        "queries": 8_131,
        "gallery": 8_131,
        "search_classes": 98,
    },
)
