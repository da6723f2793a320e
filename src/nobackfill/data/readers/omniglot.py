"""Omniglot: handwritten characters of 50 alphabets, each drawn by 20 people.

Lake et al., Human-level concept learning through probabilistic program induction, Science 2015.
"""

import re
from pathlib import Path

import numpy as np

from nobackfill.data.listing import Dataset, Listing, require_folder
from nobackfill.errors import DataError

SPLITS = {"images_background": "train", "images_evaluation": "validation"}
NAME = re.compile(r"\d+_(\d+)\.png")


def read_omniglot(root: Path) -> Listing:
    """Reads both folders, by alphabet, character and drawer. Every image asks for all others.

    Classes are characters, such as "Latin/character07"; the column `alphabet` groups them, and
    `drawer` is the number of the person who drew the image.

    Args:
        root: The folder that holds `images_background/` and `images_evaluation/`.
    """
    files: list[str] = []
    notes: list[str] = []
    for folder in SPLITS:
        path = require_folder(root / folder, "a part of Omniglot")
        names = sorted(
            file.relative_to(root).as_posix() for file in path.rglob("*") if file.is_file()
        )
        images = [name for name in names if is_image_of_character(name)]
        if not images:
            raise DataError(
                f"wanted images such as Latin/character07/0001_01.png in {path}, but there are "
                f"none. Unpack {folder}.zip anew."
            )
        if len(images) < len(names):
            other = next(name for name in names if not is_image_of_character(name))
            notes.append(f"{len(names) - len(images):,} other files such as {other} are left out")
        files += images
    parts = np.array([file.split("/") for file in files])
    splits, alphabets, characters, names_of_images = parts.T
    return Listing(
        root=root,
        files=files,
        classes=np.array(["/".join(pair) for pair in zip(alphabets, characters, strict=True)]),
        columns={
            "split": np.array([SPLITS[folder] for folder in splits]),
            "alphabet": alphabets,
            "drawer": np.array([drawer_of(name) for name in names_of_images]),
        },
        notes=tuple(notes),
    )


def is_image_of_character(name: str) -> bool:
    """Returns whether a file lies where images do, and is called as they are."""
    parts = name.split("/")
    return len(parts) == 4 and NAME.fullmatch(parts[-1]) is not None


def drawer_of(name: str) -> int:
    """Returns the number of the person who drew an image.

    Example:
        >>> drawer_of("0709_17.png")
        17
    """
    match = NAME.fullmatch(name)
    assert match is not None, "only images come here"
    return int(match[1])


OMNIGLOT = Dataset(
    says="Omniglot: handwritten characters of 50 alphabets (Lake et al., Science 2015)",
    layout=(
        "images_background/Alphabet_of_the_Magi/character01/0709_01.png …\n"
        "images_evaluation/Angelic/character01/0965_01.png …"
    ),
    read=read_omniglot,
    counts={
        "images": 32_460,
        "train_images": 19_280,
        "train_classes": 964,
        "queries": 13_180,
        "gallery": 13_180,
        "search_classes": 659,
    },
)
