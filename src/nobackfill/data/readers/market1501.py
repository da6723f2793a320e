"""Market-1501: people in front of a supermarket, found again by other cameras.

Zheng et al., Scalable Person Re-identification: A Benchmark, ICCV 2015.
"""

import os
import re
from pathlib import Path

import numpy as np

from nobackfill.data.listing import Dataset, Listing, require_folder, role_columns
from nobackfill.errors import DataError

ROLES = {"bounding_box_train": "train", "query": "query", "bounding_box_test": "gallery"}
JUNK = "-1"  # neither right nor wrong; "0000" is a distractor, which is wrong
NAME = re.compile(r"(-1|\d{4})_c(\d)s\d_\d+_\d+(\.jpg)+")  # some copies double the ending


def read_market1501(root: Path) -> Listing:
    """Reads the names of the images, which contain person and camera.

    Classes are the four digits of a person. Junk is left out. Distractors stay in the gallery, as
    the class "0000", of which there is no query.

    Args:
        root: Folder that contains the three folders of images.
    """
    files: list[str] = []
    classes: list[str] = []
    cameras: list[int] = []
    roles: list[str] = []
    notes: list[str] = []
    for folder, role in ROLES.items():
        junk = 0
        for name in _image_names(root, folder):
            person, camera = _parse_name(root / folder / name)
            if person == JUNK:
                junk += 1
                continue
            files.append(f"{folder}/{name}")
            classes.append(person)
            cameras.append(camera)
            roles.append(role)
        if junk:
            notes.append(f"{junk:,} junk images (person {JUNK}) in {folder} are left out")
    return Listing(
        root=root,
        files=files,
        classes=np.array(classes),
        columns=role_columns(np.array(roles)) | {"camera": np.array(cameras, dtype=np.int64)},
        notes=tuple(notes),
    )


def _image_names(root: Path, folder: str) -> list[str]:
    """Returns the names of the JPEGs in a folder, in order; the authors left other files there."""
    path = require_folder(root / folder, "images of Market-1501")
    names = sorted(
        name for name in os.listdir(path) if name.endswith(".jpg") and not name.startswith(".")
    )
    if not names:
        raise DataError(f"{path} contains no .jpg. Unpack it again.")
    return names


def _parse_name(path: Path) -> tuple[str, int]:
    """Returns the person and the camera of an image."""
    match = NAME.fullmatch(path.name)
    if match is None:
        raise DataError(
            f"{path.parent} contains {path.name}, which is not a name such as "
            f"0002_c1s1_000451_03.jpg (person, camera, sequence, frame, box). Move files that are "
            f"not of Market-1501 elsewhere."
        )
    return match[1], int(match[2])


MARKET1501 = Dataset(
    description="Market-1501: people found again by other cameras (Zheng et al., ICCV 2015)",
    layout=(
        "bounding_box_train/0002_c1s1_000451_03.jpg …\n"
        "bounding_box_test/0000_c1s1_000151_01.jpg …\n"
        "query/0001_c1s1_001051_00.jpg …"
    ),
    read=read_market1501,
    counts={
        "images": 32_217,
        "train_images": 12_936,
        "train_classes": 751,
        "queries": 3_368,
        "gallery": 15_913,  # 19,732 in the folder, of which 3,819 are junk
        "search_classes": 751,  # 750 people, and the distractors
    },
    protocol="market1501",
)
