"""Any folder of class folders: a class is what lies in one folder."""

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
    """Reads the images below each class folder. Every image that is searched asks for all others.

    Where the folder holds `train/` and `validation/` (or `val/`, or `test/`), class folders are
    looked for in these. Otherwise whole classes are drawn at random to be searched. Files that are
    no images by their suffix, and hidden ones, are passed over.

    Args:
        root: The folder.
        validation: The share of the classes that are searched, where there is no such subfolder.
        seed: Another seed draws other classes.
    """
    if not 0 <= validation <= 1:
        raise ConfigError(
            f"wanted `validation`, the share of the classes that are searched, between 0 and 1, "
            f"but got {validation}. Write e.g. 0.2."
        )
    require_folder(root, "a folder of class folders")
    parts = find_parts(root)
    files, classes, splits = [], [], []
    passed_over = 0
    for split, part in parts.items():
        for name, file in walk(root, part):
            if name == "" or not is_image(file):
                passed_over += 1
                continue
            files.append(file)
            classes.append(name)
            splits.append(split)
    if not files:
        raise DataError(
            f"wanted images in class folders below {root}, but found none among {passed_over} "
            f"files. Lay them out as CLASS/IMAGE.jpg; known suffixes: {', '.join(IMAGES)}."
        )
    if len(parts) == 1:
        searched = draw_classes(sorted(set(classes)), validation, seed)
        splits = ["validation" if name in searched else "train" for name in classes]
    notes = []
    if passed_over:
        notes.append(f"{passed_over:,} files that are no images in a class folder are left out")
    if len(parts) == 2:
        others = [
            name for name in SEARCHED if (root / name).is_dir() and name not in parts.values()
        ]
        notes += [f"{name}/ is left out: {parts['validation']}/ is searched" for name in others]
    return Listing(
        root=root,
        files=files,
        classes=np.array(classes),
        columns={"split": np.array(splits)},
        notes=tuple(notes),
    )


def find_parts(root: Path) -> dict[str, str]:
    """Returns where each split lies; where there is one part, it is the whole folder, not split."""
    found = [name for name in SEARCHED if (root / name).is_dir()]
    if (root / TRAIN).is_dir() and found:
        return {"train": TRAIN, "validation": found[0]}
    return {"": ""}


def walk(root: Path, part: str) -> Iterator[tuple[str, str]]:
    """Yields the class and the path of every file below a part of the root, in sorted order.

    The class is the first folder; a file outside of any has the class "".
    """
    for folder, subfolders, names in os.walk(root / part, followlinks=True):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        inside = Path(folder).relative_to(root / part).parts
        for name in sorted(names):
            path = Path(folder, name).relative_to(root)
            yield inside[0] if inside else "", path.as_posix()


def is_image(file: str) -> bool:
    """Returns whether a file is to be taken for an image, by its name.

    Example:
        >>> [is_image(file) for file in ("cat/1.JPG", "cat/notes.txt", "cat/._1.jpg")]
        [True, False, False]
    """
    name = file.rsplit("/", 1)[-1]
    return name.lower().endswith(IMAGES) and not name.startswith(".")


def draw_classes(names: list[str], share: float | int, seed: int) -> set[str]:
    """Returns a share of the classes, at random; of a true share, some are left on either side."""
    count = round(share * len(names))
    if 0 < share < 1:
        if len(names) < 2:
            raise DataError(
                f"wanted two class folders at least, one to train on and one to search, but found "
                f"only {names[0]}. Add others, or set `validation` to 0 or 1."
            )
        count = min(max(count, 1), len(names) - 1)
    drawn, _ = draw_parts(torch.arange(len(names)), [count], seed=seed)
    return {names[place] for place in drawn.tolist()}


FOLDER = Dataset(
    says="any folder of class folders",
    layout=(
        "CLASS/IMAGE.jpg …\n"
        "or train/CLASS/IMAGE.jpg … and validation/CLASS/IMAGE.jpg … (or val/, or test/)"
    ),
    read=read_folder,
)
