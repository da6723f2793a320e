"""Omniglot: handwritten characters of 50 alphabets, each drawn by 20 people.

Lake et al., Human-level concept learning through probabilistic program induction, Science 2015.
"""

import re
from pathlib import Path

import numpy as np

from nobackfill.data.listing import Dataset, Listing, require_folder, split_counts
from nobackfill.errors import DataError

SPLITS = {"images_background": "train", "images_evaluation": "validation"}
NAME = re.compile(r"[^/]+/([^/]+)/([^/]+)/\d+_(\d+)\.png")  # folder, alphabet, character, drawer


def read_omniglot(root: Path) -> Listing:
    """Reads both folders. Every searched image is a query for all others.

    Classes are characters, such as "Latin/character07"; the column `alphabet` groups them, and
    `drawer` is the number of the person who drew the image.

    Args:
        root: Folder that contains `images_background/` and `images_evaluation/`.
    """
    files: list[str] = []
    splits: list[str] = []
    names: list[tuple[str, str, int]] = []  # alphabet, character and drawer
    notes: list[str] = []
    for folder, split in SPLITS.items():
        path = require_folder(root / folder, "images of Omniglot")
        others: list[str] = []
        for file in sorted(p.relative_to(root).as_posix() for p in path.rglob("*") if p.is_file()):
            match = NAME.fullmatch(file)
            if match is None:
                others.append(file)
                continue
            files.append(file)
            splits.append(split)
            names.append((match[1], match[2], int(match[3])))
        if split not in splits:
            raise DataError(
                f"{path} contains no images such as Latin/character07/0001_01.png. Unpack "
                f"{folder}.zip again."
            )
        if others:
            notes.append(f"{len(others):,} other files such as {others[0]} are left out")
    return Listing(
        root=root,
        files=files,
        classes=np.array([f"{alphabet}/{character}" for alphabet, character, _ in names]),
        columns={
            "split": np.array(splits),
            "alphabet": np.array([alphabet for alphabet, _, _ in names]),
            "drawer": np.array([drawer for _, _, drawer in names]),
        },
        notes=tuple(notes),
    )


OMNIGLOT = Dataset(
    description="Omniglot: handwritten characters of 50 alphabets (Lake et al., Science 2015)",
    layout=(
        "images_background/Alphabet_of_the_Magi/character01/0709_01.png …\n"
        "images_evaluation/Angelic/character01/0965_01.png …"
    ),
    read=read_omniglot,
    counts=split_counts(train=(19_280, 964), searched=(13_180, 659)),
)
