"""Any folder of class folders: each of them contains the images of one class."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from nobackfill.data.listing import Dataset, Listing, require_folder
from nobackfill.data.splits import draw_parts
from nobackfill.errors import ConfigError, DataError

TRAIN, SEARCHED = "train", ("validation", "val", "test")
IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")


def read_folder(root: Path, *, validation: float | int = 0.2, seed: int = 0) -> Listing:
    """Reads the images in each class folder. Every searched image is a query for all others.

    If the folder contains `train/` and `validation/` (or `val/`, or `test/`), these contain the
    class folders. Otherwise whole classes are drawn at random for validation. Hidden files, and
    files without the suffix of an image, are ignored.

    Args:
        root: Path of the folder.
        validation: Share of the classes that are searched, if there is no such subfolder.
        seed: Random seed of the draw.
    """
    if not 0 <= validation <= 1:
        raise ConfigError(
            f"`validation`, the share of the classes that are searched, must lie between 0 and 1, "
            f"but it is {validation}. Write e.g. 0.2."
        )
    require_folder(root, "folder of class folders")
    # Find the parts; a single one is split below.
    present = [name for name in SEARCHED if (root / name).is_dir()]
    has_parts = (root / TRAIN).is_dir() and bool(present)
    parts = {"train": TRAIN, "validation": present[0]} if has_parts else {"": ""}

    # List the images of each class.
    files, classes, splits = [], [], []
    ignored = 0
    for split, part in parts.items():
        for name, file in class_files(root, part):
            if name == "" or not is_image(file):
                ignored += 1
                continue
            files.append(file)
            classes.append(name)
            splits.append(split)
    if not files:
        raise DataError(
            f"No images in class folders below {root}; the number of other files is {ignored}. Lay "
            f"the images out as CLASS/IMAGE.jpg; known suffixes: {', '.join(IMAGES)}."
        )
    if not has_parts:
        searched = draw_classes(sorted(set(classes)), validation, seed)
        splits = ["validation" if name in searched else "train" for name in classes]

    notes = []
    if ignored:
        notes.append(f"{ignored:,} files that are no images in a class folder are left out")
    if has_parts:
        notes += [f"{name}/ is left out: {present[0]}/ is searched" for name in present[1:]]
    return Listing(
        root=root,
        files=files,
        classes=np.array(classes),
        columns={"split": np.array(splits)},
        notes=tuple(notes),
    )


def class_files(root: Path, part: str) -> Iterator[tuple[str, str]]:
    """Yields the class and the path of every file below a part of the root, in sorted order.

    The class is the first folder; it is "" for a file outside of any.
    """
    for folder, subfolders, names in os.walk(root / part, followlinks=True):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        inside = Path(folder).relative_to(root / part).parts
        for name in sorted(names):
            path = Path(folder, name).relative_to(root)
            yield inside[0] if inside else "", path.as_posix()


def is_image(file: str) -> bool:
    """Whether a file is an image, judging by its name.

    Example:
        >>> [is_image(file) for file in ("cat/1.JPG", "cat/notes.txt", "cat/._1.jpg")]
        [True, False, False]
    """
    name = file.rsplit("/", 1)[-1]
    return name.lower().endswith(IMAGES) and not name.startswith(".")


def draw_classes(names: list[str], share: float | int, seed: int) -> set[str]:
    """Draws a share of the classes; between 0 and 1, at least one is drawn and one is left."""
    count = round(share * len(names))
    if 0 < share < 1:
        if len(names) < 2:
            raise DataError(
                f"A split requires at least two class folders, one to train on and one to search, "
                f"but there is only {names[0]}. Add others, or set `validation` to 0 or 1."
            )
        count = min(max(count, 1), len(names) - 1)
    drawn, _ = draw_parts(torch.arange(len(names)), [count], seed=seed)
    return {names[place] for place in drawn.tolist()}


FOLDER = Dataset(
    description="any folder of class folders",
    layout=(
        "CLASS/IMAGE.jpg …\n"
        "or train/CLASS/IMAGE.jpg … and validation/CLASS/IMAGE.jpg … (or val/, or test/)"
    ),
    read=read_folder,
)
