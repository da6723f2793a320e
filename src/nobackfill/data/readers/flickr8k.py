"""Flickr8k: photos, each described by five people.

Hodosh, Young and Hockenmaier, Framing Image Description as a Ranking Task, JAIR 2013.
"""

from pathlib import Path
from typing import Literal

import numpy as np

from nobackfill.data.listing import Dataset, Listing, read_table, require_folder
from nobackfill.errors import DataError

CAPTIONS = "Flickr8k.token.txt"
LISTS = {
    "Flickr_8k.trainImages.txt": "train",
    "Flickr_8k.devImages.txt": "dev",
    "Flickr_8k.testImages.txt": "test",
}


def read_flickr8k(root: Path, *, searched: Literal["test", "dev"] = "test") -> Listing:
    """Reads the three lists and the captions. The class of an image is the image itself.

    The test images are the gallery. Queries are texts, the captions of the gallery: no image is
    one, so `is_query` is False throughout. Images of the development list, and those with captions
    that are in no list, get the split "unused".

    Args:
        root: The folder that holds the texts, in `Flickr8k_text/` or itself, and the images, in
            `Flicker8k_Dataset/` (as the authors spell it) or `Images/`. Ids are the bare names of
            the images, wherever they are.
        searched: Which images are the gallery: to choose settings by, those of the "dev" list.
    """
    texts = root / "Flickr8k_text"
    texts = texts if texts.is_dir() else root
    captions = _read_captions(texts / CAPTIONS)
    files: list[str] = []
    splits: list[str] = []
    for list_name, use in LISTS.items():
        split = "validation" if use == searched else "train" if use == "train" else "unused"
        rows = read_table(texts / list_name, "a list of Flickr8k", separator="\t", columns=1)
        names = [row[0] for row in rows]
        files += names
        splits += [split] * len(names)
        silent = next((name for name in names if name not in captions), None)
        if silent is not None:
            raise DataError(
                f"wanted captions of every image of {list_name}, but {texts / CAPTIONS} has none "
                f"of {silent}. Unpack both anew."
            )
    listed = set(files)
    without_file = [name for name in captions if not name.endswith(".jpg")]
    rest = [name for name in captions if name not in listed and name.endswith(".jpg")]
    split_of = np.array(splits + ["unused"] * len(rest))
    files += rest
    notes = [
        f"{len(captions[name])} captions of {name}, a file that was never given out, are left out"
        for name in without_file
    ]
    return Listing(
        root=_image_folder(root),
        files=files,
        classes=np.array(files),
        columns={
            "split": split_of,
            "is_query": np.zeros(len(files), dtype=bool),
            "is_gallery": split_of == "validation",
        },
        captions=[tuple(captions[name].values()) for name in files],
        notes=("queries are texts: the captions of the gallery", *notes),
    )


def _read_captions(path: Path) -> dict[str, dict[str, str]]:
    """The captions of each image, by their number."""
    captions: dict[str, dict[str, str]] = {}
    for key, text in read_table(path, "the captions of Flickr8k", separator="\t", columns=2):
        name, hash_sign, number = key.rpartition("#")
        if not hash_sign:
            raise DataError(
                f"wanted captions keyed by image and number, such as 1000268201_693b08cb0e.jpg#0, "
                f"but {path} has the key {key!r}. Unpack the file anew."
            )
        of_image = captions.setdefault(name, {})
        if number in of_image:
            raise DataError(
                f"wanted every caption once, but {path} has {key} twice. Remove one of the lines."
            )
        of_image[number] = text
    return captions


def _image_folder(root: Path) -> Path:
    official, other = root / "Flicker8k_Dataset", root / "Images"
    if other.is_dir() and not official.is_dir():
        return other
    return require_folder(official, "the images of Flickr8k (there, or in Images/)")


FLICKR8K = Dataset(
    says="Flickr8k: photos, each described by five people (Hodosh et al., JAIR 2013)",
    layout=(
        "Flickr8k_text/Flickr8k.token.txt (or without Flickr8k_text/, as the next three)\n"
        "Flickr8k_text/Flickr_8k.trainImages.txt\n"
        "Flickr8k_text/Flickr_8k.devImages.txt\n"
        "Flickr8k_text/Flickr_8k.testImages.txt\n"
        "Flicker8k_Dataset/1000268201_693b08cb0e.jpg … (or Images/)"
    ),
    read=read_flickr8k,
    protocol="flickr8k",
    counts={
        "images": 8_091,  # 91 of them are in no list
        "train_images": 6_000,
        "train_classes": 6_000,
        "gallery": 1_000,
        "search_classes": 1_000,
        "captions": 40_455,
    },
)
